"""What privacy costs when noise goes into one sum, and graphs stay on the devices.

``private``     areas under the ROC curve at epsilon = 1, compared with local-only learning, the
                same exchange without noise, and local DP: noise on every client's tau
``break-even``  the same over the number of clients, for three epsilons: from where on the private
                federation beats learning alone

6 subnetworks, delta = 1e-5, a tenth of the clients may drop out and a tenth collude. The
consensus is held against the edges that all clients have, a client's own graph against its own
network, along a path of lambda. Without messages (`private.federation`); of every federation the
first ``scored`` clients make their own graphs, two of each of the three classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import matthews
from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding, Verdict
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves
from trellis.privacy.mechanisms.gaussian import gaussian_sigma

from ..config import JointPrecisionConfig
from ..correlation import correlation_from_tau, to_positive_semidefinite
from ..curves import area_under_roc, roc_points
from ..data import synthetic_table, synthetic_truth
from ..kendall import kendall
from ..private.consensus import consensus_path
from ..private.federation import private_consensus, summed
from ..private.own import ALONE, Own, own_precision
from ..solver import solve_path
from .areas import band, deviation, standing

Matrix = NDArray[np.float64]
Support = NDArray[np.bool_]

DELTA = 1e-5
TOLERANCE = 1e-3
AHEAD = 0.01  # of the area, that counts as being ahead


def table_private(making: Making) -> list[Finding]:
    """Write the table of areas at epsilon = 1."""
    expected = {(row[0], row[1]): row[2:] for row in making["expected"]}
    items = [(clients, samples, seed) for clients, samples in expected for seed in making.seeds]
    found = making.on_all_cores(partial(_private, size=_Size.of(making)), items)
    rows: list[dict[str, Any]] = []
    for (clients, samples), wanted in expected.items():
        own = [f for i, f in zip(items, found, strict=True) if i[:2] == (clients, samples)]
        row: dict[str, Any] = {"clients": clients, "samples": samples}
        row |= {name: float(np.mean([f[name] for f in own])) for name in own[0]}
        row |= {f"{name} spread": deviation(np.array([f[name] for f in own])) for name in own[0]}
        row |= dict(zip(("expected consensus", "expected device"), wanted, strict=True))
        rows.append(row)
    shown = [{k: v for k, v in row.items() if not k.endswith("spread")} for row in rows]
    title = f"Areas at epsilon = 1, p = {making['variables']}, mean of {len(making.seeds)} seeds"
    making.table(shown, "means", show=title)
    making.table(rows)
    # Of one federation after the other: device and alone by seed.
    clear = [
        standing(*(np.array([f[name] for f in own]) for name in ("device", "alone")))
        for key in expected
        for own in [[f for i, f in zip(items, found, strict=True) if i[:2] == key]]
    ]
    words = "; ".join(
        f"{r['clients']} clients of {r['samples']}: consensus {r['consensus']:.3f}, own graph "
        f"{r['device']:.3f}, alone {r['alone']:.3f} (expected {r['expected consensus']:g}, "
        f"{r['expected device']:g})"
        for r in rows
    )
    reached = all(
        r[name] >= r[f"expected {name}"] - making["within"]
        for r in rows
        for name in ("consensus", "device")
    )
    seeds = len(making.seeds)
    if reached and all(value > 0 for value in clear):
        return [Finding("private-sums", words, "reproduced", seeds=seeds)]
    why = "an area is below what was expected, or a device not clearly ahead of learning alone"
    verdict: Verdict = "partly" if any(value > 0 for value in clear) else "refuted"
    return [Finding("private-sums", words, verdict, why, seeds)]


def _private(item: tuple[int, int, int], size: _Size) -> dict[str, float]:
    """Return the scores of one federation."""
    clients, samples, seed = item
    federation = _Federation(clients, samples, seed, size)
    private, free = (federation.consensus(epsilon) for epsilon in (1.0, None))
    alone, device, open_ = (federation.own(c) for c in (None, private, free))
    return {
        "alone": federation.area(alone),
        "each, dp": federation.each(1.0),
        "consensus": federation.common_area(private),
        "device": federation.area(device),
        "consensus, none": federation.common_area(free),
        "device, none": federation.area(open_),
        "alone mcc": federation.mcc(alone),
        "device mcc": federation.mcc(device),
        "using it": float(np.mean([not graph.alone for graph in device])),
    }


def figure_break_even(making: Making) -> list[Finding]:
    """Write areas over the number of clients, and from how many on the federation is ahead."""
    sizes, epsilons = making["clients"], making["epsilons"]
    items = list(itertools.product(sizes, making.seeds))
    work = partial(
        _curve, samples=making["samples"], epsilons=tuple(epsilons), size=_Size.of(making)
    )
    found = dict(zip(items, making.on_all_cores(work, items), strict=True))
    names = list(found[items[0]])
    values = {
        name: np.array([[found[count, seed][name] for count in sizes] for seed in making.seeds])
        for name in names
    }
    rows = [
        {"clients": count}
        | {name: float(line[:, k].mean()) for name, line in values.items()}
        | {f"{name} spread": deviation(line[:, k]) for name, line in values.items()}
        for k, count in enumerate(sizes)
    ]
    shown = [{k: v for k, v in row.items() if not k.endswith("spread")} for row in rows]
    making.table(shown, "means", show=f"Areas over clients, n = {making['samples']}")
    making.table(rows)
    plot = curves(
        sizes, {name: line.mean(axis=0) for name, line in values.items()},
        x_label="clients", y_label="area under the ROC curve", log_x=True,
        bands={name: band(line) for name, line in values.items()},
    )  # fmt: skip
    making.plot(plot)
    return [_break_even(rows, epsilons, sizes, len(making.seeds))]


def _break_even(
    rows: Sequence[Mapping[str, Any]], epsilons: Sequence[float], sizes: Sequence[int], seeds: int
) -> Finding:
    """See from how many clients on devices are ahead, and that they are never far behind."""
    words, crossed = [], []
    for epsilon in epsilons:
        known = [r["clients"] for r in rows if r[f"device {epsilon:g}"] > r["alone"] + AHEAD]
        crossed.append(bool(known))
        where = f"from {min(known)} clients on" if known else f"not up to {sizes[-1]} clients"
        words.append(f"epsilon = {epsilon:g}: own graphs ahead of alone {where}")
    behind = max(r["alone"] - r[f"device {e:g}"] for r in rows for e in epsilons)
    words.append(f"at worst {max(behind, 0.0):.3f} of the area behind")
    found = "; ".join(words)
    if all(crossed) and behind <= AHEAD:
        return Finding("break-even", found, "reproduced", seeds=seeds)
    why = (
        f"devices fall behind alone by more than {AHEAD:g} somewhere"
        if behind > AHEAD
        else "with the smallest epsilon more clients are needed than were run"
    )
    return Finding("break-even", found, "partly" if any(crossed) else "refuted", why, seeds)


def _curve(
    item: tuple[int, int], samples: int, epsilons: tuple[float, ...], size: _Size
) -> dict[str, float]:
    """Return the areas of one federation at all epsilons."""
    federation = _Federation(item[0], samples, item[1], size)
    found = {"alone": federation.area(federation.own(None))}
    for epsilon in epsilons:
        private = federation.consensus(epsilon)
        found[f"consensus {epsilon:g}"] = federation.common_area(private)
        found[f"device {epsilon:g}"] = federation.area(federation.own(private))
    return found


class _Size(NamedTuple):
    """Variables, how many clients of a federation are scored, points of the path of lambda."""

    variables: int
    scored: int
    points: int

    @classmethod
    def of(cls, making: Making) -> _Size:
        """Return what a figure's file says."""
        return cls(making["variables"], making["scored"], making["points"])

    @property
    def lambdas(self) -> NDArray[np.float64]:
        """The path."""
        return np.geomspace(0.8, 0.005, self.points)


class _Federation:
    """One synthetic federation, its truth, and what can be learned of it."""

    def __init__(self, clients: int, samples: int, seed: int, size: _Size) -> None:
        config = JointPrecisionConfig(
            clients=clients, samples=str(samples), variables=size.variables
        )
        self.lambdas = size.lambdas
        self.clients, self.samples, self.p, self.seed = clients, samples, config.variables, seed
        self.upper = np.triu_indices(self.p, 1)
        self.truth = synthetic_truth(config, seed).edges()
        self.tables = [synthetic_table(config, seed, k).values for k in range(clients)]
        self.total, self.weight = summed(self.tables)
        self.scored = range(min(size.scored, clients))

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
                *(self.tables[k], matrix, self.lambdas.tolist()), trusts=trusts, tolerance=TOLERANCE
            )
            for k in self.scored
        ]

    def each(self, epsilon: float) -> float:
        """Return the area under local DP: every client's tau is noised by itself.

        Replacing one of n samples moves n - 1 of n (n - 1) / 2 pairs by p at most each, and so the
        upper triangle of tau by 2 p / n in l2.
        """
        sigma = gaussian_sigma(epsilon, DELTA, 2.0 * self.p / self.samples)
        matrices = []
        for k in self.scored:
            rng = generator(self.seed, "each noise", k)
            tau = kendall(self.tables[k], variant="a")
            noisy = tau + sigma * rng.standard_normal(tau.shape)
            matrices.append(to_positive_semidefinite(correlation_from_tau(noisy))[0])
        points = [(float(value), float(value)) for value in self.lambdas[::2]]
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
        path = consensus_path(consensus, self.lambdas.tolist(), TOLERANCE)
        support = path[:, None, *self.upper] != 0.0
        return self._area(support, np.all(self.truth, axis=0)[None])

    def _area(self, support: Support, truth: Support) -> float:
        return area_under_roc(*roc_points(support, truth))
