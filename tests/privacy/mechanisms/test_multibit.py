from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.privacy.mechanisms.multibit import (
    MultiBit,
    _flip_threshold,
    best_m,
    bit_probability,
    double_squared_distances,
    encode,
    encode_twice,
    log_probability,
    naive_squared_distances,
    rectify,
    row_budget,
    simplex_squared_distances,
)


def outputs(h: int, m: int) -> np.ndarray:
    """Every row the encoder can send."""
    rows = [row for row in itertools.product((-1, 0, 1), repeat=h) if np.count_nonzero(row) == m]
    return np.array(rows, dtype=np.int8)


def law(row, code: MultiBit) -> np.ndarray:
    rows = outputs(code.h, code.m)
    return np.exp(log_probability(rows, np.tile(row, (len(rows), 1)), code))


def true_distances(x) -> np.ndarray:
    return ((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2)


def expected_distance(x, code: MultiBit, estimate) -> float:
    """The mean of estimate(rows)[0, 1] over all outputs of two rows, by enumeration."""
    rows = outputs(code.h, code.m)
    first, second = law(x[0], code), law(x[1], code)
    values = np.array([[estimate(np.stack([a, b]))[0, 1] for b in rows] for a in rows])
    return float(first @ values @ second)


CODES = [
    MultiBit(3, 2.0, 1), MultiBit(3, 2.0, 2), MultiBit(3, 5.0, 3, -1.0, 2.0),
    MultiBit(4, 0.3, 2, -0.5, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("code", CODES, ids=str)
def test_the_epsilon_by_enumeration_is_the_claim_and_not_more(code):
    corners = list(itertools.product((code.alpha, code.beta), repeat=code.h))
    corners += [(code.middle,) * code.h]
    logs = np.log([law(row, code) for row in corners])
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-12)
    worst = (logs.max(axis=0) - logs.min(axis=0)).max()
    assert worst <= code.eps_row * (1 + 1e-12)
    assert worst == pytest.approx(code.eps_row)  # it is attained at opposite corners


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.data(), st.floats(0.01, 20.0), st.floats(-5.0, 5.0))
def test_no_two_rows_are_further_apart_than_eps_row(h, data, eps_row, alpha):
    code = MultiBit(h, eps_row, data.draw(st.integers(1, h)), alpha, alpha + 1.5)
    inside = st.lists(st.floats(code.alpha, code.beta), min_size=h, max_size=h)
    one, two = (np.log(law(data.draw(inside), code)) for _ in range(2))
    assert np.abs(one - two).max() <= eps_row * (1 + 1e-9) + 1e-12


def test_the_bit_actually_drawn_is_flipped_no_less_than_claimed():
    """The realised flip probability on either grid of uniforms, k 2^-53 and (k + 1/2) 2^-53."""
    for budget in (1e-6, 0.5, 2.18, 12.5, 30.0, 45.0):
        wanted = 1.0 / (math.exp(budget) + 1.0)
        threshold = _flip_threshold(budget)
        for offset in (0.0, 0.5):
            realised = math.ceil(threshold * 2.0**53 - offset) / 2.0**53
            assert wanted <= realised <= wanted + 2.0**-51


@pytest.mark.parametrize("code", CODES, ids=str)
def test_the_encoder_has_its_law(code):
    rng = np.random.default_rng(7)
    row = rng.uniform(code.alpha, code.beta, code.h)
    draws = 40_000
    encoded = encode(np.tile(row, (draws, 1)), code, rng)
    assert encoded.dtype == np.int8
    rows = outputs(code.h, code.m)
    powers = 3 ** np.arange(code.h)
    counts = np.array([np.sum(encoded @ powers == key) for key in rows @ powers])
    assert counts.sum() == draws
    assert stats.chisquare(counts, law(row, code) * draws).pvalue > 1e-4


@pytest.mark.parametrize("code", CODES, ids=str)
def test_the_rectifier_is_unbiased_by_enumeration(code):
    row = np.random.default_rng(1).uniform(code.alpha, code.beta, code.h)
    mean = law(row, code) @ rectify(outputs(code.h, code.m), code)
    np.testing.assert_allclose(mean, row, atol=1e-12)


def test_the_rectifier_is_the_formula():
    code = MultiBit(6, 3.0, 2, -1.0, 3.0)
    encoded = encode(np.full((1, 6), 0.5), code, np.random.default_rng(0))
    expected = 6 * 4.0 / (2 * 2 * math.tanh(1.5 / 2)) * encoded + 1.0
    np.testing.assert_allclose(rectify(encoded, code), expected)


@pytest.mark.parametrize(
    "code", [MultiBit(3, 2.0, 2), MultiBit(3, 4.0, 3), MultiBit(3, 2.0, 2, -0.5, 1.5)], ids=str
)
def test_the_simplex_distance_is_unbiased_by_enumeration(code):
    x = np.array([[0.1, 0.7, 0.2], [0.5, 0.25, 0.25]])
    mean = expected_distance(x, code, lambda rows: simplex_squared_distances(rows, code))
    assert mean == pytest.approx(true_distances(x)[0, 1], abs=1e-12)


@pytest.mark.parametrize("half", [MultiBit(3, 2.0, 2), MultiBit(3, 1.0, 1, -1.0, 2.0)], ids=str)
def test_the_double_distance_is_unbiased_by_enumeration(half):
    x = np.array([[0.1, 0.9, -0.3], [0.5, 0.2, 0.8]]).clip(half.alpha, half.beta)
    rows, k = outputs(3, half.m), len(outputs(3, half.m))
    one, two = law(x[0], half), law(x[1], half)
    # All (first, second) encodings of both nodes: a batch of nodes stands for the four choices.
    mean = 0.0
    for a, b in itertools.product(range(k), repeat=2):  # node 0's two encodings
        first = np.concatenate([rows[[a]], np.repeat(rows, k, axis=0)])
        second = np.concatenate([rows[[b]], np.tile(rows, (k, 1))])
        distances = double_squared_distances(first, second, half)[0, 1:]
        mean += one[a] * one[b] * (np.outer(two, two).ravel() @ distances)
    assert mean == pytest.approx(true_distances(x)[0, 1], abs=1e-12)


def test_the_naive_distance_is_biased_by_what_its_docstring_says():
    code = MultiBit(3, 2.0, 2)
    x = np.array([[0.1, 0.7, 0.2], [0.5, 0.25, 0.25]])
    mean = expected_distance(x, code, lambda rows: naive_squared_distances(rectify(rows, code)))
    extra = 2 * code.m * code.scale**2 - ((x - code.middle) ** 2).sum()
    assert mean == pytest.approx(true_distances(x)[0, 1] + extra, abs=1e-12)
    assert extra > 10  # against a distance below one
    np.testing.assert_allclose(naive_squared_distances(x), true_distances(x), atol=1e-15)


def test_both_distances_are_unbiased_by_monte_carlo():
    rng = np.random.default_rng(5)
    x = rng.dirichlet(np.ones(8), size=12)
    code = MultiBit.best(8, 30.0)
    assert code.m >= 2
    off = ~np.eye(12, dtype=bool)
    estimates = {"simplex": [], "double": []}
    for _ in range(1500):
        estimates["simplex"].append(simplex_squared_distances(encode(x, code, rng), code)[off])
        pair = encode_twice(x, code, rng)
        estimates["double"].append(double_squared_distances(*pair, code.halved())[off])
    for name, draws in estimates.items():
        stacked = np.array(draws)
        error = stacked.std(axis=0) / math.sqrt(len(stacked))
        z = (stacked.mean(axis=0) - true_distances(x)[off]) / error
        assert np.abs(z).max() < 5.0, name


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(1, 20), st.data(), st.floats(1e-3, 100.0))
def test_every_row_has_m_signs_and_distances_are_symmetric(n, h, data, eps_row):
    code = MultiBit(h, eps_row, data.draw(st.integers(1, h)), -1.0, 1.0)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x = rng.uniform(-1.0, 1.0, (n, h))
    encoded = encode(x, code, rng)
    assert np.all(np.count_nonzero(encoded, axis=1) == code.m)
    assert set(np.unique(encoded)) <= {-1, 0, 1}
    pair = encode_twice(x, code, rng)
    for distances in (
        naive_squared_distances(encoded), double_squared_distances(*pair, code.halved())
    ):  # fmt: skip
        assert distances.shape == (n, n)
        np.testing.assert_allclose(distances, distances.T)
        assert np.all(np.diagonal(distances) == 0.0)


def test_the_two_halves_cost_what_one_costs():
    code = MultiBit.best(16, 20.0)
    assert 2 * code.halved().eps_row == code.eps_row
    assert (code.m, code.halved().m) == (9, 4)


@pytest.mark.parametrize(
    ("eps_row", "h", "m"), [(0.01, 16, 1), (2.17, 16, 1), (4.36, 16, 2), (200.0, 16, 16)]
)
def test_best_m(eps_row, h, m):
    assert best_m(eps_row, h) == m


def test_the_budget_per_node_and_per_graph():
    assert row_budget(3.0, 20, "node") == 3.0
    assert row_budget(3.0, 20, "graph") == pytest.approx(0.15)


def test_bit_probability_spans_the_randomised_response():
    code = MultiBit(2, 2.0, 1, -1.0, 1.0)
    e = math.exp(2.0)
    np.testing.assert_allclose(
        bit_probability([[-1.0, 1.0], [0.0, 0.0]], code), [[1 / (e + 1), e / (e + 1)], [0.5, 0.5]]
    )
    assert log_probability([[1, 1]], [[0.0, 0.0]], code)[0] == -math.inf


def test_rounding_beyond_the_range_is_clipped():
    ones = np.full((3, 4), np.float32(1.0) + np.finfo(np.float32).eps)
    np.testing.assert_array_less(bit_probability(ones, MultiBit(4, 2.0, 2)), 1.0)


@pytest.mark.parametrize(
    ("call", "match"),
    [(lambda: MultiBit(3, 0.0, 1), "eps_row=0.0"), (lambda: MultiBit(3, 1.0, 4), "m=4"),
     (lambda: MultiBit(3, 1e-13, 1), "eps_row=1e-13"), (lambda: best_m(0.0, 3), "eps_row=0.0"),
     (lambda: MultiBit(3, 1.0, 1, 1.0, 1.0), "alpha=1.0, beta=1.0"),
     (lambda: row_budget(-1.0, 3, "node"), "epsilon=-1.0"),
     (lambda: row_budget(1.0, 0, "graph"), "nodes=0"),
     (lambda: row_budget(1.0, 3, "edge"), "per='edge'"),
     (lambda: encode([[0.0, 2.0]], MultiBit(2, 1.0, 1), np.random.default_rng(0)),
      r"values\[0, 1\] = 2.0"),
     (lambda: encode([[0.0, math.nan]], MultiBit(2, 1.0, 1), np.random.default_rng(0)), "nan"),
     (lambda: encode([[0.0]], MultiBit(2, 1.0, 1), np.random.default_rng(0)), "h=2"),
     (lambda: rectify([[1, 1]], MultiBit(2, 1.0, 1)), "row 0 is not m=1"),
     (lambda: rectify([[2, 0]], MultiBit(2, 1.0, 1)), "row 0 is not m=1"),
     (lambda: simplex_squared_distances([[1, 0]], MultiBit(2, 1.0, 1)), "need m >= 2")],
)  # fmt: skip
def test_out_of_range_is_named(call, match):
    with pytest.raises(ValueError, match=match):
        call()
