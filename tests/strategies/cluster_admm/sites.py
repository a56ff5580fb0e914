"""Servers that live apart, with ridge clients of their own and letters that take their time."""

from __future__ import annotations

import numpy as np

from trellis.strategies.cluster_admm.server import ExactServer

CLUSTERS, SIZE, RIDGE, RHO = 2, 4, 0.1, 3.0


class Site:
    """An exact server and its clients, f_k(w) = |y - X w|^2 / D + RIDGE / n |w|^2.

    n is the number of the cluster's clients over all servers, which the site is told (``everyone``,
    by cluster).
    """

    def __init__(self, server, clusters, seed):
        self.server, self.clusters = server, np.array(clusters, dtype=int)
        rng = np.random.default_rng([seed, server.index])
        truth = np.random.default_rng(seed).normal(size=(CLUSTERS, SIZE))
        self.h, self.b = np.zeros((len(clusters), SIZE, SIZE)), np.zeros((len(clusters), SIZE))
        for k, cluster in enumerate(self.clusters):
            x = rng.normal(size=(rng.integers(3, 9), SIZE))
            y = x @ truth[cluster] + 0.5 * rng.normal(size=len(x))
            self.h[k], self.b[k] = 2.0 / len(x) * x.T @ x, 2.0 / len(x) * x.T @ y
        self.duals, self.everyone = np.zeros_like(self.b), np.ones(CLUSTERS)

    def told(self):
        """Let the clients answer; return what the server tells."""
        share = (2.0 * RIDGE / self.everyone)[self.clusters]
        left = self.h + (share + RHO)[:, None, None] * np.eye(SIZE)
        v = self.duals + RHO * self.server.model[self.clusters]
        self.w = np.linalg.solve(left, (self.b + v)[..., None])[..., 0]
        return self.server.tell(self.w - self.duals / RHO, self.clusters, 0.0)

    def heard(self, letters):
        """Let the server hear, and update the clients' duals."""
        self.server.hear(letters)
        self.duals += RHO * (self.server.model[self.clusters] - self.w)


class Network:
    """Sites that take turns at random, each at its own speed; a server reads the latest letter.

    Letters arrive after a random number of turns, all but ``lost`` of them, and never overtake each
    other. ``gone`` sites take no turns.
    """

    def __init__(self, adjacency, clusters, seed=0, slowest=0.1, delay=6, lost=0.2):
        count = len(adjacency)
        self.adjacency, self.rng = adjacency, np.random.default_rng(seed)
        self.sites = [
            Site(
                ExactServer(s, np.flatnonzero(adjacency[s]), (CLUSTERS, SIZE), RHO, count),
                clusters[s],
                seed,
            )
            for s in range(count)
        ]
        self.speeds = np.linspace(slowest, 1.0, count)
        self.delay, self.lost, self.turn = delay, lost, 0
        self.gone, self.sealed = set(), {}
        self.count_clients()

    def count_clients(self):
        """Tell the sites that are there how many clients each cluster has."""
        here = [site for site in self.sites if site.server.index not in self.gone]
        everyone = sum(np.bincount(site.clusters, minlength=CLUSTERS) for site in here)
        for site in here:
            site.everyone = everyone.astype(float)

    def optimum(self):
        """Return the minimiser (Q, d) of (1) over the clients that are there, in closed form."""
        found = np.zeros((CLUSTERS, SIZE))
        for q in range(CLUSTERS):
            h, b = 2.0 * RIDGE * np.eye(SIZE), np.zeros(SIZE)
            for site in self.sites:
                if site.server.index not in self.gone:
                    h += site.h[site.clusters == q].sum(axis=0)
                    b += site.b[site.clusters == q].sum(axis=0)
            found[q] = np.linalg.solve(h, b)
        return found

    def run(self, turns):
        """Take turns; return how often each site took one."""
        taken = np.zeros(len(self.sites), dtype=int)
        for _ in range(turns):
            self.turn += 1
            for s in np.flatnonzero(self.rng.random(len(self.sites)) < self.speeds):
                if int(s) not in self.gone:
                    self.step(int(s))
                    taken[s] += 1
        return taken

    def step(self, s):
        """Let one site take its turn."""
        for p, letter in self.sites[s].told().items():
            if self.rng.random() >= self.lost:
                arrival = self.turn + int(self.rng.integers(0, self.delay + 1))
                self.sealed.setdefault((s, p), []).append((arrival, letter))
        letters = {}
        for p in self.sites[s].server.neighbours:
            arrived = [of for of in self.sealed.get((p, s), []) if of[0] <= self.turn]
            if arrived:
                letters[p] = arrived[-1][1]
                waiting = self.sealed[p, s]
                self.sealed[p, s] = waiting[len(arrived) - 1 :]
        self.sites[s].heard(letters)

    def rest(self, most=20_000):
        """Take turns until all are at the optimum, and some more; return how far off they are."""
        for _ in range(0, most, 250):
            self.run(250)
            if max(self.errors()) < 1e-9:
                break
        self.run(250)
        return max(self.errors())

    def errors(self):
        """Return how far every site that is there is from the optimum."""
        best = self.optimum()
        return [
            float(np.max(np.abs(site.server.model - best)))
            for site in self.sites
            if site.server.index not in self.gone
        ]
