"""Held-out scores: the measures, what is told of them, what a server makes of what it is told."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from sklearn.metrics import r2_score, roc_auc_score

from trellis.apps.common.evaluation.measures import (
    ACCURACY,
    ALONE,
    AUC,
    LOSS,
    MOST_FREQUENT,
    R2,
    THIS,
    Predicted,
    Scores,
    area_under_curve,
    model_scores,
)
from trellis.apps.common.evaluation.scores import (
    better_than_alone,
    gather,
    judged,
    numbers,
    scores_csv,
    tables_of,
)
from trellis.apps.common.results import RunResult
from trellis.strategies.core import wire
from trellis.strategies.core.closing.evaluation import read_scores, score_records
from trellis.strategies.core.wire import BadReply


def test_the_area_under_the_curve_is_scikit_learn_s():
    rng = np.random.default_rng(0)
    for _ in range(20):
        y = np.where(rng.random(30) < 0.4, 1.0, -1.0)
        values = rng.integers(0, 8, 30) / 4.0  # with ties
        assert area_under_curve(y, values) == pytest.approx(roc_auc_score(y, values))
    assert math.isnan(area_under_curve(np.ones(4), np.arange(4.0)))
    assert math.isnan(area_under_curve(np.array([1.0, -1.0]), None))


def test_models_are_scored_beside_the_most_frequent_label():
    y = np.array([1.0, 1.0, -1.0, -1.0])
    found = model_scores(
        "labels", np.array([-1.0, -1.0, 1.0]), y,
        {THIS: Predicted(y, 0.1, y), ALONE: Predicted(-y, 2.0, -y)},
    )  # fmt: skip
    assert found.measures == (LOSS, ACCURACY, AUC)
    assert found.rows[THIS] == (0.1, 1.0, 1.0)
    assert found.rows[ALONE] == (2.0, 0.0, 0.0)
    assert found.rows[MOST_FREQUENT][1:] == (0.5, 0.5)
    assert "better than learning alone: share of right labels 1 beside 0" in found.in_words()


def test_numbers_are_scored_by_r_squared():
    rng = np.random.default_rng(1)
    y, guess = rng.normal(size=(2, 20))
    found = model_scores("numbers", y, y, {THIS: Predicted(guess, 1.0)})
    assert found.leading == R2
    assert found.rows[THIS][1] == pytest.approx(r2_score(y, guess))


def a_table(count=4, this=0.8, alone=0.5):
    rows = {THIS: (0.3, this), ALONE: (0.6, alone), MOST_FREQUENT: (math.nan, 0.5)}
    return Scores(count, (LOSS, ACCURACY), rows, ACCURACY).table()


def test_a_table_survives_the_wire():
    content = RecordDict(dict(score_records(a_table())))
    found = read_scores(content)
    assert found.rows[THIS] == (0.3, 0.8)
    assert math.isnan(found.rows[MOST_FREQUENT][0])
    assert (found.count, found.main, found.judge, found.lower) == (4, ACCURACY, LOSS, (LOSS,))
    assert read_scores(RecordDict()) is None


def _changed(**names):
    content = dict(score_records(a_table()))
    content["score-names"] = ConfigRecord({**content["score-names"], **names})
    return RecordDict(content)


def _values(array):
    return RecordDict({**score_records(a_table()), "scores": wire.record({"values": array})})


BAD = {
    "no names": RecordDict({"scores": wire.record({"values": np.zeros((3, 2))})}),
    "arrays that are none": RecordDict(
        {"scores": ConfigRecord({"a": 1}), "score-names": ConfigRecord()}
    ),
    "no records": _changed(count=0),
    "a negative number of records": _changed(count=-5),
    "a number that is none": _changed(count=True),
    "a measure that is not there": _changed(main="beauty"),
    "judged by nothing": _changed(judge=""),
    "names twice": _changed(rows=[THIS, THIS, ALONE]),
    "names that are not printed": _changed(rows=[THIS, ALONE, "a\x1b[2Jb"]),
    "long names": _changed(rows=[THIS, ALONE, "x" * 500]),
    "too many": _changed(rows=[f"row {k}" for k in range(100)]),
    "another shape": _values(np.zeros((2, 2))),
    "other numbers": _values(np.zeros((3, 2), dtype=np.int64)),
    "infinite": _values(np.full((3, 2), np.inf)),
    "huge": _values(np.full((3, 2), 1e200)),
    "no values": RecordDict({**score_records(a_table()), "scores": ArrayRecord()}),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_table_of_scores_is_rejected(what):
    with pytest.raises((BadReply, KeyError)):
        read_scores(BAD[what])


def test_means_count_by_held_out_records_and_numbers_are_named():
    found = gather({"a": a_table(3, 1.0, 0.0), "b": a_table(1, 0.0, 1.0)})
    assert found["mean"][THIS] == pytest.approx([0.3, 0.75])
    told = numbers(found)
    assert told["held-out-accuracy"] == pytest.approx(0.75)
    assert told["alone-held-out-accuracy"] == pytest.approx(0.25)
    assert told["trivial-held-out-accuracy"] == 0.5
    assert "trivial-held-out-loss" not in told
    assert better_than_alone(found) == (1, 0, 1)
    json.dumps(found, allow_nan=False)
    rows = scores_csv(found).splitlines()
    assert rows[0] == f"client,held-out records,of,{LOSS},{ACCURACY}"
    assert rows[-3] == f"mean over all clients,4,{THIS},{found['mean'][THIS][0]!r},0.75"
    assert gather(tables_of(found)) == found
    assert gather({}) == {}


def test_a_client_that_measures_something_else_is_left_out():
    odd = Scores(5, ("beauty",), {THIS: (1e9,)}).table()
    found = gather({"a": a_table(), "liar": odd, "b": a_table()})
    assert [client["name"] for client in found["clients"]] == ["a", "b"]


def test_settings_are_judged_by_the_mean_loss_or_as_asked(tmp_path):
    result = RunResult("server-graph", 1, "local", {}, scores=gather({"a": a_table()}))
    told = judged(result)
    assert (told.measure, told.value, told.alone, told.lower) == (LOSS, 0.3, 0.6, True)
    assert told.of_clients == {"a": 0.3}
    assert not judged(result, "accuracy").lower
    assert judged(result, "held-out-accuracy").value == 0.8
    with pytest.raises(ValueError, match="have loss, accuracy"):
        judged(result, "f1")
    result.save(tmp_path)
    again = RunResult.load(tmp_path)
    assert again.scores == result.scores
    assert (tmp_path / "scores.csv").is_file()
    assert judged(RunResult("server-graph", 1, "local", {})) is None
