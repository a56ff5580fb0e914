"""What every strategy must do. A new one joins by its study's `small` file, see `tests.studies`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.studies import told
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.grid import run_local
from trellis.strategies.core.checkpoint import Checkpoint, CheckpointError

# (study, settings): small, all rounds run, every method.
_GRAPH = {"nodes": 6, "clients": 3, "signals": "20"}
STRATEGIES = [
    ("consensus-graph", {**_GRAPH, "method": method, **steps})
    for method in ("fedgl", "igl", "fedavg")
    for steps in ({}, {"local-steps": 4}, {"sample": 2})
] + [
    ("consensus-graph", {**_GRAPH, **more})
    for more in (
        {"method": "one-shot"},
        {"method": "fedavg", "secure-aggregation": True},
        {"privacy": "paper", "local-steps": 4},
        {"privacy": "dp"},
        {"privacy": "dp", "method": "fedavg", "held-out": 0.3},
        {"privacy": "dp", "method": "igl"},
    )
]
STRATEGIES += [
    ("joint-precision", {"variables": 6, "blocks": 2, "samples": "40", "clients": 3, **more})
    for more in (
        {"method": "group"},
        {"method": "fused"},
        {"path": 3},
        {"path": 2, "subsamples": 2, "choose": "stability"},
        {"sample": 2, "screening": False},
        {"privacy": "dp"},
        {"privacy": "dp", "held-out": 0.3, "path": 2},
        {"privacy": "dp", "method": "glasso"},
        {"privacy": "dp", "method": "pooled", "held-out": 0.3},
        {"method": "one-shot", "path": 3},
        {"wire": "float32", "method": "fused"},
        {"method": "glasso", "path": 3},
        {"method": "pooled", "penalty": "fused"},
    )
]
_SERVERS = {"servers": 3, "topology": "ring", "clients": 6, "samples": "10"}
STRATEGIES += [
    ("server-graph", {**_SERVERS, "secure-aggregation": "off", **more})
    for more in (
        *({"method": method} for method in ("none", "hybrid", "masked", "iid")),
        {"sample": 1},
        {"failures": "1:2-3", "on-server-loss": "rehome"},
    )
]
_SUMS = {**_SERVERS, "clients": 9, "privacy": "dp"}
STRATEGIES += [
    ("server-graph", {**_SERVERS, "clients": 9, "method": "masked"}),
    ("server-graph", {"clients": 6, "samples": "10", "method": "fedavg"}),
    ("server-graph", {**_SUMS, "held-out": 0.3, "average": 0.5}),
    ("server-graph", {**_SERVERS, "privacy": "paper", "method": "iid", "clip": 1.0}),
]
_CLUSTERS = {"servers": 3, "topology": "ring", "clients": 9, "features": 5, "clusters": "2"}
STRATEGIES += [
    ("cluster-admm", {**_CLUSTERS, **more})
    for more in (
        *({"method": method} for method in ("pgfl", "gfl", "clusterfl")),
        {"mixing": "exact", "loss": "logistic"},
        {"sample": 2, "privacy": "paper"},
        {"clusters": "auto:2", "assign-every": 2},
    )
]
_ALONE = {"clients": 9, "features": 5, "clusters": "2"}
STRATEGIES += [
    ("cluster-admm", {**_ALONE, **more})
    for more in (
        *({"method": method} for method in ("local", "fedavg")),
        {"privacy": "dp"},
        {"privacy": "dp", "loss": "logistic", "held-out": 0.3},
        {"privacy": "dp", "method": "local"},
    )
]
_GRAPHS = {"clients": 3, "graphs": 6, "downstream": "anomaly"}
_EPOCH = {"local-epochs": 1}
STRATEGIES += [
    ("gromov-wasserstein", {**_GRAPHS, **more})
    for more in (
        _EPOCH,
        {**_EPOCH, "method": "fedprox", "model": "gin", "task": "graph", "batch": 1},
        {**_EPOCH, "sample": 2, "privacy": "paper", "epsilon": 20.0, "release-every": 2},
        {**_EPOCH, "secure-aggregation": True},
        {"privacy": "dp", "method": "fedavg", "estimator": "double"},
        {"privacy": "dp", "method": "fedavg", "held-out": 0.3},
    )
]
# Against a bad client: bounds that clip honest replies as well, and middles in place of means.
_CLIP, _MEDIAN = {"norm-bound": 0.1, "robust": "clip"}, {"robust": "median"}
STRATEGIES += [
    (study, {**small, **more})
    for study, small, rules in (
        ("consensus-graph", _GRAPH, (_CLIP, _MEDIAN)),
        ("consensus-graph", {**_GRAPH, "method": "fedavg"}, (_CLIP, _MEDIAN)),
        (
            "joint-precision",
            {"variables": 6, "blocks": 2, "samples": "40", "clients": 3, "wire": "float32"},
            (_CLIP,),
        ),
        (
            "server-graph",
            {**_SERVERS, "clients": 9, "secure-aggregation": "off"},
            (_CLIP, {"robust": "trimmed"}),
        ),
        ("cluster-admm", _CLUSTERS, (_CLIP, {"mixing": "exact", **_CLIP}, _MEDIAN)),
        ("gromov-wasserstein", {**_GRAPHS, **_EPOCH}, (_CLIP, {"robust": "trimmed"})),
    )
    for more in rules
]
STRATEGIES += [
    (study, settings) for study, found in told("STRATEGIES").items() for settings in found
]
# A setting of every study with its default, and another value for it.
ANOTHER = {
    "cluster-admm": ("noise", 1.0, 2.0),
    "consensus-graph": ("alpha", 2.0, 3.0),
    "gromov-wasserstein": ("learning-rate", 0.0, 0.02),
    "joint-precision": ("lambda1", 0.1, 0.2),
    "server-graph": ("step", 0.1, 0.2),
    **told("ANOTHER"),
}
EVERY = pytest.mark.parametrize(
    ("study", "settings"), STRATEGIES, ids=lambda v: v if isinstance(v, str) else str(v)
)


class Stop(Exception):
    """Ends a run from outside, as a kill would."""


def start(study, settings, out, *, stop_in_round=None, resume=False, force=False, monkeypatch=None):
    """Run a study; with ``stop_in_round`` die in the middle of that round, checkpoint on disk."""
    settings = {"rounds": 6, "tolerance": 0.0, **settings}
    run_config = make_run_config(study, settings, resume=resume, force=force)
    run_config["out"] = str(out)
    nodes = [
        {"partition-id": i, "num-partitions": settings["clients"], "simulation": True}
        for i in range(settings["clients"])
    ]
    client_app = apps.client_app
    if stop_in_round is not None:
        asked = set()  # in that round, whoever is drawn

        class Dying(type(apps.client_app)):
            def __call__(self, message, context):
                if message.metadata.group_id == str(stop_in_round):
                    asked.add(context.node_config["partition-id"])
                    if len(asked) > 1:
                        raise KeyboardInterrupt
                return super().__call__(message, context)

        client_app = Dying()
        with pytest.raises(KeyboardInterrupt):
            run_local(apps.server_app, client_app, nodes, run_config)
        return None
    run_local(apps.server_app, client_app, nodes, run_config)
    return RunResult.load(out)


@pytest.fixture(autouse=True)
def _checkpoint_every_round(monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)


@EVERY
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_run_stopped_in_any_round_and_resumed_ends_with_the_same_bits(
    study, settings, stop, tmp_path
):
    unbroken = start(study, settings, tmp_path / "unbroken")
    if len(unbroken.metrics) < stop:
        pytest.skip("learns in one round")
    start(study, settings, tmp_path / "broken", stop_in_round=stop)
    if settings.get("sample"):
        stopped = RunResult.load(tmp_path / "broken")
        assert stopped.status == "interrupted"
    resumed = start(study, settings, tmp_path / "broken", resume=True)
    assert set(resumed.arrays) == set(unbroken.arrays)
    for name, array in unbroken.arrays.items():
        assert resumed.arrays[name].tobytes() == array.tobytes(), name
    assert len(resumed.metrics) == len(unbroken.metrics)
    assert resumed.ledger == unbroken.ledger
    assert resumed.clients == unbroken.clients


@EVERY
def test_resuming_with_other_settings_is_refused_by_name(study, settings, tmp_path):
    start(study, settings, tmp_path)
    name, default, other = ANOTHER[study]
    with pytest.raises(CheckpointError, match=f"{name}={default}, this run has {name}={other}"):
        start(study, {**settings, name: other}, tmp_path, resume=True)


@EVERY
def test_resuming_a_finished_run_gives_its_result_again(study, settings, tmp_path):
    first = start(study, settings, tmp_path)
    again = start(study, settings, tmp_path, resume=True)
    for name, array in first.arrays.items():
        assert again.arrays[name].tobytes() == array.tobytes()
    assert str(again.metrics) == str(first.metrics)  # nan equals nan


@EVERY
def test_a_new_run_in_an_old_folder_starts_anew(study, settings, tmp_path):
    first = start(study, settings, tmp_path)
    name, _, other = ANOTHER[study]
    start(study, {**settings, name: other}, tmp_path, force=True)
    third = start(study, settings, tmp_path, force=True)
    for name, array in first.arrays.items():
        assert third.arrays[name].tobytes() == array.tobytes()


def test_resume_goes_on_for_more_rounds(tmp_path):
    settings = {"nodes": 6, "clients": 3, "signals": "20"}
    long = start("consensus-graph", {**settings, "rounds": 9}, tmp_path / "long")
    start("consensus-graph", {**settings, "rounds": 4}, tmp_path / "short")
    longer = start("consensus-graph", {**settings, "rounds": 9}, tmp_path / "short", resume=True)
    assert long.arrays["weights"].tobytes() == longer.arrays["weights"].tobytes()
    assert [row["round"] for row in longer.metrics] == list(range(1, 10))


def test_resume_before_the_first_checkpoint_starts_at_the_beginning(tmp_path):
    settings = {"nodes": 6, "clients": 3, "signals": "20"}
    result = start("consensus-graph", settings, tmp_path, resume=True)
    assert len(result.metrics) == 6


def test_a_damaged_checkpoint_is_named(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.npz").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match=r"state\.npz: not a readable checkpoint"):
        start("consensus-graph", {"nodes": 6, "clients": 3}, tmp_path, resume=True)


def test_bytes_are_counted_both_ways(tmp_path):
    settings = {"nodes": 6, "clients": 3, "signals": "20", "rounds": 2}
    result = start("consensus-graph", settings, tmp_path)
    vector = 15 * 8
    for row in result.metrics:
        assert row["bytes-up"] >= 3 * vector
        assert row["bytes-up"] < 3 * (vector + 400)
        assert row["bytes-down"] >= 3 * vector
    assert result.bytes_up > sum(row["bytes-up"] for row in result.metrics)  # enrolment
    assert np.isfinite(result.seconds)
