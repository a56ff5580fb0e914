"""The strategy by itself: who is asked, (7) and (8), failures, checkpoints; no client runs here."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from flwr.app import RecordDict

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client, RoundPlan, StudyError
from trellis.strategies.server_graph.exchange import servers
from trellis.strategies.server_graph.failures import parse_failures
from trellis.strategies.server_graph.strategy import ServerGraph, ServerPlan
from trellis.strategies.topology.graph import Topology, topology

SIZE = 3


def strategy(
    graph="ring", count=4, each=5, *, method="none", sigma=0.0, failures="", rehome=False, sample=0,
    homes=None, **kwargs,
):  # fmt: skip
    """Return a strategy that has begun, with ``each`` clients a server."""
    shape = graph if isinstance(graph, Topology) else topology(graph, count)
    homes = np.repeat(np.arange(count), each) if homes is None else np.asarray(homes)
    found = ServerGraph(
        RoundPlan(10, 0.0, len(homes), sample),
        sampler=lambda server_round: np.random.default_rng([5, server_round]),
        servers=ServerPlan(shape, parse_failures(failures, shape.servers), rehome),
        exchange=servers(
            method, shape.servers, sigma, lambda m, i: np.random.default_rng([3, m, i])
        ),
        **kwargs,
    )
    found.clients = [
        Client(f"c{k}", k, 1, ["x"] * SIZE, k + 1, server=int(p)) for k, p in enumerate(homes)
    ]
    found.begin(found.clients)
    return found


def replies_of(found, seed=0):
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=SIZE) for k in range(len(found.clients))}


# --- (7) and (8) ---------------------------------------------------------------------------------


def test_a_round_is_the_mean_by_server_and_the_weighted_mean_of_servers():
    found = strategy("star", 4, homes=[0, 0, 1, 2, 2, 2, 3])
    replies = replies_of(found)
    row = found.update(1, replies)
    psi = np.array(
        [
            (replies[0] + replies[1]) / 2,
            replies[2],
            (replies[3] + replies[4] + replies[5]) / 3,
            replies[6],
        ]
    )
    expected = found.servers.topology.weights.T @ psi
    np.testing.assert_allclose(found.models, expected, atol=1e-15)
    np.testing.assert_allclose(found.centroid(1), psi.mean(axis=0), atol=1e-15)
    apart = expected - expected.mean(axis=0)
    assert row["disagreement"] == pytest.approx(np.mean(np.sum(apart**2, axis=1)))
    assert row["servers"] == 4.0
    # A star of four has three edges, each used both ways.
    assert row["between-servers"] == 6 * SIZE * 8


def test_a_server_without_an_answer_keeps_its_model_as_psi():
    found = strategy("ring", 4, 2)
    found.update(1, replies_of(found))
    before = found.models.copy()
    replies = {k: v for k, v in replies_of(found, 1).items() if k not in (4, 5)}
    found.update(2, replies)
    psi = np.array([(replies[0] + replies[1]) / 2, (replies[2] + replies[3]) / 2, before[2],
                    (replies[6] + replies[7]) / 2])  # fmt: skip
    np.testing.assert_allclose(found.models, found.servers.topology.weights.T @ psi, atol=1e-15)


def test_every_client_is_sent_the_model_of_its_own_server():
    found = strategy("ring", 4, 2)
    found.update(1, replies_of(found))
    assert len({model.tobytes() for model in found.models}) == 4
    for k, client in enumerate(found.clients):
        sent = found.payload(2, k)
        model = wire.arrays(sent["arrays"])["model"]
        assert model.tobytes() == found.models[client.server].tobytes()
        assert sent["order"]["round"] == 2


def test_all_servers_begin_at_the_first_model():
    found = strategy("ring", 4, 2)
    assert not found.models.any()
    found.first_model = np.array([1.0, 2.0, 3.0])
    found.begin(found.clients)
    np.testing.assert_array_equal(found.models, np.tile([1.0, 2.0, 3.0], (4, 1)))


def test_models_that_diverge_end_the_run_with_advice():
    found = strategy("ring", 4, 1)
    with pytest.raises(StudyError, match=r"round 3: the models have grown to 1e\+60.*lower step"):
        found.update(3, dict.fromkeys(range(4), np.full(SIZE, -1e60)))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"model": np.zeros(SIZE + 1)}, "shape"),
        ({"model": np.zeros((1, SIZE))}, "shape"),
        ({"model": np.full(SIZE, np.nan)}, "finite|nan"),
        ({"model": np.zeros(SIZE, dtype=np.float32)}, "float"),
        ({"other": np.zeros(SIZE)}, r"holds \['other'\], not a model"),
        ({"model": np.zeros(SIZE), "other": np.zeros(1)}, "not a model"),
    ],
)
def test_a_reply_that_is_no_model_is_refused(arrays, message):
    found = strategy()
    with pytest.raises(BadReply, match=message):
        found.read_reply(0, RecordDict({"arrays": wire.record(arrays)}))


def test_a_client_of_no_server_is_refused_by_name():
    for wrong in (-1, 4):
        with pytest.raises(StudyError, match=f"client c1 belongs to server {wrong}; .* 0 to 3"):
            strategy("ring", 4, homes=[0, wrong, 2, 3])
    # One server has everybody.
    assert strategy("complete", 1, homes=[-1, 4, 0]).homes.tolist() == [0, 0, 0]


# --- sampling ------------------------------------------------------------------------------------


def test_exactly_L_clients_a_server_are_asked_and_others_in_another_round():
    found = strategy("ring", 4, 6, sample=2)
    rounds = [found.participants(i) for i in range(1, 30)]
    for chosen in rounds:
        assert chosen == sorted(set(chosen))
        assert np.bincount(found.homes[chosen], minlength=4).tolist() == [2, 2, 2, 2]
    assert rounds == [found.participants(i) for i in range(1, 30)]
    assert rounds == [strategy("ring", 4, 6, sample=2).participants(i) for i in range(1, 30)]
    assert len({tuple(chosen) for chosen in rounds}) > 20
    # Servers draw on their own: not always the same places.
    places = [[tuple(k % 6 for k in c if k // 6 == p) for p in range(4)] for c in rounds]
    assert any(len(set(place)) > 1 for place in places)
    # Everyone has a turn.
    assert set().union(*rounds) == set(range(24))


def test_every_client_is_as_likely():
    found = strategy("ring", 2, 5, sample=2)
    asked = np.bincount(np.concatenate([found.participants(i) for i in range(1, 2001)]))
    # 2000 draws with chance 2/5: deviation 22
    assert np.all(np.abs(asked - 800) < 5 * 22)


def test_a_server_with_fewer_than_L_clients_asks_them_all():
    found = strategy("ring", 3, homes=[0, 1, 1, 1, 1, 2, 2], sample=3)
    for i in range(1, 6):
        chosen = found.participants(i)
        assert np.bincount(found.homes[chosen], minlength=3).tolist() == [1, 3, 2]
    assert strategy("ring", 3, 2).participants(1) == list(range(6))


# --- failures ------------------------------------------------------------------------------------


def test_clients_of_a_lost_server_are_not_asked_and_those_rehomed_get_the_neighbours_model():
    dropped = strategy("ring", 4, 3, failures="1:2-3")
    moved = strategy("ring", 4, 3, failures="1:2-3", rehome=True)
    for found in (dropped, moved):
        assert found.participants(1) == found.participants(4) == list(range(12))
        found.update(1, replies_of(found))
    assert dropped.participants(2) == [0, 1, 2, *range(6, 12)]
    assert moved.participants(2) == moved.participants(3) == list(range(12))
    homes = moved.homes_in(2)
    assert set(homes[3:6].tolist()) == {0, 2}
    for k in (3, 4, 5):
        sent = wire.arrays(moved.payload(2, k)["arrays"])["model"]
        assert sent.tobytes() == moved.models[homes[k]].tobytes()
        assert sent.tobytes() != moved.models[1].tobytes()
    back = wire.arrays(moved.payload(4, 3)["arrays"])["model"]
    assert back.tobytes() == moved.models[1].tobytes()


@pytest.mark.parametrize("rehome", [False, True])
def test_sampling_counts_those_who_are_there(rehome):
    found = strategy("ring", 4, 3, failures="1:2", rehome=rehome, sample=3)
    chosen = found.participants(2)
    assert np.bincount(found.homes_in(2)[chosen], minlength=4).tolist() == [3, 0, 3, 3]


@pytest.mark.parametrize("weights", ["metropolis", "laplacian", "own"])
def test_the_matrix_of_every_round_is_doubly_stochastic_and_of_survivors_only(weights):
    graph = topology("erdos-renyi:0.5", 8, seed=2)
    if weights == "own":
        graph = Topology(graph.names, 0.5 * (graph.weights + np.eye(8)))
    elif weights == "laplacian":
        graph = topology("erdos-renyi:0.5", 8, weights="laplacian", seed=2)
    found = strategy(graph, 8, 1, failures="1:3-6,4:5,7:2-2")
    seen = set()
    for i in range(1, 12):
        up, a = found.up(i), found.combination(found.up(i))
        seen.add(tuple(np.flatnonzero(~up)))
        np.testing.assert_allclose(a, a.T, atol=1e-15)
        np.testing.assert_allclose(a.sum(axis=0), 1.0, atol=1e-14)
        assert a.min() >= 0.0
        assert np.all(np.diag(a) > 0.0)
        np.testing.assert_array_equal(a[~up], np.eye(8)[~up])
        edges = (a > 0) & ~np.eye(8, dtype=bool)
        np.testing.assert_array_equal(
            edges[np.ix_(up, up)], found.servers.topology.adjacency[np.ix_(up, up)]
        )
    assert seen == {(), (7,), (1,), (1, 4), (4,)}


def test_a_lost_server_keeps_its_model_and_takes_part_again_when_it_is_back():
    found = strategy("ring", 4, 1, failures="1:2-3")
    found.update(1, replies_of(found))
    kept = found.models[1].copy()
    for i in (2, 3):
        others = {k: v for k, v in replies_of(found, i).items() if k != 1}
        row = found.update(i, others)
        assert row["servers"] == 3.0
        assert found.models[1].tobytes() == kept.tobytes()
        # Nothing of it is in the others' centroid, not even its old model.
        np.testing.assert_allclose(
            found.centroid(i), np.mean([others[k] for k in (0, 2, 3)], axis=0), atol=1e-15
        )
    replies = replies_of(found, 4)
    found.update(4, replies)
    expected = found.servers.topology.weights.T @ np.array([replies[k] for k in range(4)])
    np.testing.assert_allclose(found.models, expected, atol=1e-15)


@pytest.mark.parametrize("method", ["none", "hybrid", "masked", "iid"])
def test_survivors_that_fall_apart_go_on_by_themselves_with_a_warning(method, caplog):
    found = strategy("star", 5, 2, method=method, sigma=0.1, failures="0:2")
    found.update(1, replies_of(found))
    replies = {k: v for k, v in replies_of(found, 2).items() if k >= 2}
    with caplog.at_level(logging.WARNING):
        found.update(2, replies)
    assert "without server-0 the 4 other servers fall into 4 components" in caplog.text
    for p in range(1, 5):
        np.testing.assert_allclose(
            found.models[p], (replies[2 * p] + replies[2 * p + 1]) / 2, atol=1e-15
        )


@pytest.mark.parametrize("method", ["hybrid", "masked"])
@pytest.mark.parametrize("graph", ["ring", "path", "star", "complete", "grid"])
def test_noise_leaves_the_centroid_of_a_round_alone_whoever_is_up(method, graph):
    noisy = strategy(graph, 6, 2, method=method, sigma=20.0, failures="2:2-3,5:3")
    clean = strategy(graph, 6, 2, failures="2:2-3,5:3")
    for i in range(1, 6):
        asked = set(noisy.participants(i))
        replies = {k: v for k, v in replies_of(noisy, i).items() if k in asked}
        noisy.update(i, replies)
        clean.update(i, replies)
        np.testing.assert_allclose(noisy.centroid(i), clean.centroid(i), atol=1e-12)
    if method == "hybrid":
        assert np.abs(noisy.models - clean.models).max() > 1.0


def test_iid_noise_moves_the_centroid():
    noisy, clean = strategy(method="iid", sigma=1.0), strategy()
    replies = replies_of(noisy)
    noisy.update(1, replies)
    clean.update(1, replies)
    assert np.abs(noisy.centroid(1) - clean.centroid(1)).max() > 0.05


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["none", "hybrid", "masked", "iid"])
def test_noise_and_models_repeat_after_a_restore(method):
    settings = {"method": method, "sigma": 0.5, "failures": "1:2-3"}
    first = strategy(**settings)
    for i in (1, 2):
        first.update(i, {k: v for k, v in replies_of(first, i).items() if k // 5 != 1 or i == 1})
    second = strategy(**settings)
    second.restore(first.state())
    assert second.current_round == 2
    for i in (3, 4):
        for found in (first, second):
            asked = set(found.participants(i))
            found.update(i, {k: v for k, v in replies_of(found, i).items() if k in asked})
    assert first.models.tobytes() == second.models.tobytes()


def test_a_checkpoint_of_other_servers_is_refused():
    with pytest.raises(ValueError, match=r"models in the checkpoint have shape \(4, 3\)"):
        strategy("ring", 5).restore(strategy("ring", 4).state())
