"""cluster-admm in the in-process engine next to Flower's simulation runtime, with the same app.

The paper's setting: 150 clients of 10 servers, 60 features, ridge regression, no privacy. Ours runs
300 rounds; Flower, which would take minutes, runs 16 of them, and seconds a round are compared. The
first round, in which Ray starts its actors and clients factorise their data, is counted by neither.
Flower runs on Ray with one CPU a client, which on a machine with two cores makes two actors. All
models and metrics that both have must be equal, bit for bit.
"""

from __future__ import annotations

import importlib.metadata
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CLIENTS, ROUNDS, FLOWER_ROUNDS = 150, 300, 16
_STUDY = "cluster-admm"


def run() -> list[dict[str, Any]]:
    """Return seconds a round of both engines, start-up and the first round left out."""
    from apps import run as run_study
    from apps.common.results import RunResult

    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as name:
        folder = Path(name)
        # Ours before and after Flower's, so that a change of the machine's load does not favour
        # either.
        before = _measure_ours(ROUNDS, folder / "before")
        theirs = run_study(
            _STUDY, _settings(FLOWER_ROUNDS), engine="flower", out=folder / "flower", report=False
        )
        after = _measure_ours(ROUNDS, folder / "after")
        short = _measure_ours(FLOWER_ROUNDS, folder / "short")

    def lasting(result: RunResult) -> list[dict[str, float]]:
        rows = result.metrics[:FLOWER_ROUNDS]
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    for ours in (before, after, short):
        if lasting(ours) != lasting(theirs):
            raise RuntimeError("engines disagree about the metrics of a round")
    if set(short.arrays) != set(theirs.arrays):
        raise RuntimeError("engines disagree about the arrays of the result")
    for key, array in short.arrays.items():
        if array.tobytes() != theirs.arrays[key].tobytes():
            raise RuntimeError(f"engines disagree about {key}")

    seconds = statistics.median([*_seconds(before), *_seconds(after)])
    peer = statistics.median(_seconds(theirs))
    return [
        {
            "name": "cluster-admm",
            "ours": seconds,
            "peer": peer,
            "peer_version": f"flwr {importlib.metadata.version('flwr')}, "
            f"ray {importlib.metadata.version('ray')}",
            "ratio": peer / seconds,
            "unit": "s a round",
            "setting": f"{CLIENTS} clients, the study's defaults; median of 2 x {ROUNDS - 1} "
            f"rounds of ours, of {FLOWER_ROUNDS - 1} of Flower's, the first left out; equal bits; "
            f"{os.cpu_count()} cores",
        }
    ]


def _settings(rounds: int) -> dict[str, int]:
    return {"clients": CLIENTS, "rounds": rounds}


def _seconds(result: Any) -> list[float]:
    """Return the seconds of every round but the first."""
    return [float(row["seconds"]) for row in result.metrics[1:]]


def _measure_ours(rounds: int, out: Path) -> Any:
    """Run the study here, in a process of its own as Flower's has, and return its result."""
    from apps.common.results import RunResult

    command = [sys.executable, "-m", "benchmarks.cluster_admm", str(rounds), str(out)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
    return RunResult.load(out)


def _run_here(rounds: int, out: Path) -> None:
    from apps import run as run_study

    run_study(_STUDY, _settings(rounds), out=out, report=False)


if __name__ == "__main__":
    _run_here(int(sys.argv[1]), Path(sys.argv[2]))
