"""The in-process engine against Flower's simulation runtime, with the same app.

150 nodes, 1770 numbers each way and 1770 kept in the state: a graph of 60 nodes, so to speak, and
next to no arithmetic. What differs is the engine. Flower runs on Ray with one CPU a client, which
on a machine with two cores makes two actors. Both must end with the same checksum.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .timing import entry

NODES = 150
SIZE = 1770
ROUNDS = 21  # the first, in which Ray starts its actors, is counted as start-up only

_APP = Path(__file__).parent / "echo_app"


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return messages a second of both engines, without and with start-up."""
    from trellis.sim.flower import simulate

    messages, runs = NODES * ROUNDS, 3 if full else 1
    ways = {"engine": 0, "engine-threads": os.cpu_count() or 1}
    ours: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    theirs = []
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        out = Path(folder) / "rounds.json"

        def measure_ours() -> None:
            for way, workers in ways.items():
                ours[way].append(_measure_ours(workers, out))

        for _ in range(runs):
            measure_ours()
            # From submission to final status: neither the SuperLink's start nor its end is counted.
            seconds = simulate(_APP, _run_config(out), nodes=NODES).check().seconds
            theirs.append(json.loads(out.read_text()) | {"command": seconds})
        if runs == 1:
            # Ours before and after Flower's, so that a change of the machine's load does not favour
            # either.
            measure_ours()
            theirs *= 2

    for result in [*ours["engine"], *ours["engine-threads"]]:
        if result["checksum"] != theirs[0]["checksum"]:
            raise RuntimeError(f"engines disagree: {result} and {theirs[0]['checksum']}")
    setting = f"{NODES} nodes, {SIZE} float64 each way and in the state, {ROUNDS - 1} rounds"
    cores = os.cpu_count() or 1
    rates = {way: list(map(_rate, found)) for way, found in ours.items()}
    flower = list(map(_rate, theirs))
    commands = [messages / result["command"] for result in ours["engine"]]
    whole = [messages / result["command"] for result in theirs]
    entries = [
        ("engine", rates["engine"], flower, "one after the other", 1),
        ("engine-threads", rates["engine-threads"], flower, "a thread a core", cores),
        ("engine-with-start-up", commands, whole, "the whole command, first round included", 1),
    ]
    return [
        entry(
            name,
            our_rates,
            peer_rates,
            peer_version=f"flwr {version('flwr')}, ray {version('ray')}",
            unit="messages/s",
            setting=f"{setting}; {how}",
            ours_cores=busy,
            peer_cores=cores,
            more_is_better=True,
        )
        for name, our_rates, peer_rates, how, busy in entries
    ]


def _rate(result: dict[str, Any]) -> float:
    """Return messages a second of a typical round after the first."""
    return NODES / statistics.median(result["seconds"][1:])


def _run_config(out: Path) -> dict[str, str | int | float | bool]:
    return {"nodes": NODES, "size": SIZE, "rounds": ROUNDS, "out": str(out)}


def _measure_ours(workers: int, out: Path) -> dict[str, Any]:
    """Run the app here, in a process of its own as Flower's has, and return what it measured."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.engine", str(workers), str(out)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
    seconds = time.perf_counter() - start
    return json.loads(out.read_text()) | {"command": seconds}


def _run_here(workers: int, out: Path) -> None:
    from benchmarks.echo_app.echo import client_app, server_app
    from trellis.sim.grid import run_local

    nodes = [{"partition-id": index, "num-partitions": NODES} for index in range(NODES)]
    run_local(server_app.app, client_app.app, nodes, _run_config(out), workers=workers)


if __name__ == "__main__":
    _run_here(int(sys.argv[1]), Path(sys.argv[2]))
