"""Barycentres and k-means: objectives that fall, copies that are averaged to themselves."""

from __future__ import annotations

from itertools import pairwise as successive

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from trellis.strategies.gromov_wasserstein.barycentre import barycentre, kmeans
from trellis.strategies.gromov_wasserstein.pair import gromov_wasserstein

ot = pytest.importorskip("ot")

seeds = st.integers(0, 2**32 - 1)


def spaces(generator, count, scale=1.0, sizes=(3, 9)):
    clouds = [scale * generator.normal(size=(n, 2)) for n in generator.integers(*sizes, size=count)]
    return [cdist(x, x) for x in clouds]


def falls(objective):
    slack = 1e-12 * objective[0]
    return all(later <= earlier + slack for earlier, later in successive(objective))


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_the_objective_of_a_barycentre_falls_and_is_what_it_says(seed):
    generator = np.random.default_rng(seed)
    matrices = spaces(generator, 4)
    shares = generator.dirichlet(np.ones(4))
    found = barycentre(matrices, 6, shares=shares, seed=seed)
    assert falls(found.objective)
    assert found.objective[-1] == pytest.approx(shares @ found.values)
    assert found.distances.shape == (6, 6)
    assert (found.distances == found.distances.T).all()
    # The plans couple a uniform weight of six nodes.
    for plan in found.plans:
        assert plan.sum(axis=1) == pytest.approx(np.full(6, 1 / 6))


def test_a_barycentre_is_as_good_as_pots():
    generator = np.random.default_rng(0)
    matrices = spaces(generator, 8)
    ours, theirs = [], []
    for seed in range(6):
        ours.append(barycentre(matrices, 6, seed=seed).objective[-1])
        c = ot.gromov.gromov_barycenters(6, matrices, random_state=seed, tol=1e-7, max_iter=100)
        theirs.append(np.mean([gromov_wasserstein((c + c.T) / 2, d).value for d in matrices]))
    assert np.mean(ours) <= 1.05 * np.mean(theirs)


def test_the_update_is_stationary_in_the_matrix():
    generator = np.random.default_rng(3)
    matrices = spaces(generator, 3)
    found = barycentre(matrices, 5)

    def value(c):
        total = 0.0
        for plan, matrix in zip(found.plans, lumped, strict=True):
            difference = c[:, None, :, None] - matrix[None, :, None, :]
            total += np.einsum("ijkl,ij,kl->", difference**2, plan, plan) / 3
        return total

    from trellis.strategies.gromov_wasserstein.pair import lump

    lumped = [lump(c)[0] for c in matrices]
    assert value(found.distances) == pytest.approx(found.objective[-1])
    for _ in range(20):
        change = generator.normal(size=(5, 5)) * 0.05
        assert value(found.distances + change + change.T) > found.objective[-1] * (1 - 1e-6)


def test_one_node_is_a_barycentre():
    matrices = spaces(np.random.default_rng(0), 3)
    found = barycentre(matrices, 1)
    assert found.distances[0, 0] == pytest.approx(np.mean([c.mean() for c in matrices]))
    assert barycentre([np.zeros((1, 1))], 3).objective[-1] == pytest.approx(0.0, abs=1e-15)


@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(1, 4))
def test_the_objective_of_kmeans_falls_and_a_seed_fixes_it(seed, clusters):
    matrices = spaces(np.random.default_rng(seed), 9)
    found = kmeans(matrices, clusters=clusters, seed=seed)
    again = kmeans(matrices, clusters=clusters, seed=seed)
    assert falls(found.objective)
    assert found.objective[-1] == pytest.approx(found.values.sum())
    assert (found.labels == again.labels).all()
    assert found.objective == again.objective
    assert set(found.labels) <= set(range(clusters))


def test_kmeans_tells_small_graphs_from_large():
    generator = np.random.default_rng(0)
    matrices = spaces(generator, 8, sizes=(4, 7)) + spaces(generator, 8, 4.0, sizes=(8, 11))
    found = kmeans(matrices, clusters=2, seed=1)
    assert len(set(found.labels[:8])) == 1
    assert len(set(found.labels[8:])) == 1
    assert found.labels[0] != found.labels[8]
    sizes = [len(found.centroids[found.labels[i]]) for i in (0, 8)]
    means = [round(np.mean([len(c) for c in part])) for part in (matrices[:8], matrices[8:])]
    assert sizes == means


def test_kmeans_of_copies_costs_nothing():
    c = spaces(np.random.default_rng(0), 1)[0]
    found = kmeans([c, c, c], clusters=2)
    assert found.objective[-1] == pytest.approx(0.0, abs=1e-12)


def test_settings_that_make_no_sense_are_refused():
    matrices = spaces(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match="clusters=4: must be between 1 and the 3 graphs"):
        kmeans(matrices, clusters=4)
    with pytest.raises(ValueError, match="size=0"):
        barycentre(matrices, 0)
    with pytest.raises(ValueError, match="shares: 3 numbers"):
        barycentre(matrices, 2, shares=[0.5, 0.5])
    with pytest.raises(ValueError, match="there is no graph"):
        barycentre([], 2)
    with pytest.raises(ValueError, match="weights: 1 of them for 3 graphs"):
        kmeans(matrices, [None])
    with pytest.raises(ValueError, match="matrix 1: not symmetric"):
        barycentre([matrices[0], np.array([[0.0, 1.0], [2.0, 0.0]])], 2)
