"""What a whole run claims: totals of rounds taken part in, devices' budgets, bounds that hold."""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from flwr.app import ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps import run
from trellis.apps.cluster_admm import release
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.privacy.accounting.budget import DeviceLedger, Policy
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.zcdp import decaying_total_of, zcdp_epsilon
from trellis.sim.faults import Raise
from trellis.sim.grid import LocalGrid, run_local
from trellis.strategies.cluster_admm.strategy import ClusterAdmm
from trellis.strategies.core import wire
from trellis.strategies.core.base import StudyError

STUDY = "cluster-admm"
SMALL = {
    "servers": 2, "topology": "complete", "clients": 8, "clusters": "2", "features": 3,
    "samples": "4-9", "rounds": 12, "phi0": 0.01, "zeta": 0.9, "epsilon": 100.0,
    "release": "each",
}  # fmt: skip


def study(settings, **options):
    options.setdefault("report", False)
    return run(STUDY, {**SMALL, **settings}, **options)


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
            rounds.setdefault(client, []).append(server_round)
        return update(strategy, server_round, replies)

    monkeypatch.setattr(ClusterAdmm, "update", noted)
    return rounds


@pytest.mark.parametrize("mixing", ["paper", "exact"])
@pytest.mark.parametrize("privacy", ["paper", "sound"])
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
        # sigma is rounded up to a 1024th of a grid step
        near = 1e-6 if privacy == "sound" else 1e-12
        assert math.fsum(event.rho for event in events) == pytest.approx(spent, rel=near)
        if privacy == "sound" and took_part:
            assert entry["rho"] == pytest.approx(spent, rel=near)
            assert entry["rho"] <= spent * (1.0 + 1e-12)
    assert ledger["clients"][1]["events"] == []
    assert ledger["clients"][1]["epsilon"] == 0.0
    assert len(answered[0]) == 1
    assert ledger["epsilon"] == max(entry["epsilon"] for entry in ledger["clients"])


def test_the_total_is_what_another_library_makes_of_the_same_noise(answered):
    result = study({"privacy": "sound", "sample": 2, "phi0": 0.02, "delta": 1e-6})
    for k, entry in enumerate(result.ledger["clients"]):
        rounds = answered[k]
        # Of discrete Gaussians zCDP is what is proved; continuous ones would come to a little less.
        pld = by_accountant(PLDAccountant(), rounds, 0.02, 0.9, 1e-6)
        assert pld < entry["epsilon"] < 1.15 * pld
        rdp = by_accountant(RdpAccountant(ORDERS), rounds, 0.02, 0.9, 1e-6)
        total = zcdp_epsilon(decaying_total_of(0.02, 0.9, rounds), 1e-6)
        assert total == pytest.approx(rdp, rel=1e-3)
        assert entry["epsilon"] == pytest.approx(total, rel=1e-5)
        assert entry["epsilon"] <= total
        assert entry["delta"] == 1e-6
        if "epsilon_rdp" in entry:  # for those that spent most
            assert entry["epsilon_rdp"] == pytest.approx(rdp, rel=0.02)
            assert entry["epsilon_pld"] == pytest.approx(pld, rel=2e-3)
    assert "epsilon_rdp" in max(result.ledger["clients"], key=lambda entry: entry["epsilon"])


def test_the_paper_s_setting_totals_1_939_and_is_warned_of(caplog):
    result = study(
        {"privacy": "sound", "phi0": 0.001, "zeta": 0.99, "rounds": 300, "clients": 3, "servers": 1}
    )
    rdp = by_accountant(RdpAccountant(ORDERS), range(1, 301), 0.001, 0.99, 1e-5)
    for entry in result.ledger["clients"]:
        assert entry["rho"] == pytest.approx(1.939, abs=5e-4)
        assert zcdp_epsilon(entry["rho"], 1e-5) == pytest.approx(rdp, rel=1e-3)
    (note,) = result.notes
    assert "1.939-zCDP" in note
    assert note in caplog.text


def test_what_a_run_claims_stands_in_its_ledger():
    sound, printed, plain = (
        study({"privacy": privacy, "rounds": 2}) for privacy in ("sound", "paper", "none")
    )
    assert "one sample" in sound.ledger["adversary"]
    assert "replaced by another" in sound.ledger["neighbouring"]
    assert printed.ledger["claim"].startswith("NOT PRIVATE")
    assert any("the totals bound nothing" in note for note in printed.notes)
    assert plain.ledger["claim"].startswith("None.")
    assert all(entry["events"] == [] for entry in plain.ledger["clients"])
    assert "epsilon" not in plain.headline
    assert sound.headline["epsilon"] == sound.ledger["epsilon"] > 0.0


@pytest.mark.parametrize("privacy", ["paper", "sound"])
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
            arrays, event = content
            assert arrays == "arrays"
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
    settings = {**SMALL, "clients": len(nodes), **settings}
    run_config = make_run_config(STUDY, settings, seed=seed) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


@pytest.mark.parametrize("privacy", ["paper", "sound"])
def test_a_device_s_noise_is_not_the_seed_s(privacy, devices, tmp_path):
    first, again = (start(devices, tmp_path / out, privacy=privacy) for out in ("1", "2"))
    assert not np.any(first.arrays["models"] == again.arrays["models"])
    for node in devices:
        node["simulation"] = True
    first, again = (start(devices, tmp_path / out, privacy=privacy) for out in ("3", "4"))
    assert first.arrays["models"].tobytes() == again.arrays["models"].tobytes()


def test_a_device_whose_budget_is_spent_refuses_and_the_others_go_on(devices, tmp_path, answered):
    devices[1]["max-epsilon"] = 1.5
    result = start(devices, tmp_path / "out", privacy="sound")
    assert result.status == "completed"
    allowed = len(answered[1])
    assert 1 <= allowed < 12
    assert answered[1] == list(range(1, allowed + 1))
    assert [len(answered[k]) for k in (0, 2, 3)] == [12, 12, 12]
    assert [client["failures"] for client in result.clients] == [0, 12 - allowed, 0, 0]
    assert "device error E4" in result.clients[1]["last_failure"]
    assert "above this device's max-epsilon 1.5" in reasons(tmp_path / "state-b")[0]
    assert any("Client b was left out" in note for note in result.notes)
    # Its own ledger and the run's agree, and one round more would have been too much.
    ledger = DeviceLedger(tmp_path / "state-b", Policy(max_epsilon=1.5))
    assert len(ledger.events()) == allowed
    entry = result.ledger["clients"][1]
    assert entry["epsilon"] == pytest.approx(ledger.spent())
    assert ledger.spent() <= 1.5
    more = by_accountant(RdpAccountant(ORDERS), range(1, allowed + 2), 0.01, 0.9, 1e-5)
    assert more > 1.5


def test_a_device_adds_up_all_runs_and_the_run_only_its_own(devices, tmp_path):
    for out in ("1", "2"):
        result = start(devices, tmp_path / out, privacy="sound", rounds=3)
        assert len(result.ledger["clients"][0]["events"]) == 3
    events = DeviceLedger(tmp_path / "state-a").events()
    assert len(events) == 6
    twice = 2.0 * decaying_total_of(0.01, 0.9, [1, 2, 3])
    assert math.fsum(event.rho for event in events) == pytest.approx(twice)


@pytest.mark.parametrize("privacy", ["none", "paper"])
def test_a_device_that_requires_privacy_takes_no_part_and_the_others_go_on(
    privacy, devices, tmp_path
):
    devices[2]["require-privacy"] = True
    result = start(devices, tmp_path / "out", privacy=privacy)
    assert [client["name"] for client in result.clients] == ["a", "b", "d"]
    assert any("c: refused by the owner's policy (E4)" in note for note in result.notes)
    reason = f"this device requires privacy='sound', the run asks for privacy={privacy!r}"
    assert reasons(tmp_path / "state-c") == [reason]
    assert not (tmp_path / "state-c" / "ledger.json").exists()
    for node in devices:
        node["require-privacy"] = True
    with pytest.raises(StudyError, match=r"0 of 4 clients could be enrolled.*a: refused by"):
        start(devices, tmp_path / "all", privacy=privacy)
    assert len(start(devices, tmp_path / "sound", privacy="sound").clients) == 4


def test_what_the_paper_s_mode_releases_is_no_entry_in_a_device_s_account(devices, tmp_path):
    start(devices, tmp_path / "out", privacy="paper")
    assert DeviceLedger(tmp_path / "state-a").events() == []


# --- the bound -----------------------------------------------------------------------------------


def no_noise(source, size, sigma):
    return np.zeros(size, dtype=np.int64)


def asked(path, settings, v, **order):
    """Return what a device sends for ``v``, without its noise, and the sensitivity it claims."""
    run_config = make_run_config(STUDY, settings) | {"out": ""}
    node = {"data-path": str(path), "partition-id": 0, "simulation": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "quick_discrete_gaussian", no_noise)
        with LocalGrid(apps.client_app, [node], run_config) as grid:
            content = RecordDict({"arrays": wire.record({"v": v}), "order": ConfigRecord(order)})
            message = Message(content, next(iter(grid.get_node_ids())), "train")
            (reply,) = grid.send_and_receive([message])
    assert not reply.has_error(), reply.error
    (event,) = (
        PrivacyEvent.from_record(dict(record))
        for name, record in reply.content.items()
        if name.startswith("privacy.")
    )
    return wire.arrays(reply.content["arrays"])["model"], event.sensitivity


@hypothesis_settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**20), st.integers(2, 6), st.sampled_from(["ridge", "logistic"]),
    st.sampled_from([1e-9, 0.3, 3.0, 300.0]), st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.1, 1.0, 1e4]), st.floats(-2.0, 4.0), st.sampled_from([0.0, 0.4]),
)  # fmt: skip
def test_whatever_a_server_orders_a_replaced_sample_moves_the_reply_by_no_more_than_claimed(
    tmp_path_factory, seed, count, loss, rho, share, size, log_v, held_out
):
    folder, rng = tmp_path_factory.mktemp("neighbours"), np.random.default_rng(seed)
    settings = {
        "loss": loss, "privacy": "sound", "clients": 1, "clusters": "1", "servers": 1,
        "release": "each", "clip-features": 0.5, "clip-target": 1.0, "clip-model": 2.0,
    }  # fmt: skip
    X, y = size * rng.normal(size=(count, 2)), rng.choice([-1.0, 1.0], count)
    y = y if loss == "logistic" else size * y
    np.savez(folder / "one.npz", X=X, y=y)
    row = rng.integers(count)
    X[row], y[row] = -X[row] if rng.random() < 0.5 else size * rng.normal(size=2), -y[row]
    np.savez(folder / "two.npz", X=X, y=y)
    v = 10.0**log_v * min(rho, 1.0) * rng.normal(size=2)
    order = {"round": 1, "rho": rho, "share": share, "held_out": held_out}
    (one, claimed), (two, same) = (
        asked(folder / name, settings, v, **order) for name in ("one.npz", "two.npz")
    )
    assert claimed == same  # it may not depend on the data
    assert np.linalg.norm(one - two) <= claimed * (1.0 + 1e-9) + 1e-12
    assert max(np.linalg.norm(one), np.linalg.norm(two)) <= 2.0 * 1.001  # and the grid


def test_an_outlier_moves_the_first_round_of_a_whole_run_by_no_more_than_claimed(
    devices, tmp_path, monkeypatch
):
    monkeypatch.setattr(release, "quick_discrete_gaussian", no_noise)
    sent = []
    monkeypatch.setattr(
        ClusterAdmm,
        "update",
        lambda strategy, n, replies, whole=ClusterAdmm.update: (
            sent.append(replies[1].copy()) or whole(strategy, n, replies)
        ),
    )
    for node in devices:
        node["simulation"] = True
    settings = {
        "privacy": "sound", "rounds": 1, "clip-features": 1.0, "clip-target": 2.0, "clip-model": 1.0
    }  # fmt: skip
    result = start(devices, tmp_path / "1", **settings)
    with np.load(tmp_path / "b.npz") as file:
        X, y = file["X"].copy(), file["y"].copy()
    X[4], y[4] = 1e9, -1e9
    np.savez(tmp_path / "b.npz", X=X, y=y)
    start(devices, tmp_path / "2", **settings)
    (event,) = result.ledger["clients"][1]["events"]
    assert 0.0 < np.linalg.norm(sent[0] - sent[1]) <= event["sensitivity"]
    # C = 2 B (B W + Y) = 6, mu = rho + 2 ridge / 2 clients of the server.
    assert event["sensitivity"] == pytest.approx(2.0 * 6.0 / (9.0 * (3.0 + 0.1)), rel=3e-3)
