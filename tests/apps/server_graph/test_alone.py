"""Servers with SuperLinks of their own: the same numbers as in one process, and what goes wrong.

Each server is a thread with a grid of its own, joined by bridges; see `tests.graphs`.
"""

from __future__ import annotations

import shutil
import threading
import time

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from tests.apps.server_graph.federations import study
from tests.graphs import Graph, own_rows
from trellis import apps
from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.network.greeting import greet
from trellis.strategies.network.member import GraphMember
from trellis.strategies.network.spool import NEWEST, Spool
from trellis.strategies.server_graph.exchange import MaskedServer

OPEN = {"features": 3, "samples": "20", "rounds": 6, "method": "none", "secure-aggregation": "off"}
SEED = 3


def settings(topology, servers, clients=2, **more):
    named = {key.replace("_", "-"): value for key, value in more.items()}
    chosen = {**OPEN, "topology": topology, "servers": servers, "clients": clients * servers}
    chosen |= named
    if chosen["method"] == "none":  # whose servers send their models as they are
        chosen.pop("sigma", None)
    return chosen


def graph(chosen, root, client_app=None, **options):
    named = {key.replace("_", "-"): value for key, value in options.items()}
    options = {"report": False, "server-timeout": 3.0, **named}
    return Graph("server-graph", chosen, root, seed=SEED, options=options, client_app=client_app)


def logical(chosen, **more):
    return study({**chosen, **more}, seed=SEED)


def finish(threads, timeout=60.0):
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), f"{thread.name} did not end"


def events(result):
    return [event["what"] for event in result.network["events"]]


def consistent(result):
    """Check that what is told of letters has a row for every round."""
    rows, neighbours = len(result.metrics), len(result.network["neighbours"])
    for name in ("link_rounds", "link_weights", "link_seconds"):
        assert result.arrays[name].shape == (rows, neighbours), name
    rounds = [row["round"] for row in result.metrics]
    assert rounds == sorted(set(rounds))


# --- the same as in one process ------------------------------------------------------------------


@pytest.mark.parametrize(("topology", "servers"), [("path", 3), ("ring", 4), ("complete", 3)])
@pytest.mark.parametrize("method", ["none", "iid", "hybrid", "masked"])
def test_the_numbers_are_those_of_servers_in_one_process_to_the_last_bit(
    method, topology, servers, tmp_path
):
    chosen = settings(topology, servers, method=method, sigma=0.1)
    results = graph(chosen, tmp_path).run()
    assert own_rows(results).tobytes() == logical(chosen).arrays["models"].tobytes()
    for server, result in enumerate(results):
        assert result.status == "completed"
        assert all(event == "has come to its end" for event in events(result))
        consistent(result)
        others = np.arange(servers) != server
        assert np.isnan(result.arrays["models"][others]).all()
        rounds = np.arange(1, 7)[:, None]
        assert np.array_equal(
            result.arrays["link_rounds"], np.repeat(rounds, len(result.network["neighbours"]), 1)
        )
        assert {row["oldest"] for row in result.metrics} == {0.0}


@pytest.mark.parametrize(
    "more",
    [
        {"method": "masked", "secure_aggregation": "on", "sigma": 0.1},
        {
            **{"privacy": "dp", "method": "hybrid", "epsilon": 20.0, "clip": 0.5},
            "secure_aggregation": "auto",
        },
        *(
            {"method": method, "privacy": "paper", "clip": 0.5, "epsilon": 2.0}
            for method in ("hybrid", "iid")
        ),
    ],
    ids=["secure sums", "noise in sums", "noise by epsilon", "noise by epsilon, each edge"],
)
def test_secure_sums_of_a_servers_own_clients_are_the_same_as_well(more, tmp_path, monkeypatch):
    """Clients that are simulated draw their noise from the seed, so even that is the same."""
    # The forecast takes longer than the run.
    monkeypatch.setattr("trellis.apps.server_graph.server_app.sum_warnings", lambda *_: [])
    chosen = settings("path", 2, clients=3, rounds=4, **more)
    results = graph(chosen, tmp_path).run()
    assert own_rows(results).tobytes() == logical(chosen).arrays["models"].tobytes()


def test_a_server_draws_the_clients_that_it_would_draw_among_all(tmp_path):
    chosen = settings("path", 3, clients=3, sample=1)
    results = graph(chosen, tmp_path).run()
    whole = logical(chosen)
    assert own_rows(results).tobytes() == whole.arrays["models"].tobytes()
    asked = [client["rounds"] for result in results for client in result.clients]
    assert asked == [client["rounds"] for client in whole.clients]
    assert sum(asked) == 18
    assert len({tuple(asked[3 * p : 3 * p + 3]) for p in range(3)}) > 1  # each its own draws


# --- a server that dies --------------------------------------------------------------------------


class Killed(BaseException):
    """Ends a server as kill -9 would: nobody is told."""


class Fate:
    """What happens to servers when they begin a round.

    Attributes
    ----------
    kill : the round before which a server dies, once
    hold : called with server and round
    """

    def __init__(self, monkeypatch):
        self.kill, self.hold = {}, lambda server, server_round: None
        end, expect = GraphMember.end, GraphMember.expect

        def ending(member, server_round):
            if getattr(member, "killed", False):
                member._ended.set()
            else:
                end(member, server_round)

        def expecting(member, grid, server_round):
            server = member.mail.place.server
            if self.kill.get(server) == server_round:
                del self.kill[server]
                member.killed = True
                raise Killed
            self.hold(server, server_round)
            expect(member, grid, server_round)

        monkeypatch.setattr(GraphMember, "end", ending)
        monkeypatch.setattr(GraphMember, "expect", expecting)
        monkeypatch.setattr(Checkpoint, "due", lambda self: True)


@pytest.fixture
def fate(monkeypatch):
    return Fate(monkeypatch)


@pytest.mark.parametrize(
    ("topology", "servers", "method"),
    [("path", 3, "none"), ("ring", 5, "none"), ("ring", 5, "hybrid"), ("ring", 5, "masked")],
)
def test_the_others_go_on_without_a_server_that_dies(topology, servers, method, tmp_path, fate):
    """As where a failure is planned; with masks the round in which it is missed has no sum."""
    chosen = settings(topology, servers, rounds=10, method=method, sigma=1e-3)
    fate.kill = {1: 5}
    run = graph(chosen, tmp_path, server_timeout=2.0)
    finish([run.start(server) for server in range(servers)])
    assert set(run.errors) == {1}
    assert isinstance(run.errors[1], Killed)
    expected = logical(chosen, failures="1:5").arrays["models"]
    for server in set(range(servers)) - {1}:
        result = run.result(server)
        assert result.status == "completed"
        consistent(result)
        near = 1 in result.network["neighbours"]
        assert ("gone: no sign of life within 2 s" in events(result)) == near
        if near:
            place = result.network["neighbours"].index(1)
            assert result.arrays["link_rounds"][:, place].tolist() == [1, 2, 3, 4, *[0] * 6]
        if method != "masked":
            own = result.arrays["models"][server]
            np.testing.assert_allclose(own, expected[server], rtol=0, atol=1e-13)
    if method == "masked":
        said = [what for s in (0, 2) for what in events(run.result(s))]
        assert said.count("could not open the sum: a sender was missing") == 2


def test_masks_without_noise_go_on_as_well(tmp_path, fate):
    """Then a server that hears from one only is sent nothing, which must not end the sender."""
    chosen = settings("ring", 4, rounds=10, method="masked", sigma=0.0)
    fate.kill = {1: 4}
    run = graph(chosen, tmp_path, server_timeout=2.0)
    finish([run.start(server) for server in range(4)])
    assert set(run.errors) == {1}
    told = events(run.result(3))
    assert told.count("is sent nothing: it hears from nobody else, and sigma is 0") >= 2
    # It still hears from both.
    assert run.result(3).arrays["link_rounds"][-1].tolist() == [10, 10]
    for server in (0, 2, 3):
        assert np.isfinite(run.result(server).arrays["models"][server]).all()


@pytest.mark.parametrize(("topology", "servers"), [("path", 3), ("ring", 4)])
def test_a_server_that_is_back_is_taken_in(topology, servers, tmp_path, fate, monkeypatch):
    chosen = settings(topology, servers, rounds=40)
    back, gone = threading.Event(), threading.Event()

    def hold(server, server_round):
        if server != 1 and server_round == 12:
            gone.set()
            assert back.wait(30)
        elif server_round > 12:
            time.sleep(0.05)  # as real rounds take: it must find in before the end

    def greeting(mail, *args, on_greeted, **kwargs):
        def greeted():
            on_greeted()
            if gone.is_set():
                back.set()

        return greet(mail, *args, on_greeted=greeted, **kwargs)

    monkeypatch.setattr("trellis.strategies.network.member.greet", greeting)
    fate.kill, fate.hold = {1: 6}, hold
    run = graph(chosen, tmp_path, server_timeout=2.0)
    threads = [run.start(server) for server in range(servers)]
    threads[1].join(60)
    assert isinstance(run.errors.pop(1), Killed)
    assert gone.wait(60)
    threads[1] = run.start(1, resume=True)
    finish(threads)
    assert run.errors == {}
    results = [run.result(server) for server in range(servers)]
    for result in results:
        assert result.status == "completed"
        consistent(result)
        # All links are in use again, with the weights of the whole graph.
        assert set(result.arrays["link_rounds"][-1].tolist()) == {40}
        neighbours = result.network["neighbours"]
        planned = run.graph.weights[result.network["server"], neighbours]
        assert result.arrays["link_weights"][-1].tolist() == planned.tolist()
    rounds = [int(row["round"]) for row in results[1].metrics]
    assert rounds[:5] == [1, 2, 3, 4, 5]
    assert rounds[5] > 12  # where the others are, and not where it had stopped
    assert "has started, and is taken in" in events(results[0])


def test_all_that_are_resumed_go_on_together_with_more_rounds(tmp_path):
    """One starts while the other's greeting is still that of the run before, with fewer."""
    chosen = settings("path", 2, rounds=5)
    graph(chosen, tmp_path).run()
    more = {"server-graph.rounds": 9, "resume": True}
    run = graph(chosen, tmp_path / "again")
    run.root, run.folders = tmp_path, [tmp_path / "servers" / f"server-{s}" for s in range(2)]
    first = run.start(0, **more)
    time.sleep(1.0)
    finish([first, run.start(1, **more)])
    assert run.errors == {}
    results = [run.result(server) for server in range(2)]
    assert [len(result.metrics) for result in results] == [9, 9]
    for result in results:
        consistent(result)
    whole = logical(chosen, rounds=9).arrays["models"]
    assert own_rows(results).tobytes() == whole.tobytes()


# --- a network that is cut -----------------------------------------------------------------------


class Between(type(apps.client_app)):
    """Bridges with something on the way: ``change(sender, receiver, round, reply)``."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def __call__(self, message, context):
        if message.metadata.message_type != "query.letter":
            return super().__call__(message, context)
        order = dict(message.content["order"])  # a bridge may change its message
        node = context.node_config
        if node["spool"] == "/false":
            record = ConfigRecord({"letter": b"", "board": b"", "pulse": b""})
            reply = Message(RecordDict({"found": record}), reply_to=message)
        else:
            reply = super().__call__(message, context)
        self.change(node, order["receiver"], order["round"], reply.content["found"])
        return reply


def test_parts_that_are_cut_go_on_and_find_together_again(tmp_path, fate):
    cut, far = threading.Event(), threading.Event()

    def hold(server, server_round):
        if server_round == 6:
            cut.set()
        if server == 2 and server_round == 10:
            assert far.wait(60)  # this part is slower than the other
            cut.clear()
        if server == 1 and server_round == 20:
            far.set()
        if server_round >= 20:
            time.sleep(0.05)  # as real rounds take: they must find together before the end

    def change(node, receiver, asked, found):
        if cut.is_set() and {node["bridge"], receiver} == {1, 2}:
            raise RuntimeError("cut")

    fate.hold = hold
    run = graph(settings("path", 4, rounds=50), tmp_path, Between(change), server_timeout=2.0)
    results = run.run()
    for server in (1, 2):
        told = " | ".join(events(results[server]))
        assert "gone: no sign of life within 2 s" in told
        assert "heard again" in told
    for result in results:
        consistent(result)
        assert result.arrays["link_rounds"][0].min() == 1
        assert set(result.arrays["link_rounds"][-1].tolist()) == {50}
    # The slower part has left out rounds to be where the faster one is. On a busy machine server 1
    # may itself be silent for more than 2 s, and then leaves out a few that server 0 went on with.
    left_out = [50 - len(result.metrics) for result in results]
    assert left_out[0] == 0
    assert min(left_out[2:]) > left_out[1]


# --- bridges that do not do what they should -----------------------------------------------------


class Liar:
    """Spoils what the bridge of server 1 brings server 0, the first time in every round."""

    def __init__(self, how, folders):
        self.how, self.folders = how, folders
        self.before: list[bytes] = []
        self.spoiled: set[int] = set()

    def __call__(self, node, receiver, asked, found):
        false = node["spool"] == "/false"
        if (node["bridge"], receiver) != (1, 0) or not (found["letter"] or false):
            return
        letter = found["letter"]
        if asked < 2 or (asked in self.spoiled and not false):
            self.before.append(letter)
            return
        self.spoiled.add(asked)
        found["letter"] = getattr(self, self.how)(letter)
        found["pulse"] = b""

    def byte(self, letter):
        return letter[:-20] + bytes([letter[-20] ^ 4]) + letter[-19:]

    def before_(self, letter):
        return next(old for old in reversed(self.before) if old and old != letter)

    def anothers(self, letter):
        return Spool(self.folders[1] / "spool", "a run").take(2, NEWEST, "", 5.0).letter

    def made_up(self, letter):
        return b"\0\x05hello" + bytes(100)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("byte", "refused: a letter that server 1 has not sealed, or that was changed"),
        ("before_", "refused: a letter of round "),
        ("anothers", "refused: a letter from server 1 to 2 where one from 1 to 0 was expected"),
        ("made_up", "refused: an envelope without a header"),
    ],
)
def test_a_letter_that_was_tampered_with_is_refused_and_the_right_one_is_used(how, told, tmp_path):
    chosen = settings("path", 3)
    run = graph(chosen, tmp_path)
    liar = Liar(how, run.folders)
    run.client_app = Between(liar)
    results = run.run()
    assert len(liar.spoiled) >= 4
    assert any(what.startswith(told) for what in events(results[0])), events(results[0])
    assert own_rows(results).tobytes() == logical(chosen).arrays["models"].tobytes()


class WithFalse(Graph):
    """A node at server 0 says to be the bridge of server 1, beside the true one."""

    def nodes(self, server):
        found = super().nodes(server)
        return [{"bridge": 1, "spool": "/false"}, *found] if server == 0 else found


@pytest.mark.parametrize("first", [True, False])
def test_a_node_that_says_to_be_a_bridge_does_no_harm(first, tmp_path):
    chosen = settings("path", 3)
    run = WithFalse(
        "server-graph",
        chosen,
        tmp_path,
        seed=SEED,
        options={"report": False, "server-timeout": 3.0},
    )

    def change(node, receiver, asked, found):
        if node["spool"] == "/false":
            if not first:
                time.sleep(0.1)
            found["letter"], found["board"], found["pulse"] = b"\0\x05hello" + bytes(99), b"x", b"y"

    run.client_app = Between(change)
    results = run.run()
    assert any(what.startswith("refused: ") for what in events(results[0]))
    assert not any(what.startswith("gone") for what in events(results[0]))
    assert own_rows(results).tobytes() == logical(chosen).arrays["models"].tobytes()


# --- what must be agreed on ----------------------------------------------------------------------


def test_a_server_with_other_settings_is_named_at_both_ends(tmp_path):
    run = graph(settings("path", 2, enrol_timeout=2.0), tmp_path)
    finish([run.start(0), run.start(1, **{"server-graph.step": 0.3})])
    for server in range(2):
        error = run.errors[server]
        assert isinstance(error, StudyError)
        assert f"server-{1 - server} runs with other settings" in str(error)
        assert run.result(server).status == "failed"
    # No thread is left that says that they live.
    assert not [t for t in threading.enumerate() if t.name == "trellis-pulse" and t.is_alive()]


@pytest.mark.parametrize(("topology", "servers"), [("path", 4), ("complete", 3)])
def test_all_stop_after_the_same_round_where_a_tolerance_is_set(topology, servers, tmp_path):
    chosen = settings(topology, servers, rounds=60, tolerance=1e-2, batch=0, step=1.0)
    results = graph(chosen, tmp_path).run()
    lengths = {len(result.metrics) for result in results}
    assert len(lengths) == 1
    [length] = lengths
    assert servers < length < 60
    quiet = [max(r.metrics[i]["change"] for r in results) for i in range(length)]
    assert max(quiet[-servers:]) <= 1e-2  # all of them, for as long as it takes to know
    fewer = logical(chosen, tolerance=0.0, rounds=length)
    assert own_rows(results).tobytes() == fewer.arrays["models"].tobytes()


# --- out of step ---------------------------------------------------------------------------------


def test_out_of_step_servers_come_to_the_same_point(tmp_path, fate):
    pace = {0: 0.0, 1: 0.005, 2: 0.02}
    fate.hold = lambda server, server_round: time.sleep(pace[server])
    convex = {"batch": 0, "step": 0.5, "ridge": 0.3, "loss": "least-squares"}
    chosen = settings("path", 3, rounds=80, **convex)
    settled = logical(chosen, rounds=200).arrays["models"]
    results = graph(chosen, tmp_path, max_staleness=4).run()
    np.testing.assert_allclose(own_rows(results), settled, rtol=0, atol=1e-8)
    oldest = []
    for result in results:
        consistent(result)
        assert all("gone" not in what for what in events(result))
        used = result.arrays["link_rounds"]
        ages = np.arange(1, 81)[:, None] - used
        # The last letter of a server that has ended may be used for ever.
        ends = [e["server"] for e in result.network["events"] if "its end" in e["what"]]
        for place, server in enumerate(result.network["neighbours"]):
            there = used[:, place] > 0
            if server in ends:
                there &= used[:, place] < 81
            assert ages[there, place].max() <= 4
            oldest.append(ages[there, place].max())
        assert max(row["oldest"] for row in result.metrics[:40]) <= 4.0
    assert max(oldest) > 0  # it was out of step indeed


# --- clients of other servers --------------------------------------------------------------------


class Moved(Graph):
    """The last client of server 1 has connected to server 0."""

    def nodes(self, server):
        found = super().nodes(server)
        mine = super().nodes(1)
        moved = [node for node in mine if "partition-id" in node][-1]
        if server == 1:
            found.remove(moved)
        return [*found, moved] if server == 0 else found


@pytest.mark.parametrize("what", ["drop", "rehome"])
def test_a_client_of_another_server_is_refused_by_name_unless_it_may_be_taken_in(what, tmp_path):
    chosen = settings("path", 2, on_server_loss=what, enrol_timeout=3.0)
    options = {"report": False, "server-timeout": 3.0}
    run = Moved("server-graph", chosen, tmp_path, seed=SEED, options=options)
    threads = [run.start(0, **{"clients-here": 3}), run.start(1, **{"clients-here": 1})]
    finish(threads)
    if what == "drop":
        assert isinstance(run.errors[0], StudyError)
        words = r"client client-4 belongs to server 1, this is 0 (server-0); connect it to its own"
        assert words in str(run.errors[0])
        return
    assert run.errors == {}
    assert [len(run.result(server).clients) for server in range(2)] == [3, 1]
    assert {row["clients"] for row in run.result(0).metrics} == {3.0}


def test_a_masked_message_for_a_sum_that_is_none_is_left_out(tmp_path, monkeypatch):
    """A sender masks for two where the receiver hears from one: it must not end the receiver."""
    messages = MaskedServer.messages

    def masked(server, server_round, psi, weights):
        sent = messages(server, server_round, psi, weights)
        return {
            p: np.zeros(psi.size, np.uint64) if server.index == 0 else m for p, m in sent.items()
        }

    monkeypatch.setattr(MaskedServer, "messages", masked)
    chosen = settings("path", 2, method="masked", sigma=0.1)
    results = graph(chosen, tmp_path).run()
    assert "sent no usable model: left out" in events(results[1])
    assert results[1].arrays["link_rounds"].max() == 0
    assert results[0].arrays["link_rounds"][-1].tolist() == [6]


def test_a_round_that_was_told_is_not_told_again_whatever_was_kept(tmp_path):
    """Told again with another model under the same noise, the difference would be in the clear."""
    chosen = settings("path", 3, method="hybrid", sigma=0.1, rounds=4)
    before = graph(chosen, tmp_path)
    before.run()
    for server in range(3):
        shutil.rmtree(tmp_path / "out" / str(server) / "checkpoint")  # none of it was kept
    results = before.run(resume=True, **{"server-graph.rounds": 6})
    for result in results:
        assert [row["round"] for row in result.metrics] == [5.0, 6.0]
        assert result.arrays["link_rounds"].min() == 5
