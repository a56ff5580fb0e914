"""One server's letters through bridges on a grid: waiting, signs of life, false bridges."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tests.graphs import server_folders
from trellis import apps
from trellis.sim.grid import LocalGrid, node_ids
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.network.board import Board
from trellis.strategies.network.bridges import PULSE, Bridges
from trellis.strategies.network.greeting import greet
from trellis.strategies.network.place import Place
from trellis.strategies.topology.graph import topology

PATH = topology("path", 2)
MODEL = {"model": np.arange(3.0)}


class Two:
    """Server 0 with a grid of bridges, and server 1, whose letters the tests write."""

    def __init__(self, root, **place):
        self.folders = server_folders(root, 2)
        places = [
            replace(Place(server, folder, "a run", "terms", timeout=1.0), **place)
            for server, folder in enumerate(self.folders)
        ]
        self.here, self.there = (Bridges(PATH, one) for one in places)
        self.spool = {"bridge": 1, "spool": str(self.folders[1] / "spool")}

    def meet(self):
        """Let both know each other, and neither have begun."""
        for mail in (self.here, self.there):
            mail.board.greet()
            mail.spool.put_board(mail.board.encode())
        self.there.board.take(self.here.board.encode())
        self.here.board.take(self.there.board.encode())
        for mail, other in ((self.here, self.there), (self.there, self.here)):
            mail.links.begin({other.place.server: other.board.seals.epoch})
            mail.seen.begin(0)

    @contextmanager
    def bridges(self, *nodes, client_app=None):
        """Give server 0 bridges: the true one, or others."""
        configs = nodes or (self.spool,)
        app = client_app or apps.client_app
        with LocalGrid(app, configs, {}, workers=4) as grid:
            for node in node_ids(len(configs)):
                self.here.bridge(1, node)
            self.here.asking.grid = grid
            yield grid

    def write(self, server_round, model=MODEL):
        """Let server 1 put in its letter of a round."""
        self.there.seen.begin(server_round)
        self.there.links.turn()
        self.there._put_all(server_round, {0: model} if model else {})

    def receive(self, grid, server_round):
        """Play a round of server 0; return what it got of server 1, and after how many seconds."""
        self.here.expect(grid, server_round)
        began = time.monotonic()
        came = self.here.carry(server_round, {0: {1: MODEL}}, PATH.adjacency)
        return came[0].get(1), time.monotonic() - began

    @property
    def events(self):
        return [event["what"] for event in self.here.seen.events]


@pytest.fixture
def two(tmp_path):
    made = Two(tmp_path)
    made.meet()
    return made


def test_a_letter_of_the_round_comes_and_one_of_ours_is_there_for_the_other(two):
    with two.bridges() as grid:
        two.write(1)
        came, _ = two.receive(grid, 1)
    assert came["model"].tolist() == MODEL["model"].tolist()
    assert two.here.links.weights()[0].tolist() == [0.5, 0.5]
    mine = two.here.spool.take(1, 1, "", 0.0).letter
    assert two.there.board.seals.open(two.there.board.greetings[0], mine)[0] == 1
    assert two.events == []


def test_a_neighbour_without_a_sign_of_life_is_gone_after_the_timeout(two):
    with two.bridges() as grid:
        came, seconds = two.receive(grid, 1)
        assert came is None
        assert 1.0 <= seconds < 5.0
        assert two.events == ["gone: no sign of life within 1 s"]
        _, seconds = two.receive(grid, 2)  # and is not waited for again
        two.receive(grid, 3)
    assert seconds < 0.9
    assert two.here.links.weights()[0].tolist() == [1.0, 0.0]


def test_a_neighbour_that_lives_is_waited_for(two):
    ended = threading.Event()

    def live():
        while not ended.wait(0.2):
            two.there.beat()

    pulses = threading.Thread(target=live)
    pulses.start()
    timer = threading.Timer(2.5, two.write, (1,))
    timer.start()
    try:
        with two.bridges() as grid:
            came, seconds = two.receive(grid, 1)
    finally:
        ended.set()
        pulses.join()
        timer.join()
    assert came is not None
    assert seconds > 2.0
    assert two.events == []


def test_a_sign_of_life_that_is_repeated_is_none(two):
    """The last of a server that is dead is found in its spool for ever."""
    two.there.beat()
    with two.bridges() as grid:
        _, seconds = two.receive(grid, 1)
    assert two.events == ["gone: no sign of life within 1 s"]
    assert seconds < 4.0


def test_a_letter_is_no_sign_of_life_and_a_sign_of_life_no_letter(two):
    to = two.there.board.greetings[0]
    letter = two.there.board.seals.seal(to, 9, b"a letter")
    two.here._take_pulse(1, letter)
    assert two.here.near[1].pulse == 0
    pulse = two.there.board.seals.seal(to, 9, PULSE)
    two.there.spool.put(0, 9, pulse)
    with two.bridges() as grid:
        came, _ = two.receive(grid, 1)
    assert came is None
    assert any("refused: a letter that cannot be read" in what for what in two.events)
    assert two.here.ahead == 0
    two.here._take_pulse(1, pulse)
    assert two.here.near[1].pulse == 9


def test_a_neighbour_that_is_ahead_is_followed_and_not_waited_for(two):
    two.write(7)
    with two.bridges() as grid:
        came, seconds = two.receive(grid, 1)
        assert came is None  # not of this round
        assert seconds < 0.9
        assert two.here.ahead == 7
        came, _ = two.receive(grid, 7)
    assert came is not None


def test_the_letter_of_the_round_before_is_refused(two):
    with two.bridges() as grid:
        two.write(1)
        two.receive(grid, 1)
        old = two.there.spool.take(0, 1, "", 0.0).letter
        two.write(2)
        two.receive(grid, 2)
        two.there.spool.put(0, 3, old)
        came, _ = two.receive(grid, 3)
    assert came is None
    assert "refused: a letter of round 1 in place of round 3" in two.events


def test_the_last_letter_of_a_server_that_ends_is_not_waited_for(two):
    with two.bridges() as grid:
        two.write(1)
        two.receive(grid, 1)
        two.there.close(1)
        came, seconds = two.receive(grid, 2)
        assert came is None
        assert seconds < 0.9
        two.receive(grid, 3)
    assert two.events == ["has come to its end"]


def test_where_letters_may_be_old_the_last_one_of_a_server_stays(tmp_path):
    two = Two(tmp_path, max_staleness=2)
    two.meet()
    with two.bridges() as grid:
        two.write(1)
        assert [two.receive(grid, r)[0] is not None for r in (1, 2, 3)] == [True] * 3
        came, seconds = two.receive(grid, 4)  # now it is too old, and waited for
        assert came is None
        assert seconds >= 1.0
        two.write(5)
        two.there.close(5)
        for r in range(5, 60):
            time.sleep(0.05)
            two.receive(grid, r)
            if r >= 8 and two.here.near[1].ended:  # heard of again, and on the list
                break
        two.receive(grid, 60)
        two.receive(grid, 61)
        assert all(two.receive(grid, r)[0] is not None for r in (70, 71, 72))
    assert two.events[0] == "gone: no sign of life within 1 s"
    assert two.events[-1] == "has come to its end"


def test_a_letter_along_no_edge_is_an_error(two):
    with two.bridges() as grid:
        two.here.expect(grid, 1)
        with pytest.raises(ValueError, match="round 1: no edge from server 0 to 1"):
            two.here.carry(1, {0: {1: MODEL}}, np.zeros((2, 2), dtype=bool))


# --- false and broken bridges --------------------------------------------------------------------


class Liar(type(apps.client_app)):
    """Bridges whose spool says so do something else."""

    def __init__(self, act):
        super().__init__()
        self.act, self.asked = act, 0

    def __call__(self, message, context):
        if context.node_config["spool"] != "/false":
            return super().__call__(message, context)
        self.asked += 1
        return self.act(message, context)


FALSE = {"bridge": 1, "spool": "/false"}


def test_a_false_bridge_that_never_answers_holds_up_no_true_one(two):
    """The true one is asked again when its first answer was empty."""
    ended = threading.Event()
    liar = Liar(lambda message, context: ended.wait(30) or None)

    def live():
        while not ended.wait(0.1):
            two.there.beat()

    pulses = threading.Thread(target=live)
    pulses.start()
    timer = threading.Timer(1.7, two.write, (1,))
    timer.start()
    with two.bridges(FALSE, two.spool, client_app=liar) as grid:
        try:
            came, _ = two.receive(grid, 1)
        finally:
            ended.set()
    pulses.join()
    timer.join()
    assert liar.asked
    assert came is not None
    assert two.events == []


def test_a_bridge_that_raises_is_not_asked_without_end(two):
    def broken(message, context):
        raise RuntimeError("broken")

    liar = Liar(broken)
    with two.bridges(FALSE, client_app=liar) as grid:
        two.receive(grid, 1)
    assert two.events == ["gone: no sign of life within 1 s"]
    assert 2 <= liar.asked < 40


def test_a_bridge_that_brings_nonsense_is_refused_once_and_not_asked_without_end(two):
    from flwr.app import ConfigRecord, Message, RecordDict

    def nonsense(message, context):
        found = ConfigRecord({"letter": b"nonsense", "board": b"", "pulse": b""})
        return Message(RecordDict({"found": found}), reply_to=message)

    liar = Liar(nonsense)
    with two.bridges(FALSE, client_app=liar) as grid:
        two.receive(grid, 1)
    assert two.events == ["refused: no letter: too short", "gone: no sign of life within 1 s"]
    assert liar.asked < 40


def test_a_bridge_of_nobody_here_is_not_asked(two):
    two.here.bridge(0, 123)
    two.here.bridge(5, 124)
    assert two.here.asking._nodes == {}


# --- other settings ------------------------------------------------------------------------------


def test_a_server_with_other_settings_does_not_end_a_run_that_is_under_way(two):
    with two.bridges() as grid:
        two.write(1)
        two.receive(grid, 1)
        other = Board(two.there.board.identity, "a run", "other terms")
        other.greet()
        two.there.spool.put_board(other.encode())
        two.write(2)
        came, _ = two.receive(grid, 2)
        two.write(3)
        came, _ = two.receive(grid, 3)
    assert came is not None
    assert two.events == ["refused: it runs with other settings"]


def test_a_server_that_starts_again_is_taken_in(two):
    with two.bridges() as grid:
        two.write(1)
        two.receive(grid, 1)
        before, joined = two.here.near[1], []
        two.here.on_join = joined.append
        two.there = Bridges(PATH, two.there.place)
        two.there.board.greet()
        two.there.board.take(two.here.board.encode())
        two.there.links.begin({0: two.here.board.seals.epoch})
        two.there.spool.put_board(two.there.board.encode())
        two.receive(grid, 2)
        assert joined == [1]
        assert two.here.near[1] is not before
        for r in (3, 4):
            two.write(r)
            came, _ = two.receive(grid, r)
    assert came is not None
    assert two.events == ["has started, and is taken in"]


# --- the beginning -------------------------------------------------------------------------------


def greeted(two, grid, kept=0):
    return greet(two.here, grid, kept)


def other_server(mail, terms=None, kept=0):
    """Let server 1 be there, as far as its files go."""
    mail.board.greet(facts={"kept-round": kept})
    mail.spool.clear()
    mail.spool.put_board(mail.board.encode())


def test_a_server_whose_neighbour_does_not_come_begins_alone(tmp_path):
    two = Two(tmp_path, greeting_timeout=0.6)
    with two.bridges() as grid:
        assert greeted(two, grid, kept=4) == 5
        assert two.receive(grid, 5)[1] < 0.9
    assert two.events == ["not heard of at the beginning"]


def test_other_settings_of_a_server_that_starts_meanwhile_are_an_error_at_once(tmp_path):
    two = Two(tmp_path, greeting_timeout=60.0)
    other = Board(two.there.board.identity, "a run", "other terms")  # after server 0
    other.greet()
    two.there.spool.put_board(other.encode())
    with two.bridges() as grid:
        began = time.monotonic()
        with pytest.raises(StudyError, match="server-1 runs with other settings"):
            greeted(two, grid)
        assert time.monotonic() - began < 20.0


def test_other_settings_of_a_server_that_was_there_before_are_an_error_in_the_end(tmp_path):
    two = Two(tmp_path, greeting_timeout=0.8)
    other = Board(two.there.board.identity, "a run", "other terms")
    other.greet()
    two.here = Bridges(PATH, two.here.place)
    two.there.spool.put_board(other.encode())
    with (
        two.bridges() as grid,
        pytest.raises(StudyError, match="server-1 runs with other settings"),
    ):
        greeted(two, grid)


def test_two_that_begin_together_begin_after_the_latest_round_that_one_has_kept(tmp_path):
    two = Two(tmp_path, greeting_timeout=30.0)
    first = {}

    def far_end():
        with LocalGrid(
            apps.client_app,
            [{"bridge": 0, "spool": str(two.folders[0] / "spool")}],
            {},
            workers=2,
        ) as grid:
            two.there.bridge(0, node_ids(1)[0])
            first[1] = greet(two.there, grid, 7)

    thread = threading.Thread(target=far_end)
    thread.start()
    with two.bridges() as grid:
        began = time.monotonic()
        first[0] = greeted(two, grid, kept=3)
        seconds = time.monotonic() - began
        thread.join()
        # No question of the greeting is left at a bridge, where the first round's would queue.
        two.write(8)
        came, waited = two.receive(grid, 8)
    assert first == {0: 8, 1: 8}
    assert seconds < 20.0
    assert came is not None
    assert waited < 0.9
    assert two.events == []


def test_a_server_that_comes_to_a_graph_at_work_does_not_wait_for_those_who_are_gone(tmp_path):
    """Its neighbour waits for it, so it may not wait for another that is dead."""
    graph = topology("path", 3)
    folders = server_folders(tmp_path, 3)
    place = Place(1, folders[1], "a run", "terms", timeout=0.5, greeting_timeout=60.0)
    mail, busy = Bridges(graph, place), Bridges(graph, replace(place, server=0, folder=folders[0]))
    other_server(busy)
    ended = threading.Event()

    def work():
        while not ended.wait(0.05):
            found = mail.spool.take(0, -1, "", 0.0).board
            if found and busy.board.take(found):
                busy.links.began_anew(1, busy.board.greetings[1].epoch)
                busy._put_all(9, {})

    thread = threading.Thread(target=work)
    thread.start()
    configs = [{"bridge": 0, "spool": str(folders[0] / "spool")}]
    try:
        with LocalGrid(apps.client_app, configs, {}, workers=2) as grid:
            mail.bridge(0, node_ids(1)[0])
            began = time.monotonic()
            assert greet(mail, grid, 2) == 10
            assert time.monotonic() - began < 20.0
    finally:
        ended.set()
        thread.join()
    assert [event["server"] for event in mail.seen.events] == [2]
