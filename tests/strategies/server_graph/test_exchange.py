"""What servers tell each other, by every method and on every kind of graph."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.privacy.mechanisms.homomorphic import combined_noise, homomorphic_noise, network_sum
from trellis.privacy.mechanisms.laplace import laplace_noise
from trellis.privacy.mechanisms.noise import fresh_noise
from trellis.privacy.secagg.errors import Refused
from trellis.strategies.server_graph.exchange import Server, neighbours, servers, whole_matrix
from trellis.strategies.server_graph.post import Post

SIGMA, SIZE = 0.7, 6


def metropolis(adjacency):
    edges = np.asarray(adjacency, dtype=bool) & ~np.eye(len(adjacency), dtype=bool)
    degree = edges.sum(axis=1)
    a = np.where(edges, 1.0 / (1.0 + np.maximum(degree[:, None], degree[None, :])), 0.0)
    return a + np.diag(1.0 - a.sum(axis=1))


def edges(count, pairs):
    adjacency = np.zeros((count, count))
    for m, p in pairs:
        adjacency[m, p] = adjacency[p, m] = 1
    return adjacency


def tree_and_more(count, seed, extra):
    """A random tree keeps it connected; a few more edges make cycles."""
    rng = np.random.default_rng(seed)
    pairs = [(int(rng.integers(p)), p) for p in range(1, count)]
    pairs += [tuple(rng.choice(count, 2, replace=False)) for _ in range(extra if count > 1 else 0)]
    return metropolis(edges(count, pairs))


GRAPHS = {
    "alone": np.ones((1, 1)),
    "pair": metropolis(np.ones((2, 2))),
    "ring": metropolis(edges(7, [(i, (i + 1) % 7) for i in range(7)])),
    "star": metropolis(edges(6, [(0, i) for i in range(1, 6)])),
    "complete": metropolis(np.ones((5, 5))),
    "path": metropolis(edges(4, [(0, 1), (1, 2), (2, 3)])),
    "random": tree_and_more(12, 0, 3),  # with leaves and without
}
METHODS = ("none", "iid", "hybrid", "masked")
on_every_graph = pytest.mark.parametrize("a", GRAPHS.values(), ids=GRAPHS.keys())


def seeded(server, server_round):
    return np.random.default_rng([17, server, server_round])


def models(count, seed=1, size=SIZE, scale=10.0):
    psi = np.random.default_rng(seed).normal(0, scale, (count, size))
    return psi, dict(enumerate(psi))


def run(method, a, by_server, server_round=1, sigma=SIGMA, noise=seeded, alive=None):
    made = servers(method, len(a), sigma, noise)
    return Post().exchange(made, server_round, by_server, a, alive)


def stacked(w):
    return np.stack([w[p] for p in sorted(w)])


@on_every_graph
def test_without_noise_it_is_the_product_5(a):
    psi, by_server = models(len(a))
    np.testing.assert_allclose(stacked(run("none", a, by_server)), a.T @ psi, atol=1e-13)


@on_every_graph
def test_hybrid_is_the_noise_of_24_and_sums_to_zero_25(a):
    psi, by_server = models(len(a))
    draws = np.stack(
        [laplace_noise(seeded(m, 1), SIZE, SIGMA / math.sqrt(2)) for m in range(len(a))]
    )
    w = stacked(run("hybrid", a, by_server))
    np.testing.assert_allclose(w, a.T @ psi + combined_noise(a, draws), atol=1e-12)
    assert np.abs((w - a.T @ psi).sum(axis=0)).max() < 1e-12
    made = servers("hybrid", len(a), SIGMA, seeded)
    noise = homomorphic_noise(a, draws)
    assert np.abs(network_sum(a, noise)).max() < 1e-12
    for m, server in enumerate(made):
        for p, message in server.messages(1, psi[m], a).items():
            np.testing.assert_allclose(message, psi[m] + noise[m, p], atol=1e-14)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 14), st.integers(0, 10**6), st.integers(0, 20), st.floats(0.01, 20.0))
def test_masked_is_exact_but_at_leaves_and_the_network_sum_is_exact(count, seed, extra, sigma):
    a = tree_and_more(count, seed, extra)
    psi, by_server = models(count, seed)
    w, exact = stacked(run("masked", a, by_server, 3, sigma)), a.T @ psi
    degree = [len(neighbours(a, p)) for p in range(count)]
    for p in range(count):
        noisy = degree[p] == 1 or any(degree[q] == 1 for q in neighbours(a, p))
        off = np.abs(w[p] - exact[p]).max()
        assert (off > 1e-6) if noisy else (off < 1e-11)
    assert np.abs((w - exact).sum(axis=0)).max() < 1e-11


@on_every_graph
def test_what_a_masked_receiver_hears_is_exact(a):
    """Its own compensation of a leaf's noise apart, on every receiver with two neighbours."""
    psi, by_server = models(len(a))
    made = servers("masked", len(a), SIGMA, seeded)
    w = Post().exchange(made, 1, by_server, a)
    for p in range(len(a)):
        near = neighbours(a, p)
        leaves = [q for q in near if len(neighbours(a, q)) == 1]
        g = laplace_noise(seeded(p, 1), SIZE, SIGMA / math.sqrt(2))
        if len(near) >= 2:
            back = a[p, leaves].sum() * g
            np.testing.assert_allclose(w[p] + back, a[:, p] @ psi, atol=1e-11)


@pytest.mark.parametrize("name", ["pair", "star", "path"])
def test_the_noise_of_leaf_edges_sums_to_zero_25(name):
    a = GRAPHS[name]
    by_server = {m: np.zeros(SIZE) for m in range(len(a))}
    w = stacked(run("masked", a, by_server, sigma=20.0))
    assert np.abs(w).max() > 1.0
    assert np.abs(w.sum(axis=0)).max() < 1e-12


def test_a_pair_has_nothing_to_mask_and_is_hybrid():
    a, (_, by_server) = GRAPHS["pair"], models(2)
    masked, hybrid = (stacked(run(method, a, by_server)) for method in ("masked", "hybrid"))
    np.testing.assert_array_equal(masked, hybrid)


def test_leaves_of_one_server_get_the_same_noise():
    a = GRAPHS["star"]
    hub = servers("masked", len(a), SIGMA, seeded)[0]
    sent = hub.messages(1, np.zeros(SIZE), a)
    assert len({message.tobytes() for message in sent.values()}) == 1
    assert np.all(sent[1] != 0.0)


def test_iid_noise_is_independent_on_every_edge_and_absent_from_the_own_term():
    a = GRAPHS["complete"]
    made = servers("iid", 5, SIGMA, seeded)
    zero = np.zeros(4000)
    noise = np.stack([g for s in made for g in s.messages(1, zero, a).values()])
    assert noise.shape == (20, 4000)
    for g in noise:
        assert stats.kstest(g, stats.laplace(scale=SIGMA / math.sqrt(2)).cdf).pvalue > 1e-5
    assert np.abs(np.corrcoef(noise) - np.eye(20)).max() < 0.1
    assert noise.std() == pytest.approx(SIGMA, rel=0.03)
    # the own term: w_p - sum over neighbours of a_mp message_mp is a_pp psi_p, bit for bit
    psi = np.random.default_rng(0).normal(size=4000)
    np.testing.assert_array_equal(
        made[0].combine(1, psi, dict.fromkeys(range(1, 5), zero), a), a[0, 0] * psi
    )


def test_words_on_an_edge_do_not_show_the_model():
    a = GRAPHS["complete"]
    for value in (0.0, 500.0):
        made = servers("masked", 5, SIGMA, seeded)
        Post().exchange(made, 1, {m: np.zeros(2) for m in range(5)}, a)  # keys
        for message in made[2].messages(2, np.full(20_000, value), a).values():
            counts = np.bincount(np.frombuffer(message.tobytes(), np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_the_same_noise_gives_the_same_bits_whatever_the_keys(method):
    a, (_, by_server) = GRAPHS["random"], models(12)
    first, second = (stacked(run(method, a, by_server, 4)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = stacked(run(method, a, by_server, 5))
    assert (method == "none") == np.array_equal(first, other)


@pytest.mark.parametrize("method", ["iid", "hybrid"])
def test_a_round_after_others_is_the_round_of_a_resumed_run(method):
    a, (_, by_server) = GRAPHS["random"], models(12)
    made, post = servers(method, 12, SIGMA, seeded), Post()
    whole = [stacked(post.exchange(made, i, by_server, a)) for i in (1, 2, 3)]
    np.testing.assert_array_equal(whole[2], stacked(run(method, a, by_server, 3)))


def test_fresh_noise_never_repeats():
    a, (_, by_server) = GRAPHS["ring"], models(7)
    first, second = (
        stacked(run("hybrid", a, by_server, noise=lambda server, server_round: fresh_noise()))
        for _ in range(2)
    )
    assert np.all(first != second)


# --- servers that are down, and the mailbox ----------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_servers_that_are_down_neither_send_nor_receive(method):
    count, alive = 7, [0, 2, 3, 5]
    survivors = metropolis(edges(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]))
    a = whole_matrix(survivors, alive, count)
    psi, by_server = models(count)
    spied = {m: [] for m in range(count)}

    made = servers(method, count, SIGMA, seeded)
    for server in made:
        for name in ("messages", "combine", "meet"):
            original = getattr(server, name)

            def spy(*args, _original=original, _m=server.index):
                spied[_m].append(args)
                return _original(*args)

            setattr(server, name, spy)
    w = Post().exchange(made, 1, {m: by_server[m] for m in alive}, a, alive)
    assert sorted(w) == alive
    assert all(bool(calls) == (m in alive) for m, calls in spied.items())
    if method in ("none", "masked"):
        np.testing.assert_allclose(stacked(w), survivors.T @ psi[alive], atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_fails_and_comes_back_changes_nothing_afterwards(method):
    a, psi = GRAPHS["complete"], models(5)[1]
    made, post = servers(method, 5, SIGMA, seeded), Post()
    post.exchange(made, 1, psi, a)
    alive = [0, 1, 3, 4]
    post.exchange(made, 2, psi, whole_matrix(metropolis(np.ones((4, 4))), alive, 5), alive)
    back = stacked(post.exchange(made, 3, psi, a))
    np.testing.assert_array_equal(back, stacked(run(method, a, psi, 3)))


def test_survivors_that_fall_apart_go_on_by_themselves():
    alive = [0, 1, 3, 4, 5]
    blocks = np.zeros((5, 5))
    blocks[:2, :2], blocks[2:, 2:] = 0.5, 1 / 3
    psi, by_server = models(6)
    for method in METHODS:
        w = stacked(run(method, whole_matrix(blocks, alive, 6), by_server, alive=alive))
        off = w - blocks @ psi[alive]
        if method in ("hybrid", "masked"):  # (25), block by block
            assert np.abs(off[:2].sum(axis=0)).max() < 1e-12
            assert np.abs(off[2:].sum(axis=0)).max() < 1e-12


def test_a_weight_at_a_server_that_is_down_is_refused():
    a, (_, by_server) = GRAPHS["complete"], models(5)
    with pytest.raises(ValueError, match="server 3 is down but has a weight at server 0"):
        run("none", a, by_server, alive=[0, 1, 2, 4])


@pytest.mark.parametrize("method", METHODS)
def test_messages_and_bytes_are_counted(method):
    a, (_, by_server) = GRAPHS["ring"], models(7)
    made, post = servers(method, 7, SIGMA, seeded), Post()
    for server_round in (1, 2):
        post.exchange(made, server_round, by_server, a)
        assert post.messages == server_round * 14
        assert post.bytes == server_round * 14 * SIZE * 8
    # once a run: two senders' keys to each of seven, and one to each of the two
    keys = 7 * 4 if method == "masked" else 0
    assert (post.key_messages, post.key_bytes) == (keys, 32 * keys)


def test_nobody_holds_the_memory_of_anothers_model():
    a, (psi, _) = GRAPHS["complete"], models(5)
    for method in METHODS:
        made = servers(method, 5, SIGMA, seeded)
        for server in made:
            server.meet({m: other.hello() for m, other in enumerate(made)})
        sent = made[0].messages(1, psi[0], a)
        assert not any(np.shares_memory(message, psi) for message in sent.values())


@pytest.mark.parametrize(
    ("received", "match"),
    [({1: np.zeros(2)}, "server 0: the message of server 6 is missing"),
     ({1: np.zeros(2), 6: np.zeros(2), 3: np.zeros(2)}, "of server 3 came from no neighbour"),
     ({1: np.zeros(3), 6: np.zeros(2)}, r"server 1 sent server 0 float64\(3,\), not float64\(2,\)"),
     ({1: np.zeros(2), 6: np.zeros(2, np.float32)}, "server 6 sent server 0 float32"),
     ({1: np.zeros(2), 6: np.array([0, np.inf])}, "server 6 sent server 0 a model that is not")],
)  # fmt: skip
def test_bad_mail_is_named(received, match):
    with pytest.raises(ValueError, match=match):
        Server(0).combine(1, np.zeros(2), received, GRAPHS["ring"])


def test_a_message_across_no_edge_is_refused():
    class Gossip(Server):
        def messages(self, server_round, psi, weights):
            return dict.fromkeys(range(len(weights)), psi)

    a, (_, by_server) = GRAPHS["ring"], models(7)
    with pytest.raises(ValueError, match="no edge from server 0 to 2"):
        Post().exchange([Gossip(m) for m in range(7)], 1, by_server, a)


@pytest.mark.parametrize(
    ("call", "match"),
    [(lambda: servers("magic", 2, 1.0, seeded), "method 'magic'"),
     (lambda: servers("iid", 2, -1.0, seeded), "sigma_g=-1.0"),
     (lambda: servers("hybrid", 2, math.nan, seeded), "sigma_g=nan"),
     (lambda: run("masked", GRAPHS["star"], models(6)[1], sigma=0.0),
      "server 1 has no neighbour but server 0.*sigma_g > 0"),
     (lambda: run("none", GRAPHS["ring"], models(6)[1]), "server 6 is up but has no psi"),
     (lambda: run("none", GRAPHS["ring"], models(6)[1] | {6: np.zeros(2)}), "server 6 is up"),
     (lambda: run("none", GRAPHS["ring"], models(7)[1], alive=[9]), "no server 9"),
     (lambda: Post().exchange([Server(0)], 1, {}, GRAPHS["pair"]), r"shape \(2, 2\) for 1"),
     (lambda: servers("hybrid", 2, 1.0, seeded)[0].combine(
         1, np.zeros(2), {1: np.zeros(2)}, GRAPHS["pair"]), "make this round's messages first")],
)  # fmt: skip
def test_mistakes_are_named(call, match):
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.parametrize("method", ["hybrid", "masked"])
def test_the_noise_of_another_round_is_not_taken_back(method):
    a, server = GRAPHS["pair"], servers(method, 2, 1.0, seeded)[0]
    server.messages(1, np.zeros(2), a)
    with pytest.raises(ValueError, match="round 2, server 0: make this round's messages first"):
        server.combine(2, np.zeros(2), {1: np.zeros(2)}, a)


def test_masked_values_out_of_range_are_refused_by_name():
    psi = models(7)[1]
    psi[3] = np.full(SIZE, 1e6)
    with pytest.raises(OverflowError, match=r"what server 3 sends to server 2\[0\] = .*beyond"):
        run("masked", GRAPHS["ring"], psi)


def test_a_round_cannot_be_masked_again_with_other_models():
    a, made, post = GRAPHS["ring"], servers("masked", 7, SIGMA, seeded), Post()
    post.exchange(made, 1, models(7)[1], a)
    with pytest.raises(Refused, match="already masked"):
        post.exchange(made, 1, models(7, seed=2)[1], a)


@pytest.mark.parametrize("method", METHODS)
def test_no_noise_and_no_leaf_is_the_plain_combination(method):
    a, (psi, by_server) = GRAPHS["ring"], models(7)
    np.testing.assert_allclose(stacked(run(method, a, by_server, sigma=0.0)), a @ psi, atol=1e-11)
