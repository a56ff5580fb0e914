"""What privacy costs when noise goes into one sum, and graphs stay at home.

``private``     areas under the ROC curve at epsilon = 1 beside learning alone, the same exchange
                without noise, and noise on each client (``release = each``)
``break-even``  the same over the number of clients, for three epsilons: from where on the private
                federation beats learning alone

p = 54 in 6 subnetworks, delta = 1e-5, a tenth of the clients may drop out and a tenth collude. The
consensus is held against the edges that all clients have, a client's own graph against its own
network, along a path of lambda. Without messages (`private.federation`); of every federation the
first `SCORED` clients make their own graphs, two of each of the three classes.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from apps.common.metrics import matthews
from apps.common.seeds import generator
from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.plots import curves
from privacy.mechanisms.gaussian import gaussian_sigma

from ..config import JointPrecisionConfig
from ..correlation import correlation_from_tau, to_positive_semidefinite
from ..curves import area_under_roc, roc_points
from ..data import synthetic_table, synthetic_truth
from ..kendall import kendall
from ..private.consensus import consensus_path
from ..private.federation import private_consensus, summed
from ..private.own import ALONE, Own, own_precision
from ..release import sensitivity
from ..solver import solve_path

Matrix = NDArray[np.float64]
Support = NDArray[np.bool_]

SEEDS = range(1, 11)
SCORED = 6
DELTA = 1e-5
TOLERANCE = 1e-3
LAMBDAS = np.geomspace(0.8, 0.005, 25)
# Clients and samples; what is expected at epsilon 1: consensus, device.
TABLE = {
    (100, 150): (0.927, 0.892),
    (300, 150): (0.992, 0.910),
    (30, 1000): (0.985, 0.988),
}
EPSILONS = (0.3, 1.0, 3.0)
SIZES = (5, 10, 20, 40, 80, 160, 320)
BREAK_EVEN_SEEDS = range(1, 6)
BREAK_EVEN_SAMPLES = 150


def table_private(out: Path, console: Console) -> None:
    """Write the table of areas at epsilon = 1."""
    items = [(clients, samples, seed) for clients, samples in TABLE for seed in SEEDS]
    found = on_all_cores(_private, items, console, "private")
    rows: list[dict[str, Any]] = []
    for (clients, samples), wanted in TABLE.items():
        own = [f for i, f in zip(items, found, strict=True) if i[:2] == (clients, samples)]
        row: dict[str, Any] = {"clients": clients, "samples": samples}
        row |= {name: float(np.mean([f[name] for f in own])) for name in own[0]}
        row |= {f"{name} spread": float(np.std([f[name] for f in own], ddof=1)) for name in own[0]}
        row |= dict(zip(("expected consensus", "expected device"), wanted, strict=True))
        rows.append(row)
    shown = [{k: v for k, v in row.items() if not k.endswith("spread")} for row in rows]
    show_rows(shown, f"Areas at epsilon = 1, p = 54, mean of {len(SEEDS)} seeds", console)
    write_rows(out / "private.csv", rows, console)


def _private(item: tuple[int, int, int]) -> dict[str, float]:
    """Return the scores of one federation."""
    clients, samples, seed = item
    federation = _Federation(clients, samples, seed, SCORED)
    private, free = (federation.consensus(epsilon) for epsilon in (1.0, None))
    alone, device, open_ = (federation.own(c) for c in (None, private, free))
    return {
        "alone": federation.area(alone),
        "each, sound": federation.each(1.0),
        "consensus": federation.common_area(private),
        "device": federation.area(device),
        "consensus, none": federation.common_area(free),
        "device, none": federation.area(open_),
        "alone mcc": federation.mcc(alone),
        "device mcc": federation.mcc(device),
        "using it": float(np.mean([not graph.alone for graph in device])),
    }


def figure_break_even(out: Path, console: Console) -> None:
    """Write areas over the number of clients, and from how many on the federation is ahead."""
    items = list(itertools.product(SIZES, BREAK_EVEN_SEEDS))
    found = on_all_cores(partial(_curve, samples=BREAK_EVEN_SAMPLES), items, console, "break-even")
    rows: list[dict[str, Any]] = []
    for clients in SIZES:
        own = [f for i, f in zip(items, found, strict=True) if i[0] == clients]
        means = {name: float(np.mean([f[name] for f in own])) for name in own[0]}
        rows.append({"clients": clients, **means})
    show_rows(rows, f"Areas over clients, n = {BREAK_EVEN_SAMPLES}, p = 54", console)
    for epsilon in EPSILONS:
        ahead = {}
        for kind in ("consensus", "device"):
            known = [
                row["clients"] for row in rows if row[f"{kind} {epsilon:g}"] > row["alone"] + 0.01
            ]
            ahead[kind] = f"from {min(known)} clients" if known else f"not up to {SIZES[-1]}"
        console.print(
            f"epsilon = {epsilon:g}: ahead of alone by more than .01: consensus "
            f"{ahead['consensus']}, device {ahead['device']}"
        )
    write_rows(out / "break-even.csv", rows, console)
    lines = {name: [row[name] for row in rows] for name in rows[0] if name != "clients"}
    plot = curves(list(SIZES), lines, x_label="clients", y_label="AUC", log_x=True)
    save_plot(plot, out / "break-even")


def _curve(item: tuple[int, int], samples: int) -> dict[str, float]:
    """Return the areas of one federation at all epsilons."""
    federation = _Federation(item[0], samples, item[1], SCORED)
    found = {"alone": federation.area(federation.own(None))}
    for epsilon in EPSILONS:
        private = federation.consensus(epsilon)
        found[f"consensus {epsilon:g}"] = federation.common_area(private)
        found[f"device {epsilon:g}"] = federation.area(federation.own(private))
    return found


class _Federation:
    """One synthetic federation, its truth, and what can be learned of it."""

    def __init__(self, clients: int, samples: int, seed: int, scored: int) -> None:
        config = JointPrecisionConfig(clients=clients, samples=str(samples))
        self.clients, self.samples, self.p, self.seed = clients, samples, config.variables, seed
        self.upper = np.triu_indices(self.p, 1)
        self.truth = synthetic_truth(config, seed).edges()
        self.tables = [synthetic_table(config, seed, k).values for k in range(clients)]
        self.total, self.weight = summed(self.tables)
        self.scored = range(min(scored, clients))

    def consensus(self, epsilon: float | None) -> Any:
        rng = generator(self.seed, f"sum noise {epsilon}", self.clients)
        count = self.clients * self.samples
        return private_consensus(
            self.total, self.weight, self.clients, count, self.p, rng, epsilon=epsilon, delta=DELTA
        )

    def own(self, consensus: Any) -> list[Own]:
        """Return the scored clients' own graphs; alone where there is no consensus."""
        matrix = np.eye(self.p) if consensus is None else consensus.sparse
        trusts = [ALONE] if consensus is None else None
        return [
            own_precision(
                *(self.tables[k], matrix, LAMBDAS.tolist()), trusts=trusts, tolerance=TOLERANCE
            )
            for k in self.scored
        ]

    def each(self, epsilon: float) -> float:
        """Return the area of ``release = each``: every client's tau noised by itself."""
        sigma = gaussian_sigma(epsilon, DELTA, sensitivity(self.p, self.samples))
        matrices = []
        for k in self.scored:
            rng = generator(self.seed, "each noise", k)
            tau = kendall(self.tables[k], variant="a")
            noisy = tau + sigma * rng.standard_normal(tau.shape)
            matrices.append(to_positive_semidefinite(correlation_from_tau(noisy))[0])
        points = [(float(value), float(value)) for value in LAMBDAS[::2]]
        path = solve_path(np.array(matrices), points, tolerance=TOLERANCE)
        support = np.array([point.sparse[:, *self.upper] != 0.0 for point in path])
        return self._area(support, self.truth[: len(self.scored)])

    def area(self, own: list[Own]) -> float:
        """Return the area of clients' own graphs against their own networks."""
        support = np.array([graph.sparse[:, *self.upper] != 0.0 for graph in own])
        return self._area(support.transpose(1, 0, 2), self.truth[: len(own)])

    def mcc(self, own: list[Own]) -> float:
        """Return the mean MCC of the graphs that clients keep."""
        graphs = [graph.sparse[graph.chosen][self.upper] for graph in own]
        pairs = zip(graphs, self.truth, strict=False)
        return float(np.mean([matthews(np.abs(graph), fact, 0.0) for graph, fact in pairs]))

    def common_area(self, consensus: Any) -> float:
        """Return the area of the consensus against the edges that all clients have."""
        path = consensus_path(consensus, LAMBDAS.tolist(), TOLERANCE)
        support = path[:, None, *self.upper] != 0.0
        return self._area(support, np.all(self.truth, axis=0)[None])

    def _area(self, support: Support, truth: Support) -> float:
        return area_under_roc(*roc_points(support, truth))
