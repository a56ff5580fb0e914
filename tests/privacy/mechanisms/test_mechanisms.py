"""The Laplace mechanism, and graph-homomorphic perturbations that use it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.privacy.mechanisms.homomorphic import (
    check_combination_matrix,
    combined_noise,
    homomorphic_noise,
    network_sum,
)
from trellis.privacy.mechanisms.laplace import (
    l1_from_l2,
    laplace_epsilon,
    laplace_noise,
    laplace_scale,
)

# --- Laplace ---------------------------------------------------------------------------------


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e6))
def test_scale_and_epsilon_are_inverse_on_the_private_side(epsilon, sensitivity):
    scale = laplace_scale(epsilon, sensitivity)
    assert laplace_epsilon(scale, sensitivity) <= epsilon
    assert laplace_epsilon(scale, sensitivity) == pytest.approx(epsilon, rel=1e-12)


@given(st.floats(0.01, 10.0), st.floats(0.01, 10.0), st.floats(-50.0, 50.0))
def test_the_density_ratio_is_within_epsilon(epsilon, sensitivity, x):
    scale = laplace_scale(epsilon, sensitivity)
    loss = (abs(x - sensitivity) - abs(x)) / scale  # the log ratio of the two densities at x
    assert abs(loss) <= epsilon * (1 + 1e-9) + 1e-12


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_the_l1_bound_follows_from_the_l2_bound(vector):
    v = np.array(vector)
    bound = float(np.linalg.norm(v)) + 1e-9
    assert np.abs(v).sum() <= l1_from_l2(bound, v.size) * (1 + 1e-12)
    # and no smaller bound does
    same = np.full(v.size, bound / math.sqrt(v.size))
    assert np.abs(same).sum() == pytest.approx(l1_from_l2(bound, v.size))


def test_laplace_noise_has_its_law():
    draws = laplace_noise(np.random.default_rng(1), 100_000, 0.7)
    assert stats.kstest(draws, stats.laplace(scale=0.7).cdf).pvalue > 1e-4
    assert np.corrcoef(np.abs(draws), np.sign(draws))[0, 1] == pytest.approx(0.0, abs=0.02)


def test_a_uniform_at_either_end_gives_finite_noise():
    class Ends:
        def random(self, size):
            return np.resize([0.0, 1.0], size)

    assert np.all(np.isfinite(laplace_noise(Ends(), 4, 1.0)))


def test_no_noise_is_no_privacy():
    assert laplace_epsilon(0.0, 1.0) == math.inf


@pytest.mark.parametrize(
    ("call", "match"),
    [(lambda: laplace_scale(0.0, 1.0), "epsilon=0.0"),
     (lambda: laplace_scale(math.nan, 1.0), "epsilon=nan"),
     (lambda: laplace_scale(1.0, -2.0), "sensitivity_l1=-2.0"),
     (lambda: laplace_scale(1e-300, 1e300), "overflows"),
     (lambda: laplace_epsilon(-1.0, 1.0), "scale=-1.0"),
     (lambda: l1_from_l2(math.inf, 2), "bound=inf"),
     (lambda: l1_from_l2(1.0, 0), "dimension=0"),
     (lambda: laplace_noise(np.random.default_rng(0), 3, 0.0), "scale=0.0"),
     (lambda: laplace_noise(np.random.default_rng(0), -3, 1.0), "size=-3")],
)  # fmt: skip
def test_out_of_range_is_named(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# --- graph-homomorphic perturbations ---------------------------------------------------------


def metropolis(adjacency):
    """a_mp = 1 / (1 + max degree) on edges, the rest on the diagonal."""
    edges = np.asarray(adjacency, dtype=bool) & ~np.eye(len(adjacency), dtype=bool)
    degree = edges.sum(axis=1)
    a = np.where(edges, 1.0 / (1.0 + np.maximum(degree[:, None], degree[None, :])), 0.0)
    return a + np.diag(1.0 - a.sum(axis=1))


def ring(size):
    return np.roll(np.eye(size), 1, axis=0) + np.roll(np.eye(size), -1, axis=0)


def star(size):
    adjacency = np.zeros((size, size))
    adjacency[0, 1:] = adjacency[1:, 0] = 1
    return adjacency


def random_graph(size, seed):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((size, size)) < 0.3, 1)
    return (upper | upper.T | (ring(size) > 0)).astype(float)  # the ring keeps it connected


GRAPHS = {
    "ring": ring(9), "star": star(8), "complete": np.ones((6, 6)), "pair": ring(2),
    "random": random_graph(30, 0),
}  # fmt: skip


@pytest.mark.parametrize("adjacency", GRAPHS.values(), ids=GRAPHS.keys())
def test_the_network_sum_is_zero_25(adjacency):
    a = metropolis(adjacency)
    draws = 20.0 * np.random.default_rng(3).standard_normal((len(a), 4))
    noise = homomorphic_noise(a, draws)
    size = np.einsum("mp,mpi->i", a, np.abs(noise))
    assert np.all(np.abs(network_sum(a, noise)) <= 1e-12 * size)
    combined = combined_noise(a, draws)
    assert np.all(np.abs(combined.sum(axis=0)) <= 1e-12 * size)
    np.testing.assert_allclose(combined, np.einsum("mp,mpi->pi", a, noise), atol=1e-12 * size.max())
    np.testing.assert_allclose(combined, a @ draws - draws, atol=1e-11)


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 25), st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_the_sum_is_zero_on_any_connected_graph_and_scale(size, seed, scale):
    a = metropolis(random_graph(size, seed))
    draws = laplace_noise(np.random.default_rng(seed), size * 3, scale).reshape(size, 3)
    noise = homomorphic_noise(a, draws)
    total = np.einsum("mp,mpi->i", a, np.abs(noise))
    assert np.all(np.abs(network_sum(a, noise)) <= 1e-12 * total)
    for m in range(size):  # (24): the same to every neighbour, nothing to strangers
        for p in range(size):
            if m != p:
                np.testing.assert_array_equal(noise[m, p], draws[m] if a[m, p] > 0 else 0.0)


def test_row_sums_off_by_less_than_the_tolerance_leave_no_noise():
    a = metropolis(ring(5)) * (1 + 5e-10)
    noise = homomorphic_noise(a, np.full((5, 1), 1e6))
    assert abs(network_sum(a, noise)[0]) < 1e-12 * 1e6 * 5


def test_all_neighbours_and_one_client_of_a_server_remove_its_noise():
    """What the module says is not covered, done."""
    rng = np.random.default_rng(0)
    a = metropolis(random_graph(6, 1))
    psi, draws = rng.standard_normal((6, 3)), 100 * rng.standard_normal((6, 3))
    messages = psi[:, None, :] + homomorphic_noise(a, draws)
    w = np.einsum("mp,mpi->pi", a, messages)
    m = 2
    others = [p for p in range(6) if p != m]
    sent = messages[m, next(p for p in others if a[m, p] > 0)]  # psi_m + g_m
    own = w[m] - sum(a[p, m] * messages[p, m] for p in others)  # a psi_m - (1 - a) g_m
    np.testing.assert_allclose((1 - a[m, m]) * sent + own, psi[m], atol=1e-10)


def test_the_rate_of_agreement_is_the_second_eigenvalue():
    assert check_combination_matrix(np.full((4, 4), 0.25)) == pytest.approx(0.0, abs=1e-12)
    expected = (1 + 2 * math.cos(2 * math.pi / 9)) / 3
    assert check_combination_matrix(metropolis(ring(9))) == pytest.approx(expected)
    assert check_combination_matrix([[1.0]]) == 0.0
    assert check_combination_matrix(metropolis(ring(100))) < 1.0


def changed(**entries):
    a = metropolis(ring(4))
    for key, value in entries.items():
        a[int(key[1]), int(key[2])] = value
    return a


NEIGHBOURHOOD = (star(4) + np.eye(4)) / (star(4) + np.eye(4)).sum(axis=0)


@pytest.mark.parametrize(
    ("matrix", "match"),
    [(np.ones((2, 3)), r"shape \(2, 3\)"), (np.zeros((0, 0)), "square"),
     (changed(_12=math.nan), r"a\[1, 2\] = nan is not finite"),
     (changed(_01=-0.1), r"a\[0, 1\] = -0.1 is negative"),
     (changed(_01=0.5), r"not symmetric, a\[0, 1\] = 0.5 but a\[1, 0\] = 0.333333"),
     (NEIGHBOURHOOD, r"plain averages over neighbourhoods\): not symmetric, a\[0, 1\] = 0.5"),
     (NEIGHBOURHOOD.T, "plain averages over neighbourhoods"),
     (changed(_22=0.4), "row 2 sums to 1.0666.*not 1; use"),
     (np.round(metropolis(ring(4)), 6), "sums to 0.999999, not 1; was it rounded"),
     (np.array([[0.0, 1.0], [1.0, 0.0]]), r"a\[0, 0\] = 0"),
     (np.kron(np.eye(2), np.full((2, 2), 0.5)),
      r"2 components \(lambda_2 = 1\), no path leads from server 0 to server 2")],
)  # fmt: skip
def test_an_invalid_combination_matrix_is_refused_by_name(matrix, match):
    with pytest.raises(ValueError, match=match):
        check_combination_matrix(matrix)


def test_draws_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="each of 4 servers"):
        homomorphic_noise(metropolis(ring(4)), np.ones((3, 2)))
