"""Seconds a round on real SuperNodes, beside an empty Flower app on the same nodes.

One SuperLink and three SuperNodes on this machine, loopback. The empty app (`echo_app`) sends and
gets nine numbers and looks for replies as the studies do, so what differs is what a study adds: its
imports, its computation, its messages' size. A study's round is one exchange, without privacy, and
what the server makes of it, by the run's own ``metrics.csv``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.devices import CASES, CLIENTS, Case, devices
from benchmarks.timing import entry

ROUNDS = 8  # of which the first, in which the app is unpacked, is not counted
STUDIES = ("consensus-graph", "joint-precision", "server-graph", "cluster-admm")

_ECHO = Path(__file__).parent / "echo_app"


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return seconds a round of each study and of the empty app, taken before and after it."""
    entries = []
    for name in STUDIES if full else STUDIES[:1]:
        case = CASES[name]
        with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
            ours, peer = _measure(case, Path(folder))
        entries.append(
            entry(
                f"deployment-{name}",
                [ours],
                [peer],
                peer_version=f"flwr {importlib.metadata.version('flwr')}, an empty app",
                unit="s a round",
                setting=f"one SuperLink, {CLIENTS} SuperNodes, loopback, median of "
                f"{ROUNDS - 1} rounds",
                ours_cores=os.cpu_count() or 1,
                peer_cores=os.cpu_count() or 1,
            )
        )
    return entries


def _measure(case: Case, folder: Path) -> tuple[float, float]:
    from trellis.apps.common.results import RunResult
    from trellis.apps.common.runner import app_folder
    from trellis.sim.deployment import Deployment

    settings = {**case.settings, "rounds": ROUNDS, "tolerance": 0.0}
    if case.study == "server-graph":
        settings |= {"secure-aggregation": "off"}  # one exchange a round, as the others
    case = Case(case.name, case.study, settings)
    out = folder / "out"
    with Deployment(devices(case.study, folder)) as deployment:
        floor = _echo(deployment, folder)
        deployment.run(app_folder(case.study), case.run_config(str(out))).check()
        floor += _echo(deployment, folder)
    seconds = [row["seconds"] for row in RunResult.load(out).metrics]
    return statistics.median(seconds[1:]), statistics.median(floor)


def _echo(deployment: Any, folder: Path) -> list[float]:
    out = folder / "echo.json"
    config = {"nodes": CLIENTS, "size": 9, "rounds": ROUNDS, "out": str(out)}
    deployment.run(_ECHO, config).check()
    found: list[float] = json.loads(out.read_text())["seconds"]
    return found[1:]
