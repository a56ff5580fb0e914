"""Concordances: Kendall's tau where nothing is cut, and no sample moves them beyond the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trellis.apps.joint_precision.kendall import kendall
from trellis.apps.joint_precision.private import concordance as module
from trellis.apps.joint_precision.private.concordance import (
    CUT,
    MOST_PARTNERS,
    concordance,
    learning_count,
    partners,
    sensitivity,
    summands,
)


def vector(values):
    return np.concatenate(list(summands(values).values()))


def test_without_a_cut_it_is_kendalls_tau_times_n():
    values = np.random.default_rng(0).normal(size=(40, 7)).round(1)  # with ties
    total, weights = concordance(values, cut=np.inf)
    upper = np.triu_indices(7, 1)
    np.testing.assert_allclose(total / 40, kendall(values, variant="a")[upper], atol=1e-12)
    assert np.all(weights == 1.0)


def test_few_partners_estimate_the_same_tau(monkeypatch):
    monkeypatch.setattr(module, "MOST_PARTNERS", 60)
    rng = np.random.default_rng(0)
    values = rng.multivariate_normal(np.zeros(3), 0.5 + 0.5 * np.eye(3), size=600)
    total, _ = concordance(values, cut=np.inf)
    np.testing.assert_allclose(total / 600, kendall(values)[np.triu_indices(3, 1)], atol=0.02)


@pytest.mark.parametrize("count", [2, 30, MOST_PARTNERS + 1, MOST_PARTNERS + 2, 1000, 7919])
def test_every_sample_is_the_partner_of_as_many_as_it_has(count):
    offsets = partners(count)
    assert offsets.size == min(count - 1, MOST_PARTNERS)
    assert len(set(offsets.tolist())) == offsets.size
    assert offsets.min() >= 1
    assert offsets.max() <= count - 1  # so that r + d is never r itself, and no two d coincide


def _hard_cases(count, p, rng):
    """Yield neighbours that differ in one sample, ordinary ones and such as move most."""
    half = np.where(np.arange(p) < p // 2, 1.0, -1.0)
    line = np.linspace(-1.0, 1.0, count)
    bases = (
        rng.normal(size=(count, p)),
        np.outer(line, np.ones(p)) + 1e-3 * rng.normal(size=(count, p)),
        np.outer(line, half) + 1e-3 * rng.normal(size=(count, p)),
        rng.integers(0, 3, size=(count, p)).astype(float),
        np.zeros((count, p)),
    )
    rows = (np.full(p, 9.0), 9.0 * half, np.zeros(p), rng.normal(size=p), -9.0 * np.ones(p))
    for base in bases:
        for old in rows:
            for new in rows:
                one, other = base.copy(), base.copy()
                one[0], other[0] = old, new
                yield one, other


@pytest.mark.parametrize(("count", "p"), [(2, 2), (5, 4), (12, 3), (20, 9), (25, 16)])
def test_no_sample_moves_the_sum_beyond_its_sensitivity(count, p):
    rng = np.random.default_rng(count)
    moved = [np.linalg.norm(vector(a) - vector(b)) for a, b in _hard_cases(count, p, rng)]
    assert max(moved) <= sensitivity(p) * (1 + 1e-12)
    assert max(moved) > 0.5 * sensitivity(p)


def test_few_partners_have_the_same_sensitivity(monkeypatch):
    monkeypatch.setattr(module, "MOST_PARTNERS", 4)
    rng = np.random.default_rng(1)
    moved = [np.linalg.norm(vector(a) - vector(b)) for a, b in _hard_cases(21, 8, rng)]
    assert max(moved) <= sensitivity(8) * (1 + 1e-12)


def test_the_bound_is_nearly_reached_and_well_below_that_of_tau():
    p, count = 54, 60
    data = np.random.default_rng(0).normal(size=(count, p))
    neighbour = data.copy()
    data[-1] = 9.0
    neighbour[-1] = np.where(np.arange(p) < p // 2, 9.0, -9.0)
    moved = np.linalg.norm(vector(data) - vector(neighbour))
    assert 0.9 * sensitivity(p) < moved <= sensitivity(p)
    assert sensitivity(p) < 1.42 * p
    assert sensitivity(p) > p + math.sqrt(2.0) * CUT * p


def test_ordinary_samples_are_hardly_cut():
    _, weights = concordance(np.random.default_rng(0).normal(size=(150, 54)))
    assert weights.mean() > 0.97


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_add_nothing(count):
    assert not np.any(vector(np.ones((count, 4))))


def test_a_declared_number_of_samples_is_left_to_learn_from():
    assert learning_count(37, 0.2) == 37 - math.floor(37 * 0.2)
    assert learning_count(37, 0.0) == 37
    assert [learning_count(count, 0.99) for count in (1, 2, 3, 300)] == [1, 2, 2, 3]
