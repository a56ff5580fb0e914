"""Nearest graphs, outliers and medoids: the answers of the whole matrix from a part of it."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pruning import partial
from trellis.strategies.gromov_wasserstein.pruning.medoids import medoids
from trellis.strategies.gromov_wasserstein.pruning.neighbours import nearest, outliers
from trellis.strategies.gromov_wasserstein.pruning.partial import PartialDistances

pytest.importorskip("ot")


def families(count, seed=0):
    """Graphs of several kinds, so that some are near and most are far; copies and ties included."""
    generator = np.random.default_rng(seed)
    found = []
    for k in range(count):
        n = int(generator.integers(2, 8))
        x = generator.normal(size=(n, 3)) * (1.0, 3.0, 9.0)[k % 3]
        found.append(cdist(x, x))
    return [*found, found[0], found[3][::-1, ::-1], np.zeros((1, 1)), np.zeros((2, 2))]


@pytest.fixture
def solved(monkeypatch):
    counted = []
    solve = partial.solve

    def counting(spaces, task, pairs):
        counted.append(len(pairs))
        return solve(spaces, task, pairs)

    monkeypatch.setattr(partial, "solve", counting)
    return counted


def by_sorting(distances, k, allowed=None):
    far = np.where(np.eye(len(distances), dtype=bool), np.inf, distances)
    far = far if allowed is None else np.where(allowed, far, np.inf)
    places = np.argsort(far, axis=1, kind="stable")[:, :k]
    return places, np.take_along_axis(far, places, axis=1)


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_nearest_graphs_are_those_of_the_whole_matrix(seed, k):
    matrices = families(14, seed)
    places, distances = by_sorting(pairwise(matrices, workers=1), k)
    found = nearest(PartialDistances.of(matrices, workers=1), k)
    assert (found.places == places).all()
    assert (found.distances == distances).all()


def test_few_pairs_are_solved_and_each_once(solved):
    matrices = families(40)
    known = PartialDistances.of(matrices, workers=1)
    found = nearest(known, 3)
    different = 41  # of 44 two are copies, and two are a point
    assert known.share == sum(solved) / (different * (different - 1) / 2) == found.share
    assert found.share < 0.4
    before = sum(solved)
    nearest(known, 3)
    nearest(known, 1, queries=np.array([5]))
    assert sum(solved) == before


def test_what_is_open_is_above_what_was_needed():
    matrices = families(20)
    whole = pairwise(matrices, workers=1)
    known = PartialDistances.of(matrices, workers=1)
    found = nearest(known, 4)
    values, bounds = known.values, known.bounds
    open_ = np.isnan(values)
    assert 0 < open_.sum() < open_.size
    assert (values[~open_] == whole[~open_]).all()
    assert (bounds <= whole).all()
    assert (bounds[~open_] == whole[~open_]).all()
    assert (bounds > found.distances[:, -1:])[open_].all()


def test_queries_and_who_may_be_a_neighbour(solved):
    matrices = families(25)
    whole = pairwise(matrices, workers=1)
    generator = np.random.default_rng(0)
    allowed = generator.random(whole.shape) < 0.5
    places, distances = by_sorting(whole, 3, allowed)
    queries = np.array([7, 2, 19])
    known = PartialDistances.of(matrices, workers=1)
    found = nearest(known, 3, queries=queries, allowed=allowed)
    assert (found.places == places[queries]).all()
    assert (found.distances == distances[queries]).all()
    assert sum(solved) <= 3 * len(matrices)


def test_fewer_graphs_than_neighbours():
    matrices = [np.zeros((1, 1)), np.array([[0.0, 1.0], [1.0, 0.0]])]
    found = nearest(PartialDistances.of(matrices), 3)
    assert found.places.tolist() == [[1, -1, -1], [0, -1, -1]]
    assert found.distances.tolist() == [[0.5, np.inf, np.inf]] * 2
    assert nearest(PartialDistances.of([np.zeros((1, 1))]), 1).places.tolist() == [[-1]]
    assert nearest(PartialDistances.of([]), 1).places.shape == (0, 1)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 30))
def test_outliers_are_those_of_the_whole_matrix(seed, k, count):
    matrices = families(14, seed)
    scores = by_sorting(pairwise(matrices, workers=1), k)[1][:, -1]
    expected = np.argsort(-scores, kind="stable")[:count]
    found = outliers(PartialDistances.of(matrices, workers=1), k, count)
    assert (found.places[:, 0] == expected).all()
    assert (found.distances[:, 0] == scores[expected]).all()


def test_few_outliers_take_fewer_pairs_than_all_neighbours():
    matrices = families(60)
    few = outliers(PartialDistances.of(matrices, workers=1), 3, 3)
    assert few.share < 0.7 * nearest(PartialDistances.of(matrices, workers=1), 3).share


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_medoids_are_those_of_the_whole_matrix(seed, count):
    matrices = families(14, seed)
    whole = pairwise(matrices, workers=1)
    expected = medoids(PartialDistances.solved(whole), count, seed=seed)
    known = PartialDistances.of(matrices, workers=1)
    found = medoids(known, count, seed=seed)
    assert (found.labels == expected.labels).all()
    assert (found.medoids == expected.medoids).all()
    assert found.objective == expected.objective
    # A local minimum: nearest medoids, and no member that would do better in its cluster.
    to_medoids = whole[:, found.medoids]
    assert found.objective == pytest.approx(to_medoids.min(axis=1).sum())
    for a, medoid in enumerate(found.medoids):
        inside = np.flatnonzero(found.labels == a)
        sums = whole[np.ix_(inside, inside)].sum(axis=1)
        assert sums[inside == medoid] <= sums.min() + 1e-9 * (1.0 + sums.min())


def test_medoids_find_the_kinds_of_graphs():
    matrices = families(60)[:60]
    large = [c for k, c in enumerate(matrices) if k % 3 != 1 and len(c) > 2]
    kinds = np.array([k % 3 for k, c in enumerate(matrices) if k % 3 != 1 and len(c) > 2])
    known = PartialDistances.of(large, workers=1)
    found = medoids(known, 2, seed=1)
    same = max(np.mean(found.labels == (kinds > 0)), np.mean(found.labels == (kinds == 0)))
    assert same > 0.85
    assert found.share < 0.8


@pytest.mark.parametrize("metric", ["fgw", "wasserstein"])
def test_other_metrics_have_neighbours_too(metric):
    generator = np.random.default_rng(0)
    rows = [generator.normal(size=(n, 2)) + generator.normal(size=2) * 4 for n in range(2, 22)]
    matrices = [cdist(x, x) for x in rows]
    options = {"metric": metric, "features": rows, "alpha": 0.3, "workers": 1}
    places, distances = by_sorting(pairwise(matrices, **options), 2)
    found = nearest(PartialDistances.of(matrices, **options), 2)
    assert (found.places == places).all()
    assert (found.distances == distances).all()
    assert found.share < 0.7


@pytest.mark.parametrize("name", ["MUTAG", "PROTEINS"])
def test_the_same_answers_on_real_graphs(name):
    from benchmarks.gromov_wasserstein import distances, embeddings

    try:
        dataset(name)
    except DataError as error:
        pytest.skip(str(error))
    matrices = distances(embeddings(name))
    matrices = [c for c in matrices if len(c) <= 40][:120]
    whole = pairwise(matrices, workers=1)
    for k in (1, 5):
        places, _ = by_sorting(whole, k)
        found = nearest(PartialDistances.of(matrices, workers=1), k)
        assert (found.places == places).all()
        assert found.share < 0.5
    expected = medoids(PartialDistances.solved(whole), 5)
    assert (medoids(PartialDistances.of(matrices, workers=1), 5).labels == expected.labels).all()


def test_processes_change_no_bit(monkeypatch, solved):
    from trellis.strategies.gromov_wasserstein import pairwise as gw_pairwise

    matrices = families(30)
    alone = PartialDistances.of(matrices, workers=1)
    found = nearest(alone, 3)
    here = sum(solved)
    monkeypatch.setattr(gw_pairwise, "_CHUNK", (1e-3, 1e-3))
    for options in ({"workers": 2}, {}):
        solved.clear()
        with joblib.parallel_config(backend="loky", n_jobs=2):
            known = PartialDistances.of(matrices, workers=options.get("workers", 2))
            assert (nearest(known, 3).places == found.places).all()
        assert np.array_equal(known.values, alone.values, equal_nan=True)
        assert sum(solved) < here


def test_an_interrupted_search_goes_on_and_a_whole_matrix_takes_it_up(tmp_path, solved):
    matrices, path = families(40), tmp_path / "pairs.npz"
    turns = []

    def stop(done, total):
        turns.append((done, total))
        if len(turns) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nearest(PartialDistances.of(matrices, workers=1, checkpoint=path, on_progress=stop), 3)
    before = sum(solved)
    known = PartialDistances.of(matrices, workers=1, checkpoint=path)
    assert before > 0
    assert known.share * 41 * 40 / 2 == pytest.approx(before)
    found = nearest(known, 3)
    whole = pairwise(matrices, workers=1)
    assert (found.places == by_sorting(whole, 3)[0]).all()
    assert turns == sorted(turns)
    taken_up = []
    again = pairwise(
        matrices, workers=1, checkpoint=path, on_progress=lambda done, _: taken_up.append(done)
    )
    assert (again == whole).all()
    assert taken_up[0] > sum(solved)
    with pytest.raises(CheckpointError, match="made with another graph 1"):
        PartialDistances.of([matrices[0], *matrices[2:], matrices[1]], checkpoint=path)


def test_progress_ends_with_all_pairs_settled():
    seen = []
    known = PartialDistances.of(
        families(20), workers=1, on_progress=lambda *told: seen.append(told)
    )
    nearest(known, 2)
    assert seen[-1] == (24 * 23 // 2, 24 * 23 // 2)
    assert seen == sorted(seen)


def test_questions_that_make_no_sense_are_refused():
    known = PartialDistances.of(families(4))
    for wrong, message in (
        (lambda: nearest(known, 0), "k=0: must be >= 1"),
        (lambda: nearest(known, 1, queries=np.array([99])), "queries: numbers of graphs, 0 to 7"),
        (lambda: nearest(known, 1, allowed=np.ones((2, 2))), r"allowed: shape \(2, 2\)"),
        (lambda: outliers(known, 8, 1), "k=8: 8 graphs have 7 neighbours"),
        (lambda: outliers(known, 1, 0), "count=0"),
        (lambda: medoids(known, 9), "count=9: must be between 1 and the 8 graphs"),
        (lambda: PartialDistances.solved([[np.nan]]), "finite numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
