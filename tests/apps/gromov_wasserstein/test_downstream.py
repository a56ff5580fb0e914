"""Classification, clusters, scores and pictures from distances whose answer is known."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from trellis.apps.gromov_wasserstein.downstream import classify
from trellis.apps.gromov_wasserstein.downstream.classify import (
    checked_distances,
    outer_folds,
    stratified_folds,
)
from trellis.apps.gromov_wasserstein.downstream.tasks import (
    GRIDS,
    Accuracy,
    Grid,
    anomaly_scores,
    cluster_scores,
    embedding_2d,
    kernel_svm_accuracy,
    knn_accuracy,
    spectral_clusters,
    svm_accuracy,
)

SMALL = Grid((0.1, 10.0, 1000.0), (0.25, 1.0, 4.0))


def blocks(sizes, seed=0):
    """Return distances 0.1 to 0.2 within blocks, 1 to 1.1 between them, and the block of each."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    labels = labels[order]
    noise = np.triu(rng.random((len(labels),) * 2), 1) / 10.0
    distances = np.where(labels[:, None] == labels, 0.1, 1.0) + noise + noise.T
    np.fill_diagonal(distances, 0.0)
    return distances, labels


def points(rows):
    return np.linalg.norm(rows[:, None] - rows[None], axis=2)


# --- classification -----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(15, 20), (12, 13, 14)])
def test_separate_blocks_are_classified_without_error(sizes):
    distances, labels = blocks(sizes)
    for result in (
        svm_accuracy(distances, labels, seed=1, folds=5, grid=SMALL),
        knn_accuracy(distances, labels, 5, seed=1, folds=5),
        kernel_svm_accuracy(np.exp(-distances), labels, seed=1, folds=5, costs=SMALL.costs),
    ):
        assert result.mean == 1.0
        assert result.deviation == 0.0
        assert np.array_equal(result.predicted, labels)
        assert result.notes == ()


def test_shuffled_labels_are_guessed_about_as_often_as_by_chance():
    distances, labels = blocks((40, 40))
    shuffled = np.random.default_rng(3).permutation(labels)
    # 80 guesses: a standard error of 5.6 points
    assert abs(svm_accuracy(distances, shuffled, seed=1, grid=SMALL).mean - 0.5) < 0.2
    assert abs(knn_accuracy(distances, shuffled, 5, seed=1).mean - 0.5) < 0.2


def test_choosing_c_and_gamma_reads_no_test_label_even_on_noise():
    """On noise the best of a grid looks good, the nested accuracy must not."""
    grid = Grid((0.1, 1.0, 10.0), (0.125, 1.0, 8.0))
    nested, greedy = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        distances = points(rng.standard_normal((40, 4)))
        labels = rng.permutation(np.repeat([0, 1], 20))
        accuracy = partial(svm_accuracy, distances, labels, seed=seed, folds=5, inner_folds=2)
        nested.append(accuracy(grid=grid).mean)
        pairs = itertools.product(grid.costs, grid.gammas)
        single = [accuracy(grid=Grid((c,), (g,))).per_fold for c, g in pairs]
        greedy.append(np.max(single, axis=0).mean())  # chosen on each fold's test graphs
    error = 0.5 / math.sqrt(8 * 40)
    assert np.mean(nested) < 0.5 + 3 * error
    assert np.mean(greedy) > 0.5 + 3 * error  # what a leak would give: the check above can fail


@pytest.mark.parametrize("flip", range(4))
def test_a_test_fold_s_own_labels_do_not_change_what_is_guessed_for_it(flip, monkeypatch):
    rng = np.random.default_rng(flip)
    distances = points(rng.standard_normal((36, 3)))
    labels = np.arange(36) % 3
    splits, notes = outer_folds(labels, 4, seed=2)
    test = splits[flip][1]
    changed = labels.copy()
    changed[test] = (labels[test] + 1) % 3
    # folds are made from labels, so they are held fixed here
    monkeypatch.setattr(classify, "outer_folds", lambda *_, **__: (splits, notes))
    for accuracy in (
        lambda y: svm_accuracy(distances, y, seed=2, folds=4, grid=SMALL),
        lambda y: knn_accuracy(distances, y, 3, seed=2, folds=4),
    ):
        assert np.array_equal(accuracy(labels).predicted[test], accuracy(changed).predicted[test])


def test_the_svm_is_the_one_that_a_plain_nested_loop_fits():
    """Written again: a fit for every pair, each with its own kernel, and no early end in C."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((45, 2))
    labels = np.digitize(rows[:, 0] + 0.5 * rng.standard_normal(45), (-0.5, 0.5))
    distances = points(rows)
    grid = Grid((1e-2, 1.0, 1e2, 1e4, 1e6), (0.25, 1.0, 4.0))
    result = svm_accuracy(distances, labels, seed=7, folds=3, grid=grid, inner_folds=2)
    for fold, (train, test) in enumerate(outer_folds(labels, 3, 7)[0]):
        rng = classify.generator(7, "inner folds", fold)
        inner = stratified_folds(labels[train], 2, rng)
        best, chosen = -1, (0.0, 0.0)
        for cost, gamma in itertools.product(grid.costs, grid.gammas):
            right = 0
            for held in inner:
                fit, val = np.delete(train, held), train[held]
                svm = SVC(C=cost, kernel="precomputed")
                svm.fit(np.exp(-gamma * distances[np.ix_(fit, fit)]), labels[fit])
                guesses = svm.predict(np.exp(-gamma * distances[np.ix_(val, fit)]))
                right += int((guesses == labels[val]).sum())
            if right > best:
                best, chosen = right, (cost, gamma)
        svm = SVC(C=chosen[0], kernel="precomputed")
        svm.fit(np.exp(-chosen[1] * distances[np.ix_(train, train)]), labels[train])
        guesses = svm.predict(np.exp(-chosen[1] * distances[np.ix_(test, train)]))
        assert np.array_equal(result.predicted[test], guesses)
        assert result.per_fold[fold] == np.mean(guesses == labels[test])


def test_the_grid_of_the_paper_is_fifteen_by_twenty_one():
    grid = GRIDS["paper"]
    assert (len(grid.costs), len(grid.gammas)) == (15, 21)
    assert np.allclose(np.log10(grid.costs), np.arange(-7, 8))
    assert np.allclose(np.log2(grid.gammas), np.arange(-10, 11))
    assert set(GRIDS["quick"].costs) <= set(grid.costs)
    assert set(GRIDS["quick"].gammas) <= set(grid.gammas)


def test_the_same_seed_gives_the_same_result_and_another_one_other_folds():
    distances, labels = blocks((20, 20))
    noisy = np.random.default_rng(0).permutation(labels)
    first, again, other = (
        svm_accuracy(distances, noisy, seed=s, folds=5, grid=SMALL) for s in (1, 1, 2)
    )
    assert np.array_equal(first.predicted, again.predicted)
    assert np.array_equal(first.per_fold, again.per_fold)
    assert not np.array_equal(first.predicted, other.predicted)


def test_an_indefinite_kernel_is_used_as_it_is():
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], 20)
    noise = rng.random((40, 40))
    distances = np.where(labels[:, None] == labels, 0.0, 2.0) + noise + noise.T
    np.fill_diagonal(distances, 0.0)
    assert np.linalg.eigvalsh(np.exp(-distances)).min() < -0.01
    assert svm_accuracy(distances, labels, seed=1, folds=4, grid=SMALL).mean == 1.0


def test_graphs_without_a_label_are_left_out_and_this_is_said():
    distances, labels = blocks((12, 12, 3))
    unknown = np.where(labels == 2, -1, labels)
    known = unknown >= 0
    for accuracy in (
        lambda d, y: svm_accuracy(d, y, seed=1, folds=4, grid=SMALL),
        lambda d, y: knn_accuracy(d, y, 3, seed=1, folds=4),
    ):
        result = accuracy(distances, unknown)
        assert result.notes == ("3 of 27 graphs have no label (-1) and were left out",)
        assert (result.predicted[~known] == -1).all()
        without = accuracy(distances[np.ix_(known, known)], unknown[known])
        assert np.array_equal(result.predicted[known], without.predicted)


def test_a_rare_class_means_fewer_folds_and_a_note():
    distances, labels = blocks((20, 4))
    result = svm_accuracy(distances, labels, seed=1, grid=SMALL)
    assert len(result.per_fold) == 4
    assert result.notes == ("class 1 has 4 graphs: 4 folds instead of 10",)
    assert result.mean == 1.0
    assert "class 1 has 4 graphs" in result.summary()


@pytest.mark.parametrize(("folds", "least"), [(10, 3), (3, 3), (2, 4)])
def test_the_least_number_of_graphs_of_a_class_works_and_one_less_is_named(folds, least):
    distances, labels = blocks((20, least))
    svm_accuracy(distances, labels, seed=1, folds=folds, grid=SMALL)
    distances, labels = blocks((20, least - 1))
    with pytest.raises(ValueError, match=rf"class 1 has {least - 1} graph\(s\).*{folds} folds"):
        svm_accuracy(distances, labels, seed=1, folds=folds, grid=SMALL)


def test_a_single_graph_of_a_class_and_a_single_class_are_refused():
    distances, labels = blocks((20, 1))
    with pytest.raises(ValueError, match=r"class 1 has 1 graph\(s\), too few"):
        knn_accuracy(distances, labels, 3, seed=1)
    with pytest.raises(ValueError, match="1 class among the labelled graphs"):
        knn_accuracy(distances, np.zeros(21, dtype=int), 3, seed=1)
    with pytest.raises(ValueError, match="0 class"):
        svm_accuracy(distances, np.full(21, -1), seed=1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=6, max_size=60), st.integers(2, 10), st.integers(0, 99))
def test_folds_part_the_graphs_evenly_in_every_class(classes, folds, seed):
    labels = np.array(classes)
    parts = stratified_folds(labels, folds, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    for members in [np.ones(len(labels), bool), *(labels == c for c in np.unique(labels))]:
        counts = [int(members[part].sum()) for part in parts]
        assert max(counts) - min(counts) <= 1


# --- nearest neighbours -------------------------------------------------------------------------


def test_neighbours_vote_as_a_slow_loop_counts():
    rng = np.random.default_rng(2)
    distances = points(rng.standard_normal((30, 2)))
    labels = rng.permutation(np.repeat([0, 1], 15))
    result = knn_accuracy(distances, labels, 3, seed=4, folds=5)
    for train, test in outer_folds(labels, 5, 4)[0]:
        for graph in test:
            near = sorted(train, key=lambda other, g=graph: distances[g, other])[:3]
            votes = [int(labels[other]) for other in near]
            assert result.predicted[graph] == max(set(votes), key=votes.count)


def test_equal_distances_in_a_sorted_file_tell_nothing():
    """A rule by position would take the first class for the neighbours of all."""
    labels = np.repeat([0, 1], [20, 40])
    equal = 1.0 - np.eye(60)
    result = knn_accuracy(equal, labels, 5, seed=1)
    assert (result.predicted == 1).all()
    assert result.mean == pytest.approx(2 / 3)
    order = np.random.default_rng(0).permutation(60)
    assert (knn_accuracy(equal, labels[order], 5, seed=1).predicted == 1).all()


@pytest.mark.parametrize("k", [0, 100])
def test_a_number_of_neighbours_that_there_is_not_is_refused(k):
    distances, labels = blocks((12, 12))
    with pytest.raises(ValueError, match=rf"k={k}: must be between 1 and the 21 training"):
        knn_accuracy(distances, labels, k, seed=1, folds=8)


# --- clusters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 3.0, 1000.0])
def test_spectral_clusters_are_the_blocks(gamma):
    distances, labels = blocks((10, 15, 20))
    found = spectral_clusters(distances, 3, gamma, seed=1)
    assert set(found) == {0, 1, 2}
    if gamma == 1000.0:  # the affinity is the identity but for rounding: nothing to find
        return
    scores = cluster_scores(found, labels)
    assert (scores.ari, scores.purity, scores.left_out) == (1.0, 1.0, 0)
    assert scores.nmi == pytest.approx(1.0)


def test_identical_graphs_make_clusters_without_complaint():
    assert spectral_clusters(np.zeros((6, 6)), 2, seed=1).shape == (6,)
    assert (spectral_clusters(np.zeros((6, 6)), 1, seed=1) == 0).all()


@pytest.mark.parametrize(("count", "gamma"), [(0, 1.0), (46, 1.0), (2, -1.0), (2, np.nan)])
def test_impossible_clusters_are_refused(count, gamma):
    distances, _ = blocks((10, 15, 20))
    with pytest.raises(ValueError, match="must be"):
        spectral_clusters(distances, count, gamma, seed=1)


def test_cluster_scores_of_a_table_done_by_hand():
    # clusters {0, 0, 1}, {1, 1}: of 10 pairs 2 are together in both, 4 in found, 4 in labels.
    scores = cluster_scores([0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, -1])
    assert scores.left_out == 1
    assert scores.purity == pytest.approx(4 / 5)
    expected = 4 * 4 / 10
    assert scores.ari == pytest.approx((2 - expected) / ((4 + 4) / 2 - expected))
    joint = np.array([[2, 1], [0, 2]]) / 5
    outer = np.outer(joint.sum(1), joint.sum(0))
    mutual = sum(p * math.log(p / q) for p, q in zip(joint.flat, outer.flat, strict=True) if p)
    entropy = -(0.4 * math.log(0.4) + 0.6 * math.log(0.6))
    assert scores.nmi == pytest.approx(mutual / entropy)


def test_purity_counts_the_commonest_label_of_every_cluster():
    labels = [0, 0, 0, 1, 1]
    assert cluster_scores(np.arange(5), labels).purity == 1.0
    assert cluster_scores(np.zeros(5, dtype=int), labels).purity == pytest.approx(3 / 5)


def test_clusters_cannot_be_compared_with_nothing():
    with pytest.raises(ValueError, match="all are -1"):
        cluster_scores([0, 1], [-1, -1])
    with pytest.raises(ValueError, match="one number a graph"):
        cluster_scores([0, 1], [0, 1, 1])


# --- scores and pictures ------------------------------------------------------------------------


def test_the_graph_far_from_all_others_is_the_most_unusual():
    distances = points(np.array([[0.0], [1.0], [2.0], [50.0]]))
    scores = anomaly_scores(distances)
    assert scores == pytest.approx([53 / 3, 51 / 3, 51 / 3, 147 / 3])
    with pytest.raises(ValueError, match="one graph"):
        anomaly_scores([[0.0]])


def test_classical_scaling_returns_points_of_the_plane_to_their_distances():
    distances = points(np.random.default_rng(0).standard_normal((20, 2)))
    found = embedding_2d(distances, "mds", seed=1)
    assert points(found) == pytest.approx(distances, abs=1e-9)
    order = np.random.default_rng(1).permutation(20)
    again = embedding_2d(distances[np.ix_(order, order)], "mds", seed=2)
    assert again == pytest.approx(found[order], abs=1e-9)


@pytest.mark.parametrize("count", [1, 2])
def test_one_graph_and_two_can_be_drawn(count):
    distances = 3.0 * (1.0 - np.eye(count))
    assert points(embedding_2d(distances, "mds", seed=1)) == pytest.approx(distances)


@pytest.mark.parametrize("sizes", [(15, 15), (2, 2)])
def test_tsne_keeps_blocks_together_and_repeats(sizes):
    distances, labels = blocks(sizes)
    found = embedding_2d(distances, "tsne", seed=1)
    assert found.shape == (sum(sizes), 2)
    assert np.isfinite(found).all()
    assert np.array_equal(found, embedding_2d(distances, "tsne", seed=1))
    if sizes == (15, 15):
        assert knn_accuracy(points(found), labels, 3, seed=1).mean == 1.0


def test_a_picture_of_an_unknown_kind_or_of_too_few_is_refused():
    with pytest.raises(ValueError, match="use 'mds' or 'tsne'"):
        embedding_2d(np.zeros((4, 4)), "pca", seed=1)
    with pytest.raises(ValueError, match="t-SNE needs 3 graphs, there are 2"):
        embedding_2d(np.zeros((2, 2)), "tsne", seed=1)


# --- input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        ([[0.0, np.nan], [np.nan, 0.0]], r"distances\[0, 1\] = nan"),
        ([[0.0, 1.0], [2.0, 0.0]], r"not symmetric, \[0, 1\] = 1.0, \[1, 0\] = 2.0"),
        ([[0.0, -1.0], [-1.0, 0.0]], r"distances\[0, 1\] = -1.0: negative"),
        ([[0.0, 0.5], [0.5, 1.0]], r"distances\[1, 1\] = 1.0: must be 0; or is D a kernel"),
    ],
)
def test_what_is_no_distance_matrix_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        checked_distances(matrix)


def test_rounding_of_a_solver_is_forgiven():
    checked = checked_distances([[-1e-17, 1.0], [1.0 + 1e-12, 1e-15]])
    assert np.array_equal(checked, checked.T)
    assert checked.min() >= 0.0


@pytest.mark.parametrize("labels", [[0, 1], [0.5] * 24])
def test_labels_that_do_not_fit_are_refused(labels):
    distances, _ = blocks((12, 12))
    with pytest.raises(ValueError, match="a whole number for each of 24 graphs"):
        svm_accuracy(distances, labels, seed=1)


def test_a_single_fold_is_refused():
    distances, labels = blocks((12, 12))
    with pytest.raises(ValueError, match="folds=1"):
        svm_accuracy(distances, labels, seed=1, folds=1)


def test_a_summary_is_in_per_cent():
    result = Accuracy(np.array([0.5, 1.0]), np.array([0, 1]), ("one note",))
    assert result.summary() == "75.0 ± 35.4; one note"
