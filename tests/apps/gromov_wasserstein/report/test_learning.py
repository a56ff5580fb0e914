"""Accuracies beside their controls, clusters, anomalies, and training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trellis.apps.gromov_wasserstein.report import learning as report_learning
from trellis.apps.gromov_wasserstein.report import page as report
from trellis.apps.gromov_wasserstein.report.learning import CHANCE, CONSTANT, MAJORITY, SIZES, Score

from .runs import LABEL, LEARNING, PICTURE, TRAINING, changed, run, shown, table, told


def test_every_accuracy_stands_beside_all_its_controls():
    row = table(run(), LEARNING, "classifier")["SVM on exp(-gamma D)"]
    assert row["from the distances"] == 71.0
    assert row["from the numbers of nodes alone"] == 79.5
    assert row["from a constant embedding"] == "72.0 ± 3.1 (5 draws)"
    assert row[MAJORITY] == 54.5
    assert row[CHANCE] == 50.0
    assert "test" not in table(run(), LEARNING, "classifier")


def test_an_accuracy_below_its_controls_is_said_to_prove_nothing():
    text = shown(run(), LEARNING)
    assert (
        "71.0 %: does not beat the numbers of nodes alone (79.5 %), a constant embedding (72.0 %). "
        "It is no evidence" in text
    )
    assert '<div class="notice" role="note"><p>SVM' in text


CONTROLS = {SIZES: 0.5, CONSTANT: 0.6, MAJORITY: 0.55, CHANCE: 0.5}


@pytest.mark.parametrize("name", list(CONTROLS))
def test_a_single_control_that_is_as_good_is_enough_to_lose(name):
    score = Score("SVM", 0.8, {**CONTROLS, name: 0.8}, np.zeros(0))
    good, text = report_learning.verdict(score, 100, True)
    assert not good
    assert f"does not beat {name} (80.0 %)." in text


def test_an_accuracy_above_all_controls_has_its_lead_and_its_error():
    draws = np.array([0.59, 0.61])
    good, text = report_learning.verdict(Score("SVM", 0.8, CONTROLS, draws), 100, True)
    assert good
    assert "the best of them a constant embedding, by 20.0 points" in text
    assert "of 100 graphs, is about 4.0 points." in text
    assert "standard deviation of 1.4 points" in text
    close = Score("SVM", 0.65, CONTROLS, draws)
    assert "not more than two of these" in report_learning.verdict(close, 100, True)[1]


def test_draws_of_the_constant_embedding_that_are_as_good_are_counted():
    draws = np.array([0.4, 0.5, 0.9])
    good, text = report_learning.verdict(Score("SVM", 0.8, CONTROLS, draws), 100, True)
    assert not good
    assert "1 of its 3 draws did as well or better" in text


def test_a_control_that_is_missing_is_missed():
    only = {MAJORITY: 0.5, CHANCE: 0.5}
    good, text = report_learning.verdict(Score("SVM", 0.8, only, np.zeros(0)), 100, True)
    assert not good
    assert f"Not compared with {SIZES}, {CONSTANT}" in text
    good, text = report_learning.verdict(Score("SVM", 0.8, {}, np.zeros(0)), 100, True)
    assert not good
    assert "shows nothing" in text
    plain = told(run(privacy="none"), svm_accuracy=0.99)
    for name in ("svm-from-constant",):
        plain.headline.pop(name)
        plain.arrays.pop(name)
    text = shown(plain, LEARNING)
    assert "Nothing was encoded" in text
    assert "Not compared" not in text


def test_without_labels_no_accuracy_is_told_but_clusters_and_anomalies_are():
    blind = changed(run(), labels=np.full(12, -1))
    blind.headline = {"graphs": 12.0}
    text = shown(blind, LEARNING)
    assert "No graph has a label that the server knows" in text
    assert table(blind, LEARNING, "method")["spectral"]["purity"] is None
    assert all(row["label"] is None for row in table(blind, LEARNING, "score").values())
    assert "No graph has a label" in shown(blind, PICTURE)
    unasked = replace(run(), headline={"graphs": 12.0})
    assert "No classifier was asked for" in shown(unasked, LEARNING)


def test_clusters_are_counted_by_class():
    rows = table(run(), LEARNING, "", "class 0")
    groups = run().arrays["spectral-clusters"]
    for name, row in rows.items():
        cluster = int(name.removeprefix("cluster "))
        for label in (0, 1):
            pairs = zip(groups, LABEL, strict=True)
            assert row[f"class {label}"] == sum(pair == (cluster, label) for pair in pairs)
    first = table(run(), LEARNING, "method")["spectral"]
    assert first["graphs in the largest"] == max(row["graphs"] for row in rows.values())
    assert (first["adjusted Rand index"], first["purity"]) == (0.31, 0.83)


def test_the_most_anomalous_graph_is_first_with_its_owner_size_and_label():
    score = np.ones(12)
    score[[3, 8]] = 5.0, 3.0
    rows = table(changed(run(), anomaly=score), LEARNING, "score")
    assert list(rows)[:2] == ["<rome>-1", "bern-2"]
    assert list(rows["<rome>-1"].values()) == ["<rome>-1", "<rome>", 12, 1, 5.0, 5.0]
    assert len(rows) == 10


def test_training_is_drawn_from_the_rounds_there_are():
    text = shown(run(), TRAINING)
    assert "loss 1 to 0.3333" in text
    assert "train 0.5 to 0.5, test 0.25 to 0.75" in text
    assert "labels of graphs" in text
    assert "validation" not in text
    short = replace(run(), metrics=run().metrics[:1])
    assert TRAINING not in [section.title for section in report.sections(short)]
