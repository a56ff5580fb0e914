"""Greetings that are passed on: all servers of a path come to know all."""

from __future__ import annotations

import json

import pytest

from tests.graphs import server_folders
from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.servers.identity import Greeting, Identity
from trellis.strategies.network.board import Board, OtherTerms

RUN = "a run"


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    folders = server_folders(tmp_path_factory.mktemp("servers"), 5)
    return [Identity.load(folder, server, 5) for server, folder in enumerate(folders)]


def board(identity, terms="terms", run=RUN, mask=b"", **facts):
    made = Board(identity, run, terms)
    made.greet(mask, facts)
    return made


def of(*boards):
    """Return one board with the own greetings of several."""
    signed = [json.loads(one.encode())[0] for one in boards]
    return json.dumps(signed).encode()


def test_greetings_reach_all_over_a_path_one_edge_at_a_time(identities):
    boards = [board(identity, clients=server) for server, identity in enumerate(identities)]
    known = []
    for _ in range(4):
        passed_on = [one.encode() for one in boards]
        for p, one in enumerate(boards):
            for q in (p - 1, p + 1):
                if 0 <= q < 5:
                    one.take(passed_on[q])
        known.append(len(boards[0].greetings))
    assert known == [2, 3, 4, 5]
    for one in boards:
        assert {p: g.facts["clients"] for p, g in one.greetings.items()} == dict(
            zip(range(5), range(5), strict=True)
        )
        assert {p: g.box for p, g in one.greetings.items()} == {
            p: other.seals.public for p, other in enumerate(boards)
        }


def test_new_are_only_those_that_were_not_known(identities):
    first, second, third = (board(identity) for identity in identities[:3])
    assert first.take(of(second, third)) == {1, 2}
    assert first.take(of(second, third)) == set()


def test_the_latest_start_of_a_server_counts_whatever_comes_later(identities):
    receiver = board(identities[0])
    lives = [board(identities[1]) for _ in range(3)]
    for one in (lives[1], lives[0]):  # an old greeting is passed on after the new one
        receiver.take(one.encode())
    assert receiver.greetings[1].epoch == lives[1].seals.epoch
    assert receiver.take(lives[2].encode()) == {1}
    assert receiver.greetings[1].box == lives[2].seals.public
    assert json.loads(receiver.encode())[1] == json.loads(lives[2].encode())[0]


def test_a_servers_own_greeting_of_an_earlier_life_changes_nothing(identities):
    earlier, now = board(identities[0]), board(identities[0])
    assert now.take(earlier.encode()) == set()
    assert now.greetings[0].epoch == now.seals.epoch


def test_a_server_with_other_settings_is_named_and_not_taken(identities):
    first, other, third = board(identities[0]), board(identities[1], "others"), board(identities[2])
    assert first.take(of(other, third)) == {2}
    assert set(first.greetings) == {0, 2}
    assert len(json.loads(first.encode())) == 2  # nor passed on
    with pytest.raises(OtherTerms, match="server-1 runs with other settings"):
        first.agree()


def test_what_a_server_left_before_this_one_started_is_not_held_against_it(identities):
    """All are resumed with more rounds, and one of them has not started yet."""
    left = board(identities[1], "fewer rounds")
    first = board(identities[0], "more rounds")
    first.take(left.encode())
    first.agree(since=first.seals.epoch)
    with pytest.raises(OtherTerms):
        first.agree()
    assert first.take(board(identities[1], "more rounds").encode()) == {1}
    first.agree()
    first.take(left.encode())  # somebody passes on the old one
    first.agree()
    started_since = board(identities[1], "fewer rounds")
    first.take(started_since.encode())
    with pytest.raises(OtherTerms):
        first.agree(since=first.seals.epoch)


@pytest.mark.parametrize("data", [b"", b"{", b"3", b"[3]", b'["zz"]', b'["00"]', b"[" * 5000])
def test_no_board_is_refused(identities, data):
    with pytest.raises(BadMessage):
        board(identities[0]).take(data)


def test_a_greeting_of_another_run_is_refused(identities):
    with pytest.raises(BadMessage, match="server-1 has not signed for this run"):
        board(identities[0]).take(board(identities[1], run="another run").encode())


def test_of_a_board_that_is_refused_nothing_stays(identities):
    """A genuine greeting beside nonsense: it is new when it comes again, and dealt with then."""
    receiver, second = board(identities[0]), board(identities[1])
    for nonsense in ("00", board(identities[2], run="another run").encode().decode()[2:-2]):
        spoiled = [*json.loads(second.encode()), nonsense]
        with pytest.raises(BadMessage):
            receiver.take(json.dumps(spoiled).encode())
        assert set(receiver.greetings) == {0}
    assert receiver.take(second.encode()) == {1}


def test_a_key_that_nothing_can_be_sealed_with_is_refused(identities):
    receiver, bad = board(identities[0]), Board(identities[1], RUN, "terms")
    weak = Greeting(1, bad.seals.epoch, bytes(32), b"", "terms")
    signed = identities[1].greet(bad.session, weak)
    with pytest.raises(BadMessage, match="the key of server 1 is no valid key"):
        receiver.take(json.dumps([signed.hex()]).encode())
    assert 1 not in receiver.greetings
