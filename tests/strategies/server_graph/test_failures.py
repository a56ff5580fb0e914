"""Servers that stop: what the setting says, who is up, and where their clients go."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.strategies.server_graph.failures import (
    NOWHERE,
    Outage,
    alive,
    homes_now,
    parse_failures,
)

FOREVER = float("inf")


def ring(count):
    adjacency = np.zeros((count, count), dtype=bool)
    for m in range(count):
        adjacency[m, (m + 1) % count] = adjacency[(m + 1) % count, m] = m != (m + 1) % count
    return adjacency


def hops(adjacency, start):
    """Breadth first, by hand."""
    far, edge, steps = {start: 0}, {start}, 0
    while edge:
        steps += 1
        edge = {p for m in edge for p in np.flatnonzero(adjacency[m]).tolist()} - set(far)
        far |= dict.fromkeys(edge, steps)
    return far


def test_a_server_stops_for_good_or_for_some_rounds():
    assert parse_failures("3:100", 5) == (Outage(3, 100, FOREVER),)
    assert parse_failures(" 3:100-200 , 0:7-7,", 5) == (Outage(3, 100, 200), Outage(0, 7, 7))
    assert parse_failures("", 5) == ()


def test_both_ends_of_an_outage_are_in_it():
    outages = parse_failures("1:3-5,2:5", 3)
    up = {i: alive(outages, i, 3).tolist() for i in (1, 2, 3, 5, 6, 10**6)}
    assert up[1] == up[2] == [True, True, True]
    assert up[3] == [True, False, True]
    assert up[5] == [True, False, False]
    assert up[6] == up[10**6] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", r"failures='3': write server:round or server:first-last"),
        ("a:3", r"failures='a:3': write server:round"),
        ("1:2-", r"failures='1:2-': write server:round"),
        ("-1:2", r"failures='-1:2': write server:round"),
        ("1:2;2:3", r"failures='1:2;2:3': write server:round"),
        ("1:1.5", r"failures='1:1\.5': write server:round"),
        ("0:1,4:2", r"failures='4:2': servers are numbered 0 to 3"),
        ("1:0", r"failures='1:0': rounds start at 1"),
        ("1:9-8", r"failures='1:9-8': rounds .* must not run backwards"),
        ("0:1,1:2,2:3,3:4-4", r"in round 4 no server is left"),
        ("0:1-5,1:2-5,2:5-9,3:3", r"in round 5 no server is left"),
    ],
)
def test_what_cannot_be_is_refused_by_name(text, message):
    with pytest.raises(ValueError, match=message):
        parse_failures(text, 4)


def test_all_may_stop_at_different_times():
    outages = parse_failures("0:1-5,1:6-9,2:10-12,3:13", 4)
    assert all(alive(outages, i, 4).any() for i in range(1, 30))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 4) | st.none()), max_size=6
    )
)
def test_a_setting_is_refused_exactly_where_some_round_has_no_server(entries):
    text = ",".join(
        f"{server}:{first}" + ("" if length is None else f"-{first + length}")
        for server, first, length in entries
    )
    down = [
        {
            server
            for server, first, length in entries
            if first <= i and (length is None or i <= first + length)
        }
        for i in range(1, 13)
    ]
    if any(len(gone) == 4 for gone in down):
        with pytest.raises(ValueError, match="no server is left"):
            parse_failures(text, 4)
        return
    outages = parse_failures(text, 4)
    for i, gone in enumerate(down, start=1):
        assert set(np.flatnonzero(~alive(outages, i, 4)).tolist()) == gone


def test_clients_of_a_lost_server_are_dropped_with_it():
    homes = np.array([0, 0, 1, 1, 2])
    up = np.array([True, False, True])
    assert homes_now(homes, up, ring(3), False).tolist() == [0, 0, NOWHERE, NOWHERE, 2]
    assert homes.tolist() == [0, 0, 1, 1, 2]


def test_clients_are_rehomed_to_the_neighbours_in_turn():
    homes = np.repeat(np.arange(5), 4)
    up = np.array([True, True, False, True, True])
    now = homes_now(homes, up, ring(5), True)
    assert now[homes != 2].tolist() == homes[homes != 2].tolist()
    assert sorted(now[homes == 2].tolist()) == [1, 1, 3, 3]


@given(st.integers(2, 9), st.data())
def test_everyone_goes_to_a_nearest_server_that_is_up_and_loads_stay_even(count, data):
    adjacency = ring(count)
    for m, p in data.draw(
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=4)
    ):
        if m != p:
            adjacency[m, p] = adjacency[p, m] = True
    up = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    up[data.draw(st.integers(0, count - 1))] = True
    homes = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20)))
    now = homes_now(homes, up, adjacency, True)
    assert up[now].all()
    np.testing.assert_array_equal(now[up[homes]], homes[up[homes]])
    for client in np.flatnonzero(~up[homes]):
        far = hops(adjacency, int(homes[client]))
        assert far[int(now[client])] == min(far[int(p)] for p in np.flatnonzero(up))
    # Clients of one lost server: no two of its nearest differ by more than they did, or by one.
    before = np.bincount(homes[up[homes]], minlength=count)
    for lost in np.flatnonzero(~up):
        if set(np.flatnonzero(~up)) != {lost}:
            continue
        far = hops(adjacency, int(lost))
        near = [p for p in np.flatnonzero(up) if far[int(p)] == 1]
        after = np.bincount(now, minlength=count)
        for p, q in itertools.permutations(near, 2):
            if after[p] > before[p]:
                assert after[p] <= after[q] + 1


def test_nobody_moves_while_all_are_up():
    homes = np.array([2, 0, 1, 1])
    up = np.ones(3, dtype=bool)
    for rehome in (False, True):
        assert homes_now(homes, up, ring(3), rehome).tolist() == homes.tolist()
