"""What it would cost to let devices choose their cluster within noisy sums: ``hidden-choice``.

A device could put its samples into the slot of the cluster that fits them best, and the server
would not see which. But one sample replaced may change the choice, which moves all D of its samples
from slot to slot. Two honest ways to cover that, both measured with the *true* models on offer,
which no search has:

``drawn``    the device draws its cluster with chances exp(a/2 score), score minus the sum of the
             samples' losses, each from 0 to 1 (the exponential mechanism: a-DP, which is a^2/8-zCDP
             [CR]_). Hidden or not, draw and sums compose. Half of the budget goes to the draw.
             Shown: how many clients draw their own cluster; by chance 1 / Q would.
``bounded``  a client counts as one sample, the mean of its own, so that moving it costs no more
             than a sample: the NMSD is that of clients with one sample each. (It would also cover
             a whole client.)

So where clusters are not given, one model for all (``clusters=1``) is learned with noisy sums, and
each device makes its own model of it, which costs nothing.

.. [CR] M. Cesar, R. Rogers, Bounding, concentrating, and truncating: unifying privacy loss
   composition for data analytics, ALT 2021.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.privacy.accounting.zcdp import zcdp_rho

from ..config import ClusterAdmmConfig
from ..data import synthetic_table, synthetic_truth
from ..private.simulate import summed
from ..problem import Array, nmsd

EPSILONS = (0.3, 1.0, 3.0)
SIMILARITY = 0.5
_Cell = tuple[str, int, int, int]  # samples, clients, features, seed


def hidden_choice(making: Making) -> list[Finding]:
    """Write how often a covered choice is right, and what bounding clients leaves."""
    sizes = making["clients"], making["features"]
    samples = list(making["samples"])
    cells: list[_Cell] = [(each, *sizes, seed) for each in samples for seed in making.seeds]
    found = dict(zip(cells, making.on_all_cores(_cell, cells), strict=True))
    rows = []
    for each, epsilon in itertools.product(samples, EPSILONS):
        runs = [found[each, *sizes, seed][epsilon] for seed in making.seeds]
        drawn, best = (float(np.mean([run[name] for run in runs])) for name in ("drawn", "best"))
        powers = {
            name: np.mean([run[name] for run in runs]) for name in ("given", "bounded", "one")
        }
        levels = {name: float(10.0 * np.log10(power)) for name, power in powers.items()}
        row = {"samples": each, "epsilon": epsilon, "right, drawn": drawn, "right, free": best}
        rows.append({**row, **{f"NMSD, {name}": level for name, level in levels.items()}})
    making.table(rows, show=f"{sizes[0]} clients, 3 clusters, {len(making.seeds)} seeds")
    making.console.print(
        "given: clusters are known; bounded: a client counts as one sample; one: clusters=1"
    )
    return []


def draw_chances(losses: Array, epsilon: float) -> Array:
    """Return the chances (K, Q) of the exponential mechanism, of bounded losses summed (K, Q)."""
    scores = -0.5 * epsilon * losses
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _cell(cell: _Cell) -> dict[float, dict[str, float]]:
    samples, clients, features, seed = cell
    config = ClusterAdmmConfig(
        clients=clients, features=features, samples=samples, similarity=SIMILARITY,
        privacy="dp",
    )  # fmt: skip
    truth = synthetic_truth(config, seed)
    made = [synthetic_table(config, seed, k) for k in range(clients)]
    tables = [(one.X, one.y) for one in made]
    targets = truth.models[truth.clusters]
    widths = 4.0 * config.noise  # the losses of a fitting model are well within
    losses = np.array(
        [
            np.minimum(((y[:, None] - X @ truth.models.T) / widths) ** 2, 1.0).sum(axis=0)
            for X, y in tables
        ]
    )
    right = np.arange(clients), truth.clusters
    found = {}
    for epsilon in EPSILONS:
        part = math.sqrt(8.0 * 0.5 * zcdp_rho(epsilon, config.delta))
        private = replace(config, epsilon=epsilon)
        alike = replace(private, clusters="1")
        single = [(X[:1], y[:1]) for X, y in tables]
        levels = {
            "given": summed(private, seed, tables, truth.clusters).releases.models[truth.clusters],
            "bounded": summed(private, seed, single, truth.clusters).releases.models[
                truth.clusters
            ],
            "one": summed(alike, seed, tables, truth.clusters).releases.models[[0] * clients],
        }
        found[epsilon] = {
            "drawn": float(np.mean(draw_chances(losses, part)[right])),
            "best": float(np.mean(np.argmin(losses, axis=1) == truth.clusters)),
            **{name: 10.0 ** (nmsd(models, targets) / 10.0) for name, models in levels.items()},
        }
    return found
