"""gromov-wasserstein under sound privacy: one graph decides nothing that a server can see.

As in `test_sound_studies`, against the real handlers on devices. The sums of training are not
covered by the claim; their names, shapes and weights are.
"""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

import apps
from apps.common.results import RunResult
from apps.common.runner import make_run_config
from apps.gromov_wasserstein import client_app as study
from apps.gromov_wasserstein.model.gnn import build_model, weights
from sim.grid import LocalGrid, run_local
from strategies.core import wire
from tests.apps.device_logs import reasons
from tests.attacks.test_sound_studies import ask, observable

SETTINGS = {
    "privacy": "sound",
    "epsilon": 2.0,
    "clients": 3,
    "classes": 3,
    "rounds": 4,
    "local-epochs": 1,
    "secure-aggregation": True,
}
SIZES = np.array([4, 3, 5, 4, 3, 4, 5, 3, 4, 4])


def graphs(**changes):
    """Return the arrays of ten graphs; ``changes`` are made in the last one."""
    rng = np.random.default_rng(3)
    nodes, starts = int(SIZES.sum()), np.cumsum(SIZES) - SIZES
    edges = np.concatenate(
        [
            start + np.column_stack([np.arange(n - 1), np.arange(1, n)])
            for n, start in zip(SIZES, starts, strict=True)
        ]
    )
    found = {
        "sizes": SIZES,
        "edges": edges,
        "features": rng.standard_normal((nodes, 2)),
        "labels": rng.integers(0, 3, len(SIZES)),
        "node_labels": rng.integers(0, 3, nodes),
    }
    for name, value in changes.items():
        found[name][-1] = value
    return found


ODD = {
    "label beyond the classes": {"labels": 7, "node_labels": 9},
    "label below": {"labels": -5, "node_labels": -3},
    "unknown label": {"labels": -1, "node_labels": -1},
    "nan": {"features": [np.nan, 1.0]},
    "inf": {"features": [np.inf, -np.inf]},
    "1e300": {"features": [1e300, -1e300]},
    "huge": {"features": [3e38, -3e38]},
    "edge to another graph": {"edges": [0, 38]},
    "edge to no node": {"edges": [36, 99]},
    "directed edge": {"edges": [38, 35]},
    "loop": {"edges": [38, 38]},
}


def device(folder, arrays, **more):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "site.npz", **arrays)
    return {"data-path": str(folder / "site.npz"), "state-path": str(folder / "state"), **more}


def first_weights(scale: float = 1.0):
    return scale * weights(build_model("gcn", 2, 3, "node", 16, seed=1))


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
@pytest.mark.parametrize("scale", [1.0, 1e99])
def test_no_graph_decides_what_a_device_answers(odd, scale, tmp_path):
    run_config = make_run_config("gromov-wasserstein", SETTINGS)
    order = {"round": 1, "classes": 3}
    asked = ("query.embed", {"weights": first_weights(scale)}, order)
    seen = []
    for number, arrays in enumerate((graphs(), graphs(**odd))):
        node = device(tmp_path / str(number), arrays, **{"max-epsilon": 5.0})
        answers = ask(run_config, node, ("query.enrol", {}, {}), asked)
        assert not any(answer.has_error() for answer in answers), answers[-1].error.reason
        told = [observable(answer) for answer in answers]
        assert told[0]["client"]["classes"] == 3
        for name, record in list(told[1].items()):
            if name.startswith("privacy."):  # names are drawn
                told[1]["event"] = {**record, "name": ""}
                del told[1][name]
        labels = wire.arrays(answers[1].content["arrays"])["labels"]
        np.testing.assert_array_equal(labels, -1)
        seen.append(told)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
@pytest.mark.parametrize("scale", [1.0, 1e99])
def test_what_a_device_adds_to_sums_has_one_form_and_weight(odd, scale, tmp_path):
    run_config = make_run_config("gromov-wasserstein", SETTINGS)
    sent = []
    for number, arrays in enumerate((graphs(), graphs(**odd))):
        node = device(tmp_path / str(number), arrays)
        with LocalGrid(apps.client_app, [node], run_config):
            content = RecordDict({"arrays": wire.record({"weights": first_weights(scale)})})
            content["order"] = study.ConfigRecord({"round": 1, "classes": 3})
            message = Message(content, 1, "train.secagg_masked")
            context = Context(number + 1, 1, node, RecordDict(), run_config)
            sent.append(study.summands(message, context).arrays)
    for arrays in sent:
        assert all(np.isfinite(array).all() for array in arrays.values())
        assert not any(arrays[name].any() for name in ("loss", "items", "correct"))
    assert {n: a.shape for n, a in sent[0].items()} == {n: a.shape for n, a in sent[1].items()}
    assert sent[0]["count"] == sent[1]["count"] == 7.0  # graphs to train with, of ten


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"classes": 0}, "largest label"),
        ({"secure-aggregation": False}, "secure-aggregation=true"),
    ],
)
def test_settings_that_would_tell_more_are_refused_before_the_data_is_read(
    change, reason, tmp_path
):
    run_config = make_run_config("gromov-wasserstein", {**SETTINGS, **change})
    node = {"data-path": str(tmp_path / "gone.npz"), "state-path": str(tmp_path / "state")}
    (answer,) = ask(run_config, node, ("query.enrol", {}, {}))
    assert "E4" in answer.content["client"]["refused"]
    assert reason in reasons(tmp_path / "state")[-1]


def test_a_folder_of_text_files_is_refused_whatever_is_in_it(tmp_path):
    node = {"data-path": str(tmp_path), "state-path": str(tmp_path / "state")}
    (answer,) = ask(make_run_config("gromov-wasserstein", SETTINGS), node, ("query.enrol", {}, {}))
    assert "E4" in answer.content["client"]["refused"]
    assert "npz file" in reasons(tmp_path / "state")[-1]


def test_labels_are_told_where_run_and_owner_say_so(tmp_path):
    for share, owner in ((True, True), (True, False), (False, True)):
        run_config = make_run_config("gromov-wasserstein", {**SETTINGS, "share-labels": share})
        node = device(tmp_path, graphs(), **{"share-labels": owner})
        order = {"round": 1, "classes": 3}
        (answer,) = ask(run_config, node, ("query.embed", {"weights": first_weights()}, order))
        labels = wire.arrays(answer.content["arrays"])["labels"]
        assert (labels >= 0).all() == (share and owner)


def test_a_server_cannot_have_another_number_of_classes(tmp_path):
    asked = ("query.embed", {"weights": first_weights()}, {"round": 1, "classes": 2})
    (answer,) = ask(
        make_run_config("gromov-wasserstein", SETTINGS), device(tmp_path, graphs()), asked
    )
    assert answer.has_error()


def test_devices_still_learn_together_and_say_no_more(tmp_path):
    nodes = [device(tmp_path / str(k), graphs(), name=f"site-{k}") for k in range(3)]
    out = tmp_path / "out"
    settings = {**SETTINGS, "rounds": 2, "downstream": "none"}
    run_config = make_run_config("gromov-wasserstein", settings) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    result = RunResult.load(out)
    assert result.status == "completed"
    assert result.arrays["distances"].shape == (30, 30)
    assert all(row["change"] > 0.0 for row in result.metrics)
    told = {name for row in result.metrics for name in row}
    assert not told & {"loss", "train-accuracy", "validation-accuracy", "test-accuracy"}
    assert "Devices send neither loss nor hits" in str(result.ledger)
