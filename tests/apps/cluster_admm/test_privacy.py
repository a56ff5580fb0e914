"""What a whole run claims: totals of rounds taken part in, devices' budgets, bounds that hold."""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
import pytest

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps import run
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.zcdp import decaying_total_of
from trellis.sim.faults import Raise
from trellis.sim.grid import LocalGrid, run_local
from trellis.strategies.cluster_admm.strategy import ClusterAdmm
from trellis.strategies.core.enrolment import StudyError

STUDY = "cluster-admm"
SMALL = {
    "servers": 2, "topology": "complete", "clients": 8, "clusters": "2", "features": 3,
    "samples": "4-9", "rounds": 12, "phi0": 0.01, "zeta": 0.9, "epsilon": 100.0,
}  # fmt: skip


def study(settings, **options):
    options.setdefault("report", False)
    return run(STUDY, ClusterAdmmConfig.having_effect({**SMALL, **settings}), **options)


def by_accountant(accountant, rounds, phi0, zeta, delta):
    """Epsilon of Gaussians of variance zeta^n / (2 phi0), sensitivity 1, by another library."""
    for n in rounds:
        accountant.compose(dp_accounting.GaussianDpEvent(math.sqrt(zeta**n / (2.0 * phi0))))
    return accountant.get_epsilon(delta)


ORDERS = [1.0 + x for x in np.geomspace(1e-3, 1e4, 4000)]


# --- the account of a run ------------------------------------------------------------------------


@pytest.fixture
def answered(monkeypatch):
    """The rounds that every client's reply was used in."""
    rounds, update = {}, ClusterAdmm.update

    def noted(strategy, server_round, replies):
        for client in replies:
            rounds.setdefault(client - 1, []).append(server_round)
        return update(strategy, server_round, replies)

    monkeypatch.setattr(ClusterAdmm, "update", noted)
    return rounds


@pytest.mark.parametrize("mixing", ["paper", "exact"])
@pytest.mark.parametrize("privacy", ["paper"])
def test_a_client_s_total_is_of_the_rounds_it_took_part_in(privacy, mixing, answered, tmp_path):
    gone = {0: Raise(category="train", since=2), 1: Raise(category="train")}
    settings = {"privacy": privacy, "sample": 2, "mixing": mixing}
    result = study(settings, faults=gone, out=tmp_path)
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    assert ledger["mode"] == privacy
    assert len({tuple(rounds) for rounds in answered.values()}) > 4
    for k, entry in enumerate(ledger["clients"]):
        assert entry["name"] == f"client-{k + 1}"
        events = [PrivacyEvent.from_record(record) for record in entry["events"]]
        took_part = answered.get(k, [])
        assert [event.round for event in events] == took_part
        assert result.clients[k]["rounds"] == len(took_part)
        spent = decaying_total_of(0.01, 0.9, took_part)
        assert math.fsum(event.rho for event in events) == pytest.approx(spent, rel=1e-12)
    assert ledger["clients"][1]["events"] == []
    assert ledger["clients"][1]["epsilon"] == 0.0
    assert len(answered[0]) == 1
    assert ledger["epsilon"] == max(entry["epsilon"] for entry in ledger["clients"])


def test_what_a_run_claims_stands_in_its_ledger():
    printed, plain = (study({"privacy": privacy, "rounds": 2}) for privacy in ("paper", "none"))
    assert printed.ledger["claim"].startswith("NOT PRIVATE")
    assert any("the totals bound nothing" in note for note in printed.notes)
    assert plain.ledger["claim"].startswith("None.")
    assert all(entry["events"] == [] for entry in plain.ledger["clients"])
    assert "epsilon" not in plain.headline
    assert printed.headline["epsilon"] == printed.ledger["epsilon"] > 0.0


@pytest.mark.parametrize("privacy", ["paper"])
def test_clients_send_nothing_but_noisy_models_and_what_they_cost(privacy, monkeypatch):
    heard, receive = [], LocalGrid._receive

    def noted(grid, reply, asked):
        heard.append((asked.message_type, reply.content))
        return receive(grid, reply, asked)

    monkeypatch.setattr(LocalGrid, "_receive", noted)
    study({"privacy": privacy, "rounds": 3})
    for kind, content in heard:
        if kind == "query.enrol":
            assert set(content) == {"client"}
            assert set(content["client"]) == {
                "name", "partition", "count", "variables", "synthetic", "simulated", "server",
                "cluster",
            }  # fmt: skip
        else:
            assert kind == "train"
            arrays, metrics, event = content
            assert (arrays, metrics) == ("arrays", "metrics")
            assert set(content["metrics"]) == {"num-examples"}
            assert set(content["arrays"]) == {"model"}
            assert event.startswith("privacy.round-")
    assert len(heard) == 8 + 3 * 8


# --- devices -------------------------------------------------------------------------------------


@pytest.fixture
def devices(tmp_path):
    """Four devices with their own files; node configs may be changed."""
    rng = np.random.default_rng(0)
    nodes = []
    for k, name in enumerate("abcd"):
        path = tmp_path / f"{name}.npz"
        np.savez(path, X=rng.normal(size=(9, 3)), y=rng.normal(size=9))
        node = {"data-path": str(path), "state-path": str(tmp_path / f"state-{name}")}
        nodes.append(node | {"server": k // 2, "cluster": k % 2, "partition-id": k})
    return nodes


def start(nodes, out, seed=1, **settings) -> RunResult:
    settings = ClusterAdmmConfig.having_effect({**SMALL, "clients": len(nodes), **settings})
    run_config = make_run_config(STUDY, settings, seed=seed) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


@pytest.mark.parametrize("privacy", ["paper"])
def test_a_device_s_noise_is_not_the_seed_s(privacy, devices, tmp_path):
    first, again = (start(devices, tmp_path / out, privacy=privacy) for out in ("1", "2"))
    assert not np.any(first.arrays["models"] == again.arrays["models"])
    for node in devices:
        node["simulation"] = True
    first, again = (start(devices, tmp_path / out, privacy=privacy) for out in ("3", "4"))
    assert first.arrays["models"].tobytes() == again.arrays["models"].tobytes()


@pytest.mark.parametrize("privacy", ["none", "paper"])
def test_a_device_that_requires_privacy_takes_no_part_and_the_others_go_on(
    privacy, devices, tmp_path
):
    devices[2]["require-privacy"] = True
    result = start(devices, tmp_path / "out", privacy=privacy)
    assert [client["name"] for client in result.clients] == ["a", "b", "d"]
    assert any("c: refused by the owner's policy (E4)" in note for note in result.notes)
    reason = f"this device requires privacy='dp', the run asks for privacy={privacy!r}"
    assert reasons(tmp_path / "state-c") == [reason]
    assert not (tmp_path / "state-c" / "ledger.json").exists()
    for node in devices:
        node["require-privacy"] = True
    with pytest.raises(StudyError, match=r"0 of 4 clients could be enrolled.*a: refused by"):
        start(devices, tmp_path / "all", privacy=privacy)
    dp = start(devices, tmp_path / "dp", privacy="dp")
    assert len(dp.clients) == 4


def test_what_the_paper_s_mode_releases_is_no_entry_in_a_device_s_account(devices, tmp_path):
    start(devices, tmp_path / "out", privacy="paper")
    assert DeviceLedger(tmp_path / "state-a").events() == []
