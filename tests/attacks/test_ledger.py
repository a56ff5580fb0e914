"""Attacks on a device's ledger: races, and numbers that a server chooses."""

from __future__ import annotations

import json
import multiprocessing
import secrets

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from trellis import apps
from trellis.apps.common.settings import config_class
from trellis.apps.consensus_graph.private import pooled
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.sim.grid import LocalGrid
from trellis.strategies.core.enrolment import Client
from trellis.strategies.core.secure import SecureSum


def _reserve(arguments):
    folder, number = arguments
    sigma = gaussian_sigma(1.0, 1e-5, 1.0)
    try:
        DeviceLedger(folder, Policy(1.2, 1e-5, True)).reserve(
            PrivacyEvent(f"e{number}", "x", 0, 1.0, 1e-5, sigma, 1.0)
        )
    except PrivacyRefused:
        return False
    return True


def test_of_many_processes_on_a_fresh_device_one_gets_the_last_of_the_budget(tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        for turn in range(3):
            folder = tmp_path / str(turn)
            granted = pool.map(_reserve, [(folder, n) for n in range(9)], chunksize=1)
            assert sum(granted) == 1


def release(node, settings, folder, *, enrolled=True):
    """Return whether a device adds to a noisy sum of a new run, with two others in it.

    A server may leave enrolment out, where a device says how it will answer: ``enrolled=False``.
    """
    config = config_class("consensus-graph").from_settings(
        {"privacy": "dp", "clients": 3, **settings}
    )
    run_config = {"study": "consensus-graph", "seed": 1, "out": "", **config.run_config()}
    nodes = [node]
    for name in ("second", "third"):
        path = folder / f"{name}-{secrets.token_hex(4)}.npz"
        np.savez(path, X=np.random.default_rng(1).standard_normal((100, 5)))
        nodes.append({"data-path": str(path)})
    with LocalGrid(apps.client_app, nodes, run_config) as grid:
        numbers = list(grid.get_node_ids())
        replies = [Message(RecordDict(), number, "query.enrol") for number in numbers]
        reply = next(iter(grid.send_and_receive(replies)))
        if enrolled and (reply.has_error() or "refused" in reply.content["client"]):
            return False
        clients = [
            Client(str(n), n, 100, list("abcde"), number) for n, number in enumerate(numbers)
        ]
        content = RecordDict({"config": ConfigRecord({"server-round": 1})})
        asked = {"": {n: RecordDict(dict(content)) for n in range(3)}}
        sums = SecureSum(pooled.FRACTION_BITS, noisy=True, colluding=0.0)
        found = sums.gather_groups(grid, asked, clients, 1, 10.0)[""]
    return bool(found.total)


@pytest.mark.parametrize(
    "settings",
    [
        {"delta": 0.9999999}, {"epsilon": 1e-9, "delta": 0.999}, {"epsilon": 1e300},
        {"clip": 1e-308}, {"clip": 1e307}, {"delta": 1e-300}, {"privacy": "none"},
        {"privacy": "paper", "local-steps": 3},
    ],
)  # fmt: skip
@pytest.mark.parametrize("enrolled", [True, False])
def test_no_number_of_the_server_s_takes_more_than_the_budget(settings, enrolled, tmp_path):
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).standard_normal((100, 5)))
    state = tmp_path / "s"
    node = {"data-path": str(tmp_path / "x.npz"), "state-path": str(state), "max-epsilon": 1.0}
    try:
        released = release(node, {"epsilon": 0.5, **settings}, tmp_path, enrolled=enrolled)
    except ValueError:
        return  # no valid settings: the device would not get so far
    ledger = DeviceLedger(state, Policy(1.0, 1e-5, True))
    if released:
        (event,) = ledger.events()
        assert event.sigma > 0.0
        assert ledger.spent() <= 1.0 + 1e-9
    else:
        assert ledger.events() == []


def test_renaming_the_data_does_not_reset_its_budget(tmp_path):
    path = tmp_path / "ward.npz"
    np.savez(path, X=np.random.default_rng(0).standard_normal((100, 5)))
    assert release({"data-path": str(path), "max-epsilon": 1.0}, {"epsilon": 0.9}, tmp_path)
    moved = path.rename(tmp_path / "clinic.npz")
    assert not release({"data-path": str(moved), "max-epsilon": 1.0}, {"epsilon": 0.91}, tmp_path)
    assert not release({"data-path": str(moved), "max-epsilon": 1.0}, {"epsilon": 0.92}, tmp_path)
    assert len(DeviceLedger(tmp_path / ".ward-trellis").events()) == 1


def test_a_deleted_ledger_does_not_reset_a_budget(tmp_path):
    path, state = tmp_path / "ward.npz", tmp_path / "s"
    np.savez(path, X=np.random.default_rng(0).standard_normal((100, 5)))
    node = {"data-path": str(path), "state-path": str(state), "max-epsilon": 1.0}
    assert release(node, {"epsilon": 0.9}, tmp_path)
    for file in state.iterdir():
        if file.name != "secret":
            file.unlink()
    for epsilon in (0.9, 0.5):
        assert not release(node, {"epsilon": epsilon}, tmp_path)


def test_a_run_s_part_holds_from_end_to_end(tmp_path):
    path, state = tmp_path / "ward.npz", tmp_path / "s"
    np.savez(path, X=np.random.default_rng(0).standard_normal((100, 5)))
    (tmp_path / "policy.toml").write_text("max-epsilon = 5.0\nrun-epsilon = 0.7\n")
    node = {"data-path": str(path), "state-path": str(state), "policy": f"{tmp_path}/policy.toml"}
    assert not release(node, {"epsilon": 0.8}, tmp_path)
    assert release(node, {"epsilon": 0.6}, tmp_path)
    assert release(node, {"epsilon": 0.65}, tmp_path)
    entries = json.loads((state / "ledger.json").read_text())["entries"].values()
    assert len({entry["run"] for entry in entries}) == 2
    assert {entry["study"] for entry in entries} == {"consensus-graph"}
    assert all(entry["time"] and entry["message"] for entry in entries)
