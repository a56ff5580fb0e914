"""The paper's setting, its runs on all cores, and levels in decibels with their spread.

Sec. V: 10 servers of 50 clients with 100 samples of 2 features, mu = 0.1, rho = 0.01. What it
leaves open is ours: Metropolis weights on random graphs with p = 0.3, 10 clients a server and
round, batches of 10. Figures but ``speed`` are by `simulate`, which has the numbers of
``trellis run`` without its messages. Decibels of several seeds are of the mean power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.apps.experiments.making import Making

from ..config import ServerGraphConfig
from ..simulate import Simulation, simulate

Vector = NDArray[np.float64]
Settings = Mapping[str, Any]
Many = tuple[tuple[tuple[tuple[str, Any], ...], ...], int]

PAPER: dict[str, Any] = {
    "servers": 10, "clients": 500, "samples": "100", "features": 2, "step": 0.1, "ridge": 0.01,
    "topology": "erdos-renyi:0.3", "weights": "metropolis", "sample": 10, "batch": 10,
}  # fmt: skip
# What the TOML of a figure may change of it, for a quick look or a test.
SIZES = ("servers", "clients", "samples", "sample")
MSD = "mean-square deviation, dB"


def of_size(making: Making) -> dict[str, Any]:
    """Return the paper's setting in the size of the figure that is made."""
    return PAPER | {name: making[name] for name in SIZES if name in making.numbers}


def simulated(making: Making, jobs: Sequence[Settings]) -> list[list[Simulation]]:
    """Return the simulations of every job, one a seed; a process has the jobs of one seed."""
    base = of_size(making)
    every = tuple(tuple(sorted({**base, **job}.items())) for job in jobs)
    found = making.on_all_cores(of_seed, [(every, seed) for seed in making.seeds])
    return [list(runs) for runs in zip(*found, strict=True)]


def of_seed(many: Many) -> list[Simulation]:
    """Return the simulations of all jobs with one seed; they share their draws."""
    jobs, seed = many
    return [simulate(ServerGraphConfig.of_method(dict(job)), seed) for job in jobs]


def powers(runs: Sequence[Vector], window: slice = slice(None)) -> Vector:
    """Return the mean power over rounds of every run, given in dB."""
    return np.array([np.mean(10.0 ** (run[window] / 10.0)) for run in runs])


def power(runs: Sequence[Vector], window: slice = slice(None)) -> float:
    """Return the mean power over runs and rounds."""
    return float(np.mean(powers(runs, window)))


def decibel(value: float) -> float:
    """Return a power in dB; of none, -inf."""
    return float(10.0 * np.log10(value)) if value > 0.0 else -np.inf


def error(values: ArrayLike) -> float:
    """Return the standard error of a mean power over seeds, in dB of that mean; one has none."""
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if array.size < 2 or mean <= 0.0:
        return 0.0
    return float(10.0 / np.log(10.0) * array.std(ddof=1) / np.sqrt(array.size) / mean)


def told(values: ArrayLike) -> str:
    """Return the level of powers over seeds in words."""
    array = np.asarray(values, dtype=np.float64)
    return f"{decibel(float(array.mean())):.1f} ± {error(array):.1f} dB"


def curve(runs: Sequence[Vector]) -> tuple[Vector, tuple[Vector, Vector]]:
    """Return the mean power over runs in every round, dB, and the ends of its spread."""
    each = 10.0 ** (np.asarray(runs) / 10.0)
    line: Vector = 10.0 * np.log10(each.mean(axis=0))
    wide = np.array([error(column) for column in each.T])
    return line, (line - wide, line + wide)


def slope(x: Sequence[float], values: Vector) -> tuple[float, float]:
    """Return the exponent of mean powers (seeds, n) in ``x`` (n,), and its jackknife error.

    Not a number where a mean is not positive; the error of one seed is not told.
    """
    values = np.asarray(values, dtype=np.float64)
    count = len(values)
    fit = _slope(x, values.mean(axis=0))
    if count < 2:
        return fit, float("nan")
    left = np.array([_slope(x, np.delete(values, k, axis=0).mean(axis=0)) for k in range(count)])
    return fit, float(np.sqrt((count - 1) * np.mean((left - left.mean()) ** 2)))


def _slope(x: Sequence[float], means: Vector) -> float:
    if np.any(means <= 0.0):
        return float("nan")
    return float(np.polyfit(np.log(np.asarray(x)), np.log(means), 1)[0])


def exponent(found: tuple[float, float]) -> str:
    """Return an exponent in words."""
    fit, wide = found
    return f"{fit:.2f}" + ("" if np.isnan(wide) else f" ± {wide:.2f}")
