"""Controls: known answers, pairing of draws, and what a constant embedding can still tell."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.apps.gromov_wasserstein.downstream.controls import (
    majority,
    paired,
    sizes_only,
)
from trellis.apps.gromov_wasserstein.downstream.tasks import Grid, knn_accuracy, svm_accuracy

KNN = partial(knn_accuracy, k=3, seed=1, folds=4)


def test_the_majority_is_the_share_of_the_commonest_labelled_class():
    assert majority([0, 0, 1, 2, -1, -1, -1, -1]) == 0.5
    assert majority([3]) == 1.0
    with pytest.raises(ValueError, match="all are -1"):
        majority([-1, -1])


def test_sizes_tell_classes_of_different_sizes_and_no_others():
    labels = np.repeat([0, 1], 20)
    small_and_large = np.concatenate([np.arange(10, 30), np.arange(50, 70)])
    for score in (KNN, partial(svm_accuracy, seed=1, folds=4, grid=Grid((1.0, 100.0), (0.1, 1.0)))):
        assert sizes_only(small_and_large, labels, score).mean == 1.0
    assert sizes_only(np.full(40, 17), labels, KNN).mean == 0.5
    with pytest.raises(ValueError, match="number of nodes >= 1"):
        sizes_only([3, 0], [0, 1], KNN)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20))
def test_paired_differences_have_the_mean_and_error_of_the_textbook(pairs):
    ours, control = np.array(pairs).T
    found = paired(ours, control)
    assert found.mean == pytest.approx(ours.mean() - control.mean(), abs=1e-12)
    assert found.error == pytest.approx(stats.sem(ours - control), abs=1e-12)
    assert ("too few" in found.summary()) == (len(pairs) < 5)


def test_pairing_removes_what_both_have_in_common():
    common = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    found = paired(common + 0.05, common)
    assert found.mean == pytest.approx(0.05)
    assert found.error == pytest.approx(0.0, abs=1e-12)
    assert found.summary() == "+5.0 ± 0.0 points over 5 draws"


@pytest.mark.parametrize(
    ("ours", "control", "message"),
    [
        ([0.5, 0.6], [0.5], "paired"),
        ([0.5], [0.5], "a standard error needs 2"),
        ([0.5, np.nan], [0.5, 0.5], "finite"),
    ],
)
def test_what_cannot_be_paired_is_refused(ours, control, message):
    with pytest.raises(ValueError, match=message):
        paired(ours, control)
