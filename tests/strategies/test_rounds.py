"""What a run promises of every strategy, by toy strategies that belong to no study."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.node import Node
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger
from trellis.sim.grid import run_local
from trellis.strategies.bounded_grid import Bounded, BoundedGrid
from trellis.strategies.core import wire
from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.robust import Robust
from trellis.strategies.node_strategy import NodeStrategy
from trellis.strategies.rounds import RoundPlan, Rounds

CLIENTS, SIZE = 4, 3


class Halving(NodeStrategy):
    """Every node moves half of the way to its target; the model is the mean over all nodes."""

    def __init__(self, **options):
        super().__init__(**options)
        self.own: dict[int, np.ndarray] = {}
        self.dropped: list[int] = []

    def configure_train(self, server_round, arrays, config, grid):
        for node in self.nodes(grid, server_round):
            sent = wire.record({"model": self.own.get(node, wire.unpack(arrays["model"]))})
            told = ConfigRecord({**config, "server-round": server_round})
            content = RecordDict({"arrays": sent, "config": told})
            yield Message(content, node, "train", group_id=str(server_round))

    def aggregate_train(self, server_round, replies):
        found = self.usable(replies, read)
        if not found:
            return None, None
        moved = [np.max(np.abs(x - self.own.get(n, 0.0))) for n, x in found.items()]
        self.own |= found
        mean = np.mean([self.own[node] for node in sorted(self.own)], axis=0)
        return wire.record({"model": mean}), MetricRecord({"change": float(max(moved))})

    def aggregate_evaluate(self, server_round, replies):
        found = self.usable(replies, lambda content: float(content["metrics"]["loss"]))
        return MetricRecord({"loss": sum(found.values())}) if found else None

    def drop(self, node):
        self.own.pop(node, None)
        self.dropped.append(node)

    def state_dict(self):
        return {f"own.{node}": array for node, array in self.own.items()}

    def load_state_dict(self, state):
        self.own = {int(name.removeprefix("own.")): a.copy() for name, a in state.items()}


def read(content):
    found = wire.unpack(content["arrays"]["model"])
    wire.check_reals(found, "model", (SIZE,))
    return found


class Clients:
    """A ClientApp that enrols, halves, and misbehaves in chosen rounds."""

    def __init__(self, wrong=None, *, event=None, dies=None):
        self.app, self.log = ClientApp(), []
        # Replies by (partition, round); None stands for every round.
        wrong = wrong or {}

        @enrolment(self.app)
        def enrol(message, context):
            return introduction(message, Node.of(context), 10, ["a", "b", "c"])

        @self.app.train()
        def train(message, context):
            number, place = self.note("train", message, context)
            if dies == ("train", number):
                raise KeyboardInterrupt
            model = message.content["arrays"]["model"].numpy()
            moved = 0.5 * (model + place + 1.0)
            moved = wrong.get((place, number), wrong.get((place, None), lambda x: x))(moved)
            numbers = MetricRecord({"num-examples": 10})
            content = RecordDict(
                {"arrays": ArrayRecord({"model": Array(moved)}), "metrics": numbers}
            )
            if event is not None:
                content["privacy.one"] = ConfigRecord(event.as_record())
            return Message(content, reply_to=message)

        @self.app.evaluate()
        def evaluate(message, context):
            number, _ = self.note("evaluate", message, context)
            if dies == ("evaluate", number):
                raise KeyboardInterrupt
            loss = float(np.sum(message.content["arrays"]["model"].numpy()))
            content = RecordDict({"metrics": MetricRecord({"loss": loss, "num-examples": 10})})
            return Message(content, reply_to=message)

    def note(self, kind, message, context):
        number = int(message.content["config"]["server-round"])
        place = int(context.node_config["partition-id"])
        self.log.append((kind, number, place))
        return number, place

    def rounds_of(self, kind):
        return [number for asked, number, _ in self.log if asked == kind]


def failing(reply):
    raise ValueError("out of order")


def first(clients):
    return ArrayRecord({"model": Array(np.zeros(SIZE))})


@pytest.fixture(autouse=True)
def _checkpoint_every_round(monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)


def run(strategy, clients=None, *, folder=None, resume=False, initial=first, plan=None, **more):
    """Run a strategy over the toy clients; return its rounds and its result."""
    clients, found = clients or Clients(), []
    checkpoint = Checkpoint(folder) if folder is not None else None
    plan = RoundPlan(**{"rounds": 6, "tolerance": 0.0, "clients": CLIENTS, **(plan or {})})
    rounds = Rounds(strategy, initial, plan, checkpoint=checkpoint, **more)
    server = ServerApp()

    @server.main()
    def main(grid, context):
        found.append(rounds.run(grid, resume=resume))

    nodes = [
        {"partition-id": i, "num-partitions": CLIENTS, "simulation": True} for i in range(CLIENTS)
    ]
    run_local(server, clients.app, nodes, {})
    return rounds, found[0]


def model(result):
    return result.arrays["model"].numpy()


def every_other(server_round, nodes):
    return [nodes[server_round % len(nodes)], nodes[(server_round + 1) % len(nodes)]]


STRATEGIES = {
    "state per node": Halving,
    "sampled": lambda: Halving(sampler=every_other),
    "evaluated": lambda: Halving(fraction_evaluate=1.0),
    "flower's FedAvg": lambda: FedAvg(fraction_evaluate=0.0),
}
EVERY = pytest.mark.parametrize("name", STRATEGIES)


def test_they_are_flower_strategies():
    assert issubclass(NodeStrategy, Strategy)


@EVERY
@pytest.mark.parametrize("stop", [1, 2, 5, 6])
def test_a_run_stopped_in_any_round_and_resumed_ends_with_the_same_bits(name, stop, tmp_path):
    whole, result = run(STRATEGIES[name](), folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(STRATEGIES[name](), Clients(dies=("train", stop)), folder=tmp_path / "broken")
    strategy = STRATEGIES[name]()
    resumed, again = run(strategy, folder=tmp_path / "broken", resume=True)
    assert model(again).tobytes() == model(result).tobytes()
    kept = getattr(whole.strategy, "state_dict", dict)()
    for key, array in getattr(strategy, "state_dict", dict)().items():
        assert array.tobytes() == kept[key].tobytes()
    for one, other in zip(whole.progress.rows, resumed.progress.rows, strict=True):
        assert {**one, "seconds": 0.0} == {**other, "seconds": 0.0}
    assert [c.rounds for c in resumed.clients] == [c.rounds for c in whole.clients]
    assert resumed.progress.bytes_up == whole.progress.bytes_up


def test_scores_that_were_cut_off_are_asked_for_again_and_training_is_not(tmp_path):
    build = STRATEGIES["evaluated"]
    whole, _ = run(build(), folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(build(), Clients(dies=("evaluate", 6)), folder=tmp_path / "broken")
    clients = Clients()
    resumed, _ = run(build(), clients, folder=tmp_path / "broken", resume=True)
    assert clients.rounds_of("train") == []
    assert clients.rounds_of("evaluate") == [6] * CLIENTS
    assert resumed.progress.rows[-1]["loss"] == whole.progress.rows[-1]["loss"]


def test_a_finished_run_is_resumed_without_a_message_and_may_go_on_for_longer(tmp_path):
    _, result = run(Halving(), folder=tmp_path)
    clients = Clients()
    _, again = run(Halving(), clients, folder=tmp_path, resume=True)
    assert clients.log == []
    assert model(again).tobytes() == model(result).tobytes()
    longer, more = run(Halving(), clients, folder=tmp_path, resume=True, plan={"rounds": 8})
    assert sorted(set(clients.rounds_of("train"))) == [7, 8]
    assert len(longer.progress.rows) == 8
    assert model(more).tobytes() == model(run(Halving(), plan={"rounds": 8})[1]).tobytes()


def test_a_run_that_is_not_resumed_starts_anew(tmp_path):
    run(Halving(), folder=tmp_path)
    clients = Clients()
    run(Halving(), clients, folder=tmp_path)
    assert clients.rounds_of("train")[0] == 1


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    run(Halving(), folder=tmp_path)

    def other(clients):
        return ArrayRecord({"model": Array(np.zeros(SIZE + 1))})

    with pytest.raises(ValueError, match=r"model in the checkpoint has shape \(3,\)"):
        run(Halving(), folder=tmp_path, resume=True, initial=other)


def test_it_stops_when_a_round_changes_less_than_the_tolerance():
    rounds, result = run(Halving(), plan={"rounds": 50, "tolerance": 1e-3})
    changes = [row["change"] for row in rounds.progress.rows]
    assert rounds.progress.converged
    assert changes[-1] <= 1e-3 < changes[-2]
    np.testing.assert_allclose(model(result), 2.5, atol=1e-2)


def test_without_a_tolerance_it_runs_all_rounds():
    rounds, _ = run(Halving(), plan={"rounds": 60})
    assert len(rounds.progress.rows) == 60
    assert not rounds.progress.converged


def quiet_until(last):
    """Return a strategy whose rounds change nothing from round ``last`` on."""

    class Quiet(Halving):
        def aggregate_train(self, server_round, replies):
            arrays, _ = super().aggregate_train(server_round, replies)
            return arrays, MetricRecord({"change": float(server_round < last)})

    return Quiet


def test_with_sampling_it_waits_until_everyone_had_a_turn():
    strategy = quiet_until(2)(sampler=every_other)
    rounds, _ = run(strategy, plan={"rounds": 50, "tolerance": 0.5, "sample": 2})
    assert len(rounds.progress.rows) == 3  # two quiet rounds of two clients each


def test_with_failures_it_waits_for_clients_to_come_back():
    clients = Clients({(0, None): failing})
    rounds, _ = run(quiet_until(2)(), clients, plan={"rounds": 50, "tolerance": 0.5})
    assert len(rounds.progress.rows) == 5  # one quiet round, and three more


def test_a_strategy_that_is_done_is_asked_no_more():
    class Once(Halving):
        @property
        def done(self):
            return bool(self.own)

    rounds, _ = run(Once())
    assert len(rounds.progress.rows) == 1
    assert rounds.progress.converged
    assert rounds.exhausted()


BAD = {
    "an error": (failing, "out of order"),
    "not a number": (lambda x: np.full(SIZE, np.nan), "reply rejected"),
    "another shape": (lambda x: np.zeros(SIZE + 1), "model is float64 of shape"),
    "another type": (lambda x: x.astype("float32"), "model is float32"),
    "beyond all numbers": (lambda x: np.full(SIZE, 1e200), "reply rejected"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_client_that_fails_is_named_and_counted_and_the_others_go_on(kind):
    act, words = BAD[kind]
    rounds, result = run(Halving(), Clients({(1, 2): act}))
    failed = [client for client in rounds.clients if client.failures]
    assert [(c.partition, c.failures, c.rounds) for c in failed] == [(1, 1, 5)]
    assert words in failed[0].last_failure
    assert [row["failed"] for row in rounds.progress.rows] == [0, 1, 0, 0, 0, 0]
    assert [row["clients"] for row in rounds.progress.rows] == [4, 3, 4, 4, 4, 4]
    assert np.all(np.isfinite(model(result)))


def test_a_round_without_any_usable_reply_ends_the_run_and_names_everyone():
    clients = Clients({(place, 3): failing for place in range(CLIENTS)})
    with pytest.raises(StudyError, match="round 3: no usable reply") as error:
        run(Halving(), clients)
    assert str(error.value).count("out of order") == CLIENTS


def test_a_client_counts_with_no_more_examples_than_it_enrolled_with():
    class Lying(Clients):
        def __init__(self):
            super().__init__()
            inner = self.app

            class App(type(inner)):
                def __call__(self, message, context):
                    reply = inner(message, context)
                    if context.node_config["partition-id"] == 2 and "metrics" in reply.content:
                        reply.content["metrics"] = MetricRecord({"num-examples": 10**6})
                    return reply

            self.app = App()

    rounds, _ = run(FedAvg(fraction_evaluate=0.0), Lying())
    (liar,) = [client for client in rounds.clients if client.failures]
    assert liar.partition == 2
    assert "enrolled with 10" in liar.last_failure


def test_releases_are_entered_in_the_ledger_of_their_client():
    event = PrivacyEvent(*("one", "a mean", 1), epsilon=0.5, delta=1e-5, sigma=1.0, sensitivity=1.0)
    ledger = Ledger("dp", 1e-5)
    rounds, _ = run(Halving(), Clients(event=event), ledger=ledger, plan={"rounds": 1})
    for client in rounds.clients:
        (series,) = ledger.series(client.name)
        assert series.first.what == "a mean"


PART = Bounded(
    reference=lambda content: content["arrays"]["model"].numpy(),
    vector=lambda content, sent: content["arrays"]["model"].numpy(),
    origin=lambda content, sent: sent,
    replace=lambda content, vector: content.__setitem__("arrays", wire.record({"model": vector})),
)


def bounded(rule, strategy):
    robust = Robust(rule, 5.0)
    return lambda grid: BoundedGrid(grid, robust, PART, strategy.drop)


@pytest.mark.parametrize("rule", ["none", "clip"])
def test_a_client_beyond_the_bound_three_times_running_is_left_out_for_good(rule):
    strategy, clients = Halving(), Clients({(3, None): lambda x: x + 100.0})
    rounds, _ = run(strategy, clients, middleware=bounded(rule, strategy))
    (bad,) = [client for client in rounds.clients if client.partition == 3]
    assert (bad.out_of_range, bad.left_out) == (3, 3)
    assert strategy.dropped == [rounds.clients.index(bad) + 1]
    assert [asked for asked in clients.log if asked[2] == 3 and asked[1] > 3] == []
    assert all(row["clients"] == 3 for row in rounds.progress.rows[3:])


def test_a_reply_is_rejected_or_clipped_and_one_good_reply_ends_the_count():
    wrong = {(3, number): lambda x: x + 100.0 for number in (1, 3, 5)}
    for rule, failures in (("none", 3), ("clip", 0)):
        strategy = Halving()
        rounds, _ = run(strategy, Clients(wrong), middleware=bounded(rule, strategy))
        (bad,) = [client for client in rounds.clients if client.partition == 3]
        assert (bad.out_of_range, bad.left_out, bad.failures) == (3, 0, failures)


def test_a_fraction_of_the_nodes_or_those_of_the_sampler_train():
    clients = Clients()
    run(Halving(fraction_train=0.5), clients, plan={"rounds": 3})
    assert [clients.rounds_of("train").count(number) for number in (1, 2, 3)] == [2, 2, 2]
    clients = Clients()
    rounds, _ = run(Halving(sampler=lambda number, nodes: nodes[:1]), clients)
    assert {place for _, _, place in clients.log} == {rounds.clients[0].partition}
    assert [client.rounds for client in rounds.clients] == [6, 0, 0, 0]


def test_what_flowers_strategies_keep_themselves_runs_too():
    rounds, result = run(FedAdam(fraction_evaluate=0.0), plan={"rounds": 3})
    assert len(rounds.progress.rows) == 3
    assert np.all(model(result) > 0.0)
