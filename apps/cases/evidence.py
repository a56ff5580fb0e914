"""From the held-out scores of several splits to numbers with their errors: pure functions.

A split is a run with a seed of its own, which says what records are held out. Splits of the same
records overlap, so their standard deviation s over J splits says too little; with a share h of the
records held out the error of the mean is taken as s sqrt(1/J + h/(1-h)) (Nadeau & Bengio,
*Inference for the generalization error*, 2003, corrected resampled t-test).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.common.evaluation.scores import TRIVIAL, is_lower
from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import NamedGraph

BETTER, WORSE, CHANCE, UNKNOWN = "better", "worse", "within chance", "not known"


@dataclass(frozen=True)
class Estimate:
    """A mean over splits; ``error`` is its standard error, nan where there is one split only."""

    mean: float
    error: float
    count: int

    @property
    def reach(self) -> float:
        """Half of the 95 % interval, by Student's t; nan where there is one split only."""
        if self.count < 2:
            return math.nan
        from scipy.special import stdtrit

        return float(stdtrit(self.count - 1, 0.975)) * self.error

    @property
    def verdict(self) -> str:
        """Whether a gain is better or worse than none, or within chance (95 %)."""
        if not math.isfinite(self.reach):
            return UNKNOWN
        if abs(self.mean) <= self.reach:
            return CHANCE
        return BETTER if self.mean > 0.0 else WORSE


def estimate(values: Sequence[float], held_out: float) -> Estimate:
    """Return the mean of one value per split, with the error that overlapping splits leave it.

    Parameters
    ----------
    values : one per split
    held_out : the share of records that were held out, 0 <= held_out < 1; 0 where splits share
        no records, as with other data for every seed
    """
    count = len(values)
    if not count:
        raise ValueError("an estimate needs one split at least")
    if count < 2:
        return Estimate(float(values[0]), math.nan, count)
    spread = float(np.std(values, ddof=1))
    error = spread * math.sqrt(1.0 / count + held_out / (1.0 - held_out))
    return Estimate(float(np.mean(values)), error, count)


def held_out_share(runs: Sequence[RunResult]) -> float:
    """Return the share of records that the runs held out."""
    return float(runs[0].config.get("held-out", 0.0) or 0.0)


def main_measure(runs: Sequence[RunResult]) -> str:
    """Return the measure that a person reads first."""
    return str(runs[0].scores["main"])


def score(runs: Sequence[RunResult], row: str = THIS, measure: str = "") -> Estimate | None:
    """Return the mean score over splits, clients counting by their records; None without any.

    ``row`` is `THIS` result or what it is compared with, such as `ALONE`.
    """
    measure = measure or main_measure(runs)
    values = [_mean(run.scores, row, measure) for run in runs]
    known = [value for value in values if value is not None]
    return estimate(known, held_out_share(runs)) if len(known) == len(values) else None


def knowing_nothing(runs: Sequence[RunResult], measure: str = "") -> Estimate | None:
    """Return what the most frequent label, the mean or no graph reaches; None without any."""
    found = (score(runs, row, measure) for row in TRIVIAL)
    return next((one for one in found if one is not None), None)


def gain(
    runs: Sequence[RunResult],
    over: Sequence[RunResult] | None = None,
    row: str = ALONE,
    measure: str = "",
) -> Estimate | None:
    """Return how much better the result is than another, split by split; above 0 is better.

    Parameters
    ----------
    runs : one per split
    over : runs on the same splits whose ``row`` is compared with; the same runs if None
    row : learning alone, or `THIS` for the result of other runs
    """
    measure = measure or main_measure(runs)
    sign = -1.0 if is_lower(runs[0].scores, measure) else 1.0
    values = []
    for ours, theirs in zip(runs, runs if over is None else over, strict=True):
        pair = _mean(ours.scores, THIS, measure), _mean(theirs.scores, row, measure)
        if pair[0] is None or pair[1] is None:
            return None
        values.append(sign * (pair[0] - pair[1]))
    return estimate(values, held_out_share(runs))


def client_gains(
    runs: Sequence[RunResult], over: Sequence[RunResult] | None = None, measure: str = ""
) -> dict[str, Estimate]:
    """Return how much every client gains over learning alone; those that all splits know.

    What it reaches alone is told by ``over``, runs on the same splits; by the same runs if None.
    """
    measure = measure or main_measure(runs)
    place = runs[0].scores["measures"].index(measure)
    sign = -1.0 if is_lower(runs[0].scores, measure) else 1.0
    found: dict[str, list[float]] = {}
    for run, other in zip(runs, runs if over is None else over, strict=True):
        alone = {str(client["name"]): client["rows"] for client in other.scores["clients"]}
        for client in run.scores["clients"]:
            name = str(client["name"])
            pair = _value(client["rows"], THIS, place), _value(alone.get(name, {}), ALONE, place)
            if pair[0] is not None and pair[1] is not None:
                found.setdefault(name, []).append(sign * (pair[0] - pair[1]))
    share = held_out_share(runs)
    return {
        name: estimate(values, share) for name, values in found.items() if len(values) == len(runs)
    }


def wins(gains: Mapping[str, Estimate]) -> tuple[int, int, int]:
    """Return how many clients gain on average over the splits, how many are even, how many lose."""
    means = [one.mean for one in gains.values()]
    better, worse = sum(mean > 0.0 for mean in means), sum(mean < 0.0 for mean in means)
    return better, len(means) - better - worse, worse


def mean_scores(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Return the scores of a run (`trellis.apps.common.evaluation.scores`) averaged over splits.

    Every client's number is its mean over the splits that know it, ``count`` the sum of them.
    """
    first = runs[0].scores
    names = list(dict.fromkeys(str(c["name"]) for run in runs for c in run.scores["clients"]))
    by_name = [{str(c["name"]): c for c in run.scores["clients"]} for run in runs]
    clients = []
    for name in names:
        held = [one[name] for one in by_name if name in one]
        rows = {
            row: [_average([_value(c["rows"], row, k) for c in held]) for k in range(len(values))]
            for row, values in held[0]["rows"].items()
        }
        clients.append({"name": name, "count": sum(c["count"] for c in held), "rows": rows})
    mean = {
        row: [
            _average([_value(run.scores["mean"], row, k) for run in runs])
            for k in range(len(values))
        ]
        for row, values in first["mean"].items()
    }
    return {**first, "clients": clients, "mean": mean}


def beside_alone(
    measure: str,
    clients: Sequence[tuple[str, int, float, float]],
    means: tuple[float, float],
) -> dict[str, Any]:
    """Return a measure of a case's own as scores: this result beside learning alone.

    Parameters
    ----------
    measure : what was measured, more is better
    clients : name, number of records, this result, learning alone
    means : of all clients, of this result and of learning alone
    """
    return {
        "measures": [measure],
        "lower": [],
        "main": measure,
        "judge": measure,
        "clients": [
            {"name": name, "count": count, "rows": {THIS: [ours], ALONE: [alone]}}
            for name, count, ours, alone in clients
        ],
        "mean": {THIS: [means[0]], ALONE: [means[1]]},
    }


@dataclass(frozen=True)
class Edge:
    """An edge that some splits found: its ends, in how many, and its mean weight in those."""

    ends: tuple[str, str]
    times: int
    weight: float


def stability(graphs: Sequence[NamedGraph]) -> list[Edge]:
    """Return the edges that any graph has: those that come back most often first, strong first."""
    found: dict[tuple[str, str], list[float]] = {}
    for graph in graphs:
        for (u, v), weight in zip(graph.pairs.tolist(), graph.weights.tolist(), strict=True):
            first, second = sorted((graph.nodes[u], graph.nodes[v]))
            found.setdefault((first, second), []).append(weight)
    edges = [Edge(ends, len(w), float(np.mean(w))) for ends, w in found.items()]
    return sorted(edges, key=lambda edge: (-edge.times, -abs(edge.weight), edge.ends))


def epsilon_spent(runs: Sequence[RunResult]) -> float | None:
    """Return the most that a client spent in any of the runs, by the ledgers; None without noise.

    Each run is counted for itself: who makes all of them with the same records spends their sum.
    """
    found = []
    for run in runs:
        clients = run.ledger.get("clients") or ()
        held = [run.ledger.get("epsilon"), *(client.get("epsilon") for client in clients)]
        found += [float(value) for value in held if value is not None]
    return max(found, default=None) if any(found) else None


def _mean(scores: Mapping[str, Any], row: str, measure: str) -> float | None:
    if not scores:
        return None
    return _value(scores["mean"], row, scores["measures"].index(measure))


def _value(rows: Mapping[str, Sequence[float | None]], row: str, place: int) -> float | None:
    values = rows.get(row)
    return None if values is None else values[place]


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
