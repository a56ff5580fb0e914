"""A server that asks for held-out scores: at any time, many times, of models of its own choosing.

The score of a model of one's choice is an exact function of records: a few of them are the records.
So a device tells one where nothing is claimed, and its owner allows it, and nowhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from trellis import apps
from trellis.apps.common.private.kept import kept_results
from trellis.apps.common.runner import make_run_config
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

from .same_device import with_secret
from .test_private_studies import observable

SILENCE = {"personal": {"came": True}}
N, D = 30, 4
GRAPH, MATRIX, POINTS = np.full(6, 0.3), np.eye(4), np.array([0.3])
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "consensus-graph": (
        {},
        {"weights": GRAPH, "consensus": GRAPH, "noise": np.ones(1)},
        {},
    ),
    "joint-precision": (
        {},
        {"precision": MATRIX, "sparse": MATRIX, "consensus": MATRIX, "points": POINTS},
        {},
    ),
    "server-graph": (
        {"method": "fedavg"},
        {"model": np.ones(D)},
        {"server-round": 1},
    ),
    "cluster-admm": (
        {"clusters": "1"},
        {"model": np.ones(D), "models": np.ones((1, D)), "pulls": np.ones(1)},
        {"cluster": 0},
    ),
}  # fmt: skip
OWNERS = {
    "budget": {"max-epsilon": 5.0},
    "run budget": {"run-epsilon": 5.0},
    "required": {"require-privacy": True},
    "modes": {"privacy": ["dp"]},
}


def device(folder: Path, record: Any = None, **owner: Any) -> dict[str, Any]:
    """Return the node config of a device, one of whose records may be replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((N, D)), rng.choice([-1.0, 1.0], N)
    if record is not None:
        X[7], y[7] = record
    np.savez(folder / "x.npz", X=X, y=y)
    place = {"server": 0, "cluster": 0, "partition-id": 0}
    path, state = str(folder / "x.npz"), str(folder / "state")
    return with_secret({"data-path": path, "state-path": state, **place, **owner})


def told(study: str, node: dict[str, Any], *times: float, **settings: Any) -> list[Message]:
    """Return what a device says to ``evaluate``, of the study's result times each number."""
    mine, arrays, order = STUDIES[study]
    chosen = {"clients": 3, "held-out": 0.3, **mine, **settings}
    config = make_run_config(study, chosen)
    answers = []
    with LocalGrid(apps.client_app, [node], config) as grid:
        (number,) = grid.get_node_ids()
        for factor in times:
            sent = {name: factor * array for name, array in arrays.items()}
            content = RecordDict({"arrays": wire.record(sent), "order": ConfigRecord(order)})
            content["config"] = ConfigRecord(order)
            answers += grid.send_and_receive([Message(content, number, "evaluate")])
    return answers


def words(answer: Message) -> dict[str, Any]:
    assert not answer.has_error(), answer.error.reason
    return {name: dict(record) for name, record in answer.content.items()}


# All that a private run can be.
DP = [("consensus-graph", {"method": method}) for method in ("fedgl", "igl", "fedavg")]
DP += [("cluster-admm", {"method": method}) for method in ("moments", "local")]
DP += [("joint-precision", {"method": method}) for method in ("group", "pooled", "glasso")]
DP += [
    ("server-graph", {"method": "fedavg"}),
    ("server-graph", {"method": "hybrid", "servers": 1}),
]


@pytest.mark.parametrize(("study", "chosen"), DP, ids=str)
def test_under_sound_no_score_is_told_whatever_model_is_sent(study, chosen, tmp_path):
    settings = {"privacy": "dp", **chosen}
    for name, record in (("one", None), ("other", ([1e300, np.nan, 0.0, -1.0], -1.0))):
        answers = told(study, device(tmp_path / name, record), 1.0, 1e30, np.nan, -1.0, **settings)
        assert [words(answer) for answer in answers] == [SILENCE] * 4
        assert DeviceLedger(tmp_path / name / "state").events() == []
    # They were computed, for the owner.
    kept = kept_results(tmp_path / "one" / "state")[0]
    assert kept.about["scores"]["count"] in (9, 10)
    assert kept.about["told"] is False


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("study", STUDIES)
def test_an_owner_who_requires_privacy_tells_none_without_it(study, owner, tmp_path):
    node = device(tmp_path, **OWNERS[owner])
    for settings in ({}, {"secure-aggregation": "on"} if study == "server-graph" else {}):
        for answer in told(study, node, 1.0, 2.0, privacy="none", **settings):
            assert answer.has_error()
            assert "E4" in answer.error.reason
    assert not (tmp_path / "state" / "results").exists()


@pytest.mark.parametrize("clear", [True, False])
def test_masked_runs_without_privacy_tell_scores_by_the_owner_s_leave_only(clear, tmp_path):
    node = device(tmp_path, **{"clear-updates": clear, "privacy": ["none", "dp"]})
    settings = {"privacy": "none", "secure-aggregation": "on"}
    (answer,) = told("server-graph", node, 1.0, **settings)
    assert (set(words(answer)) == {"personal"}) is not clear
    assert ("scores" in answer.content) is clear


@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
def test_means_and_deviations_are_not_told_at_enrolment_to_whom_nothing_goes_in_the_clear(
    study, tmp_path
):
    mine, _, _ = STUDIES[study]
    told_by = {}
    for name, owner in {
        "anyone": {},
        "no clear updates": {"clear-updates": False, "privacy": ["none", "dp"]},
        "budget": {"max-epsilon": 5.0},
    }.items():
        for privacy in ("none", "dp"):
            node = device(tmp_path / name, **owner)
            more = {"secure-aggregation": "off"} if study == "server-graph" else {}
            more = {} if privacy == "dp" else more
            chosen = {"clients": 3, "standardise": "shared", "privacy": privacy, **mine, **more}
            with LocalGrid(apps.client_app, [node], make_run_config(study, chosen)) as grid:
                (number,) = grid.get_node_ids()
                (answer,) = grid.send_and_receive([Message(RecordDict(), number, "query.enrol")])
            seen = observable(answer)["client"]
            told_by[name, privacy] = any(key.startswith("moments") for key in seen)
    assert [key for key, tells in told_by.items() if tells] == [("anyone", "none")]


def test_a_server_that_calls_it_a_simulation_gets_no_score(tmp_path):
    """What makes a simulation is in the node config; what the run config says of it is nothing."""
    node = device(tmp_path)
    mine, arrays, order = STUDIES["server-graph"]
    config = make_run_config("server-graph", {"privacy": "dp", "held-out": 0.3, **mine})
    config |= {"simulation": True, "data": str(tmp_path), "partition-id": 0}
    with LocalGrid(apps.client_app, [node], config) as grid:
        (number,) = grid.get_node_ids()
        content = RecordDict({"arrays": wire.record(arrays), "order": ConfigRecord(order)})
        content["simulation"] = ConfigRecord({"simulation": True, "simulated": True})
        (answer,) = grid.send_and_receive([Message(content, number, "evaluate")])
    assert words(answer) == SILENCE


def test_held_out_records_are_the_same_for_every_seed_and_nested_for_every_share(tmp_path):
    """Else two runs with other seeds or shares would learn from all but a few chosen records."""
    from trellis.apps.server_graph.client_app import _memory

    node = device(tmp_path)
    found = []
    mine, _, _ = STUDIES["server-graph"]
    for run, (seed, share) in enumerate(((1, 0.3), (2, 0.3), (1, 0.5), (9, 0.1)), start=1):
        chosen = {"privacy": "dp", "held-out": share, "clients": 3, **mine}
        config = make_run_config("server-graph", chosen, seed=seed)
        context = Context(run, 1, node, RecordDict(), config)
        found.append(_memory.client(context).held)
    assert np.array_equal(found[0], found[1])
    assert [int(held.sum()) for held in found] == [9, 9, 15, 3]
    assert np.all(found[0] <= found[2])
    assert np.all(found[3] <= found[0])
