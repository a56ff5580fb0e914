"""joint-precision with many variables: time and peak memory, each in a process of its own.

step       one client's step with one block (S, Psi, T in, Omega out, certified) next to one
           iteration of GGLasso's ADMM for one matrix. Memory is the peak beyond a process that has
           done a small step, in matrices of p^2 doubles, input and output counted.
kendall    all correlations of (500, p) Gaussian samples (subnetworks of 50) through Kendall's tau
           into the screening, the largest p whole, next to pandas, whose time is measured on 60
           columns and scaled to all pairs: every pair costs it the same.
screening  three clients' joint problem from their samples to a certified gap of 1e-6, next to what
           GGLasso would hold: its measured matrices per client at p = 1,280, scaled. R's JGL is not
           installed; it too takes one dense p x p covariance matrix for each class.

One thread on both sides; seconds are of the processor, which other work on the machine does not
change much. ``python -m benchmarks.large_p TASK`` measures one task, JSON in and out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.threads import one_blas_thread
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.data import synthetic_table
from trellis.apps.joint_precision.large import bits
from trellis.apps.joint_precision.large.solve import solve_tables
from trellis.apps.joint_precision.large.stream import large_entries
from trellis.apps.joint_precision.problem import LocalProblem
from trellis.strategies.joint_precision.blocks import Blocks

from .timing import entry, peak_memory

Matrix = NDArray[np.float64]
Row = dict[str, Any]

SAMPLES, SUBNETWORK = 500, 50
LAMBDA1, LAMBDA2, CLIENTS = 0.25, 0.05, 3
SCALED_FROM, SCALED_COLUMNS = 1280, 60
WARM = 200
LEAST_FOR_MEMORY = 640


def run(full: bool = False) -> list[Row]:
    """Return the rows: growth of a step, Kendall's tau, and the joint problem."""
    sizes = (160, 320, 640, 1280, 2500, 5000) if full else (640, 1280)
    most = 20_000 if full else 5_000
    kendalls = (1_250, 5_000, 20_000) if full else (5_000,)
    rows = [row for size in sizes for row in _steps(size)]
    rows += [row for size in kendalls for row in _kendall(size, numpy_too=full)]
    return rows + _screening(most)


def _steps(p: int) -> list[Row]:
    ours, peer = measured("step", p=p), measured("gglasso", p=p)
    version = f"gglasso {metadata.version('gglasso')}, one iteration of ADMM_SGL"
    setting = f"one step of one client, p = {p:,}, dense, float64"
    shared: Row = {
        "peer_version": version,
        "setting": setting,
        "ours_cores": 1,
        "peer_cores": 1,
        "peer_name": "GGLasso",
        "series": "variables",
        "x": p,
    }
    name = f"step-{p}"
    memory = [found["peak"] / (8 * p * p) for found in (ours, peer)]
    rows = [entry(name, [ours["seconds"]], [peer["seconds"]], unit="CPU s per step", **shared)]
    if p >= LEAST_FOR_MEMORY:  # below, what a process keeps for itself counts more
        rows.append(entry(name, [memory[0]], [memory[1]], unit="p^2 doubles at peak", **shared))
    return rows


def _kendall(p: int, numpy_too: bool) -> list[Row]:
    ours = measured("kendall", p=p)
    pandas, pairs = measured("pandas", p=p), p * (p - 1) // 2
    version = f"pandas {metadata.version('pandas')}"
    scaled = f"peer scaled from {SCALED_COLUMNS} columns"
    setting = f"Kendall's tau of ({SAMPLES}, {p:,}) into screening above {LAMBDA1}"
    shared: Row = {"ours_cores": 1, "peer_cores": 1, "edges": ours["found"]}
    name = f"kendall-{p}"
    rows = [
        entry(
            name,
            [ours["seconds"]],
            [pandas["seconds"] * pairs / pandas["found"]],
            peer_version=version,
            unit="CPU s",
            setting=f"{setting}, numba installed; {scaled}",
            series="variables",
            x=p,
            line="Kendall's tau",
            **shared,
        ),
    ]
    if p > 5_000:  # below, tiles take as much as the whole
        rows.append(
            entry(
                name,
                [ours["peak"] / 1e6],
                [8 * p * p / 1e6],
                peer_version=f"{version}: its result alone, p^2 doubles",
                unit="MB at peak",
                setting=f"{setting}, samples and ranks counted",
                **shared,
            )
        )
    if numpy_too and p == 20_000:
        least = measured("kendall-numpy", p=2_000)
        seconds = least["seconds"] * pairs / (2_000 * 1_999 / 2)
        rows.append(
            entry(
                name,
                [seconds],
                [rows[0]["peer"]],
                peer_version=version,
                unit="CPU s",
                setting=f"{setting}, numpy alone, scaled from 2,000 columns; {scaled}",
                **shared,
            )
        )
    return rows


def _screening(p: int) -> list[Row]:
    ours = measured("joint", p=p)
    whole = measured("gglasso", p=SCALED_FROM)["peak"] / (8 * SCALED_FROM**2)
    version = f"gglasso {metadata.version('gglasso')}"
    setting = (
        f"K = {CLIENTS}, ({SAMPLES}, {p:,}) each, Pearson, lambda {LAMBDA1} and {LAMBDA2}, gap 1e-6"
    )
    shared: Row = {"ours_cores": 1, "peer_cores": 1, **ours["found"]}
    name = f"screening-{p}"
    return [
        entry(
            name,
            [ours["seconds"]],
            [float("nan")],
            peer_version=f"{version}: not measured, see its memory",
            unit="CPU s",
            setting=f"{setting}, from samples to graphs",
            **shared,
        ),
        entry(
            name,
            [ours["peak"] / 1e6],
            [CLIENTS * whole * 8 * p * p / 1e6],
            peer_version=f"{version}, scaled: {whole:.1f} p^2 doubles for each client",
            unit="MB at peak",
            setting=setting,
            **shared,
        ),
    ]


@cache
def measured(task: str, **about: int) -> Row:
    """Return seconds, peak of memory and what was found of a task in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.large_p", json.dumps({"task": task, **about})],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


# --- in the process of its own ----------------------------------------------------------------


def _step(p: int) -> None:
    blocks, S = Blocks.whole(p), _correlation(p)
    psi = np.zeros(blocks.size)
    psi[blocks.diagonal] = 1.0
    _timed(lambda: LocalProblem(S, blocks).step(psi, psi.copy(), 1.0))


def _gglasso(p: int) -> None:
    solver: Any = import_module("gglasso.solver.single_admm_solver")
    S, start = _correlation(p), np.eye(p)
    _timed(lambda: solver.ADMM_SGL(S, 0.1, start, max_iter=1, verbose=False))


def _correlation(p: int) -> Matrix:
    """Return a positive definite correlation matrix, with no more memory than a step takes.

    Of as many samples as variables: of few, many eigenvalues are equal, and it is decomposed in
    less time.
    """
    x = np.random.default_rng(0).normal(size=(p, p))
    x /= np.linalg.norm(x, axis=0)
    S = x.T @ x
    S *= 0.9
    np.fill_diagonal(S, 1.0)
    return S


def _samples(p: int, client: int = 0) -> Matrix:
    config = JointPrecisionConfig(
        variables=p,
        blocks=p // SUBNETWORK,
        samples=str(SAMPLES),
        clients=CLIENTS,
        margins="gaussian",
    )
    return synthetic_table(config, 1, client).values


def _entries(p: int) -> int:
    X = _samples(p)
    return _timed(lambda: int(large_entries(X, "kendall", LAMBDA1).values.size))


def _entries_by_numpy(p: int) -> int:
    bits._compiled = lambda: None  # type: ignore[assignment]
    return _entries(p)


def _pandas(p: int) -> int:
    columns = min(p, SCALED_COLUMNS)
    frame = import_module("pandas").DataFrame(_samples(2 * SUBNETWORK)[:, :columns])
    _timed(lambda: frame.corr("kendall"))
    return columns * (columns - 1) // 2


def _joint(p: int) -> Row:
    tables = [_samples(p, client) for client in range(CLIENTS)]
    found = _timed(lambda: solve_tables(tables, LAMBDA1, LAMBDA2, kind="pearson"))
    sizes = [group.size for group in found.blocks.members]
    return {
        "certified_gap": found.gap,
        "blocks": len(sizes),
        "largest_block": max(sizes, default=1),
        "alone": int(found.blocks.alone.size),
    }


_TASKS: dict[str, Callable[[int], Any]] = {
    "step": _step,
    "gglasso": _gglasso,
    "kendall": _entries,
    "kendall-numpy": _entries_by_numpy,
    "pandas": _pandas,
    "joint": _joint,
}
_SECONDS = [0.0]


def _timed(work: Callable[[], Any]) -> Any:
    begin = time.process_time()
    found = work()
    _SECONDS[0] = time.process_time() - begin
    return found


def _peak() -> int:
    return int(1024 * peak_memory())


def _main() -> None:
    about = json.loads(sys.argv[1])
    work = _TASKS[about["task"]]
    with one_blas_thread():
        work(WARM)  # imports, compiles, and BLAS takes its buffers
        floor = _peak()
        found = work(about["p"])
    print(json.dumps({"seconds": _SECONDS[0], "peak": _peak() - floor, "found": found}))


if __name__ == "__main__":
    _main()
