"""Attacks on secure sums by a server that sends what it likes: all must fail.

The devices are the real handlers, with signed keys and tables of trusted ones, and their node
config does not say simulation. No device colludes.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from trellis import apps
from trellis.apps.common.runner import config_class
from trellis.privacy.secagg import shamir
from trellis.privacy.secagg.answers import shared_hash
from trellis.privacy.secagg.client import AGREE, DIRECTORY, KEYS, MASKED, RECORD, UNMASK, VECTOR
from trellis.privacy.secagg.graph import plan
from trellis.privacy.secagg.messages import (
    Advert,
    Agreed,
    Masked,
    Opened,
    Order,
    Question,
    Roll,
    pack,
    parse,
    to_fields,
)
from trellis.privacy.secagg.pairs import commitment
from trellis.privacy.secagg.protocol import context_of
from trellis.privacy.secagg.ring import Ring
from trellis.privacy.secagg.server import ServerRound, Session
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import secure, wire
from trellis.strategies.core.enrolment import Client, StudyError
from trellis.strategies.core.secure import SecureSum

COUNT = 7
MODEL = np.array([0.3, -0.2, 0.1])


class Servant:
    """A server's hand on seven devices of server-graph."""

    def __init__(self, folder, count=COUNT):
        self.count, self.names = count, [f"site{i}" for i in range(count)]
        self.nodes, lines, rng = [], [], np.random.default_rng(3)
        for name in self.names:
            key = Ed25519PrivateKey.generate()
            (folder / f"{name}.pem").write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
            )
            public = key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            lines.append(f"{name} {public.decode()}\n")
            y = np.sign(rng.standard_normal(40))
            np.savez(folder / f"{name}.npz", X=rng.standard_normal((40, 3)), y=y)
            self.nodes.append(
                {
                    "data-path": str(folder / f"{name}.npz"),
                    "state-path": str(folder / f"state-{name}"),
                    "server": 0,
                    "signing-key": str(folder / f"{name}.pem"),
                    "trusted-keys": str(folder / "trusted"),
                }
            )
        (folder / "trusted").write_text("".join(lines))
        settings = {
            "method": "none",
            "secure-aggregation": "on",
            "clip": 1.0,
            "clients": count,
            "servers": 1,
        }
        settings |= {"batch": 0, "ridge": 0.0, "step": 1.0}
        config = config_class("server-graph").from_settings(settings)
        run = {"study": "server-graph", "seed": 1, "out": "", **config.run_config()}
        self.grid = LocalGrid(apps.client_app, self.nodes, run).__enter__()
        self.ids = list(self.grid._nodes)

    def send(self, client, kind, message, payload=None):
        content = RecordDict(dict(payload or {}))
        content[RECORD] = ConfigRecord(to_fields(message))
        (reply,) = self.grid.send_and_receive([Message(content, self.ids[client], kind)])
        return reply

    def ask(self, client, kind, message, payload=None):
        reply = self.send(client, kind, message, payload)
        assert not reply.has_error(), reply.error.reason
        return reply.content

    def session(self):
        session = Session(dict(enumerate(self.names)))
        for c in range(self.count):
            found = self.ask(c, f"query.{KEYS}", session.hello(c))
            session.take_advert(c, parse(Advert, found[RECORD]))
        session.close()
        return session

    def masked(self, client, order, model=MODEL, directory=None):
        found = self.ask(client, f"train.{MASKED}", order, payload(model, directory))
        return parse(Masked, found[RECORD]), wire.arrays(found[VECTOR])["vector"].copy()


def payload(model=MODEL, directory=None):
    told = ConfigRecord({"server-round": 1})
    content = RecordDict({"arrays": wire.record({"model": model}), "config": told})
    if directory is not None:
        content[DIRECTORY] = ConfigRecord(to_fields(directory))
    return content


@pytest.fixture
def servant(tmp_path):
    made = Servant(tmp_path)
    yield made
    made.grid.__exit__(None, None, None)


@pytest.mark.parametrize(("bits", "largest"), [(52, 0.0), (40, 0.0), (40, 1e-9), (32, 0.0)])
def test_no_value_can_be_read_from_a_refusal(servant, bits, largest):
    # The ring overflowed, and the error named the value, in a range of the server's choice.
    session = servant.session()
    order = ServerRound(session, 1, list(range(COUNT)), plan(COUNT), ring=Ring(32)).order
    told = {**to_fields(order), "fraction-bits": bits, "largest": largest}
    content = payload(np.array([1e40, -4.0, 4.0]), session.directory)
    content[RECORD] = ConfigRecord(told)
    (reply,) = servant.grid.send_and_receive([Message(content, servant.ids[0], f"train.{MASKED}")])
    if bits > 40:
        assert reply.has_error()
        assert "device error E" in reply.error.reason
        assert "e+40" not in reply.error.reason
    else:
        assert not reply.has_error()
        assert wire.arrays(reply.content[VECTOR])["vector"].dtype == np.uint64


def test_two_survivor_lists_open_nobody(servant):
    # The victim is told that few others stayed, the others that all did, or some, each its own way.
    session, victim = servant.session(), 0
    turn = ServerRound(session, 1, list(range(COUNT)), plan(COUNT))
    beside = {
        c: servant.masked(c, turn.order, directory=session.directory)[0] for c in range(COUNT)
    }
    threshold = turn.plan.threshold
    close = list(range(threshold))
    words, told = {}, {}
    for c in range(COUNT):
        # Every other client is to give the seeds of two of those the victim shares masks with.
        gone = [p for p in close[1:] if p != c][c % 2 : c % 2 + 2]
        told[c] = close if c == victim else [p for p in range(COUNT) if p not in gone]
        roll = Roll(session.session, 1, pack(told[c]))
        found = parse(Agreed, servant.ask(c, f"query.{AGREE}", roll)[RECORD])
        kept = [p for p in told[c] if p != c]
        words[c] = {p: found.macs[16 * i : 16 * i + 16] for i, p in enumerate(kept)}
        # No second story.
        assert servant.send(c, f"query.{AGREE}", roll).has_error()
    for c in range(COUNT):
        kept = [p for p in told[c] if p != c]
        signers = [p for p in kept if c in words[p]]
        sealed = b"".join(
            beside[p].sealed[16 * i : 16 * i + 16]
            for p in kept
            for i in [[q for q in range(COUNT) if q != p].index(c)]
        )
        macs = b"".join(words[p][c] for p in signers)
        question = Question(session.session, 1, pack(signers), macs, sealed)
        reply = servant.send(c, f"query.{UNMASK}", question)
        assert reply.has_error(), f"client {c} gave shares"


def test_a_client_alone_with_its_payload_is_in_no_sum(servant):
    # All others are sent a model under which their updates are known.
    clients = [Client(n, i, 40, ["x"], servant.ids[i]) for i, n in enumerate(servant.names)]
    dead = np.zeros(3)
    apart = {i: payload(MODEL if i == 0 else dead) for i in range(COUNT)}
    found = SecureSum().gather(servant.grid, apart, clients, 1, 30.0)
    assert found.survivors == list(range(1, COUNT))
    assert "masks are not those of its neighbours" in found.failures[0]
    half = {i: payload(MODEL if i < 3 else dead * i) for i in range(COUNT)}
    half[3] = payload(-MODEL)
    half[4] = payload(2 * MODEL)
    with pytest.raises(StudyError, match="no secure sum"):
        SecureSum().gather(servant.grid, half, clients, 2, 30.0)


@pytest.mark.parametrize("declared", [["arrays"], ["arrays", "order"], ["other"], []])
def test_no_record_of_the_payload_can_be_declared_to_differ(servant, monkeypatch, declared):
    # All are told alike that a record differs from client to client; the victim's then does. Two
    # sums whose other summands are the same would differ by the victim's.
    honest = secure.to_fields

    def with_declaration(message):
        found = honest(message)
        return {**found, "personal": declared} if isinstance(message, Order) else found

    monkeypatch.setattr(secure, "to_fields", with_declaration)
    clients = [Client(n, i, 40, ["x"], servant.ids[i]) for i, n in enumerate(servant.names)]
    for number, model in enumerate([MODEL, 50.0 * MODEL], start=1):
        apart = {i: payload(model if i == 0 else np.zeros(3)) for i in range(COUNT)}
        with pytest.raises(StudyError, match="no secure sum"):
            SecureSum().gather(servant.grid, apart, clients, number, 30.0)


def test_masks_depend_on_every_field_of_an_order():
    # A field that is left out could be another for each client. The session is in the directory.
    order = Order(bytes(16), 1, "", pack(range(7)), 6, 5, 32, 1.0, 5)
    payload_hash, directory = bytes(32), bytes(32)
    other = {int: 99, float: 99.0, str: "other", bytes: b"other"}
    for item in fields(Order):
        if item.name != "session":
            changed = replace(order, **{item.name: other[type(getattr(order, item.name))]})
            found = context_of(changed, directory, payload_hash)
            assert found != context_of(order, directory, payload_hash), item.name
    assert context_of(order, b"\1" * 32, payload_hash) != context_of(order, directory, payload_hash)
    assert context_of(order, directory, b"\1" * 32) != context_of(order, directory, payload_hash)


def test_masks_depend_on_every_record_of_a_payload_and_on_the_run_config():
    def hash_of(change=None, run=None):
        content = payload()
        content["metrics"] = MetricRecord({"objective": 1.0})
        if change is not None:
            change(content)
        return shared_hash(content, run or {"step": 1.0})

    changes = [
        lambda content: content.pop("metrics"),
        lambda content: content["metrics"].update(objective=1.5),
        lambda content: content["metrics"].update(objective=1),
        lambda content: content["config"].update({"server-round": 2}),
        lambda content: content["config"].update(more="x"),
        lambda content: content["arrays"].update(model=wire.pack(2.0 * MODEL)),
        lambda content: content["arrays"].update(model=wire.pack(MODEL[:, None])),
        lambda content: content["arrays"].update(other=wire.pack(MODEL)),
        lambda content: content.update(beside=ConfigRecord({"x": 1})),
    ]
    found = [hash_of(), *map(hash_of, changes), hash_of(run={"step": 2.0})]
    assert len(set(found)) == len(found)
    assert hash_of() == hash_of()


def test_a_client_alone_with_its_payload_cannot_be_unmasked(servant):
    # The server goes on as if nothing were wrong.
    session = servant.session()
    turn = ServerRound(session, 1, list(range(COUNT)), plan(COUNT))
    beside, vectors = {}, {}
    for c in range(COUNT):
        beside[c], vectors[c] = servant.masked(
            c, turn.order, MODEL if c == 0 else np.zeros(3), session.directory
        )
        turn.take_masked(c, beside[c], vectors[c])
    turn._at_odds = lambda: []
    turn.close_masked()
    for c in range(COUNT):
        found = servant.ask(c, f"query.{AGREE}", turn.roll())
        turn.take_agreed(c, parse(Agreed, found[RECORD]))
    turn.close_agreed()
    assert servant.send(0, f"query.{UNMASK}", turn.question(0)).has_error()
    right = 0
    for c in range(1, COUNT):
        opened = parse(Opened, servant.ask(c, f"query.{UNMASK}", turn.question(c))[RECORD])
        share = opened.shares[:16]  # the victim is everyone's first holder
        right += commitment(share) == beside[0].share_commitments[16 * c : 16 * c + 16]
    assert right == 0


def narrowed(session, without):
    """Return the directory without one member: all that is left in it is truly signed."""
    kept = [m for m in session.members if m != without]
    whole = session.directory
    return replace(
        whole,
        members=pack(kept),
        names=[whole.names[m] for m in kept],
        keys=b"".join(whole.keys[32 * m : 32 * m + 32] for m in kept),
        signatures=[whole.signatures[m] for m in kept],
    )


def test_two_directories_make_no_sum_and_open_nobody(servant):
    # Both truly signed; the first order comes with either, and is the same for all.
    session = servant.session()
    turn = ServerRound(session, 1, list(range(COUNT - 1)), plan(COUNT - 1))
    other = narrowed(session, COUNT - 1)
    beside = {}
    for c in range(COUNT - 1):
        told = other if c < 2 else session.directory
        beside[c], vector = servant.masked(c, turn.order, directory=told)
        turn.take_masked(c, beside[c], vector)
    assert turn.close_masked() == [2, 3, 4, 5]
    assert set(turn.refused) == {0, 1}
    # A server that goes on as if nothing were wrong is given no share of theirs, nor theirs of us.
    everyone = ServerRound(session, 1, list(range(COUNT - 1)), plan(COUNT - 1))
    everyone._at_odds = lambda: []
    for c in range(COUNT - 1):
        everyone.take_masked(c, beside[c], turn._vectors.get(c, vector))
    everyone.close_masked()
    for c in range(COUNT - 1):
        found = servant.ask(c, f"query.{AGREE}", everyone.roll())
        everyone.take_agreed(c, parse(Agreed, found[RECORD]))
    for c in (0, 1):  # two agree; the threshold of six is four
        assert servant.send(c, f"query.{UNMASK}", everyone.question(c)).has_error()
    for c in range(2, COUNT - 1):
        opened = parse(Opened, servant.ask(c, f"query.{UNMASK}", everyone.question(c))[RECORD])
        for victim in (0, 1):
            share = opened.shares[16 * victim : 16 * victim + 16]
            place = 16 * c
            assert commitment(share) != beside[victim].share_commitments[place : place + 16]


def test_nobody_meets_a_second_directory_or_one_of_another_session(servant):
    session = servant.session()
    turn = ServerRound(session, 1, list(range(COUNT)), plan(COUNT))
    servant.masked(0, turn.order, directory=session.directory)
    later = ServerRound(session, 2, list(range(COUNT - 1)), plan(COUNT - 1)).order
    second = payload(directory=narrowed(session, COUNT - 1))
    assert servant.send(0, f"train.{MASKED}", later, second).has_error()
    # Not even with the round that it has answered, nor that with the directory it knows.
    assert servant.send(0, f"train.{MASKED}", turn.order, second).has_error()
    again = payload(directory=session.directory)
    assert servant.send(0, f"train.{MASKED}", turn.order, again).has_error()
    strange = Session(dict(enumerate(servant.names)))
    for c in range(COUNT):
        strange.take_advert(
            c, Advert(X25519PrivateKey.generate().public_key().public_bytes_raw(), b"")
        )
    reply = servant.send(0, f"train.{MASKED}", later, payload(directory=strange.close()))
    assert reply.has_error() or "lost-session" in reply.content[RECORD]
    # It goes on where it was.
    whole = ServerRound(session, 3, list(range(COUNT)), plan(COUNT)).order
    assert servant.masked(0, whole)[1].dtype == np.uint64


@pytest.mark.parametrize("change", [{"number": 0}, {"threshold": 1}, {"neighbours": 1}])
def test_a_refused_order_leaves_its_directory_unmet(servant, change):
    # Else a server could have a device accept one thing by sending another that it refuses.
    session = servant.session()
    turn = ServerRound(session, 1, list(range(COUNT)), plan(COUNT))
    before = dict(servant.grid._nodes[servant.ids[0]].state[RECORD])
    wrong, told = replace(turn.order, **change), payload(directory=session.directory)
    assert servant.send(0, f"train.{MASKED}", wrong, told).has_error()
    assert dict(servant.grid._nodes[servant.ids[0]].state[RECORD]) == before
    # Without a directory there is no order: it says that it knows no such session.
    found = servant.ask(0, f"train.{MASKED}", turn.order, payload())
    assert "lost-session" in found[RECORD]
    assert VECTOR not in found
    servant.masked(0, turn.order, directory=session.directory)


@pytest.mark.parametrize("count", [5, 8, 10, 20, 50])
def test_wrong_shares_lose_no_secret_while_enough_right_ones_exist(count):
    threshold = plan(count).threshold
    secret, shares = shamir.draw(count, threshold)
    committed = [commitment(share.tobytes()) for share in shares]
    rng = np.random.default_rng(count)
    for _ in range(40):
        liars = rng.choice(count, count - threshold, replace=False)
        given = {x + 1: shares[x].tobytes() for x in range(count)}
        given |= {int(x) + 1: rng.bytes(16) for x in liars}
        right = {x: s for x, s in given.items() if commitment(s) == committed[x - 1]}
        assert shamir.combine(right, threshold) == secret
