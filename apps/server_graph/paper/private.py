"""What noise in sums costs: ``trellis paper server-graph private break-even``.

10 servers of 5 clients with 100 samples of 2 features, Metropolis weights on random graphs with
p = 0.3, delta = 1e-5, one record replaced. By `simulate`: the arithmetic of ``trellis run`` without
its messages. MSD is of the centroid that is kept, mean power over the seeds; accuracy and loss are
on 1,000 new samples of every client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apps.common.threads import one_blas_thread
from apps.experiments.sweep import on_all_cores, save_plot, write_rows
from apps.pages.plots import curves

from ..config import ServerGraphConfig
from ..data import Samples, synthetic_table
from ..losses import loss_by_name
from ..owner.personal import personal_model
from ..problem import minimiser
from ..simulate import simulate
from ..spending import settled, sound_epsilon
from ..truth import distances
from .setting import decibel

Vector = NDArray[np.float64]
Settings = Mapping[str, Any]
Numbers = dict[str, float]

SEEDS = range(1, 11)
NEW_SAMPLES = 1000
BASE: dict[str, Any] = {"servers": 10, "clients": 50, "samples": "100", "features": 2}
SUM: dict[str, Any] = {"privacy": "sound", "release": "sum", "clip": 0.5}
# All samples in every round: secret batches of a tenth need the same noise and add their own.
WHOLE: dict[str, Any] = {**SUM, "batch": 0, "rounds": 200, "step": 0.15}
FEW: dict[str, Any] = {**SUM, "batch": 0, "rounds": 50, "step": 0.6}
EACH: dict[str, Any] = {
    "privacy": "sound", "release": "each", "method": "hybrid", "clip": 1.0, "rounds": 400,
}  # fmt: skip
ALONE = "alone, raw samples"
CASES: dict[str, Settings] = {
    "no privacy, 400 rounds": {"method": "none", "rounds": 400},
    "sound, release=each, sigma 0.2, 400 rounds": {**EACH, "sigma": 0.2, "epsilon": 2e5},
    "sound, release=each, epsilon 1, 400 rounds": {**EACH, "epsilon": 1.0},
    **{f"release=sum, epsilon {e:g}": {**WHOLE, "epsilon": e} for e in (3.0, 1.0, 0.3)},
    "release=sum, epsilon 1, 50 rounds": {**FEW, "epsilon": 1.0},
    "release=sum, epsilon 1, secret batches of 0.1, 400 rounds": {
        **SUM, "batch": 10, "rounds": 400, "step": 0.075,
    },
}  # fmt: skip
OWN = "on the device: raw samples + the private model, epsilon 1"
OWN_OF = "release=sum, epsilon 1"
EPSILONS = (0.3, 1.0, 3.0)
SIZES = (5, 10, 20, 50, 100)
COUNTS = (100, 20)


def on_new(models: Vector, tests: Sequence[Samples]) -> Numbers:
    """Return accuracy and loss of one model (M,), or of one a client (K, M), on new samples."""
    loss = loss_by_name("logistic")
    each = np.broadcast_to(models, (len(tests), models.shape[-1]))
    pairs = list(zip(each, tests, strict=True))
    right = [np.mean(loss.predict(w, test.X) == test.y) for w, test in pairs]
    lost = [np.mean(loss.loss(w, test.X, test.y)) for w, test in pairs]
    return {"accuracy": float(np.mean(right)), "loss": float(np.mean(lost))}


def _tables(config: ServerGraphConfig, seed: int) -> tuple[list[Samples], list[Samples]]:
    """Return every client's samples, and new ones of the same client."""
    more = replace(config, samples=str(NEW_SAMPLES))
    clients = range(config.clients)
    mine = [synthetic_table(config, seed, k) for k in clients]
    return mine, [synthetic_table(more, seed, k) for k in clients]


def alone(config: ServerGraphConfig, seed: int, truth: Vector) -> Numbers:
    """Return what clients learn by themselves from their raw samples, on average."""
    loss = loss_by_name(config.loss)
    mine, tests = _tables(config, seed)
    models = np.array([minimiser(loss, [[(t.X, t.y)]], config.ridge) for t in mine])
    power = float(np.mean(np.sum((models - truth) ** 2, axis=1)))
    return {"power": power, **on_new(models, tests), "epsilon": 0.0}


def federated(config: ServerGraphConfig, seed: int) -> tuple[Numbers, Vector, Vector]:
    """Return what a federation's kept centroid is worth, itself, and the minimiser."""
    run = simulate(config, seed, shares=False)
    centroid = run.models.mean(axis=0)
    epsilon = run.epsilon
    if config.privacy == "sound" and not config.sums:
        config = settled(config, centroid.size, 1)
        epsilon = sound_epsilon(config, config.rounds, centroid.size)
    power = 10.0 ** (distances(run.models, run.truth)["msd"] / 10.0)
    found = on_new(centroid, _tables(config, seed)[1])
    return {"power": power, **found, "epsilon": epsilon}, centroid, run.truth


def own_models(config: ServerGraphConfig, seed: int, centroid: Vector, truth: Vector) -> Numbers:
    """Return what devices make of their raw samples and the private model, on average."""
    loss = loss_by_name(config.loss)
    mine, tests = _tables(config, seed)
    models = np.array([personal_model(loss, centroid, t.X, t.y, config.ridge).model for t in mine])
    power = float(np.mean(np.sum((models - truth) ** 2, axis=1)))
    return {"power": power, **on_new(models, tests), "epsilon": config.epsilon}


def of_seed(seed: int) -> dict[str, Numbers]:
    """Return all cases of the table with one seed."""
    found: dict[str, Numbers] = {}
    with one_blas_thread():
        for name, settings in CASES.items():
            config = ServerGraphConfig.from_settings({**BASE, **settings})
            found[name], centroid, truth = federated(config, seed)
            if name == OWN_OF:
                found[OWN] = own_models(config, seed, centroid, truth)
        plain = ServerGraphConfig.from_settings({**BASE, "method": "none"})
        return {ALONE: alone(plain, seed, truth), **found}


def means(found: Sequence[Numbers]) -> Numbers:
    """Return means over seeds, MSD in dB of the mean power."""
    mean = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    return {"msd": decibel(mean.pop("power")), **mean}


def private(out: Path, console: Console) -> None:
    """Write what the private federation is worth, beside alone, no privacy, and release=each."""
    found = on_all_cores(of_seed, SEEDS, console, "private")
    rows = [{"case": name, **means([one[name] for one in found])} for name in found[0]]
    table = Table(title=f"10 servers x 5 clients x 100 samples, delta 1e-5, {len(SEEDS)} seeds")
    for column in ("case", "MSD, dB", "accuracy", "loss", "epsilon spent"):
        table.add_column(column)
    for row in rows:
        numbers = [f"{row['msd']:.1f}", f"{row['accuracy']:.4f}", f"{row['loss']:.4f}"]
        table.add_row(str(row["case"]), *numbers, f"{row['epsilon']:.3g}")
    console.print(table)
    write_rows(out / "private.csv", rows, console)


def _cell(samples: int, clients: int) -> dict[str, Any]:
    servers = clients // 5
    # A graph of two or three servers is a complete one.
    graph = "complete" if servers < 4 else "erdos-renyi:0.3"
    method = "fedavg" if servers == 1 else "none"
    return {
        "servers": servers, "clients": clients, "samples": str(samples), "features": 2,
        "topology": graph, "method": method,
    }  # fmt: skip


def even_of_seed(seed: int) -> dict[tuple[int, int, float], Numbers]:
    """Return the federations of all sizes, and learning alone (epsilon 0), with one seed."""
    found: dict[tuple[int, int, float], Numbers] = {}
    with one_blas_thread():
        for samples in COUNTS:
            for clients in SIZES:
                cell = _cell(samples, clients)
                for epsilon in EPSILONS:
                    settings = {**cell, **FEW, "epsilon": epsilon}
                    config = ServerGraphConfig.from_settings(settings)
                    found[samples, clients, epsilon], _, truth = federated(config, seed)
                plain = ServerGraphConfig.from_settings(cell)
                found[samples, clients, 0.0] = alone(plain, seed, truth)
    return found


def break_even(out: Path, console: Console) -> None:
    """Draw the private federation against learning alone, by the number of clients."""
    found = on_all_cores(even_of_seed, SEEDS, console, "break-even")
    cells = {key: means([one[key] for one in found]) for key in found[0]}
    rows = [
        {"samples": n, "clients": k, "budget": e or "alone", **numbers}
        for (n, k, e), numbers in cells.items()
    ]
    for samples in COUNTS:
        lines = {
            f"epsilon {e:g}" if e else ALONE: [cells[samples, k, e]["msd"] for k in SIZES]
            for e in (0.0, *EPSILONS)
        }
        title = f"{samples} samples per client"
        plot = curves(SIZES, lines, x_label="clients", y_label="MSD, dB", title=title)
        save_plot(plot, out / f"break-even-{samples}")
        for e in EPSILONS:
            told = partial(_smallest, cells, samples, e)
            console.print(
                f"{title}, epsilon {e:g}: better than alone by MSD from {told('msd')} clients on, "
                f"by accuracy from {told('accuracy')}"
            )
    write_rows(out / "break-even.csv", rows, console)


def _smallest(
    cells: Mapping[tuple[int, int, float], Numbers], samples: int, epsilon: float, measure: str
) -> str:
    """Return from how many clients on, of those tried, the federation is better than alone."""
    sign = -1.0 if measure == "msd" else 1.0
    better = [
        sign * (cells[samples, k, epsilon][measure] - cells[samples, k, 0.0][measure]) > 0.0
        for k in SIZES
    ]
    worse = [i for i, good in enumerate(better) if not good]
    first = max(worse, default=-1) + 1
    return str(SIZES[first]) if first < len(SIZES) else f"more than {SIZES[-1]}"
