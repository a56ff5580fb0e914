"""Whole runs at the edges: servers without clients, clusters of one, clients that come and go."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from trellis import apps
from trellis.apps import run
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_table
from trellis.apps.cluster_admm.problem import mean_losses, optimum, server_uniform_optimum
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.faults import Drop, Raise
from trellis.sim.grid import run_local
from trellis.strategies.cluster_admm.strategy import ClusterAdmm
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.topology.graph import topology

STUDY = "cluster-admm"
SMALL = {"features": 3, "samples": "5-9", "clusters": "2", "tau": 0.0, "rounds": 150}


def placed(places, out, faults=None, **settings) -> RunResult:
    """Run synthetic clients, each with the (server, cluster) of its node config."""
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    settings = {**SMALL, "clients": len(places), **named}
    nodes = [
        {"partition-id": k, "num-partitions": len(places), "simulation": True}
        | {"server": server, "cluster": cluster}
        for k, (server, cluster) in enumerate(places)
    ]
    run_config = make_run_config(STUDY, settings) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config, faults=faults)
    result = RunResult.load(out)
    assert result.arrays["homes"].tolist() == [server for server, _ in places]
    assert np.all(np.isfinite(result.arrays["models"]))
    return result


def data_of(result) -> list[tuple[np.ndarray, np.ndarray]]:
    config = ClusterAdmmConfig.from_settings(result.config)
    tables = [synthetic_table(config, result.seed, k) for k in range(config.clients)]
    return [(table.X, table.y) for table in tables]


def uniform(result, cluster):
    """Return the server-uniform optimum of one cluster, from the run's data and places."""
    homes, groups, tables = result.arrays["homes"], result.arrays["clusters"], data_of(result)
    servers = range(result.arrays["models"].shape[0])
    own = [[tables[k] for k in np.flatnonzero((homes == s) & (groups == cluster))] for s in servers]
    sizes = [np.count_nonzero(homes == s) for s in servers]
    return server_uniform_optimum(result.config["loss"], own, result.config["ridge"], sizes)


def best(result, cluster):
    """Return the optimum of (1) of one cluster."""
    tables, mine = data_of(result), np.flatnonzero(result.arrays["clusters"] == cluster)
    return optimum(result.config["loss"], [tables[k] for k in mine], result.config["ridge"])


def off(models, expected) -> float:
    return float(np.max(np.abs(models - expected)))


# --- the paper's algorithm, written down once more -----------------------------------------------


class StatefulClient:
    """A client as in the paper: it keeps its dual, is told w_{s,q}, and sends w_k and its dual."""

    def __init__(self, X, y, share, ridge, rho):
        self.rho, self.dual = rho, np.zeros(X.shape[1])
        self.left = 2.0 / len(y) * X.T @ X + (2.0 * share * ridge + rho) * np.eye(X.shape[1])
        self.right = 2.0 / len(y) * X.T @ y

    def primal(self, model):  # (4)
        self.w = np.linalg.solve(self.left, self.right + self.dual + self.rho * model)
        return self.w - self.dual / self.rho

    def take(self, model):  # (5)
        self.dual = self.dual + self.rho * (model - self.w)


def by_hand(result, neighbours, answered, rho, tau, ridge):
    """Return the models after every round, from who answered in it."""
    homes, groups = result.arrays["homes"].tolist(), result.arrays["clusters"].tolist()
    S, Q, d = result.arrays["models"].shape
    clients = [
        StatefulClient(X, y, 1.0 / homes.count(homes[k]), ridge, rho)
        for k, (X, y) in enumerate(data_of(result))
    ]
    w, history = np.zeros((S, Q, d)), []
    for present in answered:
        sent = {k: clients[k].primal(w[homes[k], groups[k]]) for k in present}
        tilde = w.copy()
        for s, q in np.ndindex(S, Q):
            own = [sent[k] for k in present if (homes[k], groups[k]) == (s, q)]
            if own:
                tilde[s, q] = sum(own) / len(own)  # (8)
        hat = np.array([np.mean([tilde[p] for p in {s, *neighbours[s]}], axis=0) for s in range(S)])
        for s, q in np.ndindex(S, Q):  # (10)
            others = [hat[s, r] for r in range(Q) if r != q]
            w[s, q] = (1 - tau) * hat[s, q] + tau * sum(others) / (Q - 1) if others else hat[s, q]
        for k in present:
            clients[k].take(w[homes[k], groups[k]])
        history.append(w.copy())
    return history, np.array([client.dual for client in clients])


@pytest.fixture
def watched(monkeypatch):
    """Who answered in every round, and the models and duals after it."""
    seen, update = [], ClusterAdmm.update

    def noted(strategy, server_round, replies):
        row = update(strategy, server_round, replies)
        duals = np.array([strategy.duals[node] for node in sorted(strategy.duals)])
        seen.append(([n - 1 for n in sorted(replies)], strategy.models.copy(), duals))
        return row

    monkeypatch.setattr(ClusterAdmm, "update", noted)
    return seen


RING = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (2, 0)}


@pytest.mark.parametrize("sample", [0, 2])
def test_clients_without_memory_are_the_paper_s_also_when_some_stop_answering(watched, sample):
    gone = {
        2: Raise(category="train", at=frozenset({3, 4, 5})),
        9: Drop(category="train", since=4),  # and never comes back
        4: Raise(category="train"),
    }
    settings = {
        **SMALL, "servers": 4, "topology": "ring", "clients": 14, "clusters": "3", "rounds": 25,
        "tau": 0.35, "rho": 2.5, "ridge": 0.2, "sample": sample,
    }  # fmt: skip
    result = run(STUDY, settings, faults=gone, report=False)
    answered = [present for present, _, _ in watched]
    if not sample:
        assert [2 in present for present in answered] == [n not in (3, 4, 5) for n in range(1, 26)]
    else:
        assert len({tuple(present) for present in answered}) > 20
    assert not any(4 in present for present in answered)
    history, duals = by_hand(result, RING, answered, 2.5, 0.35, 0.2)
    for (_, models, _), expected in zip(watched, history, strict=True):
        np.testing.assert_allclose(models, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(watched[-1][2], duals, rtol=0, atol=1e-10)
    # Whoever does not answer keeps its dual, to the bit.
    for (_, _, before), (present, _, after) in pairwise(watched):
        still = [np.array_equal(before[k], after[k]) for k in range(14)]
        assert still == [k not in present for k in range(14)]


# --- where runs end ------------------------------------------------------------------------------

LOSSES = pytest.mark.parametrize("loss", ["ridge", "logistic"])
ENDS = {
    "ridge": {"samples": "8-12", "rho": 3.0, "rounds": 150},
    "logistic": {"samples": "20-30", "rho": 0.6, "rounds": 200},
}
FIVE = {"servers": 5, "clients": 13, "clusters": "2", "features": 3, "tau": 0.0, "ridge": 0.1}


def ended(loss, **settings):
    return run(STUDY, {**FIVE, "loss": loss, **ENDS[loss], **settings}, report=False)


@LOSSES
@pytest.mark.parametrize("graph", ["ring", "star", "random:2"])
def test_exact_mixing_ends_at_the_optimum_of_every_cluster(loss, graph):
    result = ended(loss, mixing="exact", topology=graph)
    for cluster in range(2):
        assert off(result.arrays["models"][:, cluster], best(result, cluster)) < 1e-8


@LOSSES
def test_paper_mixing_on_a_ring_ends_at_its_fixed_point_and_misses_the_optimum(loss):
    result = ended(loss, topology="ring")
    models, homes, groups = (result.arrays[name] for name in ("models", "homes", "clusters"))
    step, ridge, rho = models.copy(), result.config["ridge"], result.config["rho"]
    for s, q in np.ndindex(5, 2):
        own = np.flatnonzero((homes == s) & (groups == q))
        for k in own:
            X, y = data_of(result)[k]
            slope = slope_of(loss, models[s, q], X, y)
            slope += 2.0 * ridge / np.count_nonzero(homes == s) * models[s, q]
            step[s, q] -= slope / (rho * len(own))
    adjacency = topology("ring", 5).adjacency
    expected = [
        np.mean([step[p] for p in [s, *np.flatnonzero(adjacency[s])]], axis=0) for s in range(5)
    ]
    assert off(models, np.array(expected)) < 1e-8
    for cluster in range(2):
        assert off(models[:, cluster], best(result, cluster)) > 1e-3
        assert off(models[:, cluster], uniform(result, cluster)) > 1e-3


def slope_of(loss, w, X, y):
    """Return the gradient of the mean loss at w."""
    if loss == "ridge":
        return 2.0 / len(y) * X.T @ (X @ w - y)
    return -np.mean((y / (1.0 + np.exp(y * (X @ w))))[:, None] * X, axis=0)


def test_the_slope_in_these_tests_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(6, 3)), rng.normal(size=3)
    for loss, y in (("ridge", rng.normal(size=6)), ("logistic", rng.choice([-1.0, 1.0], 6))):
        steps = w + 1e-6 * np.vstack([np.eye(3), -np.eye(3)])
        values = mean_losses(loss, steps, X, y)
        numeric = (values[:3] - values[3:]) / 2e-6
        np.testing.assert_allclose(slope_of(loss, w, X, y), numeric, atol=1e-8)


@LOSSES
def test_paper_mixing_on_a_complete_graph_ends_at_the_server_uniform_optimum(loss):
    result = ended(loss, topology="complete")
    for cluster in range(2):
        assert off(result.arrays["models"][:, cluster], uniform(result, cluster)) < 1e-8
        assert off(uniform(result, cluster), best(result, cluster)) > 1e-3  # 13 clients of 5


# --- somebody is missing -------------------------------------------------------------------------

MIXINGS = pytest.mark.parametrize("mixing", ["paper", "exact"])


@MIXINGS
def test_servers_without_clients_of_a_cluster_get_its_model_from_others(mixing, tmp_path, watched):
    """All of cluster 1 is at the end of a path of servers."""
    places = [(0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (2, 0), (0, 1)]
    result = placed(
        places, tmp_path, servers=3, topology="path", mixing=mixing, rounds=400, samples="8-12"
    )
    # With one server that learns, its clients' slopes sum to zero on every graph.
    expected = uniform(result, 1) if mixing == "paper" else best(result, 1)
    assert off(result.arrays["models"][:, 1], expected) < 1e-8
    if mixing == "paper":
        answered = [present for present, _, _ in watched]
        history, _ = by_hand(result, {0: [1], 1: [0, 2], 2: [1]}, answered, 3.0, 0.0, 0.1)
        assert off(result.arrays["models"], history[-1]) < 1e-10
    else:
        assert off(result.arrays["models"][:, 0], best(result, 0)) < 1e-8


def test_a_server_that_does_not_talk_keeps_a_cluster_it_has_no_clients_of(tmp_path):
    places = [(0, 0), (0, 1), (1, 0), (1, 0)]
    apart = {"servers": 2, "topology": "complete", "method": "clusterfl", "rounds": 40}
    models = placed(places, tmp_path / "a", **apart).arrays["models"]
    np.testing.assert_array_equal(models[1, 1], 0.0)
    assert np.min(np.abs(models[[0, 0, 1], [0, 1, 0]]).max(axis=-1)) > 0.1
    # The others do not notice: as if its clients were a federation of one cluster.
    alone = placed([(0, 0), (0, 0), (1, 0), (1, 0)], tmp_path / "b", **apart).arrays["models"]
    np.testing.assert_array_equal(models[1, 0], alone[1, 0])
    # With tau > 0 it has what its own clusters tell it.
    models = placed(places, tmp_path / "c", **apart, tau=0.4).arrays["models"]
    assert np.max(np.abs(models[1, 1])) > 0.1


@MIXINGS
def test_a_cluster_of_one_client_has_that_client_s_model_on_every_server(mixing, tmp_path):
    places = [(0, 0), (1, 0), (2, 1), (3, 0)]
    result = placed(
        places, tmp_path, servers=4, topology="ring", mixing=mixing, rounds=400, samples="8-12"
    )
    alone = optimum("ridge", [data_of(result)[2]], 0.1)  # on its server, too, it is alone
    assert off(result.arrays["models"][:, 1], alone) < 1e-8


@MIXINGS
def test_a_server_without_any_client_passes_models_on(mixing, tmp_path):
    places = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 0)]
    result = placed(
        places, tmp_path, servers=3, topology="path", mixing=mixing, rounds=500, samples="8-12"
    )
    models = result.arrays["models"]
    if mixing == "exact":
        for cluster in range(2):
            assert off(models[:, cluster], best(result, cluster)) < 1e-8
    else:  # in its fixed point the server between two is their mean
        assert off(models[1], 0.5 * (step_of(result, 0) + step_of(result, 2))) < 1e-8


def step_of(result, server):
    """Return w - g(w) / rho (Q, d) of one server."""
    models, homes, groups = (result.arrays[name] for name in ("models", "homes", "clusters"))
    found, tables = models[server].copy(), data_of(result)
    for q in range(len(found)):
        own = np.flatnonzero((homes == server) & (groups == q))
        slopes = [slope_of("ridge", models[server, q], *tables[k]) for k in own]
        share = 1.0 / np.count_nonzero(homes == server)
        found[q] -= (np.mean(slopes, axis=0) + 0.2 * share * models[server, q]) / 3.0
    return found


@MIXINGS
def test_there_may_be_more_servers_than_clients(mixing):
    settings = {**SMALL, "servers": 6, "topology": "ring", "clients": 4, "mixing": mixing}
    result = run(STUDY, settings, report=False)
    assert len(set(result.arrays["homes"].tolist())) == 4
    assert result.arrays["models"].shape == (6, 2, 3)
    assert np.all(np.max(np.abs(result.arrays["models"]), axis=-1) > 0.01)


def write_clients(folder, count, rows=8, features=3):
    rng = np.random.default_rng(0)
    for k in range(count):
        np.savez(
            folder / f"site{k}.npz", X=rng.normal(size=(rows, features)), y=rng.normal(size=rows)
        )


def test_one_cluster_is_one_task(tmp_path):
    write_clients(tmp_path, 7)
    settings = {
        "servers": 3, "topology": "path", "rounds": 30, "tau": 0.4, "standardise": "none",
    }  # fmt: skip
    one = run(STUDY, {**settings, "clusters": "1"}, data=tmp_path, report=False)
    task = run(STUDY, {**settings, "method": "gfl"}, data=tmp_path, report=False)
    assert one.arrays["models"].shape == task.arrays["models"].shape == (3, 1, 3)
    assert off(one.arrays["models"], task.arrays["models"]) <= 1e-12


@MIXINGS
def test_one_server_needs_no_graph(mixing):
    settings = {**SMALL, "servers": 1, "clients": 6, "mixing": mixing, "samples": "8-12"}
    result = run(STUDY, {**settings, "topology": "ring"}, report=False)
    for cluster in range(2):
        expected = uniform(result, cluster) if mixing == "paper" else best(result, cluster)
        assert off(result.arrays["models"][0, cluster], expected) < 1e-8


def test_fedavg_is_one_task_on_one_server():
    settings = {**SMALL, "clients": 6, "rounds": 20}
    del settings["tau"]
    gathered = run(STUDY, {**settings, "method": "fedavg"}, report=False)
    alone = run(STUDY, {**settings, "method": "gfl", "servers": 1}, report=False)
    assert gathered.arrays["models"].tobytes() == alone.arrays["models"].tobytes()


def test_a_sample_larger_than_a_server_s_clients_is_all_of_them(tmp_path, watched):
    places = [(0, 0), (0, 1), (0, 0)] + [(1, k % 2) for k in range(6)] + [(2, 1)]
    placed(places, tmp_path, servers=3, topology="ring", sample=4, rounds=30)
    drawn = np.zeros(len(places), dtype=int)
    for answered, _, _ in watched:
        counts = np.bincount([places[k][0] for k in answered], minlength=3)
        assert counts.tolist() == [3, 4, 1]
        drawn[answered] += 1
    assert np.all(drawn[[0, 1, 2, 9]] == 30)
    assert np.all((drawn[3:9] > 0) & (drawn[3:9] < 30))


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_client_without_a_row_of_data_is_refused_by_its_file(tmp_path, ending):
    write_clients(tmp_path, 3)
    path = tmp_path / f"zed.{ending}"
    if ending == "csv":
        path.write_text("v1,v2,v3,y\n")
    else:
        np.savez(path, X=np.zeros((0, 3)), y=np.zeros(0))
    settings = {"servers": 2, "topology": "complete", "method": "gfl"}
    with pytest.raises(StudyError, match=rf"zed\.{ending}: no rows of data"):
        run(STUDY, settings, data=tmp_path, report=False)
