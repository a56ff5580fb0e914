"""Attacks by a server on what a device says and does: each must get nothing.

The server chooses the run config and every message; the device is the real ClientApp with a node
config of its owner's.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import time
import types

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from trellis import apps
from trellis.apps.common.settings import config_class
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.privacy.device import log
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

from .test_private_studies import BY_CONFIG

SAYS = "<class 'trellis.privacy.device.codes.DeviceError'>:"
SAYS += "<'device error {}; its owner finds the details "
SAYS += "in the device's log'>"


# A run whose epsilon is more than a device with a small budget has.
LARGE = ("joint-precision", {"privacy": "dp", "epsilon": 50.0})


def run_config(study, settings, seed=1):
    config = config_class(study).from_settings(settings)
    return {"study": study, "seed": seed, "out": "", **config.run_config()}


def send(node, config, kind="query.enrol", arrays=None, **told):
    """Return what the server gets for one message, in a run of its own."""
    content = RecordDict()
    if arrays is not None:
        content["arrays"] = wire.record(arrays)
    if told:
        record = "config" if config["study"] in BY_CONFIG else "order"
        content[record] = ConfigRecord({key.replace("_", "-"): v for key, v in told.items()})
    with LocalGrid(apps.client_app, [node], config) as grid:
        (address,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(content, address, kind)])
    return reply


def heard(reply) -> str:
    """Return all that a reply tells, as text."""
    if reply.has_error():
        return str(reply.error.reason)
    shown = {}
    for name, record in reply.content.items():
        is_arrays = isinstance(record, ArrayRecord)
        shown[name] = wire.arrays(record) if is_arrays else dict(record)
    return repr(shown)


@pytest.fixture
def device(tmp_path):
    """A device with a tiny budget and a file of the given arrays or text."""

    def make(name="data.npz", text=None, **content):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        else:
            np.savez(path, **content)
        return {"data-path": str(path), "state-path": str(tmp_path / "state"), "max-epsilon": 0.01}

    return make


def no_data_is_read(monkeypatch):
    """Make every reading of a table or graph on this device an error that we would see."""

    def read(*_, **__):
        raise AssertionError("the data was read")

    monkeypatch.setattr(np, "load", read)
    for module in (
        "consensus_graph.client_app",
        "consensus_graph.local",
        "joint_precision.local",
        "server_graph.client_app",
        "cluster_admm.local",
    ):
        found = importlib.import_module(f"trellis.apps.{module}")
        monkeypatch.setattr(found, "client_table", read)


# --- the text of an exception --------------------------------------------------------------------


def test_a_target_that_does_not_fit_the_loss_is_not_told(device, tmp_path):
    rng = np.random.default_rng(1)
    y = 61.7312 + rng.standard_normal(200)
    node = {**device(X=rng.standard_normal((200, 4)), y=y), "server": 0, "cluster": 0}
    settings = {"privacy": "dp", "loss": "logistic", "clients": 3, "clusters": "1"}
    told = heard(send(node, run_config("cluster-admm", settings)))
    assert str(y[0])[:4] not in told
    assert "61." not in told


@pytest.mark.parametrize("study", ["consensus-graph", "joint-precision"])
def test_a_text_among_the_numbers_stays_at_home(study, device, tmp_path):
    text = "pulse,name,bp\n70,Maria Rossi HIV+,120\n71,Ben,118\n"
    node = device("p.csv", text)
    assert "Maria" not in heard(send(node, run_config(study, {"privacy": "dp"})))
    node |= {"state-path": str(tmp_path / "other")}
    del node["max-epsilon"]
    reply = send(node, run_config(study, {"privacy": "none"}))
    assert reply.error.reason == SAYS.format("E2")
    # Its owner reads everything, and knows which run and message it was.
    (line,) = log.read(tmp_path / "other")
    assert "Maria Rossi" in line["error"]
    assert "Traceback" in line["trace"]
    assert line["study"] == study
    assert line["kind"] == "query.enrol"
    assert line["run"]
    assert line["message"]
    assert (tmp_path / "other" / log.FILE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("study", ["consensus-graph", "joint-precision", "cluster-admm"])
def test_failures_of_two_kinds_sound_the_same(study, device):
    """A file that cannot be read, one that is not there: one code, the same words."""
    settings = run_config(study, {"privacy": "dp"})
    replies = [
        send(device("broken.npz", "no archive"), settings),
        send({**device(X=np.eye(4)), "data-path": "/nowhere/at/all.npz"}, settings),
        send({**device(X=np.eye(4)), "data-path": "/nowhere/at/all.txt"}, settings),
    ]
    assert {reply.error.reason for reply in replies} == {SAYS.format("E3")}


def test_an_exception_carries_no_other_one(device):
    caught = []

    class Caught(type(apps.client_app)):
        def __call__(self, message, context):
            try:
                return super().__call__(message, context)
            except Exception as error:
                caught.append(error)
                raise

    node = device("broken.npz", "no archive")
    with LocalGrid(Caught(), [node], run_config("consensus-graph", {"privacy": "dp"})) as grid:
        messages = [Message(RecordDict(), n, "query.enrol") for n in grid.get_node_ids()]
        list(grid.send_and_receive(messages))
    (error,) = caught
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_device_without_a_usable_node_config_says_no_more(caplog):
    for node in ({}, {"data-path": "relative.csv"}, {"data-path": 3, "max-epsilon": "much"}):
        reply = send(node, run_config("consensus-graph", {"privacy": "dp"}))
        assert reply.error.reason == SAYS.format("E1")
    assert "relative.csv" in caplog.text  # at the device


def test_wrong_settings_are_a_code_too(device):
    node = device(X=np.eye(4))
    config = run_config("consensus-graph", {"privacy": "dp"})
    for wrong in ({"consensus-graph.clip": -1.0}, {"study": "os"}, {"consensus-graph.x": "y"}):
        assert send(node, {**config, **wrong}).error.reason == SAYS.format("E1")


def test_keys_that_do_not_fit_are_the_protocol_s_code(device):
    config = run_config("consensus-graph", {"privacy": "dp", "method": "fedavg"})
    reply = send(device(X=np.eye(4)), config, "query.secagg_keys")
    assert reply.error.reason == SAYS.format("E5")


def test_an_interrupt_is_no_error_of_the_device(device, monkeypatch):
    from trellis.apps import dispatch

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatch, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        send(device(X=np.eye(4)), run_config("consensus-graph", {"privacy": "dp"}))


def test_in_a_simulation_texts_stay_visible(tmp_path):
    (tmp_path / "p.csv").write_text("a,b\n1,words\n")
    node = {"partition-id": 0, "num-partitions": 1, "simulation": True}
    config = run_config("consensus-graph", {"clients": 1}) | {"data": str(tmp_path)}
    assert "words" in send(node, config).content["client"]["unusable"]


# --- refusals ------------------------------------------------------------------------------------


def test_a_refusal_is_a_constant_and_comes_before_the_data_is_read(device, tmp_path, monkeypatch):
    node = device(X=np.eye(4))
    no_data_is_read(monkeypatch)
    for study in ("consensus-graph", "joint-precision", "server-graph", "cluster-admm"):
        reply = send(node, run_config(study, {"privacy": "none"}))
        refused = reply.content["client"]["refused"]
        assert refused.startswith("refused by the owner's policy (E4)")
        assert "dp" not in refused
        train = send(node, run_config(study, {"privacy": "none"}), "train", {"v": np.zeros(4)})
        assert train.error.reason == SAYS.format("E4")  # enrolment left out
    texts = [line["reason"] for line in log.read(tmp_path / "state")]
    assert len(texts) == 8
    assert all("requires privacy='dp'" in text for text in texts)


@pytest.mark.parametrize("owner", [{"require-privacy": True}, {"max-epsilon": 5.0}])
@pytest.mark.parametrize("method", ["iid", "hybrid"])
def test_updates_in_the_clear_are_refused_where_privacy_is_required(owner, method, device):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1, 3))
    node = {**device(X=X, y=np.ones(1)), "server": 0}
    del node["max-epsilon"]
    settings = {
        "privacy": "paper", "method": method, "clip": 1e9, "sigma": 1e-9, "clients": 1,
        "servers": 1, "ridge": 0.0, "step": 1.0, "secure-aggregation": "off", "epsilon": 1e30,
    }  # fmt: skip
    config = run_config("server-graph", settings)
    reply = send({**node, **owner}, config, "train", {"model": np.zeros(3)}, round=1)
    assert reply.error.reason == SAYS.format("E4")
    # With masks promised and then not asked for, it gets no more.
    masked = {**config, "server-graph.secure-aggregation": "on"}
    reply = send({**node, **owner}, masked, "train", {"model": np.zeros(3)}, round=1)
    assert reply.has_error()


def test_weights_in_the_clear_are_refused_where_privacy_is_required(device):
    node = device(X=np.eye(3))
    settings = {"privacy": "none", "share-labels": False}
    reply = send(node, run_config("gromov-wasserstein", settings))
    assert "E4" in reply.content["client"]["refused"]


def test_labels_are_refused_where_the_owner_says_so(device, tmp_path):
    (tmp_path / "policy.toml").write_text('privacy = ["none"]\nclear-updates = true\n')
    node = {**device(X=np.eye(3)), "policy": str(tmp_path / "policy.toml")}
    del node["max-epsilon"]
    reply = send(node, run_config("gromov-wasserstein", {"privacy": "none"}))
    assert "E4" in reply.content["client"]["refused"]
    assert "labels" in log.read(tmp_path / "state")[-1]["reason"]


# --- code that a run names -----------------------------------------------------------------------


@pytest.mark.parametrize("owner", [{}, {"require-privacy": True}])
@pytest.mark.parametrize(
    ("study", "key"), [("server-graph", "loss"), ("gromov-wasserstein", "model")]
)
def test_no_module_that_a_run_names_is_imported(study, key, owner, device, monkeypatch):
    rng = np.random.default_rng(0)
    node = {**device(X=rng.standard_normal((20, 2)), y=np.ones(20)), "server": 0, **owner}
    del node["max-epsilon"]
    asked = []
    real = builtins.__import__

    def noted(name, *rest, **more):
        asked.append(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", noted)
    monkeypatch.setattr(importlib, "import_module", noted_module(asked))
    for name in ("this.d", "os.system", "antigravity.x", "http.server.HTTPServer", "..x", "a.b.c"):
        settings: dict[str, object] = {"clients": 1}
        if study == "server-graph":
            settings |= {"clients": 3, "servers": 1, "privacy": "dp", "clip": 1.0}
        else:
            settings |= {"privacy": "dp", "share-labels": False}
        for kind in ("query.enrol", "train"):
            # As a server can send it that checks nothing.
            config = {**run_config(study, settings), f"{study}.{key}": name}
            reply = send(node, config, kind)
            assert "E4" in heard(reply) or "E1" in heard(reply)
    assert not {"this", "antigravity", "http.server", "a.b"} & set(asked)
    assert "antigravity" not in sys.modules


def noted_module(asked):
    real = importlib.import_module

    def noted(name, package=None):
        asked.append(name)
        return real(name, package)

    return noted


# --- work ----------------------------------------------------------------------------------------

_SOON = 60.0  # seconds, on the busiest machine; what is refused here would take days


@pytest.mark.parametrize("owner", [{"max-epsilon": 1.0}, {}])
@pytest.mark.parametrize("key", ["local-steps", "rounds", "nodes"])
def test_work_without_end_is_refused_on_every_device(key, owner, device):
    node = device(X=np.random.default_rng(0).standard_normal((100, 5)))
    del node["max-epsilon"]
    # What a server sends need not be settings that a run can have.
    config = run_config("consensus-graph", {"privacy": "dp", "epsilon": 0.5})
    config |= {f"consensus-graph.{key}": 10**12}
    began = time.monotonic()
    weights = np.full(10, 0.25)
    assert "E4" in send({**node, **owner}, config).content["client"]["refused"]
    sent = {"consensus": weights, "own": weights}
    reply = send({**node, **owner}, config, "train", sent, server_round=1, pull=1.0)
    assert reply.error.reason == SAYS.format("E4")
    assert time.monotonic() - began < _SOON


@pytest.mark.parametrize("many", [10**12, 1e12, "1000000000000", float("inf"), 10**400])
@pytest.mark.parametrize("study", ["server-graph", "cluster-admm", "joint-precision"])
def test_settings_are_bounded_before_they_are_parsed(study, many, device):
    """Of ``clients`` numbers a list would be made."""
    config = run_config(study, {}) | {f"{study}.clients": many}
    began = time.monotonic()
    assert "E4" in heard(send({**device(X=np.eye(4)), "server": 0}, config))
    assert time.monotonic() - began < _SOON


def test_a_message_that_takes_too_long_is_ended(device, monkeypatch):
    node = device(X=np.random.default_rng(0).standard_normal((100, 5)))
    del node["max-epsilon"]
    node |= {"most-seconds": 0.2, "most-steps": 10**12}
    weights = np.full(10, 0.25)
    began = time.monotonic()
    sent = {"consensus": weights, "own": weights}
    config = run_config("consensus-graph", {"local-steps": 10**9})
    reply = send(node, config, "train", sent, server_round=1, pull=1.0)
    assert reply.error.reason == SAYS.format("E3")
    assert time.monotonic() - began < _SOON


def test_a_message_that_is_too_large_is_not_looked_at(device):
    node = {**device(X=np.eye(5)), "most-megabytes": 0.001}
    config = run_config("consensus-graph", {"privacy": "dp"})
    reply = send(node, config, "train", {"consensus": np.zeros(200)}, server_round=1, pull=1.0)
    assert reply.error.reason == SAYS.format("E4")


# --- a device is a device ------------------------------------------------------------------------


@pytest.mark.parametrize("owned", ["data-path", "max-epsilon", "policy", "state-path"])
@pytest.mark.parametrize("said", [{}, {"simulation": "yes"}])
def test_what_runs_in_the_process_makes_no_device_a_simulation(
    owned, said, device, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(is_initialized=lambda: True))
    node = device(X=np.random.default_rng(0).standard_normal((100, 5)))
    node["policy"] = str(tmp_path / "none.toml")
    mine = {"partition-id": 0, "num-partitions": 1, owned: node[owned], **said}
    config = run_config(*LARGE)
    reply = send(mine, config | {"data": str(tmp_path)})
    if owned == "data-path" and not said:  # no budget was set; it enrols as what it is
        assert reply.content["client"]["simulated"] is False
    else:
        assert reply.error.reason == SAYS.format("E1")


def test_an_owner_with_a_budget_is_never_simulated(device, tmp_path):
    node = {**device(X=np.random.default_rng(0).standard_normal((100, 5))), "simulation": True}
    config = run_config(*LARGE)
    assert "E4" in send({**node, "partition-id": 0}, config).content["client"]["refused"]
    assert DeviceLedger(tmp_path / "state").events() == []


# --- the other form of a run config ---------------------------------------------------------------


def flat(study, settings):
    """Return the run config of a study's own app, where settings stand by themselves."""
    prefix = f"{study}."
    return {k.removeprefix(prefix): v for k, v in run_config(study, settings).items()}


def test_the_policy_judges_settings_that_stand_by_themselves(device, monkeypatch):
    no_data_is_read(monkeypatch)
    node = device(X=np.eye(4)) | {"require-privacy": True}
    for config in (
        flat("consensus-graph", {"privacy": "none"}),
        flat("consensus-graph", {"privacy": "dp"}) | {"consensus-graph.privacy": "none"},
        flat("consensus-graph", {"privacy": "dp"}) | {"rounds": 10**18},
        flat("server-graph", {"privacy": "none"}) | {"clients": 10**18, "servers": 0},
    ):
        assert "refused by the owner's policy" in heard(send(node, config))


def test_a_number_of_clients_that_is_left_open_is_no_setting_for_a_device(device, monkeypatch):
    no_data_is_read(monkeypatch)
    node = device(X=np.eye(4)) | {"num-partitions": 7, "partition-id": 0}
    for number in (0, "many"):
        config = flat("consensus-graph", {"privacy": "dp"}) | {"clients": number, "data": "/etc"}
        assert send(node, config).error.reason == SAYS.format("E1")


def test_only_a_simulated_node_tells_how_many_there_are(device):
    node = device(X=np.eye(4)) | {"num-partitions": 7, "partition-id": 0}
    reply = send(node, flat("consensus-graph", {"privacy": "dp"}), "query.supernodes")
    assert reply.error.reason == SAYS.format("E3")
