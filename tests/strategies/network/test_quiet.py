"""When servers stop: on a path of five, with notes that go one edge a round."""

from __future__ import annotations

import pytest

from trellis.privacy.secagg.errors import BadMessage
from trellis.strategies.network.quiet import Quiet

SERVERS = 5


def flood(quiet_in, last=80, dead=()):
    """Return after which round each server of a path stops; 0 where it never does.

    Parameters
    ----------
    quiet_in : of a server and a round, whether it is within its tolerance
    dead : (server, first round without it)
    """
    servers = [Quiet(s, SERVERS) for s in range(SERVERS)]
    stopped = dict.fromkeys(range(SERVERS), 0)
    gone = dict(dead)
    for r in range(1, last + 1):
        here = [s for s in stopped if not stopped[s] and r < gone.get(s, last + 1)]
        letters = {s: servers[s].encode() for s in here}  # of this round, from the one before
        for s in here:
            for p in (s - 1, s + 1):
                if p in letters:
                    servers[s].heard({"quiet": letters[p]})
        for s in here:
            servers[s].note(r, quiet_in(s, r))
            if servers[s].may_stop(r):
                stopped[s] = r
    return stopped


@pytest.mark.parametrize("late", range(SERVERS))
def test_all_stop_after_the_same_round_whoever_is_last(late):
    stopped = flood(lambda s, r: r >= (9 if s == late else 2))
    assert set(stopped.values()) == {9 + SERVERS}


def test_all_stop_together_where_all_are_quiet_at_once():
    assert set(flood(lambda s, r: True).values()) == {1 + SERVERS}


def test_nobody_stops_while_one_is_restless():
    assert set(flood(lambda s, r: s != 3).values()) == {0}


def test_one_that_becomes_restless_again_is_waited_for():
    # All would stop after round 8; that it was restless in round 4 has reached everyone by then.
    stopped = flood(lambda s, r: s != 0 or r == 3 or r >= 12)
    assert set(stopped.values()) == {12 + SERVERS}


def test_one_that_becomes_restless_too_late_goes_on_without_those_that_have_stopped():
    # The note of its last round before the end needs four rounds to the other end of the path.
    stopped = flood(lambda s, r: r >= 2 and not (s == 0 and 6 <= r <= 20))
    assert stopped[4] == 2 + SERVERS
    assert stopped[0] > 20


def test_a_dead_server_is_forgotten():
    """At the end of the path, restless when it died: the others stop all the same, together."""
    stopped = flood(lambda s, r: s != 4 and r >= 2, dead=[(4, 10)])
    assert stopped.pop(4) == 0
    # What it noted in round 9 would have been in the letter of round 10.
    assert set(stopped.values()) == {8 + 2 * SERVERS + 1}


def test_a_cut_path_stops_in_parts():
    stopped = flood(lambda s, r: r >= (2 if s < 2 else 30), dead=[(2, 5)])
    assert stopped[0] == stopped[1] < 30 < stopped[3] == stopped[4]


@pytest.mark.parametrize(
    "notes",
    [{}, {"quiet": []}, {"quiet": {"a": [1, 2]}}, {"quiet": {"1": [1]}}, {"quiet": {"1": "x"}}]
    + [{"quiet": {str(server): [1, 2]}} for server in (-1, SERVERS)],
)
def test_notes_that_cannot_be_read_are_refused_and_change_nothing(notes):
    quiet = Quiet(0, SERVERS)
    quiet.note(1, True)
    before = quiet.encode()
    with pytest.raises(BadMessage, match="note 'quiet' cannot be read"):
        quiet.heard(notes)
    assert quiet.encode() == before


def test_nobody_is_told_what_it_is_itself():
    quiet = Quiet(0, SERVERS)
    quiet.note(1, False)
    quiet.heard({"quiet": {"0": [1, 99], "1": [1, 5]}})
    quiet.heard({"quiet": {"1": [-1, 4]}})  # older
    assert quiet.encode() == {"0": [-1, 1], "1": [1, 5]}
