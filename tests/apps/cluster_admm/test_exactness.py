"""Floats are no further from the exact solution than a client says beforehand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from trellis.apps.cluster_admm.exactness import SLACK, largest_error, permit_scales, permit_step
from trellis.apps.cluster_admm.release import bounded, projected, sensitivity

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.steps import LogisticStep, SureStep, descent_steps, primal_step
from trellis.privacy.accounting.budget import PrivacyRefused


def config(**options) -> ClusterAdmmConfig:
    return ClusterAdmmConfig(**{"privacy": "sound", "release": "each", "rounds": 10} | options)


def exact_ridge(X, y, v, c):
    """Return (2/D X'X + c I)^-1 (2/D X'y + v) in fractions, by Gaussian elimination."""
    rows, size = X.shape
    X = [[Fraction(x) for x in row] for row in X.tolist()]
    y, v, c = [Fraction(t) for t in y.tolist()], [Fraction(t) for t in v.tolist()], Fraction(c)
    A = [
        [
            Fraction(2, rows) * sum(X[r][i] * X[r][j] for r in range(rows)) + (c if i == j else 0)
            for j in range(size)
        ]
        + [Fraction(2, rows) * sum(X[r][i] * y[r] for r in range(rows)) + v[i]]
        for i in range(size)
    ]
    for i in range(size):
        for j in range(i + 1, size):
            f = A[j][i] / A[i][i]
            A[j] = [a - f * b for a, b in zip(A[j], A[i], strict=True)]
    w = [Fraction(0)] * size
    for i in reversed(range(size)):
        w[i] = (A[i][-1] - sum(A[i][j] * w[j] for j in range(i + 1, size))) / A[i][i]
    return w


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**20), st.integers(1, 6), st.integers(1, 4), st.floats(-3, 3),
    st.floats(-3, 3), st.floats(-6, 6), st.floats(-4, 6), st.sampled_from([1.0, 1e-8, 1e8]),
)  # fmt: skip
def test_a_ridge_step_is_as_near_as_promised(seed, count, size, B, Y, c, log_v, spread):
    rng = np.random.default_rng(seed)
    chosen = config(clip_features=10.0**B, clip_target=10.0**Y, ridge=0.0, clip_model=1e-6)
    X = 10.0**B * rng.standard_normal((count, size)) * spread ** rng.random((count, size))
    X, y = bounded(chosen, X, 10.0**Y * rng.standard_normal(count))
    v, rho = 10.0**log_v * rng.standard_normal(size), 10.0**c
    promised = largest_error(chosen, count, size, rho, 0.0, float(np.linalg.norm(v)))
    try:
        found = primal_step("ridge", X, y, 0.0, 0.0, rho).solve(v)
    except np.linalg.LinAlgError:
        assert promised > 1e-3 * np.linalg.norm(v) / rho  # it promised nothing
        return
    exact = exact_ridge(X, y, v, rho)
    off = sum((Fraction(a) - b) ** 2 for a, b in zip(found.tolist(), exact, strict=True))
    assert float(off) ** 0.5 <= promised


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**20), st.integers(1, 6), st.integers(1, 3), st.floats(-2, 1.5),
    st.floats(-1, 4), st.floats(-2, 6), st.booleans(),
)  # fmt: skip
def test_a_logistic_step_is_as_near_as_promised(seed, count, size, B, c, log_v, descent):
    rng = np.random.default_rng(seed)
    chosen = config(loss="logistic", clip_features=10.0**B, ridge=0.0, clip_model=1e-6)
    X, y = bounded(chosen, 10.0**B * rng.standard_normal((count, size)), rng.normal(size=count))
    v, rho = 10.0**log_v * rng.standard_normal(size), 10.0**c
    step = LogisticStep(X, y, 0.0, 0.0, rho)
    if descent and descent_steps(10.0**B, rho) > 20_000:
        return
    found = step.descend(v) if descent else SureStep("logistic", X, y, 0.0, 0.0, rho).solve(v)
    with mp.workdps(50):
        # F is c-strongly convex: a point is off by its gradient over c, at most.
        w = [mpf(t) for t in found.tolist()]
        g = [mpf(rho) * a - mpf(b) for a, b in zip(w, v.tolist(), strict=True)]
        for x, label in zip(X.tolist(), y.tolist(), strict=True):
            z = [mpf(label) * mpf(t) for t in x]
            chance = 1 / (1 + mp.exp(sum(a * b for a, b in zip(z, w, strict=True))))
            g = [a - chance * b / count for a, b in zip(g, z, strict=True)]
        off = float(mp.sqrt(sum(t**2 for t in g)) / mpf(rho))
    assert off <= largest_error(chosen, count, size, rho, 0.0, float(np.linalg.norm(v)))


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 2**20), st.integers(1, 12), st.integers(1, 4),
    st.sampled_from(["ridge", "logistic"]), st.floats(-6, 6), st.floats(-6, 6), st.floats(-6, 6),
    st.floats(-9, 9), st.floats(-8, 20), st.floats(-320, 308),
)  # fmt: skip
def test_over_the_whole_range_of_floats_neighbours_are_within_the_sensitivity_or_refused(
    seed, count, size, loss, B, Y, W, rho, log_v, scale
):
    rng = np.random.default_rng(seed)
    chosen = config(
        loss=loss, clip_features=10.0**B, clip_target=10.0**Y, clip_model=10.0**W, ridge=0.0
    )
    with np.errstate(over="ignore"):
        X = np.nan_to_num(rng.standard_normal((count, size)) * 10.0**scale)
        y = np.nan_to_num(rng.standard_normal(count) * 10.0**-scale)
    v = 10.0**log_v * rng.standard_normal(size)
    claimed = sensitivity(chosen, count, 10.0**rho, 0.0)
    try:
        permit_step(chosen, count, size, 10.0**rho, 0.0, float(np.linalg.norm(v)), claimed)
    except PrivacyRefused:
        return
    found = []
    for place in range(2):
        step = SureStep(loss, *bounded(chosen, X, y), 0.0, 0.0, 10.0**rho)
        found.append(projected(step.solve(v), chosen.clip_model))
        X, y = X.copy(), y.copy()
        X[0], y[0] = rng.standard_normal(size) * 10.0 ** (place + B), -1e300
    assert np.all(np.isfinite(found))
    assert np.linalg.norm(found[0] - found[1]) <= claimed * (1.0 + SLACK)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"clip_features": 2.0**-21}, "clip-features from 1e-06"),
        ({"clip_target": 1e7}, "clip-target"),
        ({"clip_model": 1e-9}, "clip-model"),
        ({"ridge": 2.0**79}, "ridge from 0 to 1e\\+09"),
        ({"phi0": 1e-13}, "phi0"),
        ({"zeta": 1e-3, "rounds": 100}, "phi0 .*; raise epsilon or zeta, or lower rounds"),
    ],
)
def test_extreme_settings_are_refused_under_sound_alone(options, match):
    with pytest.raises(PrivacyRefused, match=match):
        permit_scales(config(**options))
    permit_scales(config(privacy="none", **options))
    permit_scales(config(privacy="paper", **options))


def test_a_last_round_without_noise_is_refused_whatever_epsilon_allows():
    endless = config(zeta=1e-3, rounds=20, phi0=1.0, epsilon=1e300)
    with pytest.raises(PrivacyRefused, match=r"zeta=0\.001 round 20 is beyond"):
        permit_scales(endless)


def test_the_defaults_and_the_paper_s_sizes_are_permitted():
    permit_scales(config())
    for count, size, length in ((2, 60, 1e5), (9, 60, 1e4), (5000, 3, 1e3), (300_000, 100, 10.0)):
        for loss in ("ridge", "logistic"):
            chosen = config(loss=loss)
            claimed = sensitivity(chosen, count, 3.0, 0.1)
            permit_step(chosen, count, size, 3.0, 0.1, length, claimed)


def test_logistic_features_too_long_for_a_promise_are_refused():
    chosen = config(loss="logistic", clip_features=500.0)
    with pytest.raises(PrivacyRefused, match="cannot be promised to converge"):
        permit_step(chosen, 5000, 3, 3.0, 0.0, 1.0, sensitivity(chosen, 5000, 3.0, 0.0))


def test_descent_finds_what_newton_finds():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)), rng.choice([-1.0, 1.0], 30)
    step = LogisticStep(X, y, 0.1, 0.5, 0.5)
    v = rng.standard_normal(4)
    np.testing.assert_allclose(step.descend(v), step.solve(v), atol=1e-9)


def test_a_step_that_fails_is_made_by_descent_and_says_so_on_the_device(monkeypatch, caplog):
    rng = np.random.default_rng(0)
    X, y, v = rng.standard_normal((30, 4)), rng.choice([-1.0, 1.0], 30), rng.standard_normal(4)
    right = LogisticStep(X, y, 0.1, 0.5, 0.5).solve(v)
    monkeypatch.setattr(LogisticStep, "_newton", lambda *a: (np.zeros(4), 1.0))
    with pytest.raises(ArithmeticError):  # as without `sound`
        LogisticStep(X, y, 0.1, 0.5, 0.5).solve(v)
    found = SureStep("logistic", X, y, 0.1, 0.5, 0.5).solve(v)
    np.testing.assert_allclose(found, right, atol=1e-9)
    assert "did not converge" in caplog.text


def test_a_matrix_that_cannot_be_factorised_leaves_the_solution_without_data():
    X = np.full((5, 3), 1e5)
    with pytest.raises(np.linalg.LinAlgError):
        primal_step("ridge", X, np.ones(5), 0.0, 0.0, 1e-9)
    v = np.array([1.0, 2.0, 3.0])
    step = SureStep("ridge", X, np.ones(5), 0.0, 0.0, 1e-9)
    np.testing.assert_array_equal(step.solve(v), v / 1e-9)


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
def test_a_sure_step_is_the_ordinary_one_to_the_bit(loss):
    rng = np.random.default_rng(3)
    for rows in (2, 9):
        X, y, v = rng.standard_normal((rows, 4)), rng.choice([-1.0, 1.0], rows), rng.normal(size=4)
        ordinary = primal_step(loss, X, y, 0.1, 0.5, 3.0).solve(v)
        np.testing.assert_array_equal(SureStep(loss, X, y, 0.1, 0.5, 3.0).solve(v), ordinary)
