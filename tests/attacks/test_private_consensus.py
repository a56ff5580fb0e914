"""One noisy sum and graphs at home, against a server that chooses settings and messages.

Two data sets that differ in one record must look alike in everything a device says, but for what it
adds to a sum; and there they are no further apart than what the noise is for.
"""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from tests.apps.device_logs import reasons
from tests.attacks.same_device import with_secret
from tests.attacks.test_private_studies import CASES, ask, device, observable
from trellis import apps
from trellis.apps.common.runner import make_run_config
from trellis.apps.consensus_graph import client_app as study
from trellis.apps.consensus_graph.private import pooled, score
from trellis.privacy.accounting.budget import DeviceLedger, PrivacyRefused
from trellis.privacy.secagg.client import Summands
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

DP = {"privacy": "dp", "epsilon": 1.0, "clients": 5, "held-out": 0.2}
SENT = {
    "a graph": np.array([1.0, 0.0, 0.5, 0.2, 0.0, 3.0]),
    "an empty one": np.zeros(6),
    "a huge one": np.array([1e100, 0.0, 1e80, 0.0, 0.0, 1.0]),
    "a tiny one": np.array([1e-308, 0.0, 0.0, 0.0, 0.0, 5e-324]),
    "a negative one": -np.ones(6),
    "no numbers": np.full(6, np.nan),
    "beyond all": np.array([1e308, 0.0, 0.0, 0.0, 0.0, 1.0]),
    "another size": np.ones(10),
}


def asked_for(consensus=None) -> RecordDict:
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    if consensus is not None:
        arrays = {"consensus": consensus, "noise": np.array([0.1])}
        content["arrays"] = wire.record(arrays)
    return content


def summands_of(node, settings, content, kind="train") -> Summands:
    """Return what a device adds to the sum of statistics, or to that of scores (``evaluate``)."""
    run_config = make_run_config("consensus-graph", settings)
    answer = study.summands if kind == "train" else study.score
    with LocalGrid(apps.client_app, [node], run_config):
        message = Message(content, 1, f"{kind}.secagg_masked")
        context = Context(7, 1, node, RecordDict(), run_config)
        return answer(message, context)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[case[0] for case in CASES])
def test_no_record_decides_what_a_device_says(case, tmp_path):
    run_config = make_run_config("consensus-graph", DP)
    graph = {"consensus": SENT["a graph"], "noise": np.array([0.1])}
    seen = []
    for number, values in enumerate(CASES[case][1:]):
        node = device(tmp_path / str(number), values)
        answers = ask(run_config, node, ("query.enrol", {}, {}), ("query.personal", graph, {}))
        seen.append([observable(answer) for answer in answers])
        assert seen[-1][1] == {"personal": {"came": True}}
    assert seen[0] == seen[1]


@pytest.mark.parametrize("clip", [0.0, 5.0])
@pytest.mark.parametrize("case", range(len(CASES)), ids=[case[0] for case in CASES])
def test_one_record_moves_the_sum_by_no_more_than_the_noise_is_for(case, clip, tmp_path):
    found = []
    for number, values in enumerate(CASES[case][1:]):
        node = with_secret(device(tmp_path / str(number), values))
        arrays = summands_of(node, {**DP, "clip": clip}, asked_for()).arrays
        found.append(np.concatenate(list(arrays.values())))
    assert np.all(np.isfinite(found))
    moved = np.linalg.norm(found[0] - found[1])
    # A line of csv that is one record may be read as another, or as none.
    assert moved <= pooled.sensitivity(clip) * (1.0 + 1e-9)


@pytest.mark.parametrize(
    "extreme",
    [
        {"epsilon": 1e-300},
        {"epsilon": 1e300},
        {"delta": 1e-299},
        {"delta": 1.0 - 1e-12, "epsilon": 1e-9},
        {"clip": 1e-100},
        {"clip": 1e100},
    ],
    ids=str,
)
def test_no_scale_a_server_picks_makes_one_record_show(extreme, tmp_path):
    """Neither in whether a device enrols nor in whether it adds to the sum, nor in what it counts.

    What it counts is noise in whole numbers, without the gaps of floating point.
    """
    settings = {**DP, "epsilon": 0.5, **extreme}
    seen = []
    for number, odd in enumerate((0.0, 1e300, 1e-82)):
        values = np.random.default_rng(2).standard_normal((20, 4))
        values[0, 0] = odd
        node = with_secret(device(tmp_path / str(number), values))
        run_config = make_run_config("consensus-graph", settings)
        (answer,) = ask(run_config, node, ("query.enrol", {}, {}))
        try:
            mine = summands_of(node, settings, asked_for())
            size = sum(array.size for array in mine.arrays.values())
            drawn, _, _ = mine.noise(lambda *_, **__: 1, pooled.FRACTION_BITS, size)
            kind = drawn.dtype.kind
        except (PrivacyRefused, ValueError) as refusal:
            kind = str(refusal)
        events = DeviceLedger(tmp_path / str(number) / "s-a").events()
        assert {event.mechanism for event in events} <= {"summed-gaussian"}
        seen.append([observable(answer), kind, [event.sigma for event in events]])
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == "i" or not seen[0][2]


@pytest.mark.parametrize("sent", list(SENT)[:4])
@pytest.mark.parametrize("case", range(len(CASES)), ids=[case[0] for case in CASES])
def test_one_record_moves_the_score_by_one_at_most(case, sent, tmp_path):
    found = []
    for number, values in enumerate(CASES[case][1:]):
        node = with_secret(device(tmp_path / str(number), values))
        asked = asked_for(SENT[sent])
        found.append(summands_of(node, DP, asked, "evaluate").arrays["scores"])
    assert np.linalg.norm(found[0] - found[1]) <= score.SENSITIVITY


@pytest.mark.parametrize("sent", list(SENT)[4:])
def test_what_is_no_consensus_is_refused_whatever_the_data(sent, tmp_path):
    for number, (_, values, _) in enumerate(CASES[:4]):
        node = device(tmp_path / str(number), values)
        with pytest.raises(ValueError, match=r"consensus|noise"):
            summands_of(node, DP, asked_for(SENT[sent]), "evaluate")


def test_a_score_that_was_not_declared_is_refused(tmp_path):
    node = device(tmp_path, np.random.default_rng(0).normal(size=(20, 4)))
    asked = asked_for(SENT["a graph"])
    for settings in ({"held-out": 0.0}, {"method": "igl", "epsilon": 1.0}, {"privacy": "none"}):
        refused = pytest.raises(
            (ValueError, PrivacyRefused), match=r"no held-out score|no secure sum"
        )
        with refused:
            summands_of(node, {**DP, **settings}, asked, "evaluate")


@pytest.mark.parametrize("kind", ["train", "train.statistic"])
@pytest.mark.parametrize("settings", [{}, {"method": "fedavg"}, {"method": "igl"}])
def test_nothing_is_said_in_the_clear(settings, kind, tmp_path):
    node = device(tmp_path, np.random.default_rng(0).normal(size=(20, 4)))
    run_config = make_run_config("consensus-graph", {**DP, **settings})
    graph = SENT["a graph"]
    config = {"server-round": 1, "pull": 1.0, "statistic": True}
    asked = (kind, {"consensus": graph, "own": graph, "slope": graph}, config)
    (answer,) = ask(run_config, node, asked)
    assert answer.has_error()
    assert not DeviceLedger(tmp_path / "s-a").events()
    said = "in the clear" if kind == "train" else "sends no statistic"
    assert said in reasons(tmp_path / "s-a")[-1]


def test_a_second_sum_of_the_same_run_is_refused(tmp_path):
    node = device(tmp_path, np.random.default_rng(0).normal(size=(20, 4)))
    run_config = make_run_config("consensus-graph", DP)
    context = Context(7, 1, node, RecordDict(), run_config)
    with LocalGrid(apps.client_app, [node], run_config):
        for turn in (1, 2):
            message = Message(asked_for(), 1, "train.secagg_masked")
            mine = study.summands(message, context)
            assert mine.noise is not None
            size = sum(array.size for array in mine.arrays.values())
            if turn == 1:
                drawn, told, _ = mine.noise(lambda *_, **__: 1, 20, size)
                assert drawn.shape == (size,)
                assert len(told) == 1
            else:
                with pytest.raises(PrivacyRefused, match="declares 1 releases"):
                    mine.noise(lambda *_, **__: 1, 20, size)
    (event,) = DeviceLedger(tmp_path / "s-a").events()
    assert event.epsilon <= 1.0


def test_a_run_without_rounds_cannot_be_made_to_release_a_statistic(tmp_path):
    node = device(tmp_path, np.random.default_rng(0).normal(size=(20, 4)))
    settings = {**DP, "method": "igl", "held-out": 0.0}
    with pytest.raises(PrivacyRefused, match="has no secure sum"):
        summands_of(node, settings, asked_for())
