"""Controls: known answers, pairing of draws, and what a constant embedding can still tell."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import cdist

from apps.gromov_wasserstein.downstream.controls import (
    constant_embedding,
    encoder_draws,
    majority,
    paired,
    sizes_only,
)
from apps.gromov_wasserstein.downstream.tasks import Accuracy, Grid, knn_accuracy, svm_accuracy
from privacy.mechanisms.multibit import MultiBit, encode, encode_twice

KNN = partial(knn_accuracy, k=3, seed=1, folds=4)


def mean_rows(released):
    """Distances between the graphs' mean codes: a stand-in for Gromov-Wasserstein."""
    means = np.array([np.mean(code, axis=0) for code in released])
    return cdist(means, means)


def entries(released):
    """Distances between the numbers of entries a graph sent."""
    sent = np.array([np.abs(code).sum() for code in released], dtype=float)
    return np.abs(sent[:, None] - sent)


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


def test_a_strong_code_of_a_telling_embedding_beats_the_constant_one():
    labels = np.repeat([0, 1], 12)
    rows = [np.eye(2)[np.full(9, label)] for label in labels]
    codes = [MultiBit(2, 20.0, 2)] * 24
    ours = encoder_draws(rows, labels, codes, encode, mean_rows, KNN, seed=3)
    control = constant_embedding(np.full(24, 9), labels, codes, encode, mean_rows, KNN, seed=3)
    assert (ours == 1.0).all()
    assert control.shape == (5,)
    assert control.mean() < 0.75
    difference = paired(ours, control)
    assert difference.mean > 3 * difference.error


def test_a_weak_code_of_the_same_embedding_does_not():
    labels = np.repeat([0, 1], 12)
    rows = [np.eye(2)[np.full(9, label)] for label in labels]
    codes = [MultiBit(2, 1e-6, 1)] * 24
    ours = encoder_draws(rows, labels, codes, encode, mean_rows, KNN, seed=3)
    control = constant_embedding(np.full(24, 9), labels, codes, encode, mean_rows, KNN, seed=3)
    assert abs(paired(ours, control).mean) < 0.2


def test_a_constant_embedding_gives_the_sizes_away():
    """The reason for the control: coin flips alone can classify."""
    labels = np.repeat([0, 1], 12)
    sizes = np.where(labels == 0, 8, 30)
    codes = [MultiBit(4, 1.0 / n, 1) for n in sizes]
    accuracy = constant_embedding(sizes, labels, codes, encode, entries, KNN, seed=1)
    assert (accuracy == 1.0).all()


def test_draws_are_paired_by_seed_and_graph_and_independent_of_each_other():
    seen = []

    def distances(released):
        seen.append(released)
        return mean_rows(released)

    labels = np.repeat([0, 1], 6)
    codes = [MultiBit(5, 4.0, 2)] * 12
    rng = np.random.default_rng(0)
    for rows in ([np.full((7, 5), 0.2)] * 12, [rng.random((7, 5)) for _ in range(12)]):
        encoder_draws(rows, labels, codes, encode, distances, KNN, seed=9, draws=2)
    constant, drawn = seen[:2], seen[2:]
    for one, two in zip(constant, drawn, strict=True):  # the same coordinates are chosen
        assert all(np.array_equal(a != 0, b != 0) for a, b in zip(one, two, strict=True))
    supports = [code != 0 for released in constant for code in released]
    assert len({s.tobytes() for s in supports}) == len(supports) == 24


def test_the_constant_rows_are_one_over_h_of_each_graph_s_size():
    got = []

    def watching(rows, code, source):
        got.append(rows)
        return encode(rows, code, source)

    sizes, labels = np.arange(1, 13), np.repeat([0, 1], 6)
    codes = [MultiBit(3, 1.0, 1)] * 12
    constant_embedding(sizes, labels, codes, watching, mean_rows, KNN, seed=1, draws=1)
    assert [rows.shape for rows in got] == [(n, 3) for n in sizes]
    assert all((rows == 1 / 3).all() for rows in got)


def test_two_encodings_a_graph_go_through_as_they_are():
    labels = np.repeat([0, 1], 6)

    def distances(released):
        assert all(len(pair) == 2 and pair[0].dtype == np.int8 for pair in released)
        return mean_rows([first for first, _ in released])

    codes = [MultiBit(3, 5.0, 2)] * 12
    accuracy = constant_embedding(
        np.full(12, 4), labels, codes, encode_twice, distances, KNN, seed=1, draws=2
    )
    assert accuracy.shape == (2,)


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


def test_a_missing_code_and_no_draws_are_refused():
    def score(_distances, _labels):
        return Accuracy(np.ones(2), np.zeros(2, dtype=np.int64))

    codes = [MultiBit(3, 1.0, 1)]
    with pytest.raises(ValueError, match="codes: 1 for 2 graphs"):
        constant_embedding([3, 4], [0, 1], codes, encode, mean_rows, score, seed=1)
    with pytest.raises(ValueError, match="codes: 1 for 2 graphs"):
        encoder_draws([np.ones((2, 3))] * 2, [0, 1], codes, encode, mean_rows, score, seed=1)
    with pytest.raises(ValueError, match="draws=0"):
        constant_embedding([3], [0], codes, encode, mean_rows, score, seed=1, draws=0)
