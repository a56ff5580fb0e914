"""CPU seconds of `trellis run` of a small study, beside those of importing Flower alone.

The whole command, from the start of its process to its end: the interpreter, Flower's import, ours,
the run, its table, and in ``full`` also the report. The peer is a process that imports Flower's
public modules for a run in one process and ends. What ours takes beyond that stands in
``above_floor``; of it, ``importing`` went into modules that Flower's import does not bring, and
``running`` into all else, both counted in a process of their own.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.device_start import cpu_seconds, output_of
from benchmarks.timing import entry

RUNS, FULL_RUNS = 3, 5

# Few clients and rounds; of every study, `trellis run STUDY` with these.
_SERVERS = ("servers=2", "clients=6", "rounds=2", "topology=complete")
_SETTINGS = {
    "consensus-graph": ("clients=3", "rounds=3"),
    "joint-precision": ("clients=3", "rounds=3"),
    "server-graph": _SERVERS,
    "cluster-admm": _SERVERS,
    "gromov-wasserstein": ("clients=2", "rounds=1", "graphs=12"),
}
SMALL = {
    study: tuple(word for setting in settings for word in ("--set", setting))
    for study, settings in _SETTINGS.items()
}
_DP = ("--set", "privacy=dp", "--set", "epsilon=5")
# The same with privacy, where cluster-admm has no servers.
SMALL_DP = {
    study: (
        *(("--set", "clients=6", "--set", "rounds=2") if study == "cluster-admm" else words),
        *_DP,
    )
    for study, words in SMALL.items()
}

FLOOR = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy")
_FLOOR = f"import {', '.join(FLOOR)}"
_METERED = """
import json, sys, time
known = set(json.loads(sys.argv[1]))
from benchmarks.importing import ImportMeter
with ImportMeter() as meter:
    begin = time.process_time()
    from trellis.apps.command import main
    code = main(sys.argv[2:])
    whole = time.process_time() - begin
ours, theirs = meter.total(known), meter.total() - meter.total(known)
print(code, ours, whole - ours - theirs)
"""


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return CPU seconds by study; ``full`` adds private runs, reports and other commands."""
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        return _rows(_commands(Path(folder), full), FULL_RUNS if full else RUNS)


def _commands(folder: Path, full: bool) -> dict[str, Sequence[str]]:
    """Return the arguments of `trellis` by the name of a row."""
    commands: dict[str, Sequence[str]] = {
        f"command-start-{study}": ("run", study, *settings) for study, settings in SMALL.items()
    }
    if full:
        for study, settings in SMALL.items():
            name, out = f"command-start-{study}", folder / study
            commands[f"{name}-dp"] = ("run", study, *SMALL_DP[study])
            report = ("--out", str(out), "--force")
            commands[f"{name}-report"] = ("run", study, *settings, *report)
        commands |= {"command-start-help": ("run", "--help"), "command-start-list": ("list",)}
    return commands


def _rows(commands: dict[str, Sequence[str]], runs: int) -> list[dict[str, Any]]:
    modules = output_of(["-c", f"{_FLOOR}\nimport sys\nprint(*sys.modules)"]).split()
    peer: list[float] = []
    ours: dict[str, list[float]] = {name: [] for name in commands}
    parts: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for arguments in commands.values():  # compiles what the measured ones read
        output_of(["-m", "trellis", *arguments])
    for _ in range(runs):
        peer.append(cpu_seconds(["-c", _FLOOR]))
        for name, arguments in commands.items():
            ours[name].append(cpu_seconds(["-m", "trellis", *arguments]))
            if "--help" not in arguments:  # which leaves the process by itself
                told = output_of(["-c", _METERED, json.dumps(modules), *arguments])
                _, importing, running = told.splitlines()[-1].split()
                parts[name].append((float(importing), float(running)))
    return [
        entry(
            name,
            ours[name],
            peer,
            peer_version=f"flwr {importlib.metadata.version('flwr')}, its import alone",
            unit="CPU s",
            setting=f"trellis {_shown(commands[name])}; Python {sys.version.split()[0]}",
            ours_cores=1,
            peer_cores=1,
            above_floor=float(np.median(np.subtract(ours[name], peer))),
            **_medians(parts[name]),
        )
        for name in commands
    ]


def _medians(parts: list[tuple[float, float]]) -> dict[str, Any]:
    if not parts:
        return {}
    importing, running = np.median(parts, axis=0)
    return {"importing": float(importing), "running": float(running)}


def _shown(arguments: Sequence[str]) -> str:
    """Return a command as a person would write it, without the folder of the benchmark."""
    words = list(arguments)
    if "--out" in words:
        words[words.index("--out") + 1] = "DIR"
    return " ".join(words)
