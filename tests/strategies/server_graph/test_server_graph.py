"""The strategy by itself: who is asked, (7) and (8), failures, checkpoints; no client runs here."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.wire import BadReply
from trellis.strategies.server_graph.exchange import servers
from trellis.strategies.server_graph.failures import parse_failures
from trellis.strategies.server_graph.strategy import ServerGraph, server_means
from trellis.strategies.server_graph.sums import GradientSums, server_steps
from trellis.strategies.topology.graph import Topology, topology

SIZE = 3


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Let messages be made outside a run."""
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


class Nodes:
    """A grid that says who is there."""

    def __init__(self, count):
        self.count = count

    def get_node_ids(self):
        return range(self.count)


def strategy(
    graph="ring", count=4, each=5, *, method="none", sigma=0.0, failures="", rehome=False, sample=0,
    homes=None, kind=ServerGraph, **kwargs,
):  # fmt: skip
    """Return a strategy that has begun, with ``each`` clients a server."""
    shape = graph if isinstance(graph, Topology) else topology(graph, count)
    homes = np.repeat(np.arange(count), each) if homes is None else np.asarray(homes)
    found = kind(
        shape,
        exchange=servers(
            method, shape.servers, sigma, lambda m, i: np.random.default_rng([3, m, i])
        ),
        outages=parse_failures(failures, shape.servers),
        rehome=rehome,
        sample=sample,
        draws=lambda server_round: np.random.default_rng([5, server_round]),
        **kwargs,
    )
    found.server_of = dict(enumerate(homes.tolist()))
    found.begin(np.zeros(SIZE))
    return found


def replies_of(found, seed=0):
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=SIZE) for k in range(len(found.server_of))}


def update(found, server_round, replies):
    """Make the servers' part of a round from single replies."""
    rows = np.stack([replies[k] for k in sorted(replies)])
    return found.advance(server_round, sorted(replies), rows, [1.0] * len(replies))


def participants(found, server_round):
    return found.choose(server_round, sorted(found.server_of))


def homes_in(found, server_round):
    return found.homes_of(server_round, sorted(found.server_of))


def centroid(found, server_round):
    return found.models[found.up(server_round)].mean(axis=0)


def sent(found, server_round):
    """Return what every client is sent in a round: the record of settings and the model."""
    first = wire.record({"model": np.zeros(SIZE)})
    grid = Nodes(len(found.server_of))
    messages = found.configure_train(server_round, first, ConfigRecord({"more": 1}), grid)
    return {
        m.metadata.dst_node_id: (m.content["config"], wire.arrays(m.content["arrays"])["model"])
        for m in messages
    }


# --- (7) and (8) ---------------------------------------------------------------------------------


def test_a_round_is_the_mean_by_server_and_the_weighted_mean_of_servers():
    found = strategy("star", 4, homes=[0, 0, 1, 2, 2, 2, 3])
    replies = replies_of(found)
    row = update(found, 1, replies)
    psi = np.array(
        [
            (replies[0] + replies[1]) / 2,
            replies[2],
            (replies[3] + replies[4] + replies[5]) / 3,
            replies[6],
        ]
    )
    expected = found.topology.weights.T @ psi
    np.testing.assert_allclose(found.models, expected, atol=1e-15)
    np.testing.assert_allclose(centroid(found, 1), psi.mean(axis=0), atol=1e-15)
    apart = expected - expected.mean(axis=0)
    assert row["disagreement"] == pytest.approx(np.mean(np.sum(apart**2, axis=1)))
    assert row["servers"] == 4.0
    # A star of four has three edges, each used both ways.
    assert row["between-servers"] == 6 * SIZE * 8


def test_a_server_without_an_answer_keeps_its_model_as_psi():
    found = strategy("ring", 4, 2)
    update(found, 1, replies_of(found))
    before = found.models.copy()
    replies = {k: v for k, v in replies_of(found, 1).items() if k not in (4, 5)}
    update(found, 2, replies)
    psi = np.array([(replies[0] + replies[1]) / 2, (replies[2] + replies[3]) / 2, before[2],
                    (replies[6] + replies[7]) / 2])  # fmt: skip
    np.testing.assert_allclose(found.models, found.topology.weights.T @ psi, atol=1e-15)


def test_every_client_is_sent_the_model_of_its_own_server():
    found = strategy("ring", 4, 2)
    update(found, 1, replies_of(found))
    assert len({model.tobytes() for model in found.models}) == 4
    for k, (told, model) in sent(found, 2).items():
        server = found.server_of[k]
        assert model.tobytes() == found.models[server].tobytes()
        assert dict(told) == {"more": 1, "server-round": 2, "server": server}


def test_all_servers_begin_at_the_first_model():
    found = strategy("ring", 4, 2)
    assert not found.models.any()
    found.begin(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(found.models, np.tile([1.0, 2.0, 3.0], (4, 1)))


def test_models_that_diverge_end_the_run_with_advice():
    found = strategy("ring", 4, 1)
    with pytest.raises(StudyError, match=r"round 3: the models have grown to 1e\+60.*lower step"):
        update(found, 3, dict.fromkeys(range(4), np.full(SIZE, -1e60)))


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
        found.read(RecordDict({"arrays": wire.record(arrays)}), "model")


@pytest.mark.parametrize("clients", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_sum_over_no_number_of_clients_is_refused(clients):
    found = strategy()
    arrays = wire.record({"model": np.zeros(SIZE)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"clients": clients})})
    with pytest.raises(BadReply, match="of how many clients"):
        found.read(content, "model")


def test_a_mean_that_came_as_one_is_taken_to_the_last_bit():
    rng = np.random.default_rng(0)
    rows, before = rng.normal(size=(3, SIZE)), rng.normal(size=(3, SIZE))
    psi = server_means(rows, np.array([0, 2, 2]), np.array([7.0, 3.0, 1.0]), before)
    np.testing.assert_array_equal(psi[0], rows[0])
    np.testing.assert_array_equal(psi[1], before[1])
    np.testing.assert_allclose(psi[2], (3.0 * rows[1] + rows[2]) / 4.0)


def test_steps_from_sums_are_the_means_of_clients_steps():
    rng = np.random.default_rng(0)
    models, gradients = rng.normal(size=(2, SIZE)), rng.normal(size=(4, SIZE))
    totals = np.array([gradients[:3].sum(axis=0), gradients[3]])
    psi = server_steps(models, totals, np.array([3.0, 1.0]), 0.1, 0.5)
    own = [models[0] - 0.1 * (g + 0.5 * models[0]) for g in gradients[:3]]
    np.testing.assert_allclose(psi[0], np.mean(own, axis=0))
    np.testing.assert_array_equal(
        server_steps(models, totals, np.array([3.0, 0.0]), 0.1, 0.5)[1], models[1]
    )


def test_the_result_of_sums_is_the_mean_of_the_last_rounds_and_repeats_after_a_restore():
    terms = {"kind": GradientSums, "step": 0.1, "ridge": 0.0, "rounds": 4, "average": 0.5}
    found, kept = strategy(**terms), []
    for i in range(1, 5):
        update(found, i, replies_of(found, i))
        kept.append(found.models.copy())
        if i == 3:
            other = strategy(**terms)
            other.load_state_dict(found.state_dict())
    np.testing.assert_array_equal(found.kept, (kept[2] + kept[3]) / 2.0)
    update(other, 4, replies_of(other, 4))
    assert other.kept.tobytes() == found.kept.tobytes()


# --- sampling ------------------------------------------------------------------------------------


def test_exactly_L_clients_a_server_are_asked_and_others_in_another_round():
    found = strategy("ring", 4, 6, sample=2)
    rounds = [participants(found, i) for i in range(1, 30)]
    for chosen in rounds:
        assert chosen == sorted(set(chosen))
        assert np.bincount(homes_in(found, 1)[chosen], minlength=4).tolist() == [2, 2, 2, 2]
    assert rounds == [participants(found, i) for i in range(1, 30)]
    assert rounds == [participants(strategy("ring", 4, 6, sample=2), i) for i in range(1, 30)]
    assert len({tuple(chosen) for chosen in rounds}) > 20
    # Servers draw on their own: not always the same places.
    places = [[tuple(k % 6 for k in c if k // 6 == p) for p in range(4)] for c in rounds]
    assert any(len(set(place)) > 1 for place in places)
    # Everyone has a turn.
    assert set().union(*rounds) == set(range(24))


def test_every_client_is_as_likely():
    found = strategy("ring", 2, 5, sample=2)
    asked = np.bincount(np.concatenate([participants(found, i) for i in range(1, 2001)]))
    # 2000 draws with chance 2/5: deviation 22
    assert np.all(np.abs(asked - 800) < 5 * 22)


def test_a_server_with_fewer_than_L_clients_asks_them_all():
    found = strategy("ring", 3, homes=[0, 1, 1, 1, 1, 2, 2], sample=3)
    for i in range(1, 6):
        chosen = participants(found, i)
        assert np.bincount(homes_in(found, 1)[chosen], minlength=3).tolist() == [1, 3, 2]
    assert participants(strategy("ring", 3, 2), 1) == list(range(6))


# --- failures ------------------------------------------------------------------------------------


def test_clients_of_a_lost_server_are_not_asked_and_those_rehomed_get_the_neighbours_model():
    dropped = strategy("ring", 4, 3, failures="1:2-3")
    moved = strategy("ring", 4, 3, failures="1:2-3", rehome=True)
    for found in (dropped, moved):
        assert participants(found, 1) == participants(found, 4) == list(range(12))
        update(found, 1, replies_of(found))
    assert participants(dropped, 2) == [0, 1, 2, *range(6, 12)]
    assert participants(moved, 2) == participants(moved, 3) == list(range(12))
    homes = homes_in(moved, 2)
    assert set(homes[3:6].tolist()) == {0, 2}
    for k in (3, 4, 5):
        model = sent(moved, 2)[k][1]
        assert model.tobytes() == moved.models[homes[k]].tobytes()
        assert model.tobytes() != moved.models[1].tobytes()
    assert sent(moved, 4)[3][1].tobytes() == moved.models[1].tobytes()


@pytest.mark.parametrize("rehome", [False, True])
def test_sampling_counts_those_who_are_there(rehome):
    found = strategy("ring", 4, 3, failures="1:2", rehome=rehome, sample=3)
    chosen = participants(found, 2)
    assert np.bincount(homes_in(found, 2)[chosen], minlength=4).tolist() == [3, 0, 3, 3]


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
            edges[np.ix_(up, up)], found.topology.adjacency[np.ix_(up, up)]
        )
    assert seen == {(), (7,), (1,), (1, 4), (4,)}


def test_a_lost_server_keeps_its_model_and_takes_part_again_when_it_is_back():
    found = strategy("ring", 4, 1, failures="1:2-3")
    update(found, 1, replies_of(found))
    kept = found.models[1].copy()
    for i in (2, 3):
        others = {k: v for k, v in replies_of(found, i).items() if k != 1}
        row = update(found, i, others)
        assert row["servers"] == 3.0
        assert found.models[1].tobytes() == kept.tobytes()
        # Nothing of it is in the others' centroid, not even its old model.
        np.testing.assert_allclose(
            centroid(found, i), np.mean([others[k] for k in (0, 2, 3)], axis=0), atol=1e-15
        )
    replies = replies_of(found, 4)
    update(found, 4, replies)
    expected = found.topology.weights.T @ np.array([replies[k] for k in range(4)])
    np.testing.assert_allclose(found.models, expected, atol=1e-15)


@pytest.mark.parametrize("method", ["none", "hybrid", "masked", "iid"])
def test_survivors_that_fall_apart_go_on_by_themselves_with_a_warning(method, caplog):
    found = strategy("star", 5, 2, method=method, sigma=0.1, failures="0:2")
    update(found, 1, replies_of(found))
    replies = {k: v for k, v in replies_of(found, 2).items() if k >= 2}
    with caplog.at_level(logging.WARNING):
        update(found, 2, replies)
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
        asked = set(participants(noisy, i))
        replies = {k: v for k, v in replies_of(noisy, i).items() if k in asked}
        update(noisy, i, replies)
        update(clean, i, replies)
        np.testing.assert_allclose(centroid(noisy, i), centroid(clean, i), atol=1e-12)
    if method == "hybrid":
        assert np.abs(noisy.models - clean.models).max() > 1.0


def test_iid_noise_moves_the_centroid():
    noisy, clean = strategy(method="iid", sigma=1.0), strategy()
    replies = replies_of(noisy)
    update(noisy, 1, replies)
    update(clean, 1, replies)
    assert np.abs(centroid(noisy, 1) - centroid(clean, 1)).max() > 0.05


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["none", "hybrid", "masked", "iid"])
def test_noise_and_models_repeat_after_a_restore(method):
    settings = {"method": method, "sigma": 0.5, "failures": "1:2-3"}
    first = strategy(**settings)
    for i in (1, 2):
        update(first, i, {k: v for k, v in replies_of(first, i).items() if k // 5 != 1 or i == 1})
    second = strategy(**settings)
    second.load_state_dict(first.state_dict())
    assert second.current_round == 2
    for i in (3, 4):
        for found in (first, second):
            asked = set(participants(found, i))
            update(found, i, {k: v for k, v in replies_of(found, i).items() if k in asked})
    assert first.models.tobytes() == second.models.tobytes()


def test_a_checkpoint_of_other_servers_is_refused():
    with pytest.raises(ValueError, match=r"models in the checkpoint have shape \(4, 3\)"):
        strategy("ring", 5).load_state_dict(strategy("ring", 4).state_dict())
