"""The experiment of Sec. V-A, which the regression figures share, and runs of it by seed.

Where the paper leaves something open, ``settings.toml`` says what was taken. All by `simulate`,
which has the numbers of ``trellis run`` without its messages. NMSD is (50), of the clients' own
models before noise; decibels of several seeds are of the mean power. A seed draws the true models,
the graph, the data, the schedule and the noise: between seeds a number deviates by 1 to 3 dB, so
methods are compared seed by seed.

Nothing here was tuned on any seed: rho, the ridge, C and the noise of the targets are those of
``settings.toml`` in all figures that do not vary them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.threads import one_blas_thread
from trellis.apps.experiments.making import Making

from ..config import ClusterAdmmConfig
from ..simulate import Simulation, simulate

Vector = NDArray[np.float64]
Settings = Mapping[str, Any]

# The paper chooses phi_0, not epsilon; over 300 rounds its own comes to 56.3 in the ledger.
PAPER_EPSILON, NO_LIMIT = 57.0, 1e5
DELTA = ClusterAdmmConfig.delta
PAPER: dict[str, Any] = {
    "servers": 10, "clients": 150, "topology": "random:3", "clusters": "3", "features": 60,
    "samples": "2-9", "similarity": 0.15, "noise": 1.0, "ridge": 0.1, "rho": 3.0,
    "phi0": 0.001, "zeta": 0.99, "bound": 0.1, "epsilon": PAPER_EPSILON,
}  # fmt: skip
SITUATIONS: dict[str, dict[str, Any]] = {
    "all clients": {"sample": 0},
    "scheduled": {"sample": 3},
    "scheduled, noise": {"sample": 3, "privacy": "paper"},
}
METHODS: dict[str, dict[str, Any]] = {
    "PGFL, tau 0.4": {"tau": 0.4},
    "PGFL, tau 0": {"tau": 0.0},
    "GFL": {"method": "gfl", "tau": 0.0},
    "ClusterFL, tau 0.4": {"method": "clusterfl", "tau": 0.4},
}
BESIDE: dict[str, dict[str, Any]] = {"FedAvg": {"method": "fedavg"}, "alone": {"method": "local"}}
NMSD = "mean squared deviation (NMSD), dB"
_SIZES = ("clients", "servers", "features")  # what a smaller variant of a figure may change


def job(kind: str, method: Settings, rounds: int) -> dict[str, Any]:
    """Return the settings of a method in a situation; as many clients a round in all."""
    found = {**SITUATIONS[kind], **method, "rounds": rounds}
    if found.get("method") == "fedavg":  # one server has the clients of all
        found["sample"] = PAPER["servers"] * found["sample"]
    if found.get("method") == "local":  # nothing is sent, so nothing is noised
        found["privacy"] = "none"
    return found


def config_of(changes: Settings) -> ClusterAdmmConfig:
    """Return the paper's setting with changes; what has no effect in the method is left out."""
    return ClusterAdmmConfig.from_settings(ClusterAdmmConfig.having_effect({**PAPER, **changes}))


def simulated(making: Making, jobs: Sequence[Settings], title: str = "") -> list[list[Simulation]]:
    """Return the simulations of every job, one a seed, on all cores."""
    sizes = {name: making[name] for name in _SIZES if name in making.numbers}
    pairs = [({**job, **sizes}, seed) for seed in making.seeds for job in jobs]
    found = making.on_all_cores(one, pairs, title)
    return [found[i :: len(jobs)] for i in range(len(jobs))]


def one(pair: tuple[Settings, int]) -> Simulation:
    """Return one simulation of the paper's setting with a job's changes, and a seed."""
    job, seed = pair
    with one_blas_thread():
        return simulate(config_of(job), seed)


def curves_of(runs: Sequence[Simulation], which: str = "nmsd") -> Vector:
    """Return the NMSD (seeds, T) in dB."""
    return np.array([getattr(run, which) for run in runs])


def ends(runs: Sequence[Simulation]) -> Vector:
    """Return the NMSD (seeds,) in dB after the last iteration."""
    return curves_of(runs)[:, -1]


def level(decibels: Vector) -> Vector:
    """Return the decibels of the mean power over seeds, the first axis."""
    return np.asarray(10.0 * np.log10(np.mean(10.0 ** (decibels / 10.0), axis=0)))


def deviation(decibels: Vector) -> Vector:
    """Return the standard error of `level`, in dB to first order; 0 of one seed."""
    powers = 10.0 ** (decibels / 10.0)
    if len(powers) < 2:
        return np.zeros(powers.shape[1:])
    error = np.std(powers, axis=0, ddof=1) / np.sqrt(len(powers))
    return np.asarray(10.0 / np.log(10.0) * error / np.mean(powers, axis=0))


def drawn(lines: Mapping[str, Vector]) -> tuple[dict[str, Vector], dict[str, tuple[Any, Any]]]:
    """Return the levels of curves (seeds, T), and their bands of one standard error."""
    levels = {name: level(line) for name, line in lines.items()}
    errors = {name: deviation(line) for name, line in lines.items()}
    bands = {name: (levels[name] - errors[name], levels[name] + errors[name]) for name in lines}
    return levels, bands


def columns(lines: Mapping[str, Vector]) -> list[dict[str, float]]:
    """Return the rows of a table: of every point, the level of each line and its error."""
    found: dict[str, Vector] = {}
    for name, line in lines.items():
        found[name] = level(line)
        found[f"{name}, standard error"] = deviation(line)
    return [
        dict(zip(found, map(float, row), strict=True)) for row in zip(*found.values(), strict=True)
    ]
