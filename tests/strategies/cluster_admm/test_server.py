"""One server of cluster-admm: the formulas of all servers at once, slow and lost neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.strategies.cluster_admm.server import ExactServer, PaperServer
from trellis.strategies.network.mailbox import BadLetter, Mailbox
from trellis.strategies.topology.graph import topology

from .sites import CLUSTERS, RHO, SIZE, Network

# The clusters of every server's clients; server 3 has none of cluster 1.
CLIENTS = [[0, 1, 0], [1, 1], [0, 0, 1], [0], [1, 0], [0, 1]]
GRAPHS = pytest.mark.parametrize("graph", ["ring", "path", "star"])


def network(graph="ring", **how):
    return Network(topology(graph, len(CLIENTS), seed=1).adjacency, CLIENTS, **how)


# --- in step -------------------------------------------------------------------------------------


def gathered(sent, homes, clusters, shape):
    sums, counts = np.zeros(shape), np.zeros(shape[:2])
    np.add.at(sums, (homes, clusters), sent)
    np.add.at(counts, (homes, clusters), 1.0)
    return sums, counts[..., None]


def paper_oracle(sent, homes, clusters, models, adjacency, tau):
    """(8), (9) and (10), all servers at once."""
    sums, counts = gathered(sent, homes, clusters, models.shape)
    told = np.where(counts > 0.0, sums / np.maximum(counts, 1.0), models)
    weights = adjacency + np.eye(len(models))
    hat = np.einsum("sp,pqd->sqd", weights / weights.sum(axis=1, keepdims=True), told)
    others = (hat.sum(axis=1, keepdims=True) - hat) / (models.shape[1] - 1)
    return (1.0 - tau) * hat + tau * others


def exact_oracle(sent, homes, clusters, models, duals, adjacency, tau):
    """The next u and psi of the exact update, all servers at once."""
    sums, counts = gathered(sent, homes, clusters, models.shape)
    degree = adjacency.sum(axis=1)[:, None, None].astype(float)
    pull = 2.0 * tau / (RHO * len(models))
    near = np.einsum("sp,pqd->sqd", adjacency.astype(float), models)
    total = sums + 0.5 * (degree * models + near) - duals / RHO
    total += pull * (models.sum(axis=1, keepdims=True) - models)
    found = total / (counts + degree + pull * (models.shape[1] - 1))
    near = np.einsum("sp,pqd->sqd", adjacency.astype(float), found)
    return found, duals + 0.5 * RHO * (degree * found - near)


def a_round(servers, adjacency, sent, homes, clusters, tau):
    told = {
        s: server.tell(sent[homes == s], clusters[homes == s], tau)
        for s, server in enumerate(servers)
    }
    letters = Mailbox(len(servers)).carry(1, told, adjacency)
    for s, server in enumerate(servers):
        server.hear(letters[s])


@pytest.mark.parametrize("tau", [0.0, 0.3])
@pytest.mark.parametrize("graph", ["ring", "star", "erdos-renyi:0.4"])
@pytest.mark.parametrize("exact", [True, False])
def test_in_step_servers_do_what_the_formulas_of_all_servers_say(exact, graph, tau):
    count, shape, rng = 7, (3, 5), np.random.default_rng(4)
    adjacency = topology(graph, count, seed=2).adjacency
    near = [np.flatnonzero(row) for row in adjacency]
    servers = [
        ExactServer(s, near[s], shape, RHO, count) if exact else PaperServer(s, near[s], shape)
        for s in range(count)
    ]
    models, duals = np.zeros((count, *shape)), np.zeros((count, *shape))
    for _ in range(30):
        some = int(rng.integers(0, 20))
        homes, clusters = rng.integers(0, count, some), rng.integers(0, 3, some)
        sent = rng.normal(size=(some, 5))
        a_round(servers, adjacency, sent, homes, clusters, tau)
        if exact:
            models, duals = exact_oracle(sent, homes, clusters, models, duals, adjacency, tau)
        else:
            models = paper_oracle(sent, homes, clusters, models, adjacency, tau)
        np.testing.assert_allclose([s.model for s in servers], models, rtol=0, atol=1e-12)
        np.testing.assert_allclose([s.dual for s in servers], duals, rtol=0, atol=1e-12)
    if exact:
        assert {edge.number for server in servers for edge in server.edges.values()} == {30}


def test_the_paper_s_servers_take_the_mean_over_those_they_heard():
    server = PaperServer(1, [0, 2, 5], (1, 1))
    told = server.tell(np.array([[4.0]]), np.array([0]), 0.0)
    assert sorted(told) == [0, 2, 5]
    server.hear({2: {"model": np.array([[1.0]])}})
    assert server.model.tolist() == [[2.5]]
    server.tell(np.zeros((0, 1)), np.zeros(0, dtype=int), 0.0)
    server.hear({})
    assert server.model.tolist() == [[2.5]]


# --- at their own speed --------------------------------------------------------------------------


def assert_opposite(found):
    """Both ends of an edge have seen the same exchanges, but for the one that is on its way."""
    for s, site in enumerate(found.sites):
        for p, edge in site.server.edges.items():
            other = found.sites[p].server.edges[s]
            assert abs(edge.number - other.number) <= 1
            if edge.number == other.number:
                np.testing.assert_array_equal(edge.part, -other.part)
                np.testing.assert_array_equal(edge.own, other.heard)
        parts = sum(edge.part for edge in site.server.edges.values())
        np.testing.assert_allclose(site.server.dual, parts, atol=1e-11)


@GRAPHS
def test_servers_at_their_own_speed_reach_the_optimum_of_all(graph):
    found = network(graph)
    for _ in range(8):
        taken = found.run(500)
        assert_opposite(found)
    assert taken.min() < 0.2 * taken.max()  # the slowest is far behind
    assert max(found.errors()) < 1e-8


def test_most_letters_late_or_lost_and_still_the_optimum():
    found = network("path", delay=15, lost=0.6)
    found.run(8000)
    assert_opposite(found)
    assert max(found.errors()) < 1e-8
    # Several own rounds went by between two exchanges.
    assert max(edge.number for edge in found.sites[5].server.edges.values()) < 8000 / 5


def test_the_latest_letter_is_enough():
    """Server 0 has both models of exchange 1 first, and writes the letter for 2 over that for 1."""
    one, two = (ExactServer(s, [1 - s], (1, 1), RHO, 2) for s in range(2))
    nobody = np.zeros((0, 1)), np.zeros(0, dtype=int), 0.0
    one.tell(np.array([[1.0]]), np.array([0]), 0.0)
    told = two.tell(np.array([[5.0]]), np.array([0]), 0.0)
    one.hear({1: told[0]})
    later = one.tell(*nobody)
    assert (int(later[1]["pair"]), one.edges[1].number, two.edges[0].number) == (2, 1, 0)
    assert not np.array_equal(later[1]["model"], later[1]["before"])
    two.hear({0: later[1]})
    assert two.edges[0].number == 1
    np.testing.assert_array_equal(one.edges[1].part, -two.edges[0].part)
    assert np.any(one.edges[1].part)
    two.hear({0: later[1]})  # once more: its own part in exchange 2 is not told yet
    assert two.edges[0].number == 1
    two.tell(*nobody)
    two.hear({0: later[1]})
    assert two.edges[0].number == 2


def test_a_server_tells_the_same_model_until_the_neighbour_s_has_come():
    one = ExactServer(0, [1], (1, 1), RHO, 2)
    letters = [one.tell(np.array([[w]]), np.array([0]), 0.0)[1] for w in (1.0, 2.0, 3.0)]
    assert one.model[0, 0] > letters[0]["model"][0, 0]
    for letter in letters:
        assert letter["model"] is letters[0]["model"]
        assert int(letter["pair"]) == 1
    old = {"model": np.ones((1, 1)), "pair": np.array(0), "link": np.array(0)}
    one.hear({1: old})
    assert one.edges[1].number == 0
    assert not np.any(one.dual)


# --- gone and back -------------------------------------------------------------------------------


def without(found, gone):
    """Let a site be gone, and its neighbours know it."""
    found.gone.add(gone)
    for p in found.sites[gone].server.neighbours:
        found.sites[p].server.drop(gone)
    found.count_clients()


@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_the_survivors_of_a_server_that_is_gone_reach_their_own_optimum(graph):
    found = network(graph, seed=3)
    found.run(300)
    before = found.optimum()
    without(found, 2)
    assert np.max(np.abs(found.optimum() - before)) > 1e-2
    assert found.rest() < 1e-8
    duals = sum(site.server.dual for s, site in enumerate(found.sites) if s != 2)
    np.testing.assert_allclose(duals, 0.0, atol=1e-8)


def test_a_neighbour_that_is_dropped_counts_no_more():
    found = network()
    found.run(200)
    server = found.sites[1].server
    part, dual = server.edges[2].part, server.dual
    assert np.any(part)
    server.drop(2)
    np.testing.assert_array_equal(server.dual, dual - part)
    # The mean is over its two clients of cluster 1 and one neighbour.
    rest = 0.5 * (server.edges[0].own + server.edges[0].heard)
    server.tell(np.ones((2, SIZE)), np.array([1, 1]), 0.0)
    expected = (2.0 + rest[1] - server.dual[1] / RHO) / 3.0
    np.testing.assert_allclose(server.model[1], expected, atol=1e-14)


def back(found, memory):
    """Let site 2 come back, with the memory of its end, of a checkpoint, or none."""
    site = found.sites[2]
    if memory is not None:
        server = ExactServer(2, site.server.neighbours, (CLUSTERS, SIZE), RHO, len(CLIENTS))
        if memory:
            server.restore(memory)
            for p in server.neighbours:
                server.join(p)
        site.server, site.duals = server, np.zeros_like(site.duals)
    found.gone.clear()
    found.count_clients()


@pytest.mark.parametrize("memory", ["its end", "checkpoint", "none"])
@pytest.mark.parametrize("noticed", [True, False])
def test_with_a_server_that_comes_back_all_reach_the_optimum_of_all_again(memory, noticed):
    found = network(seed=5)
    found.run(300)
    kept = {name: array.copy() for name, array in found.sites[2].server.state().items()}
    found.run(300)
    if noticed:
        without(found, 2)
    found.gone.add(2)
    found.run(1000)
    back(found, {"its end": None, "checkpoint": kept, "none": {}}[memory])
    assert found.rest() < 1e-8
    assert_opposite(found)
    links = {edge.link for edge in found.sites[2].server.edges.values()}
    assert (links == {0}) is (memory == "its end" and not noticed)


def test_numbers_of_an_earlier_life_are_not_taken_for_those_of_this_one():
    """Server 1 forgets exchange 1 of link 1, comes back and would call its next one just that."""

    def exchange(w):
        told = [s.tell(np.array([[w + s.index]]), np.array([0]), 0.0) for s in (one, two)]
        one.hear({1: told[1][0]})
        two.hear({0: told[0][1]})

    one, two = (ExactServer(s, [1 - s], (1, 1), RHO, 2) for s in range(2))
    one.drop(1)
    two.drop(0)
    exchange(3.0)
    assert (one.edges[1].link, one.edges[1].number) == (1, 1)
    two = ExactServer(1, [0], (1, 1), RHO, 2)
    two.join(0)
    assert two.edges[0].link == 1
    for w in (7.0, -2.0, 5.0):
        exchange(w)
    assert one.edges[1].number == two.edges[0].number > 0
    assert one.edges[1].link == two.edges[0].link == 2
    assert np.any(one.edges[1].part)
    np.testing.assert_array_equal(one.edges[1].part, -two.edges[0].part)


def test_a_server_may_restart_again_and_again():
    found = network(seed=6)
    kept = {}
    for _ in range(4):
        found.run(150)
        kept = kept or {name: a.copy() for name, a in found.sites[2].server.state().items()}
        back(found, kept)  # every time the same old memory: numbers are used again
    assert found.rest() < 1e-8
    assert_opposite(found)


def test_two_ends_that_drop_each_other_find_back():
    found = network()
    found.run(200)
    found.sites[1].server.drop(2)
    found.sites[2].server.join(1)
    assert found.rest() < 1e-8
    assert_opposite(found)


def test_a_server_may_get_a_new_neighbour():
    found = network("path")
    found.run(100)
    found.sites[0].server.join(5)
    found.sites[5].server.join(0)
    assert found.sites[0].server.neighbours == (1, 5)
    assert found.rest() < 1e-8
    assert_opposite(found)
    assert found.sites[0].server.edges[5].number > 100


# --- checkpoints and letters ---------------------------------------------------------------------


def test_a_checkpoint_has_all_that_the_next_rounds_depend_on():
    one, other = network(), network()
    for found in (one, other):
        found.run(150)
        found.sites[3].server.drop(4)  # no exchange yet, which a checkpoint has to say
    for site in other.sites:
        kept = {name: array.copy() for name, array in site.server.state().items()}
        site.server = ExactServer(
            site.server.index, site.server.neighbours, (CLUSTERS, SIZE), RHO, len(CLIENTS)
        )
        site.server.restore(kept)
    for found in (one, other):
        found.run(100)
    for site, restored in zip(one.sites, other.sites, strict=True):
        for name, array in site.server.state().items():
            np.testing.assert_array_equal(restored.server.state()[name], array)


def test_a_checkpoint_of_another_shape_is_refused_by_name():
    kept = ExactServer(4, [0], (2, 3), RHO, 5).state()
    with pytest.raises(ValueError, match=r"model of server 4 in the checkpoint has shape \(2, 3\)"):
        ExactServer(4, [0], (2, 4), RHO, 5).restore(kept)


GOOD = {"model": np.zeros((1, 2)), "pair": np.array(1), "link": np.array(0)}
WRONG = [
    ({"model": np.zeros((2, 1))}, r"model is float64 of shape \(2, 1\)"),
    ({"model": np.zeros((1, 2), dtype=np.float32)}, "model is float32"),
    ({"model": np.array([[0.0, np.nan]])}, "model has 1 entries that are not finite"),
    ({"model": np.array([[0.0, 1e120]])}, r"model has an entry of size 1e\+120"),
    ({"pair": np.array(1.0)}, "has no whole number pair"),
    ({"pair": np.array([1])}, "has no whole number pair"),
    ({"link": np.array(-1)}, "link is -1"),
    ({"link": np.array(2**62 + 1)}, "link is 4611686018427387905"),
    ({"pair": np.array(2), "before": np.zeros(2)}, r"before is float64 of shape \(2,\)"),
]


@pytest.mark.parametrize(("change", "reason"), WRONG)
def test_a_wrong_letter_is_refused_by_name_and_nothing_is_used(change, reason):
    server = ExactServer(3, [0, 7], (1, 2), RHO, 8)
    server.tell(np.ones((1, 2)), np.array([0]), 0.0)
    with pytest.raises(BadLetter, match=f"server 7 to server 3 is refused: {reason}") as error:
        server.hear({0: GOOD, 7: {**GOOD, **change}})
    assert error.value.server == 7
    assert [edge.number for edge in server.edges.values()] == [0, 0]
    assert not np.any(server.dual)


def test_letters_without_a_model_or_from_strangers_are_refused():
    for server in (ExactServer(3, [7], (1, 2), RHO, 8), PaperServer(3, [7], (1, 2))):
        with pytest.raises(BadLetter, match=r"server 7 to server 3 is refused: holds \['pair'\]"):
            server.hear({7: {"pair": np.array(1)}})
        with pytest.raises(BadLetter, match="server 5 wrote to server 3, no neighbour of it"):
            server.hear({5: GOOD})


def test_large_models_that_can_be_summed_are_used():
    server = PaperServer(0, [1], (1, 1))
    server.tell(np.zeros((0, 1)), np.zeros(0, dtype=int), 0.0)
    server.hear({1: {"model": np.array([[1e90]])}})
    assert server.model.tolist() == [[5e89]]
