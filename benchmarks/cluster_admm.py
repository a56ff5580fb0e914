"""cluster-admm in the in-process engine next to Flower's simulation runtime, with the same app.

The paper's setting: 150 clients of 10 servers, 60 features, ridge regression, no privacy. Ours runs
300 rounds; Flower, which would take minutes, runs 16 of them, and seconds a round are compared. The
first round, in which Ray starts its actors and clients factorise their data, is counted by neither.
Flower runs on Ray with one CPU a client, which on a machine with two cores makes two actors. All
models and metrics that both have must be equal, bit for bit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .timing import entry

CLIENTS, ROUNDS, FLOWER_ROUNDS = 150, 300, 16
_STUDY = "cluster-admm"


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return seconds a round of both engines, start-up and the first round left out.

    ``full`` runs Flower's three times, in turns with ours.
    """
    from trellis.apps import run as run_study
    from trellis.apps.common.results import RunResult

    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as name:
        folder = Path(name)
        ours, flower = [], []
        for number in range(3 if full else 1):
            ours.append(_measure_ours(ROUNDS, folder / f"ours-{number}"))
            out = folder / f"flower-{number}"
            settings = _settings(FLOWER_ROUNDS)
            flower.append(run_study(_STUDY, settings, engine="flower", out=out, report=False))
        if not full:
            # Ours before and after Flower's, so that a change of the machine's load does not favour
            # either.
            ours.append(_measure_ours(ROUNDS, folder / "after"))
            flower *= 2
        short = _measure_ours(FLOWER_ROUNDS, folder / "short")
    theirs = flower[0]

    def lasting(result: RunResult) -> list[dict[str, float]]:
        rows = result.metrics[:FLOWER_ROUNDS]
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    for one in (*ours, *flower, short):
        if lasting(one) != lasting(theirs):
            raise RuntimeError("engines disagree about the metrics of a round")
    if set(short.arrays) != set(theirs.arrays):
        raise RuntimeError("engines disagree about the arrays of the result")
    for key, array in short.arrays.items():
        if array.tobytes() != theirs.arrays[key].tobytes():
            raise RuntimeError(f"engines disagree about {key}")

    return [
        entry(
            "cluster-admm",
            [statistics.median(_seconds(one)) for one in ours],
            [statistics.median(_seconds(one)) for one in flower],
            peer_version=f"flwr {version('flwr')}, ray {version('ray')}",
            unit="s a round",
            setting=f"{CLIENTS} clients, the study's defaults; median of {ROUNDS - 1} rounds of "
            f"ours, of {FLOWER_ROUNDS - 1} of Flower's, the first left out; equal bits",
            ours_cores=1,
            peer_cores=os.cpu_count() or 1,
        )
    ]


def _settings(rounds: int) -> dict[str, int]:
    return {"clients": CLIENTS, "rounds": rounds}


def _seconds(result: Any) -> list[float]:
    """Return the seconds of every round but the first."""
    return [float(row["seconds"]) for row in result.metrics[1:]]


def _measure_ours(rounds: int, out: Path) -> Any:
    """Run the study here, in a process of its own as Flower's has, and return its result."""
    from trellis.apps.common.results import RunResult

    command = [sys.executable, "-m", "benchmarks.cluster_admm", str(rounds), str(out)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
    return RunResult.load(out)


def _run_here(rounds: int, out: Path) -> None:
    from trellis.apps import run as run_study

    run_study(_STUDY, _settings(rounds), out=out, report=False)


if __name__ == "__main__":
    _run_here(int(sys.argv[1]), Path(sys.argv[2]))
