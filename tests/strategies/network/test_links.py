"""Links and their weights, from lists that servers announce: against the matrix of survivors."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.privacy.secagg.errors import BadMessage
from trellis.strategies.network.links import Links
from trellis.strategies.server_graph.exchange import whole_matrix
from trellis.strategies.topology.graph import Topology, topology
from trellis.strategies.topology.weights import combination


class Servers:
    """All servers of a graph, with letters that hold nothing but lists."""

    def __init__(self, graph):
        self.graph = graph
        self.links = [Links(graph, p, 100 + p) for p in range(graph.servers)]
        for p, links in enumerate(self.links):
            links.begin({q: 100 + q for q in links.neighbours})
            for q in links.neighbours:
                links.heard(q, 100 + q)
            assert links.server == p

    def round(self, up, lost=()):
        """Play a round; return A (P, P) and which servers used whom.

        Parameters
        ----------
        up : servers that run; the others are silent
        lost : (sender, receiver) of letters that do not come
        """
        for p in up:
            self.links[p].turn()
        letters = {p: {str(q): e for q, e in self.links[p].announce().items()} for p in up}
        A, used = np.eye(self.graph.servers), {}
        for p in up:
            links = self.links[p]
            wanted, came = links.used(), []
            for q in links.neighbours:
                if q in letters and (q, p) not in lost:
                    links.heard(q, self.links[q].epoch, {"next": letters[q]})
                    came.append(q)
                elif q in wanted:
                    links.gone(q)
            used[p] = [q for q in wanted if q in came and links.still(q)]
            A[:, p] = links.weights(without=set(wanted) - set(used[p]))[:, p]
        return A, used


def is_dp(A):
    assert np.all(A >= 0.0)
    assert np.all(np.diag(A) > 0.0)
    np.testing.assert_allclose(A.sum(axis=0), 1.0, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(A, A.T)


@pytest.fixture(autouse=True)
def _few_words():
    """Leave out the warnings that survivors fall apart: there are thousands of them here."""
    topology_log = logging.getLogger("trellis.topology")
    before = topology_log.level
    topology_log.setLevel(logging.ERROR)
    yield
    topology_log.setLevel(before)


def survivors(graph, dead):
    up = [p for p in range(graph.servers) if p not in dead]
    return whole_matrix(graph.without(dead).weights, up, graph.servers)


RULES = ["metropolis", "laplacian", "laplacian:0.07", "own"]


def a_graph(seed, servers, rule):
    """Return a random connected graph; with ``own`` a matrix that no rule gives."""
    graph = topology("erdos-renyi:0.4", servers, weights="metropolis", seed=seed)
    if rule != "own":
        return Topology(graph.names, combination(graph.adjacency, rule), rule)
    shares = np.random.default_rng(seed).uniform(0.2, 0.9, (servers, servers))
    across = np.where(graph.adjacency, graph.weights * np.minimum(shares, shares.T), 0.0)
    return Topology(graph.names, across + np.diag(1.0 - across.sum(axis=1)), "own")


graphs = st.builds(a_graph, st.integers(0, 10**6), st.integers(3, 8), st.sampled_from(RULES))


@given(graphs)
def test_with_all_servers_up_the_matrix_is_the_planned_one(graph):
    servers = Servers(graph)
    for _ in range(3):
        A, _ = servers.round(range(graph.servers))
        np.testing.assert_array_equal(A, graph.weights)


@given(graphs, st.data())
def test_the_matrix_is_sound_in_every_round_whoever_dies_and_ends_as_the_survivors(graph, data):
    servers, everyone = Servers(graph), range(graph.servers)
    dead: set[int] = set()
    for _ in range(data.draw(st.integers(1, 3))):
        for _ in range(data.draw(st.integers(0, 3))):
            A, _ = servers.round(sorted(set(everyone) - dead))
            is_dp(A)
        more = data.draw(st.sets(st.sampled_from(everyone), max_size=2))
        if len(dead | more) < graph.servers:
            dead |= more
    up = sorted(set(everyone) - dead)
    for number in range(4):
        A, used = servers.round(up)
        is_dp(A)
        for p in up:  # who uses whom is agreed on
            assert all(p in used[q] for q in used[p])
        if number >= 2:
            expected = survivors(graph, dead)
            if graph.rule == "laplacian":
                # The rest of the graph may have a smaller largest degree, which no server knows.
                np.testing.assert_array_equal(A > 0.0, expected > 0.0)
            else:
                np.testing.assert_allclose(A, expected, rtol=0, atol=1e-15)


@given(graphs, st.data())
def test_letters_lost_one_way_leave_every_combination_a_mean(graph, data):
    """Then A is not symmetric for a round; where both letters came both ends have one weight."""
    servers, everyone = Servers(graph), range(graph.servers)
    edges = [*map(tuple, graph.edges.tolist()), *map(tuple, graph.edges[:, ::-1].tolist())]
    for _ in range(4):
        lost = data.draw(st.sets(st.sampled_from(edges), max_size=3))
        A, used = servers.round(everyone, lost)
        np.testing.assert_allclose(A.sum(axis=0), 1.0, rtol=0, atol=1e-14)
        assert np.all(A >= 0.0)
        for p in everyone:
            for q in used[p]:
                if p in used[q]:
                    assert A[p, q] == A[q, p]
    # What was lost is heard again, and all is as planned.
    for _ in range(3):
        A, _ = servers.round(everyone)
    np.testing.assert_array_equal(A, graph.weights)


@given(graphs, st.data())
def test_a_server_that_starts_again_counts_two_rounds_later_at_both_ends(graph, data):
    servers, everyone = Servers(graph), list(range(graph.servers))
    back = data.draw(st.sampled_from(everyone))
    others = [p for p in everyone if p != back]
    servers.round(everyone)
    for _ in range(3):
        servers.round(others)
    epoch = 200 + back
    # It greets: its neighbours take it on their lists, and their next letters tell it so.
    for p in servers.links[back].neighbours:
        servers.links[p].began_anew(back, epoch)
    A, _ = servers.round(others)
    is_dp(A)
    again = servers.links[back] = Links(graph, back, epoch)
    again.begin({p: 100 + p for p in again.neighbours})
    for p in again.neighbours:
        told = {str(q): e for q, e in servers.links[p].announce().items()}
        again.heard(p, 100 + p, {"next": told})
    for number in range(3):
        A, used = servers.round(everyone)
        is_dp(A)
        assert all(p in used[q] for p in everyone for q in used[p])
        if number:
            np.testing.assert_array_equal(A, graph.weights)


def test_a_letter_to_the_life_before_is_not_used():
    graph = topology("path", 2)
    links = Links(graph, 0, epoch=7)
    links.begin({1: 5})
    links.heard(1, 5, {"next": {"0": 6}})  # the other still has the life before this one
    links.turn()
    assert links.used() == []
    assert links.weights()[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "notes",
    [
        *({}, {"next": []}, {"next": {"x": 1}}, {"next": {"2": 1}}, {"next": {"-1": 1}}),
        *({"next": {"1": None}}, {"next": {"1": "soon"}}),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_and_changes_nothing(notes):
    links = Links(topology("path", 2), 0, epoch=7)
    with pytest.raises(BadMessage, match="list 'next' cannot be read"):
        links.heard(1, 5, notes)
    assert links.counted == {}
