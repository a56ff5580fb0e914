"""What privacy costs with noisy sums: ``trellis paper cluster-admm private break-even``.

Not of the paper: its private runs bound nothing. All on the study's synthetic data, 10 seeds that
draw models, samples and noise; decibels are of the mean power. ``alone`` is what a client learns by
itself, ``open`` the minimiser of (1) without privacy, then noisy sums: one exchange, several (4),
and what devices make of the way that is the default, from their raw samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding, standard_error
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves
from trellis.strategies.cluster_admm.moments import ClusterMoments

from ..config import ClusterAdmmConfig
from ..data import Truth, synthetic_table, synthetic_truth
from ..private.simulate import own_models, summed
from ..problem import Array, Tables, nmsd, optimum
from ..steps import alone
from .setting import deviation

EPSILONS = (0.3, 1.0, 3.0)
Size = tuple[int, str, int, str]  # clients, samples each, features, loss
Kind = tuple[str, str, int]  # loss, samples each, features
EXCHANGES = {"one exchange": 1, "several": 4}
MOST_OWN = 20  # clients whose own models are made; all have samples of the same kind
_TESTS = 2000

Level = dict[str, float]


def private(making: Making) -> list[Finding]:
    """Write NMSD (ridge) and accuracy (logistic) by size and epsilon."""
    sizes: list[Size] = [(n, str(d), f, loss) for n, d, f, loss in making["sizes"]]
    cells = list(itertools.product(sizes, making.seeds))
    found = making.on_all_cores(_cell, cells)
    count = len(making.seeds)
    rows = []
    for place, (clients, samples, features, loss) in enumerate(sizes):
        runs = found[place * count : (place + 1) * count]
        head = {"clients": clients, "samples": samples, "features": features, "loss": loss}
        for epsilon in EPSILONS:
            row: dict[str, Any] = {**head, "epsilon": epsilon}
            for name in ("alone", "open", "one exchange", "several", "on the device"):
                row[name] = _mean(loss, [run[_key(name, epsilon)] for run in runs])
            better = _better(loss, row["several"], row["one exchange"])
            rows.append({**row, "wins": "several" if better else "one exchange"})
    making.table(rows, show=f"NMSD in dB (ridge), accuracy (logistic), {count} seeds")
    making.console.print(
        "one exchange, several: of clusters' private models; on the device: clients' own"
    )
    ridge = [row for row in rows if row["loss"] == "ridge"]
    lost = [row for row in ridge if row["wins"] != "several"]
    wins, whole = len(ridge) - len(lost), not lost
    where = "; ".join(
        f"{row['clients']} clients, epsilon {row['epsilon']:g} (by "
        f"{row['several'] - row['one exchange']:.1f} dB)"
        for row in lost
    )
    return [
        Finding(
            "several-exchanges",
            f"four exchanges are better than one in {wins} of {len(ridge)} rows of ridge",
            "reproduced" if whole else "partly",
            "" if whole else f"one exchange is better with {where}",
            count,
        )
    ]


def break_even(making: Making) -> list[Finding]:
    """Draw private results over the number of clients: from when on do they beat learning alone."""
    kinds: list[Kind] = [(loss, str(d), f) for loss, d, f in making["kinds"]]
    growth = list(making["clients"])
    cells = list(itertools.product(kinds, growth, making.seeds))
    by_cell = dict(zip(cells, making.on_all_cores(_grown, cells), strict=True))
    rows, told = [], []
    for kind in kinds:
        loss, samples, features = kind
        lines: dict[str, list[float]] = {}
        bands: dict[str, tuple[list[float], list[float]]] = {}
        for clients in growth:
            runs = [by_cell[kind, clients, seed] for seed in making.seeds]
            row: dict[str, Any] = {"loss": loss, "clients": clients}
            for name in runs[0]:
                values = [run[name] for run in runs]
                mean, error = _mean(loss, values), _error(loss, values)
                row[name] = mean
                lines.setdefault(name, []).append(mean)
                low, high = bands.setdefault(name, ([], []))
                low.append(mean - error)
                high.append(mean + error)
            rows.append(row)
        for epsilon in EPSILONS:
            for where in ("sum", "device"):
                line = lines[f"{where} {epsilon:g}"]
                beats = [_better(loss, a, b) for a, b in zip(line, lines["alone"], strict=True)]
                first = next((n for i, n in enumerate(growth) if all(beats[i:])), np.nan)
                told.append({"loss": loss, "epsilon": epsilon, "model": where, "clients": first})
        label = "mean squared deviation (NMSD), dB" if loss == "ridge" else "accuracy"
        title = f"{loss}, {samples} samples of {features} features per client"
        plot = curves(
            growth, lines, x_label="clients", y_label=label, title=title, log_x=True, bands=bands
        )
        making.plot(plot, loss)
    making.table(rows, show="By the number of clients")
    title = "Clients from which on the private federation beats learning alone"
    making.table(told, "clients", show=title)
    return []


def _cell(cell: tuple[Size, int]) -> Level:
    """Return all levels of one size and seed."""
    (clients, samples, features, loss), seed = cell
    config = _config(clients, samples, features, loss)
    truth, tables = _data(config, seed)
    found = _without_sums(config, seed, truth, tables)
    for epsilon in EPSILONS:
        for name, exchanges in EXCHANGES.items():
            way = replace(config, epsilon=epsilon, exchanges=exchanges)
            strategy = summed(way, seed, tables, truth.clusters)
            public = strategy.releases.models[truth.clusters]
            found[f"{name} {epsilon:g}"] = _level(config, seed, truth, public)
            if exchanges == config.exchange_count:
                found[f"on the device {epsilon:g}"] = _on_device(way, seed, truth, tables, strategy)
    return found


def _grown(cell: tuple[Kind, int, int]) -> Level:
    """Return alone, and sums and devices at every epsilon, of one number of clients."""
    (loss, samples, features), clients, seed = cell
    config = _config(clients, samples, features, loss)
    truth, tables = _data(config, seed)
    found = {"alone": _without_sums(config, seed, truth, tables)["alone"]}
    for epsilon in EPSILONS:
        private = replace(config, epsilon=epsilon)
        strategy = summed(private, seed, tables, truth.clusters)
        public = strategy.releases.models[truth.clusters]
        found[f"sum {epsilon:g}"] = _level(config, seed, truth, public)
        found[f"device {epsilon:g}"] = _on_device(private, seed, truth, tables, strategy)
    return found


def _on_device(
    config: ClusterAdmmConfig, seed: int, truth: Truth, tables: Tables, strategy: ClusterMoments
) -> float:
    """Return the level of what some clients make on their devices."""
    some = range(min(len(tables), MOST_OWN))
    own = own_models(config, strategy, tables, some)
    return _level(config, seed, Truth(truth.models, truth.clusters[: len(some)]), own)


def _without_sums(config: ClusterAdmmConfig, seed: int, truth: Truth, tables: Tables) -> Level:
    some = tables[:MOST_OWN]
    by_itself = alone(config.loss, some, config.ridge)
    few = Truth(truth.models, truth.clusters[: len(some)])
    members = [np.flatnonzero(truth.clusters == q).tolist() for q in range(len(truth.models))]
    best = np.array([optimum(config.loss, [tables[k] for k in mine], 0.1) for mine in members])
    return {
        "alone": _level(config, seed, few, by_itself),
        "open": _level(config, seed, truth, best[truth.clusters]),
    }


def _config(clients: int, samples: str, features: int, loss: str) -> ClusterAdmmConfig:
    return ClusterAdmmConfig(
        clients=clients, samples=samples, features=features, loss=loss, privacy="dp"
    )


def _data(config: ClusterAdmmConfig, seed: int) -> tuple[Truth, Tables]:
    made = [synthetic_table(config, seed, k) for k in range(config.clients)]
    return synthetic_truth(config, seed), [(one.X, one.y) for one in made]


def _level(config: ClusterAdmmConfig, seed: int, truth: Truth, models: Array) -> float:
    """Return the NMSD of clients' models, or their accuracy on new samples."""
    if config.loss == "ridge":
        return nmsd(models, truth.models[truth.clusters])
    rng = generator(seed, "tests")
    X = rng.standard_normal((_TESTS, config.features))
    draws = rng.random(_TESTS)
    labels = draws < expit(X @ truth.models.T).T  # (Q, tests)
    said = X @ models.T  # zero says nothing: right half of the time
    right = np.where(said == 0.0, 0.5, (said > 0.0) == labels[truth.clusters].T)
    return float(np.mean(right))


def _mean(loss: str, values: Sequence[float]) -> float:
    """Return the mean over seeds, in dB of the mean power; not known where one is not."""
    if loss == "ridge":
        return float(10.0 * np.log10(np.mean(10.0 ** (np.asarray(values) / 10.0))))
    return float(np.mean(values))


def _error(loss: str, values: Sequence[float]) -> float:
    """Return the standard error of `_mean`; of decibels, to first order."""
    if loss == "ridge":
        return float(deviation(np.asarray(values)))
    return float(standard_error(values))


def _better(loss: str, one: float, other: float) -> bool:
    return one < other if loss == "ridge" else one > other


def _key(name: str, epsilon: float) -> str:
    return name if name in ("alone", "open") else f"{name} {epsilon:g}"
