"""The two joint proxes: against CVXPY, and that no entry does better."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trellis.strategies.joint_precision.prox import (
    PENALTIES,
    connected,
    fused_prox,
    group_prox,
    soft_threshold,
)

BOTH = pytest.mark.parametrize("name", ["group", "fused"])
REALS = st.floats(-10.0, 10.0, allow_subnormal=False)


def objective(name, x, b, lambda1, lambda2):
    return 0.5 * float(np.sum((x - b) ** 2)) + PENALTIES[name].value(x, lambda1, lambda2)


def by_cvxpy(name, b, lambda1, lambda2):
    count = len(b)
    x = cvxpy.Variable(count)
    joint = cvxpy.norm2(x)
    if name == "fused":
        joint = sum(
            (cvxpy.abs(x[i] - x[j]) for i in range(count) for j in range(i)), cvxpy.Constant(0)
        )
    loss = 0.5 * cvxpy.sum_squares(x - b) + lambda1 * cvxpy.norm1(x) + lambda2 * joint
    # Clarabel reaches 1e-5 on the cone of the group norm, SCS takes long on the fused programme.
    options = {"solver": "CLARABEL", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12}
    if name == "group":
        options = {"solver": "SCS", "eps_abs": 1e-11, "eps_rel": 1e-11, "max_iters": 100_000}
    cvxpy.Problem(cvxpy.Minimize(loss)).solve(**options)
    return x.value


@BOTH
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_prox_is_what_cvxpy_finds(name, count):
    rng = np.random.default_rng(count)
    b = rng.normal(scale=2.0, size=(count, 12))
    b[:, 0] = 1.3  # all clients alike
    b[:, 1] = 0.0
    for lambda1, lambda2 in ((0.3, 0.4), (0.0, 0.5), (0.7, 0.0), (0.1, 3.0)):
        found = PENALTIES[name].prox(b, lambda1, lambda2)
        expected = np.array([by_cvxpy(name, column, lambda1, lambda2) for column in b.T]).T
        np.testing.assert_allclose(found, expected, atol=1e-6)


@BOTH
@given(
    b=arrays(float, st.tuples(st.integers(1, 7), st.just(1)), elements=REALS),
    lambda1=st.floats(0.0, 4.0),
    lambda2=st.floats(0.0, 4.0),
    direction=arrays(float, (7, 1), elements=REALS),
    step=st.floats(1e-6, 1.0),
)
def test_no_point_is_better_than_the_prox(name, b, lambda1, lambda2, direction, step):
    x = PENALTIES[name].prox(b, lambda1, lambda2)
    least = objective(name, x, b, lambda1, lambda2)
    for other in (x + step * direction[: len(b)], b, np.zeros_like(b), np.full_like(b, b.mean())):
        assert objective(name, other, b, lambda1, lambda2) >= least - 1e-9 * (1.0 + least)


@BOTH
@given(
    pair=arrays(float, st.tuples(st.just(2), st.integers(1, 6), st.just(3)), elements=REALS),
    lambda1=st.floats(0.0, 4.0),
    lambda2=st.floats(0.0, 4.0),
)
def test_the_prox_is_firmly_non_expansive(name, pair, lambda1, lambda2):
    a, b = pair
    prox = PENALTIES[name].prox
    moved = prox(a, lambda1, lambda2) - prox(b, lambda1, lambda2)
    assert np.sum(moved * moved) <= np.sum(moved * (a - b)) + 1e-9


@BOTH
def test_clients_may_come_in_any_order(name):
    rng = np.random.default_rng(0)
    b, order = rng.normal(size=(6, 50)), rng.permutation(6)
    found = PENALTIES[name].prox(b, 0.2, 0.3)
    np.testing.assert_allclose(PENALTIES[name].prox(b[order], 0.2, 0.3), found[order], atol=1e-14)


def test_two_clients_follow_the_papers_formula():
    rng = np.random.default_rng(1)
    b = rng.normal(size=(2, 200))
    shift = 0.4
    low, high = b
    apart = np.abs(low - high) > 2.0 * shift
    expected = np.where(
        apart, b - shift * np.sign(low - high) * np.array([[1.0], [-1.0]]), b.mean(axis=0)
    )  # (19)
    np.testing.assert_allclose(fused_prox(b, 0.0, shift), expected, atol=1e-14)


def test_one_client_or_no_joint_penalty_is_soft_thresholding():
    b = np.random.default_rng(2).normal(size=(1, 40))
    np.testing.assert_allclose(group_prox(b, 0.2, 0.3), soft_threshold(b, 0.5), atol=1e-14)
    np.testing.assert_array_equal(fused_prox(b, 0.2, 0.3), soft_threshold(b, 0.2))
    many = np.random.default_rng(3).normal(size=(4, 40))
    for prox in (group_prox, fused_prox):
        np.testing.assert_allclose(prox(many, 0.3, 0.0), soft_threshold(many, 0.3), atol=1e-14)


def test_a_large_fused_penalty_makes_all_clients_alike():
    b = np.random.default_rng(4).normal(size=(5, 30))
    found = fused_prox(b, 0.1, 100.0)
    expected = soft_threshold(np.tile(b.mean(axis=0), (5, 1)), 0.1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_fused_value_is_the_sum_over_all_pairs():
    x = np.random.default_rng(5).normal(size=(4, 9))
    pairs = sum(np.abs(x[i] - x[j]).sum() for i in range(4) for j in range(i))
    assert PENALTIES["fused"].value(x, 0.3, 0.7) == pytest.approx(
        0.3 * np.abs(x).sum() + 0.7 * pairs, rel=1e-13
    )


def test_screening_by_the_prox_is_danahers_rule_for_the_group_penalty():
    b = np.random.default_rng(6).normal(scale=0.2, size=(3, 500))
    lambda1, lambda2 = 0.1, 0.15
    excess = np.maximum(np.abs(b) - lambda1, 0.0)
    np.testing.assert_array_equal(
        connected(b, PENALTIES["group"], lambda1, lambda2),
        np.sum(excess**2, axis=0) > lambda2**2,
    )


def test_screening_by_the_prox_is_danahers_rule_for_two_fused_clients():
    b = np.random.default_rng(7).normal(scale=0.2, size=(2, 500))
    lambda1, lambda2 = 0.1, 0.15
    quiet = (
        (np.abs(b[0]) <= lambda1 + lambda2)
        & (np.abs(b[1]) <= lambda1 + lambda2)
        & (np.abs(b[0] + b[1]) <= 2.0 * lambda1)
    )
    np.testing.assert_array_equal(connected(b, PENALTIES["fused"], lambda1, lambda2), ~quiet)
