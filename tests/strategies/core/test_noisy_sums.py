"""Noisy secure sums end to end: noise, accounts, drop-outs, colluders, what devices insist on."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from trellis.apps.common.private import noisy_sum
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.sampled import ratio_for, spent
from trellis.privacy.secagg import answers as client
from trellis.privacy.secagg.client import Summands, register
from trellis.privacy.secagg.graph import expected_noisers
from trellis.sim.faults import Drop
from trellis.sim.grid import LocalGrid
from trellis.strategies.core.enrolment import Client, StudyError
from trellis.strategies.core.secure import SecureSum
from trellis.strategies.core.sum_noise import noise_in

SIZE, DELTA, BITS = 400, 1e-5, 20
RATIO = ratio_for(1.0, DELTA)
MASKED = {"category": "train", "at": frozenset({1})}
UNMASK = {"category": "query", "at": frozenset({4})}


def summands(message: Message, context: Context) -> Summands:
    colluding = float(context.run_config["colluding"])
    config = ConsensusGraphConfig(privacy="dp", epsilon=1.0, delta=DELTA, colluding=colluding)
    number = int(context.node_config["partition-id"])
    return noisy(
        context,
        config,
        {"x": np.full(SIZE, float(number))},
        what="a test",
        sensitivity=1.0,
        ratio=RATIO / math.sqrt(int(context.run_config["releases"])),
        releases=int(context.run_config["releases"]),
    )


app = ClientApp()
register(app, summands)


class Federation:
    """Clients of the toy app; ``devices`` have state folders and no simulation."""

    def __init__(self, count, tmp_path=None, *, policy=None, fault=None, releases=1, **shares):
        self.count, self.shares = count, {"dropout": 0.0, "colluding": 0.0, **shares}
        nodes = []
        for i in range(count):
            node = {"partition-id": i, "num-partitions": count}
            if tmp_path is None:
                node["simulation"] = True
            else:
                node["data-path"] = str(tmp_path / f"site-{i}.csv")
                node["state-path"] = str(tmp_path / f"state-{i}")
                node |= policy(i) if policy else {}
            nodes.append(node)
        self.nodes = nodes
        config = {"seed": 3, "colluding": self.shares["colluding"], "releases": releases}
        self.grid = LocalGrid(app, nodes, config, faults=fault)
        order = {n.node_config["partition-id"]: n.id for n in self.grid._nodes.values()}
        self.clients = [Client(f"site-{i}", i, 1, ["x"], order[i]) for i in range(count)]
        self.secure = SecureSum(BITS, noisy=True, **self.shares)

    def gather(self, members=None, secure=None):
        payload = {i: RecordDict() for i in members or range(self.count)}
        secure = secure or self.secure
        with self.grid as grid:
            return secure.gather(grid, payload, self.clients, 1, 5.0, layout={"x": (SIZE,)})


def events_of(found):
    return [
        PrivacyEvent.from_record(dict(record))
        for _, content in found.sent
        for key, record in content.items()
        if key.startswith("privacy.")
    ]


def noise_of(found):
    return found.total["x"] - sum(found.survivors)


def ledger(tmp_path, i):
    return json.loads((tmp_path / f"state-{i}" / "ledger.json").read_text())["entries"]


def test_the_sum_has_the_noise_of_one_central_mechanism():
    found = Federation(10).gather()
    events = events_of(found)
    assert {e.noisers for e in events} == {10}
    assert {e.mechanism for e in events} == {"summed-gaussian"}
    sigma = 1.0 / RATIO
    assert events[0].sigma == pytest.approx(sigma, rel=1e-3)
    assert noise_in(found) == pytest.approx(sigma, rel=1e-3)
    assert np.std(noise_of(found)) == pytest.approx(sigma, rel=0.15)
    assert spent(events[0].noise_ratio, 1, DELTA) <= 1.0 + 1e-9


def test_the_same_seed_gives_the_same_bits():
    one, two = (Federation(5).gather().total["x"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_drop_outs_and_colluders_are_covered_by_what_the_others_add():
    found = Federation(20, dropout=0.2, colluding=0.1).gather()
    events = events_of(found)
    # 16 must stay, 2 of them may be the server's.
    assert {e.noisers for e in events} == {14}
    share = events[0].sigma / math.sqrt(14)
    assert noise_in(found) == pytest.approx(share * math.sqrt(20))
    # Without the colluders' shares and those of all who may drop out it is what was asked.
    assert share * math.sqrt(14) >= (1.0 / RATIO) * (1.0 - 1e-9)


@pytest.mark.parametrize("stage", [MASKED, UNMASK])
def test_whoever_drops_out_at_whatever_stage_enough_noise_is_left(stage):
    lost = {i: Drop(**stage) for i in (2, 5)}
    found = Federation(10, fault=lost, dropout=0.2).gather()
    needed = 1.0 / RATIO
    assert noise_in(found) >= needed * (1.0 - 1e-9)
    assert len(found.survivors) >= 8
    # Every vector that was sent is counted, in the sum or not.
    assert len(events_of(found)) == (8 if stage is MASKED else 10)


def test_a_sum_that_too_many_leave_does_not_open():
    lost = {i: Drop(**MASKED) for i in (2, 5, 7)}
    with pytest.raises(StudyError, match="no secure sum"):
        Federation(10, fault=lost, dropout=0.2).gather()


def test_a_round_made_again_is_counted_again_where_the_run_declared_it():
    lost = {i: Drop(**MASKED) for i in (2, 5, 7)}
    found = Federation(10, fault=lost, dropout=0.2, releases=2).gather()
    assert len(found.survivors) == 7
    numbers = [event.name for event in events_of(found)]
    assert numbers.count("sum-a test-0-1") == 7
    assert numbers.count("sum-a test-0-2") == 7
    # And its noise is another: the difference of two sums must not tell what one client sent.
    assert len(set(numbers)) == 2


def test_more_releases_than_declared_are_refused():
    federation = Federation(5)
    federation.gather()
    with pytest.raises(StudyError, match="declares 1 releases"):
        federation.gather()


class TestDevices:
    """Nodes that are no simulation."""

    def keys(self, tmp_path, count):
        table = []
        for i in range(count):
            key = Ed25519PrivateKey.generate()
            private = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            (tmp_path / f"key-{i}").write_bytes(private)
            public = key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            table.append(f"site-{i} {public.decode()}")
        (tmp_path / "table").write_text("\n".join(table) + "\n")
        return lambda i: {
            "signing-key": str(tmp_path / f"key-{i}"),
            "trusted-keys": str(tmp_path / "table"),
        }

    def test_without_signed_keys_a_device_counts_on_itself_alone(self, tmp_path):
        found = Federation(4, tmp_path).gather()
        assert {e.noisers for e in events_of(found)} == {1}
        assert noise_in(found) == pytest.approx(math.sqrt(4) / RATIO, rel=1e-3)
        entries = ledger(tmp_path, 0)
        (entry,) = entries.values()
        assert entry["state"] == "released"
        assert entry["event"]["noisers"] == 1

    def test_with_signed_keys_it_counts_on_those_less_its_owners_doubt(self, tmp_path):
        keys = self.keys(tmp_path, 10)
        federation = Federation(10, tmp_path, policy=lambda i: {**keys(i), "colluding": 0.2})
        assert {e.noisers for e in events_of(federation.gather())} == {8}

    def test_its_owner_may_count_on_anyone_or_nobody(self, tmp_path):
        trusting = Federation(4, tmp_path / "a", policy=lambda i: {"count-noise-of": "anyone"})
        assert {e.noisers for e in events_of(trusting.gather())} == {4}
        keys = self.keys(tmp_path, 4)
        alone = Federation(
            4, tmp_path / "b", policy=lambda i: {**keys(i), "count-noise-of": "nobody"}
        )
        assert {e.noisers for e in events_of(alone.gather())} == {1}

    def test_noise_differs_from_run_to_run(self, tmp_path):
        one, two = (Federation(4, tmp_path / name).gather().total["x"] for name in "ab")
        assert not np.array_equal(one, two)

    def test_a_server_that_asks_again_is_refused_and_the_ledger_says_what_was_spent(self, tmp_path):
        federation = Federation(4, tmp_path)
        federation.gather()
        with pytest.raises(StudyError):
            federation.gather(secure=SecureSum(BITS, noisy=True))
        assert len(ledger(tmp_path, 1)) == 1

    def test_a_budget_stops_it_before_noise_is_drawn(self, tmp_path):
        policy = {"max-epsilon": 0.5}
        with pytest.raises(StudyError, match="max-epsilon"):
            Federation(4, tmp_path, policy=lambda i: policy).gather()
        assert ledger(tmp_path, 0) == {}

    def test_a_device_that_refuses_the_others_costs_nobody_a_release(self, tmp_path):
        keys = self.keys(tmp_path, 5)
        (tmp_path / "short").write_text((tmp_path / "table").read_text().split("\n", 1)[1])

        def policy(i):  # the last one's owner does not know the first
            return keys(i) | ({"trusted-keys": str(tmp_path / "short")} if i == 4 else {})

        found = Federation(5, tmp_path, policy=policy).gather()
        assert found.survivors == [0, 1, 2, 3]
        assert list(found.failures) == [4]
        assert [len(ledger(tmp_path, i)) for i in range(4)] == [1, 1, 1, 1]
        assert not (tmp_path / "state-4").exists()

    def test_a_server_that_plans_a_sparse_graph_gets_the_whole_noise_of_each(self, tmp_path):
        """It could open parts of the sum; so nobody counts on all others."""
        federation = Federation(70, tmp_path, policy=lambda i: {"count-noise-of": "anyone"})
        found = federation.gather(secure=SecureSum(BITS))
        assert {e.noisers for e in events_of(found)} == {1}


def test_personal_results_of_others_do_not_ride_along():
    """What a noisy sum tells in the clear is its event, nothing else."""
    found = Federation(5).gather()
    assert all(set(content) == {"privacy.sum-a test-0-1"} for _, content in found.sent)


@pytest.mark.parametrize("clients", [3, 4, 5, 10, 23])
@pytest.mark.parametrize("shares", [(0.0, 0.0), (0.1, 0.1), (0.3, 0.0), (0.0, 0.3), (0.3, 0.3)])
def test_forecasts_know_how_many_will_be_counted_on(clients, shares):
    dropout, colluding = shares
    found = Federation(clients, dropout=dropout, colluding=colluding).gather()
    assert {e.noisers for e in events_of(found)} == {expected_noisers(clients, *shares)}
    assert expected_noisers(clients, *shares) > clients // 3


@pytest.mark.parametrize(("doubt", "counted"), [(0.2, 8), (0.4, 1)])
def test_a_device_whose_owner_doubts_more_makes_up_for_shares_of_others(tmp_path, doubt, counted):
    """Nine count on ten; one counts on fewer, whose smaller shares must be enough with its own.

    Beyond a third, where the sum may open in parts, it counts on itself alone.
    """

    def policy(i):
        return {"count-noise-of": "anyone", "colluding": doubt if i == 0 else 0.0}

    found = Federation(10, tmp_path, policy=policy, releases=400).gather()
    by_client = {c: PrivacyEvent.from_record(dict(next(iter(r.values())))) for c, r in found.sent}
    assert by_client[1].noisers == 10
    assert by_client[0].noisers == counted
    sigma = by_client[1].sigma
    assert by_client[0].sigma == pytest.approx(sigma, rel=1e-3)
    share = sigma**2 / 10.0
    whole = math.sqrt((10 - counted + 1) * share + 9 * share)
    assert np.std(noise_of(found)) == pytest.approx(whole, rel=0.1)


def test_clients_told_of_another_noise_do_not_add_up(monkeypatch):
    """A server that has the others add less noise gets no sum with the client that counts on it."""
    honest = noisy_sum._Task.noise

    def told_otherwise(task, noisers, fraction_bits, size):
        mine = int(task.context.node_config["partition-id"]) == 4
        other = replace(task, ratio=100.0 * task.ratio) if mine else task
        return honest(other, noisers, fraction_bits, size)

    monkeypatch.setattr(noisy_sum._Task, "noise", told_otherwise)
    found = Federation(12, dropout=0.1).gather()
    assert 4 not in found.survivors
    assert "its masks are not those of its neighbours" in found.failures[4]


def test_clients_of_another_run_config_do_not_add_up(monkeypatch):
    honest = client.shared_hash

    def told_otherwise(content, run_config=None):
        told_otherwise.calls += 1
        other = {"epsilon": 1000.0} if told_otherwise.calls == 5 else run_config
        return honest(content, other)

    told_otherwise.calls = 0
    monkeypatch.setattr(client, "shared_hash", told_otherwise)
    found = Federation(12, dropout=0.1).gather()
    assert len(found.failures) == 1
    assert "it was told something else" in next(iter(found.failures.values()))
