from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from trellis.privacy.secagg.client import RECORD, Summands, register
from trellis.privacy.secagg.messages import Order, Question, pack, to_fields
from trellis.sim import faults
from trellis.sim.faults import Drop, Late, Nonsense, Raise
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import Client, StudyError
from trellis.strategies.core.secure import SecureSum

# Which of a node's messages belongs to which stage of its first round.
STAGES = {
    "keys": {"category": "query", "at": frozenset({1})},
    "masked": {"category": "train", "at": frozenset({1})},
    "agree": {"category": "query", "at": frozenset({2})},
    "unmask": {"category": "query", "at": frozenset({3})},
}


def summands(message: Message, context: Context) -> Summands:
    """Return what was sent plus the partition's number."""
    assert set(message.content) == {"arrays"}
    number = int(context.node_config["partition-id"])
    start = wire.arrays(message.content["arrays"])["start"]
    shape = int(context.node_config.get("shape", 3))
    arrays = {"sum": start + number, "other": np.full((2, shape), 0.25 * number)}
    if context.node_config.get("huge"):
        arrays["sum"] = arrays["sum"] + 1e12
    return Summands(arrays, RecordDict({"event": ConfigRecord({"number": number})}))


app = ClientApp()
register(app, summands)


def configs(count, **special):
    return [
        {"partition-id": i, "num-partitions": count, **special.get(f"node{i}", {})}
        for i in range(count)
    ]


def clients_of(grid, count):
    order = {node.node_config["partition-id"]: node.id for node in grid._nodes.values()}
    return [Client(f"site-{i}", i, 1, ["x"], order[i]) for i in range(count)]


def payload(value=1.0) -> RecordDict:
    return RecordDict({"arrays": wire.record({"start": np.full(4, value)})})


def gather(count, *, fault=None, nodes=None, rounds=1, secure=None, workers=0, timeout=0.2):
    secure = secure or SecureSum()
    with LocalGrid(app, nodes or configs(count), {}, faults=fault, workers=workers) as grid:
        clients = clients_of(grid, count)
        found = [
            secure.gather(grid, {i: payload() for i in range(count)}, clients, number, timeout)
            for number in range(1, rounds + 1)
        ]
    return found[-1] if rounds == 1 else found


def check(found, members):
    assert found.survivors == sorted(members)
    np.testing.assert_array_equal(found.total["sum"], np.full(4, len(members) + sum(members)))
    np.testing.assert_array_equal(found.total["other"], np.full((2, 3), 0.25 * sum(members)))
    assert {c: r["event"]["number"] for c, r in found.clear.items()} == {c: c for c in members}


@pytest.mark.parametrize("workers", [0, 2])
def test_the_sum_comes_and_nothing_fails(workers):
    found = gather(5, workers=workers, timeout=20.0)
    check(found, range(5))
    assert found.failures == {}
    assert found.bytes_up > 5 * 10 * 8
    assert found.bytes_down > 5 * 4 * 8


def test_rounds_follow_each_other_and_payloads_choose_who_takes_part():
    secure = SecureSum()
    with LocalGrid(app, configs(6), {}) as grid:
        clients = clients_of(grid, 6)
        check(secure.gather(grid, {i: payload() for i in range(6)}, clients, 1, 5.0), range(6))
        some = {i: payload() for i in (1, 3, 4, 5)}
        check(secure.gather(grid, some, clients, 2, 5.0), [1, 3, 4, 5])
        # The same round of the strategy again is a new round of the protocol.
        check(secure.gather(grid, some, clients, 2, 5.0), [1, 3, 4, 5])


def test_many_clients_on_a_sparse_graph():
    lost = {i: Drop(**STAGES["masked"]) for i in (3, 11, 29)}
    found = gather(70, fault=lost, timeout=20.0)
    check(found, sorted(set(range(70)) - set(lost)))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Drop, "code 5"), (Raise, "simulated fault"), (Late, "no reply within")],
)
def test_a_node_lost_at_any_stage_is_left_out_and_named(kind, reason, stage):
    found = gather(5, fault={2: kind(**STAGES[stage])})
    check(found, range(5) if stage in ("agree", "unmask") else [0, 1, 3, 4])
    assert set(found.failures) == {2}
    assert reason in found.failures[2]


def test_a_lost_node_is_back_in_the_next_round():
    first, second = gather(5, fault={2: Drop(**STAGES["masked"])}, rounds=2)
    check(first, [0, 1, 3, 4])
    check(second, range(5))


def changed(**fields):
    def change(reply: Message) -> RecordDict:
        record = dict(reply.content[RECORD])
        record.update({key.replace("_", "-"): value for key, value in fields.items()})
        reply.content[RECORD] = ConfigRecord(record)
        return reply.content

    return change


def as_floats(reply: Message) -> RecordDict:
    vector = wire.arrays(reply.content["masked"])["vector"]
    reply.content["masked"] = wire.record({"vector": vector.astype(np.float64)})
    return reply.content


def empty_vector(reply: Message) -> RecordDict:
    reply.content["masked"] = ArrayRecord()
    return reply.content


@pytest.mark.parametrize(
    ("stage", "change", "reason"),
    [
        ("keys", faults.without_records, "no secagg record"),
        ("keys", changed(key=b"short"), "no valid public key of 32 bytes"),
        ("keys", changed(key=bytes(32)), "no valid public key of 32 bytes"),
        ("keys", changed(key="text"), "key must be bytes"),
        ("masked", faults.without_records, "no masked vector"),
        ("masked", faults.without_arrays, "no masked vector"),
        ("masked", empty_vector, "no masked vector"),
        ("masked", faults.wrong_shape, "10 words were announced"),
        ("masked", faults.lying_shape, "needs 88 bytes"),
        ("masked", as_floats, "dtype float64"),
        ("masked", changed(names=["only"]), "contradicts itself"),
        ("masked", changed(sealed=b"x"), "sealed shares"),
        ("masked", changed(share_commitments=b"x"), "commitments to shares"),
        ("masked", changed(seed_commitments=bytes(64)), "not those of its neighbours"),
        ("agree", faults.without_records, "no secagg record"),
        ("agree", changed(macs=b"x"), "1 bytes of words; 4 of 16 bytes"),
        ("unmask", faults.without_records, "no secagg record"),
        ("unmask", changed(shares=b"x"), "5 of 16 bytes"),
        ("unmask", changed(seeds=b"x"), "0 of 32 bytes"),
    ],
)
def test_nonsense_at_any_stage_is_rejected_by_name(stage, change, reason, caplog):
    found = gather(5, fault={2: Nonsense(change=change, **STAGES[stage])})
    check(found, range(5) if stage in ("agree", "unmask") else [0, 1, 3, 4])
    assert reason in found.failures[2]
    assert "client site-2 failed at" in caplog.text


def test_another_layout_than_most_is_left_out():
    found = gather(5, nodes=configs(5, node1={"shape": 4}))
    check(found, [0, 2, 3, 4])
    assert "(2, 4)" in found.failures[1]


def test_a_layout_that_is_asked_for_is_insisted_on_even_against_most():
    nodes = configs(5, node1={"shape": 4}, node2={"shape": 4}, node3={"shape": 4})
    with LocalGrid(app, nodes, {}) as grid:
        payloads, clients = {i: payload() for i in range(5)}, clients_of(grid, 5)
        wanted = {"sum": (4,), "other": (2, 3)}
        with pytest.raises(
            StudyError, match=r"2 of 5 clients sent a masked vector; a secure sum needs 3 at"
        ):
            SecureSum().gather(grid, payloads, clients, 1, 5.0, layout=wanted)


def test_a_value_beyond_the_range_is_clipped_and_only_the_device_knows(caplog):
    found = gather(5, nodes=configs(5, node1={"huge": True}))
    assert found.survivors == [0, 1, 2, 3, 4]
    assert found.failures == {}
    # The others' values, and the end of the range: below 2^63 units for five clients.
    np.testing.assert_allclose(found.total["sum"], 2.0**31 / 5 + 4 + 9, rtol=1e-9)
    assert "4 values clipped to the declared range" in caplog.text
    declared = gather(5, nodes=configs(5, node1={"huge": True}), secure=SecureSum(largest=50.0))
    np.testing.assert_array_equal(declared.total["sum"], np.full(4, 50.0 + 4 + 9))


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_the_run_stops_with_every_reason(stage):
    lost = {i: Raise(text=f"reason {i}", **STAGES[stage]) for i in (0, 1, 2)}
    with pytest.raises(StudyError, match=r"round 1: no secure sum.*needs 3 at.*site-1: .*reason"):
        gather(5, fault=lost)


def test_two_clients_are_too_few():
    with pytest.raises(StudyError, match="at least 3 clients"):
        gather(2)


def test_a_device_can_want_more_clients():
    nodes = configs(5, node1={"fewest-clients": 6})
    found = gather(5, nodes=nodes)
    check(found, [0, 2, 3, 4])
    assert "wants at least 6" in found.failures[1]


def test_a_restarted_device_says_so_before_it_looks_at_anything():
    with LocalGrid(app, configs(3), {}) as grid:
        client = clients_of(grid, 3)[0]
        order = Order(bytes(16), 1, "", pack(range(3)), 2, 2, 32, 0.0)
        content = RecordDict({RECORD: ConfigRecord(to_fields(order))})
        (reply,) = grid.send_and_receive([Message(content, client.node_id, "train.secagg_masked")])
        assert dict(reply.content[RECORD]) == {"lost-session": 1}
        question = RecordDict(
            {RECORD: ConfigRecord(to_fields(Question(bytes(16), 1, b"", b"", b"")))}
        )
        (reply,) = grid.send_and_receive([Message(question, client.node_id, "query.secagg_unmask")])
    assert "in no session of secure aggregation" in reply.error.reason


def test_a_second_run_of_sums_takes_new_keys_and_the_first_is_over():
    with LocalGrid(app, configs(3), {}) as grid:
        clients, payloads = clients_of(grid, 3), {i: payload() for i in range(3)}
        first, second = SecureSum(), SecureSum()
        check(first.gather(grid, payloads, clients, 1, 5.0), range(3))
        check(second.gather(grid, payloads, clients, 1, 5.0), range(3))
        # Its keys are gone: it makes new ones for everyone, within the round.
        check(first.gather(grid, payloads, clients, 2, 5.0), range(3))


def test_a_client_that_never_answers_does_not_cost_new_keys_every_round(caplog):
    secure, asked = SecureSum(), []
    with LocalGrid(app, configs(5), {}, faults={2: Drop()}) as grid:
        clients, payloads = clients_of(grid, 5), {i: payload() for i in range(5)}
        for number in range(1, 18):
            before = secure._session
            check(secure.gather(grid, payloads, clients, number, 5.0), [0, 1, 3, 4])
            asked += [number] if secure._session is not before else []
    assert asked == [1, 2, 4, 8, 16]


def test_a_client_that_says_every_time_that_it_was_restarted_is_left_out():
    def forgets(reply: Message) -> RecordDict:
        return RecordDict({RECORD: ConfigRecord({"lost-session": 1})})

    secure, sessions = SecureSum(), set()
    liar = {2: Nonsense(change=forgets, category="train")}
    with LocalGrid(app, configs(5), {}, faults=liar) as grid:
        clients, payloads = clients_of(grid, 5), {i: payload() for i in range(5)}
        for number in range(1, 20):
            found = secure.gather(grid, payloads, clients, number, 5.0)
            check(found, [0, 1, 3, 4])
            sessions.add(secure._session.session)
    assert len(sessions) < 9


@pytest.mark.parametrize("late", ["agree", "unmask"])
def test_where_a_survivor_vanishes_with_its_seeds_the_round_is_made_again(late):
    # Node 1's vector never comes; node 2 alone knew the seed that it shares with node 1.
    lost = {1: Drop(**STAGES["masked"]), 2: Raise(**STAGES[late])}
    found = gather(7, fault=lost)
    check(found, [0, 3, 4, 5, 6])
    assert set(found.failures) == {1, 2}


def test_groups_are_gathered_side_by_side_and_one_that_fails_stops_no_other():
    secure = SecureSum()
    lost = {i: Raise(**STAGES["masked"]) for i in (0, 1, 5)}
    with LocalGrid(app, configs(12), {}, faults=lost) as grid:
        clients = clients_of(grid, 12)
        groups = {g: {i: payload() for i in range(4 * g, 4 * g + 4)} for g in range(3)}
        found = secure.gather_groups(grid, groups, clients, 1, 5.0)
        assert "no secure sum" in found[0].error
        assert "site-1" in found[0].error
        check(found[1], [4, 6, 7])
        check(found[2], range(8, 12))
        for g, one in secure.gather_groups(grid, groups, clients, 2, 5.0).items():
            check(one, range(4 * g, 4 * g + 4))


def test_payloads_must_be_alike():
    with LocalGrid(app, configs(5), {}) as grid:
        clients = clients_of(grid, 5)
        apart = {i: payload(1.0 + (i == 0)) for i in range(5)}
        with pytest.raises(StudyError, match="masks are not those of its neighbours"):
            SecureSum().gather(grid, {**apart, 1: payload(3.0), 2: payload(4.0)}, clients, 1, 5.0)
        # One that was told something else is left out; the others' sum is exact.
        check(SecureSum().gather(grid, apart, clients, 1, 5.0), [1, 2, 3, 4])


def test_masks_change_nothing_about_the_result():
    first, second = gather(4), gather(4)
    for name in first.total:
        assert first.total[name].tobytes() == second.total[name].tobytes()


@pytest.fixture
def signed(tmp_path):
    """Five nodes' configs with keys; the table names the enrolled clients."""
    lines, nodes = [], configs(5)
    for i, node in enumerate(nodes):
        key = Ed25519PrivateKey.generate()
        path = tmp_path / f"key-{i}"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        lines.append(f"site-{i} {public.decode()}\n")
        node |= {"signing-key": str(path), "trusted-keys": str(tmp_path / "table")}
    (tmp_path / "table").write_text("".join(lines))
    return nodes


def test_signed_keys(signed):
    check(gather(5, nodes=signed), range(5))


def test_keys_are_signed_under_a_device_s_own_name_whatever_it_is_registered_as(signed):
    with LocalGrid(app, signed, {}) as grid:
        clients = clients_of(grid, 5)
        for number, client in enumerate(clients):
            client.own, client.name = client.name, f"hospital-{number}"
        payloads = {i: payload() for i in range(5)}
        check(SecureSum().gather(grid, payloads, clients, 1, 5.0), range(5))


@pytest.mark.parametrize(
    ("own", "reason"), [("", "is not signed"), ("key-2", "carries a wrong signature")]
)
def test_unsigned_and_wrongly_signed_keys_are_refused(signed, own, reason, tmp_path):
    signed[1]["signing-key"] = str(tmp_path / own) if own else ""
    with pytest.raises(StudyError, match=f"site-0: .*client site-1 .*{reason}"):
        gather(5, nodes=signed)


class Serialising(ClientApp):
    """What a network does: content and state become bytes and come back."""

    def __call__(self, message: Message, context: Context) -> Message:
        message.content = through_bytes(message.content)
        context.state = through_bytes(context.state)
        reply = app(message, context)
        reply.content = through_bytes(reply.content)
        return reply


def through_bytes(content: RecordDict) -> RecordDict:
    return recorddict_from_proto(recorddict_to_proto(content))


@pytest.mark.parametrize("lost", [{}, {3: Drop(**STAGES["masked"])}])
def test_every_message_survives_flowers_serialisation(lost):
    # Lists have no type there while they are empty, which some of ours may be.
    with LocalGrid(Serialising(), configs(5), {}, faults=lost) as grid:
        payloads, clients = {i: payload() for i in range(5)}, clients_of(grid, 5)
        found = SecureSum().gather(grid, payloads, clients, 1, 5.0)
    check(found, sorted(set(range(5)) - set(lost)))


def test_settings_that_protect_nobody_are_refused():
    with pytest.raises(ValueError, match="more than half"):
        gather(5, secure=SecureSum(threshold=2))
    with pytest.raises(StudyError, match="threshold 3 of 5 holders; this device wants at least 4"):
        gather(5, secure=SecureSum(threshold=3))
    with pytest.raises(StudyError, match="4 neighbours among 10 clients; at least 9"):
        gather(10, secure=SecureSum(neighbours=4))
    # More neighbours than clients is the complete graph.
    check(gather(5, secure=SecureSum(neighbours=1000)), range(5))


def test_a_device_can_want_a_higher_threshold():
    found = gather(5, nodes=configs(5, node1={"fewest-share": 0.9}))
    check(found, [0, 2, 3, 4])
    assert "this device wants at least 5" in found.failures[1]
    check(
        gather(5, nodes=configs(5, node1={"fewest-share": 0.9}), secure=SecureSum(threshold=5)),
        range(5),
    )
