"""The path of penalties: where it runs, what it keeps, how a point is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.strategies.core.enrolment import Client, StudyError
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.path import (
    PathProgress,
    PathSolution,
    extended_bic,
    instability,
    most_stable,
    pair_index,
    path_points,
    refuse_unbounded,
)

POINTS = path_points(0.1, 0.05, 0.8, 3)


def test_points_fall_geometrically_in_one_proportion():
    points = path_points(0.1, 0.03, 0.8, 4)
    np.testing.assert_allclose(points[:, 0], [0.8, 0.4, 0.2, 0.1])
    np.testing.assert_allclose(points[:, 1], [0.24, 0.12, 0.06, 0.03])


@pytest.mark.parametrize(("largest", "count"), [(0.8, 0), (0.8, 1), (0.1, 5), (0.05, 5)])
def test_no_path_is_one_point(largest, count):
    np.testing.assert_array_equal(path_points(0.1, 0.05, largest, count), [[0.1, 0.05]])


@pytest.mark.parametrize("p", [2, 3, 10, 41])
def test_pairs_stand_where_numpy_has_them(p):
    rows, columns = np.triu_indices(p, 1)
    np.testing.assert_array_equal(pair_index(rows, columns, p), np.arange(rows.size))


def test_extended_bic_by_hand():
    losses = np.array([[1.0, 2.0], [0.5, 1.5]])
    edges = np.array([[0, 0], [3, 4]])
    counts = np.array([10.0, 20.0])
    classic = extended_bic(losses, edges, counts, 7, 0.0)
    np.testing.assert_allclose(classic, [50.0, 35.0 + 3 * np.log(10) + 4 * np.log(20)])
    more = extended_bic(losses, edges, counts, 7, 0.5)
    np.testing.assert_allclose(more - classic, [0.0, 7 * 2.0 * np.log(7)])


def test_instability_counts_the_pairs_that_were_never_edges():
    selected = np.zeros((2, 2, 3), dtype=np.uint16)
    selected[1, 0, 0] = 2  # in two of four subsamples: 2 * 1/2 * 1/2
    selected[1, 1, 2] = 4  # in all: stable
    np.testing.assert_allclose(instability(selected, 4, 5), [0.0, 0.5 / (2 * 10)])


@pytest.mark.parametrize(
    ("unstable", "chosen"),
    [
        ([0.0, 0.01, 0.05, 0.06, 0.2], 2),
        ([0.0, 0.06, 0.01, 0.0], 0),  # stable again where everything is an edge: not asked for
        ([0.2, 0.3], 0),
        ([0.0, 0.0], 1),
    ],
)
def test_the_densest_point_before_the_first_unstable_one(unstable, chosen):
    assert most_stable(np.array(unstable)) == chosen


def progress(subsamples=0) -> PathProgress:
    return PathProgress(POINTS, 2, Blocks.whole(3), subsamples)


def packed(value: float) -> np.ndarray:
    """Return two clients' matrices; the second has no edge."""
    psi = np.array([[1.0, value, 0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]])
    return psi


def test_a_path_keeps_every_point_and_ends_with_the_last():
    path = progress()
    for number in range(3):
        assert (path.point, path.replicate) == (number, 0)
        assert path.lambdas == tuple(POINTS[number])
        assert path.last_stage == (number == 2)
        reached = path.solution(np.zeros(2))
        assert len(reached.lambdas) == number
        path.keep(packed(number), packed(number), np.full(2, float(number)), number / 10)
        assert path.done == (number == 2)
        if number < 2:
            path.next()
    found = path.solution(np.array([0.1, 0.2]))
    np.testing.assert_array_equal(found.psi[:, 0, 1], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(found.losses, [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(found.gaps, [0.0, 0.1, 0.2])
    np.testing.assert_array_equal(found.edges(), [[0, 0], [1, 0], [1, 0]])
    np.testing.assert_array_equal(found.smallest, [0.1, 0.2])
    assert found.instability is None


def test_subsamples_walk_the_path_again_and_only_count_edges():
    path = progress(subsamples=2)
    for replicate, values in enumerate([(0, 1, 1), (0, 0, 5), (0, 7, 5)]):
        for point, value in enumerate(values):
            assert (path.replicate, path.point) == (replicate, point)
            path.keep(packed(value), packed(value), np.zeros(2), 0.0)
            if not path.done:
                path.next()
    found = path.solution(np.zeros(2))
    np.testing.assert_array_equal(found.psi[:, 0, 1], [0.0, 1.0, 1.0])  # of the whole data
    # The edge is in neither, one and both of the two subsamples.
    np.testing.assert_allclose(found.instability, [0.0, 0.5 / 6, 0.0])


def test_a_run_that_goes_on_after_its_end_counts_no_subsample_twice():
    path = progress(subsamples=1)
    for _ in range(5):
        path.keep(packed(1.0), packed(1.0), np.zeros(2), 0.0)
        path.next()
    path.keep(packed(1.0), packed(1.0), np.zeros(2), 0.0)
    path.keep(packed(1.0), packed(1.0), np.zeros(2), 0.0)
    assert path.done
    assert path.selected.max() == 1


def test_an_unfinished_subsample_says_nothing_of_stability():
    path = progress(subsamples=2)
    for _ in range(4):  # the whole data, and one point of the first subsample
        path.keep(packed(1.0), packed(1.0), np.zeros(2), 0.0)
        path.next()
    assert path.solution(np.zeros(2)).instability is None
    assert len(path.solution(np.zeros(2)).lambdas) == 3


def test_a_stored_path_is_the_same_path():
    path = progress(subsamples=1)
    for _ in range(4):
        path.keep(packed(2.0), packed(2.0), np.ones(2), 0.5)
        path.next()
    other = progress(subsamples=1)
    other.restore(path.state())
    assert (other.stage, other.done) == (path.stage, path.done)
    for name, array in path.state().items():
        np.testing.assert_array_equal(other.state()[name], array)


def test_the_support_is_laid_out_over_all_pairs_whatever_the_blocks():
    blocks = Blocks(np.array([0, 1, 0, 1, 2]))
    matrix = np.zeros((5, 5))
    matrix[0, 2] = matrix[1, 3] = 0.3
    matrix[2, 0] = matrix[3, 1] = 0.3
    np.fill_diagonal(matrix, 1.0)
    psi = blocks.pack(matrix)[None, None]
    nothing = np.zeros((1, 1))
    found = PathSolution(blocks, np.ones((1, 2)), psi, psi, nothing, nothing[0], nothing[0])
    np.testing.assert_array_equal(found.upper_support()[0, 0], matrix[np.triu_indices(5, 1)] != 0.0)


@pytest.mark.parametrize("penalty", ["group", "fused", "alone"])
def test_a_problem_without_a_minimum_is_refused_by_the_clients_name(penalty):
    clients = [Client(n, i, count, list("abcd"), i) for i, (n, count) in enumerate(CLIENTS)]
    with pytest.raises(StudyError, match="client small has 4 samples of 4 variables"):
        refuse_unbounded(clients, penalty, 0.0, 0.0)
    refuse_unbounded(clients, penalty, 0.01, 0.0)
    refuse_unbounded(clients[:1], penalty, 0.0, 0.0)
    if penalty == "group":
        refuse_unbounded(clients, penalty, 0.0, 0.01)
    else:  # equal matrices, or one that nobody shares, escape the second penalty
        with pytest.raises(StudyError, match="set lambda1 > 0"):
            refuse_unbounded(clients, penalty, 0.0, 0.01)


CLIENTS = [("large", 5), ("small", 4)]
