"""Attacks on server-graph with noise in sums, by a server that picks settings and messages.

The adversary of `apps.server_graph.release`: whatever it asks, a device answers with counted
releases of a secure sum and with nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.losses import Logistic
from trellis.apps.server_graph.private import Terms, clipped_mean, digest
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.privacy.audit_sums import audit_sum
from trellis.privacy.mechanisms.shares import plan_share
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import Client, enrol
from trellis.strategies.core.secure import SecureSum

from .server_studies import device

STUDY = "server-graph"
CLIENTS, SAMPLES = 4, 25
CHOSEN = {
    "privacy": "dp", "method": "fedavg", "clients": CLIENTS,
    "rounds": 2, "batch": 0, "samples": str(SAMPLES),
}  # fmt: skip
SILENCE = {"personal": {"came": True}}
NODE = {"max-epsilon": 1.0, "require-privacy": True, "count-noise-of": "anyone"}


class Server:
    """A server that asks what it likes of four devices, the first with data of one's choice."""

    def __init__(self, folder: Path, first: Any = None, **chosen: Any) -> None:
        self.config = ServerGraphConfig.from_settings({**CHOSEN, **chosen})
        self.folder, nodes = folder, []
        for k in range(CLIENTS):
            rng = np.random.default_rng(k)
            X, y = rng.normal(size=(SAMPLES, 2)), rng.choice([-1.0, 1.0], SAMPLES)
            if k == 0 and first is not None:
                X[0], y[0] = first, -y[0]
            nodes.append(device(folder / str(k), X, y, **NODE, **{"partition-id": k}))
        run_config = {"study": STUDY, "seed": 1, "out": "", **self.config.run_config()}
        self.grid = LocalGrid(apps.client_app, nodes, run_config)
        self.clients: list[Client] = []
        self.secure = SecureSum(noisy=True, dropout=0.1, colluding=0.1)

    def __enter__(self) -> Server:
        self.grid.__enter__()
        self.clients = enrol(self.grid, CLIENTS, 10.0, 10.0).clients
        return self

    def __exit__(self, *args: Any) -> None:
        self.grid.__exit__(*args)

    @property
    def needed(self) -> float:
        return Terms.of(self.config).needed_deviation(SAMPLES)

    def order(self, w: Any = (0.0, 0.0), **order: Any) -> RecordDict:
        arrays = wire.record({"model": np.asarray(w, dtype=np.float64)})
        told = {"server-round": 1, "deviation": self.needed, "settings": digest(self.config)}
        return RecordDict({"arrays": arrays, "config": ConfigRecord({**told, **order})})

    def sum(
        self, *orders: RecordDict, layout: str = "gradient", size: int = 2, kind: str = "train"
    ) -> Any:
        """Ask for one secure sum; one message for all, or one per client."""
        each = orders * CLIENTS if len(orders) == 1 else orders
        payloads = {k: RecordDict(dict(order)) for k, order in enumerate(each)}
        groups = {"": payloads}
        return self.secure.gather_groups(
            *(self.grid, groups, self.clients, 1, 10.0),
            layout={layout: (size,)},
            category=kind,
        )[""]

    def events(self, k: int = 0) -> list[Any]:
        return DeviceLedger(self.folder / str(k) / "state").events()

    def refusals(self, k: int = 0) -> str:
        return " | ".join(reasons(self.folder / str(k) / "state"))


def test_more_rounds_than_planned_are_refused_and_nothing_is_released(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        planned = Terms.of(server.config).releases
        assert planned == 4
        for _ in range(planned):
            assert server.sum(server.order()).total
        more = server.sum(server.order())
        assert not more.total
        assert not more.sent
        assert len(server.events()) == planned
        assert "declares 4 releases" in server.refusals()
        assert DeviceLedger(server.folder / "0" / "state").spent() <= 1.0


def test_a_round_that_is_asked_again_has_other_noise_and_is_counted(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        one, two = (server.sum(server.order()).total["gradient"] for _ in range(2))
        assert np.abs(one - two).max() > 1e-3
        assert len(server.events()) == 2


@pytest.mark.parametrize("told", [0.0, 0.99, -1.0, float("nan"), float("inf")])
def test_less_noise_than_a_device_needs_is_refused(tmp_path: Path, told: float) -> None:
    with Server(tmp_path) as server:
        found = server.sum(server.order(deviation=told * server.needed))
        assert not found.total
        assert server.events() == []
        assert "this device needs" in server.refusals()


def test_clients_that_were_told_of_other_noise_do_not_add_up(tmp_path: Path) -> None:
    """One is told the least it takes, the others that more noise is in the sum than there is."""
    with Server(tmp_path) as server:
        more = server.order(deviation=5.0 * server.needed)
        found = server.sum(server.order(), *[more] * (CLIENTS - 1))
        assert found.survivors == [1, 2, 3]  # made again without the one that is at odds
        assert {e.noisers for e in server.events(1)} == {CLIENTS, CLIENTS - 1}
        assert len(server.events()) == 1  # its vector was masked: it counts
    with Server(tmp_path / "models") as server:
        other = server.order((1.0, 1.0))
        assert not server.sum(server.order(), server.order(), other, other).total


def test_an_order_of_other_settings_is_refused(tmp_path: Path) -> None:
    """A server that gives some devices another epsilon cannot have them all in one sum."""
    with Server(tmp_path) as server:
        lax = ServerGraphConfig.from_settings({**CHOSEN, "epsilon": 1000.0})
        assert not server.sum(server.order(settings=digest(lax))).total
        assert server.events() == []
        assert "other settings" in server.refusals()


def test_nothing_is_told_in_the_clear(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        node = server.clients[0].node_id
        (reply,) = server.grid.send_and_receive([Message(server.order(), node, "train")])
        assert reply.has_error()
        (reply,) = server.grid.send_and_receive([Message(server.order(), node, "evaluate")])
        assert {name: dict(record) for name, record in reply.content.items()} == SILENCE
        assert server.events() == []


def test_a_score_that_no_samples_are_held_out_for_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert not server.sum(server.order(), layout="terms", size=1, kind="evaluate").total
        assert server.events() == []


def test_scores_of_many_models_are_counted_and_end(tmp_path: Path) -> None:
    with Server(tmp_path, **{"held-out": 0.4}) as server:
        for _ in range(2):
            asked = server.order((1.0, -1.0))
            assert server.sum(asked, layout="terms", size=1, kind="evaluate").total
        assert not server.sum(asked, layout="terms", size=1, kind="evaluate").total
        assert {e.what for e in server.events()} == {"the score of held-out samples"}
        assert len(server.events()) == 2


@pytest.mark.parametrize("record", [(1e300, -1e300), (np.nan, np.inf), (1e-300, 0.0)])
def test_one_record_changes_nothing_but_the_counted_sum(tmp_path: Path, record: Any) -> None:
    """Whatever a record is, all replies have the same form and the same words in the clear."""
    told = []
    for name, first in (("one", None), ("other", record)):
        with Server(tmp_path / name, first) as server:
            found = server.sum(server.order((3.0, -2.0)))
            asked = [
                Message(server.order((3.0, -2.0)), client.node_id, "query.personal")
                for client in server.clients
            ]
            replies = server.grid.send_and_receive(asked, timeout=60.0)
        enrolled = [(c.name, c.count, c.variables) for c in server.clients]
        clear = [(k, {n: dict(r) for n, r in c.items()}) for k, c in found.sent]
        personal = [{n: dict(r) for n, r in reply.content.items()} for reply in replies]
        assert not any(reply.has_error() for reply in replies)
        told.append((enrolled, clear, found.survivors, found.failures, personal))
    assert told[0] == told[1]
    assert told[0][4] == [SILENCE] * CLIENTS


def test_an_audit_of_one_round_does_not_refute_its_epsilon() -> None:
    """The worst two records, all others known, against the noise that a device counts on."""
    config = ServerGraphConfig.from_settings({**CHOSEN, "delta": 1e-3, "rounds": 1})
    terms = Terms.of(config)
    X, y = np.zeros((SAMPLES, 2)), np.ones(SAMPLES)
    sums = []
    for sign in (1.0, -1.0):
        X[0] = sign * np.array([300.0, 400.0])
        all_of_them = np.ones(SAMPLES, dtype=bool)
        zero = np.zeros(2)
        sums.append(clipped_mean(Logistic(), zero, X, y, terms.clip, all_of_them, SAMPLES))
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(terms.sensitivity(SAMPLES))
    share = plan_share(32, terms.ratio(SAMPLES), terms.sensitivity(SAMPLES), 2, CLIENTS)
    rng = np.random.default_rng(4)
    found = audit_sum("one round", sums[0], sums[1], share, delta=1e-3, trials=20_000, rng=rng)
    assert not found.refuted
    assert 0.1 < found.result.epsilon_lower <= found.claimed <= 1.0
