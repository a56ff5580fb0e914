from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger
from trellis.privacy.mechanisms.multibit import MultiBit, encode
from trellis.privacy.secagg.client import register, weighted_summands
from trellis.sim.faults import Drop, Nonsense, Raise
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.wire import BadReply
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.gromov_wasserstein.descent import Descent
from trellis.strategies.gromov_wasserstein.embeddings import ReleaseTerms, read_embeddings
from trellis.strategies.gromov_wasserstein.private import NoisyGnn, UntrainedGnn
from trellis.strategies.gromov_wasserstein.strategy import (
    METRICS,
    FederatedGnn,
    read_trained,
    weighted_mean,
)
from trellis.strategies.rounds import RoundPlan, Rounds
from trellis.strategies.secure_grid import SecureGrid

D, H = 3, 4
COUNTS = (4.0, 0.0, 1.0, 5.0)
SIZES = ((2, 1), (3,), (1, 4, 2), (5,))


def target(client: int) -> np.ndarray:
    return np.arange(D) + 10.0 * client


def bits(nodes: int) -> int:
    return 1 if nodes > 2 else 2


def codes_of(client: int, server_round: int, purpose: int = 0) -> np.ndarray:
    rng = np.random.default_rng([client, server_round, purpose])
    parts = [encode(np.full((n, H), 0.5), MultiBit(H, 1.0, bits(n)), rng) for n in SIZES[client]]
    return np.concatenate(parts)


def make_app(privacy: str = "dp", encodings: int = 1) -> ClientApp:
    """Return clients that go half the way to their target and embed to coin flips."""
    app = ClientApp()

    @app.query("enrol")
    def enrol(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        record = {"name": f"site-{number}", "partition": number, "count": 1, "variables": ["x"]}
        return Message(RecordDict({"client": ConfigRecord(record)}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        start, count = wire.arrays(message.content["arrays"])["weights"], COUNTS[client]
        arrays = wire.record({"weights": (start + target(client)) / 2.0})
        metrics = {
            **{"num-examples": count, "loss": count * client},
            **{"train-items": count, "train-correct": count / 2.0},
            **{"validation-items": 1.0, "validation-correct": float(client == 0)},
            **{"test-items": 0.0, "test-correct": 0.0},
        }
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    @app.query("embed")
    def embed(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        turn = int(message.content["config"]["server-round"])
        arrays = {
            "sizes": np.array(SIZES[client]),
            "labels": np.full(len(SIZES[client]), client - 1),
        }
        content = RecordDict()
        if privacy == "none":
            # A row that shows with which weights it was made.
            weights = wire.arrays(message.content["arrays"])["weights"]
            arrays["rows"] = np.full((sum(SIZES[client]), H), 1.0 / (1.0 + weights[0]))
        else:
            arrays["codes"] = codes_of(client, turn)
            if encodings == 2:
                arrays["second"] = codes_of(client, turn, 1)
            event = PrivacyEvent(f"embedding-{turn}", "rows", turn, 1.0, 0.0, mechanism="multi-bit")
            content["privacy.embedding"] = ConfigRecord(event.as_record())
        content["arrays"] = wire.record(arrays)
        return Message(content, reply_to=message)

    register(app, lambda message, context: weighted_summands(train(message, context), METRICS))
    return app


def terms_of(privacy="dp", encodings=1):
    return ReleaseTerms(H, None if privacy == "none" else bits, encodings=encodings)


def make(rounds=3, privacy="dp", encodings=1, every=0, clients=4, **more) -> Rounds:
    strategy = FederatedGnn(terms_of(privacy, encodings), every=every)
    return Rounds(
        strategy,
        lambda known: wire.record({"weights": np.zeros(D)}),
        RoundPlan(rounds, more.pop("tolerance", 0.0), clients, timeout=5.0),
        ledger=Ledger("dp" if privacy != "none" else "none"),
        on_enrolled=lambda known: count_items(rounds_of[-1]),
        **more,
    )


rounds_of: list[Rounds] = []


def count_items(rounds):
    rounds.grid.bounds_counts = False


def run(rounds, app=None, faults=None, resume=False, clients=4):
    nodes = [{"partition-id": i, "num-partitions": clients} for i in range(clients)]
    rounds_of.append(rounds)
    with LocalGrid(app or make_app(), nodes, {}, faults=faults) as grid:
        rounds.run(grid, resume=resume)
    return rounds


def weights_of(rounds):
    return wire.unpack(rounds.arrays["weights"])


def released_of(rounds):
    return rounds.strategy.released


def mean_by_hand(rounds: int, clients=(0, 1, 2, 3)) -> np.ndarray:
    w = np.zeros(D)
    for _ in range(rounds):
        parts = [COUNTS[c] * (w + target(c)) / 2.0 for c in clients]
        w = sum(parts) / sum(COUNTS[c] for c in clients)
    return w


def test_weights_are_the_mean_weighted_by_labelled_items():
    found = run(make(rounds=3))
    np.testing.assert_allclose(weights_of(found), mean_by_hand(3), rtol=1e-14)
    last = found.progress.rows[-1]
    assert last["loss"] == pytest.approx((1.0 * 2 + 5.0 * 3) / 10.0)
    assert last["train-accuracy"] == 0.5
    assert last["validation-accuracy"] == 0.25
    assert "test-accuracy" not in last
    before, now = mean_by_hand(2), mean_by_hand(3)
    assert last["change"] == pytest.approx(np.linalg.norm(now - before) / np.linalg.norm(before))


def test_masked_sums_give_the_same_weights():
    found = run(make(rounds=3, middleware=SecureGrid))
    np.testing.assert_allclose(weights_of(found), mean_by_hand(3), atol=1e-8)
    assert released_of(found).sizes.tolist() == [2, 1, 3, 1, 4, 2, 5]


def test_no_labels_anywhere_stop_the_run_with_a_reason(monkeypatch):
    monkeypatch.setitem(globals(), "COUNTS", (0.0,) * 4)
    with pytest.raises(StudyError, match="round 1: no client has labels to learn from"):
        run(make())
    with pytest.raises(StudyError, match="every client sent num-examples=0"):
        run(make(middleware=SecureGrid))


def reply(arrays=None, **metrics) -> RecordDict:
    numbers = {"num-examples": 1.0, "loss": 1.0, "train-items": 1.0, "train-correct": 1.0}
    numbers |= {name.replace("_", "-"): value for name, value in metrics.items()}
    known = wire.record({"weights": np.ones(D), **(arrays or {})})
    return RecordDict({"arrays": known, "metrics": MetricRecord(numbers)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (reply({"weights": np.ones(D + 1)}), "shape"),
        (reply({"weights": np.full(D, np.nan)}), "not finite"),
        (reply({"more": np.ones(1)}), "holds"),
        (reply(num_examples=-1.0), "num-examples is -1"),
        (reply(num_examples=1e13), "not a number of labelled items"),
        (reply(num_examples=float("nan")), "num-examples is nan"),
        (reply(train_correct=2.0), "train-correct is 2 of 1 items"),
        (reply(train_correct=-1.0), "train-correct is -1"),
        (reply(train_items=float("inf"), train_correct=0.0), "of inf items"),
        (reply(loss=float("nan")), "loss is nan"),
    ],
)
def test_a_bad_update_is_refused_with_a_reason(content, reason):
    read_trained(reply(), D)
    with pytest.raises(BadReply, match=reason):
        read_trained(content, D)


def test_what_a_client_without_labels_sends_does_not_count():
    rows, counts = [np.ones(D), np.full(D, 7.0)], [2.0, 0.0]
    np.testing.assert_array_equal(weighted_mean(rows, counts), rows[0])
    np.testing.assert_array_equal(weighted_mean(rows[:1], [3.0]), rows[0])


def test_embeddings_are_asked_for_once_after_the_last_round():
    found = run(make(rounds=3))
    r = released_of(found)
    assert r.codes.dtype == np.int8
    wanted = np.concatenate([codes_of(c, 3) for c in range(4)])
    np.testing.assert_array_equal(r.codes, wanted)
    assert r.sizes.tolist() == [2, 1, 3, 1, 4, 2, 5]
    assert r.owner.tolist() == [1, 1, 2, 3, 3, 3, 4]
    assert r.labels.tolist() == [-1, -1, 0, 1, 1, 1, 2]
    assert set(r.moment.tolist()) == {3}
    assert r.second.shape == (0, H)
    rows = found.progress.rows
    assert ["released-graphs" in row for row in rows] == [False, False, True]
    assert rows[-1]["released-graphs"] == 7
    # int8 rows, and two whole numbers per graph, with headers and the event beside them.
    least = wanted.size + 2 * 7 * 8
    assert least < rows[-1]["bytes-up"] - rows[0]["bytes-up"] < least + 4 * 1000
    assert found.progress.bytes_up >= sum(row["bytes-up"] for row in rows)
    for client in found.clients:
        assert [e.name for e in found.ledger.events(client.name)] == ["embedding-3"]


def test_rows_without_privacy_are_made_with_the_final_weights():
    found = run(make(rounds=2, privacy="none"), make_app("none"))
    assert released_of(found).codes.dtype == np.float64
    np.testing.assert_allclose(released_of(found).codes, 1.0 / (1.0 + mean_by_hand(2)[0]))


def test_two_encodings_stay_apart():
    found = run(make(encodings=2), make_app(encodings=2))
    wanted = np.concatenate([codes_of(c, 3, 1) for c in range(4)])
    np.testing.assert_array_equal(released_of(found).second, wanted)
    assert not np.array_equal(released_of(found).second, released_of(found).codes)


@pytest.mark.parametrize(("rounds", "moments"), [(4, [2, 4]), (5, [2, 4, 5])])
def test_periodic_releases_come_every_s_rounds_and_at_the_end(rounds, moments):
    found = run(make(rounds=rounds, every=2))
    events = found.ledger.events("site-0")
    assert [e.round for e in events] == moments
    assert set(released_of(found).moment.tolist()) == {rounds}
    assert released_of(found).codes.shape == (18, H)


EMBED = {"category": "query", "since": 2}  # the first query enrols


@pytest.mark.parametrize("fault", [Drop(**EMBED), Raise(**EMBED, text="disk on fire")])
def test_a_client_lost_at_the_release_is_named_and_the_others_go_on(fault, caplog):
    found = run(make(), faults={2: fault})
    assert released_of(found).owner.tolist() == [1, 1, 2, 4]
    wanted = np.concatenate([codes_of(c, 3) for c in (0, 1, 3)])
    np.testing.assert_array_equal(released_of(found).codes, wanted)
    assert "client site-2 left out: query.embed: " in caplog.text
    assert found.clients[2].failures == 1


def test_a_client_lost_later_keeps_what_it_released_before(caplog):
    fault = Raise(category="query", since=3)
    found = run(make(rounds=4, every=2), faults={2: fault})
    assert released_of(found).owner.tolist() == [1, 1, 2, 3, 3, 3, 4]
    assert released_of(found).moment.tolist() == [4, 4, 4, 2, 2, 2, 4]
    wanted = [codes_of(c, 2 if c == 2 else 4) for c in range(4)]
    np.testing.assert_array_equal(released_of(found).codes, np.concatenate(wanted))
    assert "its embeddings of round 2 are used" in caplog.text


def test_no_embedding_at_all_stops_the_run_and_a_resumed_one_asks_again(tmp_path):
    lost = {i: Raise(**EMBED, text=f"reason {i}") for i in range(4)}
    with pytest.raises(StudyError, match=r"no client released.*site-0.*reason 0.*reason 3"):
        run(make(checkpoint=Checkpoint(tmp_path)), faults=lost)
    again = run(make(checkpoint=Checkpoint(tmp_path)), resume=True)
    np.testing.assert_allclose(weights_of(again), mean_by_hand(3), rtol=1e-14)
    assert len(released_of(again).sizes) == 7


def test_a_resumed_run_does_not_ask_again(tmp_path):
    first = run(make(checkpoint=Checkpoint(tmp_path)), faults={1: Raise(**EMBED)})
    # Whoever is asked now fails, so an exchange would show.
    deaf = {i: Raise(since=2) for i in range(4)}
    again = run(make(checkpoint=Checkpoint(tmp_path)), faults=deaf, resume=True)
    assert weights_of(again).tobytes() == weights_of(first).tobytes()
    for name, array in first.strategy.state_dict().items():
        assert again.strategy.state_dict()[name].tobytes() == array.tobytes(), name
    assert again.progress.rows == first.progress.rows
    assert [c.failures for c in again.clients] == [0, 1, 0, 0]


def test_more_rounds_after_a_resume_release_the_new_weights(tmp_path):
    run(make(rounds=2, checkpoint=Checkpoint(tmp_path)))
    longer = run(make(rounds=4, checkpoint=Checkpoint(tmp_path)), resume=True)
    np.testing.assert_allclose(weights_of(longer), mean_by_hand(4), rtol=1e-14)
    assert set(released_of(longer).moment.tolist()) == {4}
    assert [e.round for e in longer.ledger.events("site-3")] == [2, 4]


def test_a_release_that_lies_about_its_event_is_passed_over(caplog):
    def change(message: Message) -> RecordDict:
        if "privacy.embedding" in message.content:
            message.content["privacy.embedding"]["epsilon"] = -1.0
        return message.content

    found = run(make(), faults={0: Nonsense(change=change, category="query")})
    assert 1 not in released_of(found).owner
    assert "epsilon=-1.0" in caplog.text


def release(codes, sizes=(2, 1), labels=(0, -1), **more) -> RecordDict:
    arrays = {"codes": codes, "sizes": np.array(sizes), "labels": np.array(labels), **more}
    return RecordDict({"arrays": wire.record(arrays)})


ONE = np.array([[1, 0, 0, -1], [0, 1, 1, 0], [0, 0, -1, 1]], np.int8)  # m = 2 up to two nodes


def edited(value, at=(0, 0)):
    codes = ONE.copy()
    codes[at] = value
    return codes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (release(ONE.astype(np.float64)), "float64 of shape"),
        (release(ONE[:, :3].copy()), r"shape \(3, 3\), not int8 of shape \(3, 4\)"),
        (release(ONE[:2].copy()), "3 nodes, there are 2 rows"),
        (release(edited(2)), "not -1, 0 or 1"),
        (release(edited(-128)), "not -1, 0 or 1"),
        (release(edited(0)), "row 0 has 1 bits, not m=2"),
        (release(edited(1, (2, 0))), "row 2 has 3 bits, not m=2"),
        (release(ONE, sizes=(3,), labels=(0,)), "row 0 has 2 bits, not m=1"),
        (release(ONE, sizes=(3, 0)), "sizes has 0, the least is 1"),
        (release(ONE, sizes=(2.0, 1.0)), "sizes is float64"),
        (release(ONE, sizes=(2**62, 2**62)), "there are 3 rows"),
        (release(ONE, sizes=(), labels=()), "sizes is float64"),
        (release(ONE, sizes=np.zeros(0, np.int64), labels=()), "not int64, a graph"),
        (release(ONE, labels=(0,)), "labels is int64 of shape"),
        (release(ONE, labels=(0, -2)), "labels has -2"),
        (release(ONE, second=ONE), "holds"),
        (RecordDict({"arrays": wire.record({})}), "holds"),
        (RecordDict({"arrays": ConfigRecord()}), "ConfigRecord"),
    ],
)
def test_a_release_that_the_encoder_cannot_have_made_is_refused(content, reason):
    read_embeddings(release(ONE), terms_of())
    with pytest.raises(ValueError, match=reason):
        read_embeddings(content, terms_of())


def test_bits_of_a_whole_graph_are_counted_over_its_rows():
    terms = ReleaseTerms(H, lambda nodes: 3, of_graph=True)
    codes = np.array([[1, 0, 0, -1], [0, 0, 1, 0], [0, 1, -1, 1]], np.int8)
    found = read_embeddings(release(codes), terms)
    np.testing.assert_array_equal(found.rows[0], codes)
    with pytest.raises(BadReply, match="graph 1 has 2 bits, not m=3"):
        read_embeddings(release(ONE), ReleaseTerms(H, lambda n: 4 if n == 2 else 3, of_graph=True))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (np.full((3, H), 1.01), r"outside \[0, 1\]"),
        (np.full((3, H), -0.01), r"outside \[0, 1\]"),
        (np.full((3, H), np.nan), "not finite"),
        (np.full((3, H), 0.5, np.float32), "float32"),
    ],
)
def test_rows_without_privacy_are_checked_too(rows, reason):
    arrays = {"rows": rows, "sizes": np.array([2, 1]), "labels": np.array([0, 1])}
    content = RecordDict({"arrays": wire.record(arrays)})
    with pytest.raises(BadReply, match=reason):
        read_embeddings(content, terms_of("none"))


def test_the_weighted_mean_is_that_of_numpy():
    rng = np.random.default_rng(0)
    vectors, counts = rng.standard_normal((5, 7)), rng.integers(0, 9, 5).astype(float)
    wanted = np.average(vectors, axis=0, weights=counts)
    np.testing.assert_allclose(weighted_mean(list(vectors), counts.tolist()), wanted, rtol=1e-12)


def test_a_run_that_stops_early_releases_after_its_last_round():
    found = run(make(rounds=50, tolerance=0.3))
    last = len(found.progress.rows)
    assert last < 50
    assert set(released_of(found).moment.tolist()) == {last}


def test_a_run_killed_at_the_release_does_not_train_its_last_round_again(tmp_path):
    """The checkpoint before the release has the final weights; only the release is made again."""

    class Killed(Exception):
        pass

    app, trained = make_app(), []

    def deadly(kill):
        def mod(message, context, call):
            turn = message.content["config"]["server-round"] if "config" in message.content else 0
            if message.metadata.message_type == "train":
                trained.append(turn)
            if kill and message.metadata.message_type == "query.embed":
                raise KeyboardInterrupt
            return call(message, context)

        return lambda message, context: mod(message, context, app)

    with pytest.raises(KeyboardInterrupt):
        run(make(checkpoint=Checkpoint(tmp_path)), deadly(kill=True))
    assert trained == [1] * 4 + [2] * 4 + [3] * 4
    again = run(make(checkpoint=Checkpoint(tmp_path)), deadly(kill=False), resume=True)
    assert len(trained) == 12
    whole = run(make())
    assert weights_of(again).tobytes() == weights_of(whole).tobytes()
    assert released_of(again).codes.tobytes() == released_of(whole).codes.tobytes()
    assert [row["round"] for row in again.progress.rows] == [1.0, 2.0, 3.0]


def test_flowers_own_start_gives_weights_and_embeddings():
    strategy = FederatedGnn(terms_of("none"), rounds=3)
    nodes = [{"partition-id": i, "num-partitions": 4} for i in range(4)]
    with LocalGrid(make_app("none"), nodes, {}) as grid:
        result = strategy.start(grid, wire.record({"weights": np.zeros(D)}), num_rounds=3)
    np.testing.assert_allclose(result.arrays["weights"].numpy(), mean_by_hand(3), rtol=1e-12)
    assert strategy.released.sizes.size == 7
    assert set(strategy.released.moment.tolist()) == {3}
    assert result.evaluate_metrics_clientapp[3]["released-graphs"] == 7


def test_both_loops_agree_to_the_bit():
    ours = run(make(rounds=3))
    strategy = FederatedGnn(terms_of(), rounds=3)
    nodes = [{"partition-id": i, "num-partitions": 4} for i in range(4)]
    with LocalGrid(make_app(), nodes, {}) as grid:
        clients = sorted(grid._nodes.values(), key=lambda node: node.node_config["partition-id"])
        known = [Client(f"site-{i}", i, 100, ["x"], n.id) for i, n in enumerate(clients)]
        enrolled = EnrolledGrid(grid, known)
        result = strategy.start(enrolled, wire.record({"weights": np.zeros(D)}), num_rounds=3)
    assert result.arrays["weights"].data == ours.arrays["weights"].data
    for name, array in ours.strategy.state_dict().items():
        assert strategy.state_dict()[name].tobytes() == array.tobytes(), name


def noisy_app():
    """Clients that send a gradient towards their target and, if asked, a score, in the clear."""
    app = make_app()
    plain = ClientApp()

    @plain.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        gradient = wire.arrays(message.content["arrays"])["weights"] - target(client)
        content = RecordDict({"arrays": wire.record({"gradient": gradient})})
        content["metrics"] = MetricRecord({"num-examples": 2.0, "noise": 0.5})
        return Message(content, reply_to=message)

    @plain.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        content = RecordDict({"arrays": wire.record({"correct": np.ones(1)})})
        content["metrics"] = MetricRecord({"num-examples": 2.0, "noise": 0.5})
        return Message(content, reply_to=message)

    def either(message: Message, context: Context) -> Message:
        kind = message.metadata.message_type
        return (plain if kind in ("train", "evaluate") else app)(message, context)

    return either


def test_noisy_training_takes_the_server_s_steps_and_scores_once():
    strategy = NoisyGnn(terms_of(), rounds=2, descent=Descent(0.1), bound=1.0, scored=True)
    nodes = [{"partition-id": i, "num-partitions": 4} for i in range(4)]
    with LocalGrid(noisy_app(), nodes, {}) as grid:
        result = strategy.start(grid, wire.record({"weights": np.zeros(D)}), num_rounds=2)
    w, v = np.zeros(D), np.zeros(D)
    for _ in range(2):
        w, v = Descent(0.1).step(w, v, sum(w - target(c) for c in range(4)), 8.0)
    np.testing.assert_allclose(result.arrays["weights"].numpy(), w, rtol=1e-12)
    found = result.evaluate_metrics_clientapp[2]
    assert found["held-out-accuracy"] == 0.5
    assert found["held-out-noise"] == pytest.approx(1.0 / 8.0)
    assert found["released-graphs"] == 7
    assert 1 not in result.evaluate_metrics_clientapp
    noise = result.train_metrics_clientapp[1]["noise"]
    assert noise == pytest.approx(1.0 * np.sqrt(D) / 8.0)


def test_an_untrained_model_is_released_once_whatever_the_rounds():
    strategy = UntrainedGnn(terms_of("none"))
    nodes = [{"partition-id": i, "num-partitions": 4} for i in range(4)]
    start = np.arange(1.0, D + 1.0)
    with LocalGrid(make_app("none"), nodes, {}) as grid:
        result = strategy.start(grid, wire.record({"weights": start}), num_rounds=3)
    np.testing.assert_array_equal(result.arrays["weights"].numpy(), start)
    assert list(result.evaluate_metrics_clientapp) == [1]
    assert strategy.done
