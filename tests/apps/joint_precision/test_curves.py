"""Areas under curves: against scikit-learn, and where a path is not as tidy as a score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, confusion_matrix, roc_auc_score

from trellis.apps.joint_precision import curves


def path_of(score: np.ndarray, points: int | None = None) -> np.ndarray:
    """Return the supports (L, K, pairs) of thresholds falling through the scores (K, pairs)."""
    levels = np.unique(score)[::-1]
    if points is not None:
        levels = levels[:points]
    return score[None] >= levels[:, None, None]


def example(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random((3, 40)) < 0.3
    # Rounded: many scores are equal, so that steps of the curves are slanted.
    return np.round(rng.normal(size=truth.shape) + truth, 1), truth


def test_confusion_counts_as_scikit_learn_does():
    score, truth = example()
    support = score > 0.5
    counts = curves.confusion(support, truth)
    for k in range(3):
        tn, fp, fn, tp = confusion_matrix(truth[k], support[k]).ravel()
        assert [c[k] for c in counts] == [tp, fp, fn, tn]


def test_confusion_broadcasts_one_truth_over_a_path():
    score, truth = example()
    support = path_of(score)
    counts = curves.confusion(support, truth)
    assert all(c.shape == support.shape[:2] for c in counts)
    np.testing.assert_array_equal(sum(counts), truth.shape[-1])


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_path_has_the_areas_of_its_scores(seed):
    score, truth = example(seed)
    support = path_of(score)
    roc = curves.area_under_roc(*curves.roc_points(support, truth))
    pr = curves.area_under_pr(*curves.pr_points(support, truth), curves.prevalence(truth))
    assert roc == pytest.approx(roc_auc_score(truth.ravel(), score.ravel()), abs=1e-12)
    assert pr == pytest.approx(average_precision_score(truth.ravel(), score.ravel()), abs=1e-12)


def test_a_path_cut_short_is_finished_by_guessing():
    score, truth = example()
    points = 12
    # The scores below the last threshold made equal: one slanted step to the complete graph.
    tied = np.where(score >= np.unique(score)[::-1][points - 1], score, -99.0)
    support = path_of(score, points)
    fpr, tpr = curves.roc_points(support, truth)
    assert fpr[-1] < 0.9
    expected = roc_auc_score(truth.ravel(), tied.ravel())
    assert curves.area_under_roc(fpr, tpr) == pytest.approx(expected, abs=1e-12)
    expected = average_precision_score(truth.ravel(), tied.ravel())
    area = curves.area_under_pr(*curves.pr_points(support, truth), curves.prevalence(truth))
    assert area == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_order_and_repetition_of_points_change_nothing(seed):
    score, truth = example(seed)
    support = path_of(score)
    again = np.random.default_rng(seed).integers(0, len(support), 30)
    shuffled = np.concatenate([support[again], support[::-1], support])
    for points, area in (
        (curves.roc_points, curves.area_under_roc),
        (curves.pr_points, lambda x, y: curves.area_under_pr(x, y, curves.prevalence(truth))),
    ):
        assert area(*points(shuffled, truth)) == pytest.approx(
            area(*points(support, truth)), abs=1e-12
        )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_any_set_of_graphs_has_an_area_that_is_that_of_its_sorted_points(seed):
    rng = np.random.default_rng(seed)
    truth = rng.random((2, 15)) < 0.4
    truth[:, :2] = [True, False]
    support = rng.random((9, *truth.shape)) < rng.random((9, 1, 1))  # nothing is nested
    fpr, tpr = curves.roc_points(support, truth)
    x, y = np.r_[0.0, fpr, 1.0], np.r_[0.0, tpr, 1.0]
    order = np.lexsort((y, x))
    assert curves.area_under_roc(fpr, tpr) == pytest.approx(auc(x[order], y[order]), abs=1e-12)
    pr = curves.area_under_pr(*curves.pr_points(support, truth), curves.prevalence(truth))
    assert 0.0 <= pr <= 1.0


def test_the_ends_are_perfect_and_guessing():
    truth = np.array([[True, False, False, True]])
    for support, roc, pr in ((truth, 1.0, 1.0), (~truth, 0.0, 0.5), (truth & False, 0.5, 0.5)):
        assert curves.area_under_roc(*curves.roc_points(support[None], truth)) == roc
        points = curves.pr_points(support[None], truth)
        assert curves.area_under_pr(*points, curves.prevalence(truth)) == pr


def test_clients_are_pooled_before_the_ratio():
    truth = np.array([[True, False, False], [True, True, False]])
    support = np.array([[[True, True, False], [False, False, False]]])
    fpr, tpr = curves.roc_points(support, truth)
    assert (fpr[0], tpr[0]) == (1 / 3, 1 / 3)


def test_nothing_to_find_has_no_area():
    support = np.array([[[True, False]]])
    for truth in (np.zeros((1, 2), bool), np.ones((1, 2), bool)):
        assert np.isnan(curves.area_under_roc(*curves.roc_points(support, truth)))


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"support \(2, 5\) against truth \(5,\)"):
        curves.roc_points(np.zeros((2, 5), bool), np.zeros(5, bool))
