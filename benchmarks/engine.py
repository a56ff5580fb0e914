"""The in-process engine against Flower's simulation runtime, with the same app.

150 nodes, 1770 numbers each way and 1770 kept in the state: a graph of 60 nodes, so to speak, and
next to no arithmetic. What differs is the engine. Flower runs on Ray with one CPU a client, which
on a machine with two cores makes two actors. Both must end with the same checksum.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NODES = 150
SIZE = 1770
ROUNDS = 21  # the first, in which Ray starts its actors, is counted as start-up only
REPEATS = 3  # of our runs: they are short, and a busy machine disturbs a short run more

_APP = Path(__file__).parent / "echo_app"


def run() -> list[dict[str, Any]]:
    """Return messages a second of both engines, without and with start-up."""
    from sim.flower import simulate

    messages = NODES * ROUNDS
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        out = Path(folder) / "rounds.json"
        # Ours before and after Flower's, so that a change of the machine's load does not favour
        # either.
        ours = [_measure_ours(workers=0, out=out) for _ in range(REPEATS)]
        threads = [_measure_ours(workers=os.cpu_count() or 1, out=out) for _ in range(REPEATS)]
        # From submission to final status: neither the SuperLink's start nor its end is counted.
        seconds = simulate(_APP, _run_config(out), nodes=NODES).check().seconds
        peer = json.loads(out.read_text()) | {"command": seconds}
        ours += [_measure_ours(workers=0, out=out) for _ in range(REPEATS)]

    for result in [*ours, *threads]:
        if result["checksum"] != peer["checksum"]:
            raise RuntimeError(f"engines disagree: {result['checksum']} and {peer['checksum']}")
    flower = _rate(peer)
    peer_command = messages / peer["command"]
    command = messages / statistics.median(result["command"] for result in ours)
    setting = f"{NODES} nodes, {SIZE} float64 each way and in the state, {ROUNDS - 1} rounds"
    entries = [
        ("engine", statistics.median(map(_rate, ours)), flower, "one after the other"),
        ("engine-threads", statistics.median(map(_rate, threads)), flower, "a thread a core"),
        ("engine-with-start-up", command, peer_command, "the whole command, first round included"),
    ]
    return [
        {
            "name": name,
            "ours": round(our_rate, 1),
            "peer": round(peer_rate, 1),
            "peer_version": f"flwr {importlib.metadata.version('flwr')}, "
            f"ray {importlib.metadata.version('ray')}",
            "ratio": round(our_rate / peer_rate, 1),
            "unit": "messages/s",
            "setting": f"{setting}; {how}; {os.cpu_count()} cores",
        }
        for name, our_rate, peer_rate, how in entries
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
    from sim.grid import run_local

    nodes = [{"partition-id": index, "num-partitions": NODES} for index in range(NODES)]
    run_local(server_app.app, client_app.app, nodes, _run_config(out), workers=workers)


if __name__ == "__main__":
    _run_here(int(sys.argv[1]), Path(sys.argv[2]))
