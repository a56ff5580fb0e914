"""Runs at the points of a figure: settings, scores over seeds, tables and curves with their spread.

beta, rho and lambda were tuned for each method and each point of the synthetic experiments by a
grid search on other seeds (``tuned.toml`` and, for more than 100 signals, ``tuned-large.toml``,
made by ``trellis paper consensus-graph tune tune-large``), for exact local solves: the best MCC;
for FedGL the best sum of the clients' and the consensus' MCC. Algorithm 1 as printed runs with the
same values. MCC counts an edge where its weight exceeds 0.2 of the graph's largest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Job, Outcome
from trellis.apps.pages.plots import curves

from ..config import ConsensusGraphConfig
from ..problem import Vector
from .judging import mean_and_error

STUDY = ConsensusGraphConfig.study
METHODS = ("igl", "fedavg", "fedgl")
UNEQUAL = "20,40,60,80,100"
AS_PRINTED = ", as printed"  # Algorithm 1 with K and T of the paper, beside the exact solve
SOLVERS = ("", AS_PRINTED)
LABELS = {"igl": "IGL", "fedavg": "FedAvg", "fedgl": "FedGL clients"}
CONSENSUS = "FedGL consensus"
METRICS = {"mcc": "agreement of edges (MCC)", "re": "relative error of weights (RE)"}


@lru_cache(maxsize=1)
def _tuned() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for name in ("tuned.toml", "tuned-large.toml"):
        found |= tomllib.loads(Path(__file__).with_name(name).read_text())
    return found


def settings(method: str, overlap: float, signals: int | str) -> dict[str, Any]:
    """Return a method's settings at one point of the experiments, tuned parameters included."""
    # Clients of different sizes use what was tuned for their mean size, and where nothing was
    # tuned for so many signals, what was for the largest number below.
    size = signals if isinstance(signals, int) else 50
    prefix = f"{method}-{overlap:g}-"
    known = [int(name.removeprefix(prefix)) for name in _tuned() if name.startswith(prefix)]
    near = max(n for n in known if n <= max(size, min(known)))
    tuned = _tuned()[f"{prefix}{near}"]
    return {"method": method, "overlap": overlap, "signals": str(signals), **tuned}


@dataclass(frozen=True)
class Scores:
    """Numbers of many runs: ``values[line, point, metric]`` has one for every seed, in order."""

    values: dict[tuple[str, Any, str], Vector]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Scores:
        """Gather headlines; the row of a job is its line and its point."""
        found: dict[tuple[str, Any, str], list[float]] = {}
        for outcome in outcomes:
            line, point = outcome.job.row
            for metric, value in outcome.headline.items():
                found.setdefault((line, point, metric), []).append(value)
                if metric.startswith("consensus-") and line.startswith(LABELS["fedgl"]):
                    name = CONSENSUS + line.removeprefix(LABELS["fedgl"])
                    own = metric.removeprefix("consensus-")
                    found.setdefault((name, point, own), []).append(value)
        return cls({key: np.array(values) for key, values in found.items()})

    def at(self, line: str, point: Any, metric: str) -> Vector:
        """Return the values over seeds (seeds,)."""
        return self.values[line, point, metric]

    def rows(
        self, axis: str, points: Sequence[Any], lines: Sequence[str], metrics: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Return a table, a row a point: mean and standard error of every line and metric."""
        rows = []
        for point in points:
            row: dict[str, Any] = {axis: point}
            for metric in metrics:
                for line in lines:
                    mean, error = mean_and_error(self.at(line, point, metric))
                    row[f"{metric} {line}"] = mean
                    row[f"{metric} {line} standard error"] = error
            rows.append(row)
        return rows

    def plot(
        self,
        points: Sequence[Any],
        lines: Sequence[str],
        metric: str,
        *,
        x_label: str,
        y_label: str = "",
        **how: Any,
    ) -> Any:
        """Return curves with bands of two standard errors; lines as printed are dashed."""
        both = {
            line: np.array([mean_and_error(self.at(line, p, metric)) for p in points]).T
            for line in lines
        }
        means = {line: mean for line, (mean, _) in both.items()}
        bands = {line: (mean - 2 * e, mean + 2 * e) for line, (mean, e) in both.items()}
        like = {
            line: line.removesuffix(AS_PRINTED)
            for line in lines
            if line.endswith(AS_PRINTED) and line.removesuffix(AS_PRINTED) in lines
        }
        label = y_label or METRICS[metric]
        return curves(points, means, x_label=x_label, y_label=label, bands=bands, like=like, **how)


def both_solvers(making: Making) -> dict[str, dict[str, Any]]:
    """Return the settings of an exact solve and of Algorithm 1 as printed, by suffix.

    ``local-steps`` and ``rounds`` are the paper's K = 25 and T = 8. Its step, 0.0005, is of weights
    normalised to trace d; on raw weights 0.01 is below 1 / L_i at the first graph.
    """
    printed = {name: making[name] for name in ("local-steps", "rounds", "step")}
    exact = {"rounds": making["exact-rounds"], "nodes": making["nodes"]}
    return {"": exact, AS_PRINTED: {**printed, "tolerance": 0.0, "nodes": making["nodes"]}}


def compared(
    making: Making,
    points: Mapping[Any, tuple[float, int | str]],
    keep: tuple[str, ...] = (),
    only: str | None = None,
) -> list[Outcome]:
    """Run all methods at points of (overlap, signals): exactly and as printed, or ``only`` one."""
    jobs = [
        Job(
            STUDY,
            {**settings(method, *where), **extra},
            seed,
            (LABELS[method] + suffix, point),
            keep,
        )
        for method in METHODS
        for suffix, extra in both_solvers(making).items()
        if only in (None, suffix)
        for point, where in points.items()
        for seed in making.seeds
    ]
    return making.sweep(jobs)


def all_lines(consensus: bool = True) -> list[str]:
    """Return the names of all lines: methods, and the consensus, exactly and as printed."""
    names = [*LABELS.values(), *([CONSENSUS] if consensus else [])]
    return [name + suffix for suffix in SOLVERS for name in names]
