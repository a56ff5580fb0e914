"""The servers' steps of cluster-admm: fixed points, optima, and duals at the server."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.strategies.cluster_admm.mixing import (
    aggregate,
    neighbourhood_means,
    over_clusters,
    over_servers,
)
from trellis.strategies.cluster_admm.server import ExactServer, PaperServer
from trellis.strategies.network.mailbox import Mailbox
from trellis.strategies.topology.graph import topology

SERVERS, CLIENTS, CLUSTERS, SIZE = 6, 36, 2, 5
RIDGE, RHO = 0.1, 3.0
GRAPHS = pytest.mark.parametrize("graph", ["ring", "star", "erdos-renyi:0.5", "path"])


class Federation:
    """Ridge regression over servers and clusters, every client's problem by its normal equations.

    f_k(w) = |y - X w|^2 / D + share RIDGE |w|^2, so the primal (4) solves (H + rho I) w = b + v.
    """

    def __init__(self, share: str, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.servers = np.arange(CLIENTS) % SERVERS
        self.clusters = (np.arange(CLIENTS) // SERVERS) % CLUSTERS
        truth = rng.normal(size=(CLUSTERS, SIZE))
        per_cluster = np.bincount(self.clusters)[self.clusters]
        per_server = np.bincount(self.servers)[self.servers]
        shares = 1.0 / (per_cluster if share == "cluster" else per_server)
        self.h, self.b, self.inverses = [], [], {}
        for k in range(CLIENTS):
            x = rng.normal(size=(rng.integers(3, 9), SIZE))
            y = x @ truth[self.clusters[k]] + 0.3 * rng.normal(size=len(x))
            quadratic = 2.0 / len(x) * x.T @ x + 2.0 * RIDGE * shares[k] * np.eye(SIZE)
            self.h.append(quadratic)
            self.b.append(2.0 / len(x) * x.T @ y)

    def primal(self, v, rho):
        if rho not in self.inverses:
            self.inverses[rho] = np.linalg.inv(np.array(self.h) + rho * np.eye(SIZE))
        return np.einsum("kij,kj->ki", self.inverses[rho], np.array(self.b) + v)

    def optimum(self, weights):
        """Return the minimiser of the weighted sum of a cluster's client losses."""
        found = []
        for q in range(CLUSTERS):
            mine = np.flatnonzero(self.clusters == q)
            h = sum(weights[k] * self.h[k] for k in mine)
            b = sum(weights[k] * self.b[k] for k in mine)
            found.append(np.linalg.solve(h, b))
        return np.array(found)

    def gradient(self, models):
        """Return the mean gradient (S, Q, d) of every server's clients at its own models."""
        mean = np.zeros((SERVERS, CLUSTERS, SIZE))
        counts = np.zeros((SERVERS, CLUSTERS, 1))
        for k in range(CLIENTS):
            place = self.servers[k], self.clusters[k]
            mean[place] += self.h[k] @ models[place] - self.b[k]
            counts[place] += 1.0
        return mean / counts


def paper_servers(adjacency, shape):
    return [PaperServer(s, np.flatnonzero(row), shape) for s, row in enumerate(adjacency)]


def exact_servers(adjacency, shape, rho):
    count = len(adjacency)
    return [
        ExactServer(s, np.flatnonzero(row), shape, rho, count) for s, row in enumerate(adjacency)
    ]


def mixed(servers, adjacency, sent, homes, clusters, tau=0.0):
    """Return all servers' models after a round, in which they tell and hear."""
    told = {
        s: server.tell(sent[homes == s], clusters[homes == s], tau)
        for s, server in enumerate(servers)
    }
    letters = Mailbox(len(servers)).carry(1, told, adjacency)
    for s, server in enumerate(servers):
        server.hear(letters[s])
    return np.array([server.model for server in servers])


def run(servers, federation, adjacency, rounds, rho, tau=0.0):
    models, duals = np.array([server.model for server in servers]), np.zeros((CLIENTS, SIZE))
    places = federation.servers, federation.clusters
    for _ in range(rounds):
        w = federation.primal(duals + rho * models[places], rho)
        models = mixed(servers, adjacency, w - duals / rho, *places, tau)
        duals += rho * (models[places] - w)
    return models, duals


def paper(federation, adjacency, rounds, tau=0.0, rho=RHO):
    servers = paper_servers(adjacency, (CLUSTERS, SIZE))
    return run(servers, federation, adjacency, rounds, rho, tau)


def exact(federation, adjacency, rounds, rho=RHO):
    servers = exact_servers(adjacency, (CLUSTERS, SIZE), rho)
    return run(servers, federation, adjacency, rounds, rho)[0]


@GRAPHS
def test_exact_mixing_reaches_the_optimum_on_any_connected_graph(graph):
    federation = Federation("cluster")
    adjacency = topology(graph, SERVERS, seed=1).adjacency
    models = exact(federation, adjacency, 2500)
    best = federation.optimum(np.ones(CLIENTS))
    np.testing.assert_allclose(models, np.tile(best, (SERVERS, 1, 1)), atol=1e-8)


@GRAPHS
def test_the_papers_mixing_stops_at_its_fixed_point_which_is_not_the_optimum(graph):
    federation = Federation("server")
    adjacency = topology(graph, SERVERS, seed=1).adjacency
    models, _ = paper(federation, adjacency, 2000)
    step = models - federation.gradient(models) / RHO
    expected = np.einsum("sp,pqd->sqd", neighbourhood_means(adjacency), step)
    np.testing.assert_allclose(models, expected, atol=1e-8)
    best = federation.optimum(np.ones(CLIENTS))
    error = np.linalg.norm(models - best) / np.linalg.norm(np.tile(best, (SERVERS, 1, 1)))
    assert error > 1e-3
    closer, _ = paper(federation, adjacency, 6000, rho=20.0 * RHO)
    assert np.linalg.norm(closer - best) < 0.5 * np.linalg.norm(models - best)


def test_on_a_complete_graph_the_papers_mixing_reaches_the_server_uniform_optimum():
    federation = Federation("server")
    models, _ = paper(federation, topology("complete", SERVERS).adjacency, 2000)
    places = federation.servers * CLUSTERS + federation.clusters
    weights = 1.0 / np.bincount(places)[places]
    np.testing.assert_allclose(
        models, np.tile(federation.optimum(weights), (SERVERS, 1, 1)), atol=1e-8
    )


def test_duals_at_the_server_give_the_iterates_of_duals_at_the_clients():
    """The paper's own way: a client keeps phi_k, sends w_k and phi_k, and updates phi_k itself."""
    federation = Federation("server")
    adjacency = topology("ring", SERVERS).adjacency
    models = np.zeros((SERVERS, CLUSTERS, SIZE))
    kept = [np.zeros(SIZE) for _ in range(CLIENTS)]
    means, tau = neighbourhood_means(adjacency), 0.3
    for _ in range(60):
        sums, counts = np.zeros_like(models), np.zeros((SERVERS, CLUSTERS, 1))
        sent = []
        for k in range(CLIENTS):
            place = federation.servers[k], federation.clusters[k]
            left = federation.h[k] + RHO * np.eye(SIZE)
            w = np.linalg.solve(left, federation.b[k] + kept[k] + RHO * models[place])
            sums[place] += w - kept[k] / RHO
            counts[place] += 1.0
            sent.append(w)
        hat = np.einsum("sp,pqd->sqd", means, sums / counts)
        models = (1.0 - tau) * hat + tau * hat[:, ::-1]
        for k in range(CLIENTS):
            place = federation.servers[k], federation.clusters[k]
            kept[k] = kept[k] + RHO * (models[place] - sent[k])
    found, duals = paper(federation, adjacency, 60, tau=tau)
    np.testing.assert_allclose(found, models, atol=1e-10)
    np.testing.assert_allclose(duals, np.array(kept), atol=1e-10)


def test_a_cluster_without_a_scheduled_client_keeps_its_model():
    model = np.arange(6.0).reshape(3, 2)
    sent = np.array([[1.0, 1.0], [3.0, 5.0]])
    found = aggregate(sent, np.array([1, 1]), model)
    np.testing.assert_array_equal(found, [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    nobody = aggregate(sent[:0], np.zeros(0, dtype=int), model)
    np.testing.assert_array_equal(nobody, model)


def test_the_mean_is_over_the_server_and_those_it_has_heard():
    own, heard = np.full((2, 3), 6.0), [np.full((2, 3), 1.0), np.full((2, 3), 2.0)]
    np.testing.assert_array_equal(over_servers(own, heard), np.full((2, 3), 3.0))
    np.testing.assert_array_equal(over_servers(own, []), own)


def test_clusters_draw_each_other_to_the_mean_of_the_others():
    model = np.random.default_rng(0).normal(size=(3, 2))
    found = over_clusters(model, 0.4)
    expected = 0.6 * model[0] + 0.2 * (model[1] + model[2])
    np.testing.assert_allclose(found[0], expected, atol=1e-14)
    np.testing.assert_allclose(found.mean(axis=0), model.mean(axis=0), atol=1e-14)
    np.testing.assert_array_equal(over_clusters(model[:1], 0.4), model[:1])


def test_a_server_without_clients_of_a_cluster_passes_it_on():
    """Servers 0 and 2 of a path have the clients, server 1 between them has none."""
    adjacency = topology("path", 3).adjacency
    servers, models, duals = exact_servers(adjacency, (1, 1), 2.0), np.zeros((3, 1, 1)), 0.0
    homes, clusters = np.array([0, 2]), np.zeros(2, dtype=int)
    targets = np.array([[1.0], [4.0]])  # f_k = (w - target)^2
    for _ in range(400):
        v = duals + 2.0 * models[homes, clusters]
        w = (2.0 * targets + v) / (2.0 + 2.0)
        models = mixed(servers, adjacency, w - duals / 2.0, homes, clusters)
        duals = duals + 2.0 * (models[homes, clusters] - w)
    np.testing.assert_allclose(models, 2.5, atol=1e-8)


def test_one_server_with_tau_minimises_the_coupled_objective():
    federation = Federation("cluster")
    federation.servers = np.zeros(CLIENTS, dtype=int)
    tau, alone = 0.7, np.zeros((1, 1), dtype=bool)
    servers = exact_servers(alone, (CLUSTERS, SIZE), RHO)
    models, _ = run(servers, federation, alone, 3000, RHO, tau)
    # sum of f + tau |w_0 - w_1|^2 for either cluster with the other fixed: 2 tau (w_q - w_r).
    for q in range(CLUSTERS):
        mine = np.flatnonzero(federation.clusters == q)
        slope = sum(federation.h[k] @ models[0, q] - federation.b[k] for k in mine)
        pull = 2.0 * tau * (models[0, q] - models[0, 1 - q])
        np.testing.assert_allclose(slope + pull, 0.0, atol=1e-7)


def test_with_a_large_rho_the_papers_mixing_weighs_servers_by_their_neighbours():
    federation = Federation("server")
    adjacency = topology("star", SERVERS).adjacency
    models, _ = paper(federation, adjacency, 20_000, rho=300.0)
    places = federation.servers * CLUSTERS + federation.clusters
    alike = 1.0 / np.bincount(places)[places]
    stationary = (adjacency.sum(axis=1) + 1.0)[federation.servers] * alike
    far, near = (
        np.max(np.abs(models - federation.optimum(weights))) for weights in (alike, stationary)
    )
    assert near < 0.1 * far
