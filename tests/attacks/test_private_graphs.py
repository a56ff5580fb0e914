"""gromov-wasserstein under differential privacy: one graph decides nothing that a server can see.

As in `test_private_studies`, against the real handlers on devices, where nothing is trained and
where training has noise in its sums.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from tests.apps.device_logs import reasons
from tests.attacks.same_device import with_secret
from tests.attacks.test_private_studies import ask, observable
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.gromov_wasserstein import client_app as study
from trellis.apps.gromov_wasserstein.model.gnn import build_model, weights
from trellis.privacy.accounting.budget import DeviceLedger, PrivacyRefused
from trellis.sim.grid import LocalGrid, run_local
from trellis.strategies.core import wire

SETTINGS = {
    "privacy": "dp",
    "epsilon": 2.0,
    "clients": 3,
    "classes": 3,
    "rounds": 4,
}
TRAINED = {**SETTINGS, "method": "fedavg"}
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
    node = {"data-path": str(folder / "site.npz"), "state-path": str(folder / "state"), **more}
    return with_secret(node)


def first_weights(scale: float = 1.0):
    return scale * weights(build_model("gcn", 2, 3, "node", 16, seed=1))


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
@pytest.mark.parametrize("scale", [1.0, 1e99])
def test_no_graph_decides_what_a_device_answers(odd, scale, tmp_path):
    run_config = make_run_config("gromov-wasserstein", SETTINGS)
    order = {"server-round": 1, "classes": 3}
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


def added(folder, arrays, scale=1.0, settings=TRAINED, scored=False, **order):
    """Return what a device with these graphs adds to a sum, before noise and masks."""
    run_config = make_run_config("gromov-wasserstein", settings)
    node = device(folder, arrays)
    with LocalGrid(apps.client_app, [node], run_config):
        content = RecordDict({"arrays": wire.record({"weights": first_weights(scale)})})
        content["config"] = study.ConfigRecord({"server-round": 1, "classes": 3, **order})
        kind = "evaluate" if scored else "train"
        message = Message(content, 1, f"{kind}.secagg_masked")
        context = Context(abs(hash(folder)), 1, node, RecordDict(), run_config)
        found = (study.score if scored else study.summands)(message, context)
    assert found.noise is not None
    return found.arrays


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
@pytest.mark.parametrize("scale", [1.0, 1e99])
def test_one_graph_moves_what_a_device_adds_by_no_more_than_is_counted(odd, scale, tmp_path):
    plain, changed = (
        added(tmp_path / str(number), arrays, scale)["gradient"]
        for number, arrays in enumerate((graphs(), graphs(**odd)))
    )
    assert plain.shape == changed.shape == first_weights().shape
    assert np.isfinite(plain).all()
    assert np.linalg.norm(plain - changed) <= 2.0 * (1.0 + 1e-9)


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_one_graph_moves_a_score_by_one_at_most(odd, tmp_path):
    settings = {**TRAINED, "held-out": 0.4}
    plain, changed = (
        added(tmp_path / str(number), arrays, settings=settings, scored=True)["correct"]
        for number, arrays in enumerate((graphs(), graphs(**odd)))
    )
    assert plain.shape == changed.shape == (1,)
    assert abs(plain - changed) <= 1.0
    assert 0.0 <= plain <= 4.0  # graphs that are held out, of ten


def test_a_score_that_was_not_declared_is_refused(tmp_path):
    with pytest.raises(PrivacyRefused, match="no budget for a score"):
        added(tmp_path, graphs(), scored=True)


@pytest.mark.parametrize("settings", [SETTINGS, TRAINED], ids=["untrained", "trained"])
def test_no_update_leaves_a_device_in_the_clear(settings, tmp_path):
    asked = ("train", {"weights": first_weights()}, {"server-round": 1, "classes": 3})
    run_config = make_run_config("gromov-wasserstein", settings)
    (answer,) = ask(run_config, device(tmp_path, graphs()), asked)
    assert answer.has_error()
    assert "in the clear" in reasons(tmp_path / "state")[-1]


def test_rounds_are_those_of_the_run_and_each_is_asked_for_once(tmp_path):
    with pytest.raises(ValueError, match="1 to 4"):
        added(tmp_path, graphs(), **{"server-round": 5})
    run_config = make_run_config("gromov-wasserstein", TRAINED)
    node = device(tmp_path, graphs(), **{"count-noise-of": "anyone"})
    state = RecordDict()

    def noise(server_round):
        content = RecordDict({"arrays": wire.record({"weights": first_weights()})})
        content["config"] = study.ConfigRecord({"server-round": server_round, "classes": 3})
        context = Context(1, 1, node, state, run_config)
        found = study.summands(Message(content, 1, "train.secagg_masked"), context)
        return found.noise(lambda *_, **__: 2, 32, first_weights().size)

    with LocalGrid(apps.client_app, [node], run_config):
        for server_round in range(1, 5):
            noise(server_round)
        with pytest.raises(PrivacyRefused, match="declares 1 releases"):
            noise(2)
        assert len(DeviceLedger(Path(node["state-path"])).entries()) == 4


def test_nothing_is_added_up_where_nothing_is_trained(tmp_path):
    with pytest.raises(PrivacyRefused, match="has no secure sum"):
        added(tmp_path, graphs(), settings=SETTINGS)


def test_a_run_gets_a_device_s_embeddings_once_however_it_asks(tmp_path):
    asked = ("query.embed", {"weights": first_weights()}, {"server-round": 1, "classes": 3})
    again = ("query.embed", {"weights": first_weights(2.0)}, {"server-round": 2, "classes": 3})
    run_config = make_run_config("gromov-wasserstein", SETTINGS)
    first, second = ask(run_config, device(tmp_path, graphs()), asked, again)
    assert not first.has_error()
    assert second.has_error()
    assert "declared epsilon" in reasons(tmp_path / "state")[-1]


@pytest.mark.parametrize("odd", [{}, *ODD.values()], ids=["plain", *ODD])
def test_what_a_device_keeps_changes_nothing_that_it_says(odd, tmp_path):
    node = device(tmp_path, graphs(**odd))
    asked = ("query.personal", {"weights": first_weights()}, {"server-round": 1, "classes": 3})
    run_config = make_run_config("gromov-wasserstein", TRAINED)
    (answer,) = ask(run_config, node, asked)
    assert {name: dict(record) for name, record in answer.content.items()} == {
        "personal": {"came": True}
    }
    (kept,) = (tmp_path / "state" / "results").glob("*/result.npz")
    with np.load(kept) as found:
        assert found["rows"].shape == (SIZES.sum(), 3)
        assert found["own-weights"].shape == found["weights"].shape == first_weights().shape


def test_settings_that_would_tell_more_are_refused_before_the_data_is_read(tmp_path):
    run_config = make_run_config("gromov-wasserstein", {**SETTINGS, "classes": 0})
    node = {"data-path": str(tmp_path / "gone.npz"), "state-path": str(tmp_path / "state")}
    (answer,) = ask(run_config, node, ("query.enrol", {}, {}))
    assert "E4" in answer.content["client"]["refused"]
    assert "largest label" in reasons(tmp_path / "state")[-1]


def test_a_folder_of_text_files_is_refused_whatever_is_in_it(tmp_path):
    node = {"data-path": str(tmp_path), "state-path": str(tmp_path / "state")}
    (answer,) = ask(make_run_config("gromov-wasserstein", SETTINGS), node, ("query.enrol", {}, {}))
    assert "E4" in answer.content["client"]["refused"]
    assert "npz file" in reasons(tmp_path / "state")[-1]


def test_labels_are_told_where_run_and_owner_say_so(tmp_path):
    for share, owner in ((True, True), (True, False), (False, True)):
        run_config = make_run_config("gromov-wasserstein", {**SETTINGS, "share-labels": share})
        node = device(tmp_path, graphs(), **{"share-labels": owner})
        order = {"server-round": 1, "classes": 3}
        (answer,) = ask(run_config, node, ("query.embed", {"weights": first_weights()}, order))
        labels = wire.arrays(answer.content["arrays"])["labels"]
        assert (labels >= 0).all() == (share and owner)


def test_a_server_cannot_have_another_number_of_classes(tmp_path):
    asked = ("query.embed", {"weights": first_weights()}, {"server-round": 1, "classes": 2})
    (answer,) = ask(
        make_run_config("gromov-wasserstein", SETTINGS), device(tmp_path, graphs()), asked
    )
    assert answer.has_error()


def federation(tmp_path, settings, **more):
    """Run three devices; return the result and their node configs."""
    nodes = [device(tmp_path / str(k), graphs(), name=f"site-{k}", **more) for k in range(3)]
    out = tmp_path / "out"
    chosen = {**settings, "rounds": 2, "downstream": "none"}
    run_config = make_run_config("gromov-wasserstein", chosen) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out), nodes


def test_devices_that_train_nothing_send_their_bits_and_say_no_more(tmp_path):
    # A budget, and no secure aggregation: nothing but counted bits leaves.
    result, nodes = federation(tmp_path, SETTINGS, **{"max-epsilon": 2.0})
    assert result.status == "completed"
    assert result.arrays["distances"].shape == (30, 30)
    assert len(result.metrics) == 1
    assert result.ledger["epsilon"] == 2.0
    for node in nodes:
        (entry,) = DeviceLedger(Path(node["state-path"])).entries()
        assert entry["event"]["mechanism"] == "multi-bit"


def test_devices_learn_together_within_the_run_s_epsilon_and_say_no_more(tmp_path):
    more = {"max-epsilon": 2.0, "count-noise-of": "anyone"}
    result, nodes = federation(tmp_path, {**TRAINED, "held-out": 0.3}, **more)
    assert result.status == "completed"
    assert len(result.metrics) == 2
    assert all(row["change"] > 0.0 for row in result.metrics)
    told = {name for row in result.metrics for name in row}
    assert not told & {"loss", "train-accuracy", "validation-accuracy", "test-accuracy"}
    assert "held-out-accuracy" in told
    assert not any(name.startswith("home-") for name in result.headline)
    assert 0.0 < result.ledger["epsilon"] <= 2.0 * (1.0 + 1e-6)
    assert "Devices send neither loss nor hits" in str(result.ledger)
    for node in nodes:
        entries = DeviceLedger(Path(node["state-path"])).entries()
        told = sorted(entry["event"]["what"] for entry in entries)
        sums = ["gradients, round 1", "gradients, round 2", "held-out score"]
        assert told == ["encoded rows of 10 graphs", *sums]
        assert len(list(Path(node["state-path"]).glob("results/*/result.npz"))) == 1
