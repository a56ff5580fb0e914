"""CPU seconds of the process that Flower starts on a device for one message, beside an empty app's.

A message of every kind, recorded from a run of each study, is answered in a process of its own with
the modules in it that Flower's own process has. The peer answers a message of the same process with
the smallest ClientApp there is (`echo_app`). User and system time, in turns, so that other work on
the machine meets both. What Flower does around it, unpacking the app for one, is not in it: see
``deployment`` for whole rounds.

``above_floor`` is what ours takes beyond the peer's. Of the time after Flower has called the
ClientApp ``importing`` went into imports and ``answering`` into the message itself: reading the
file, arithmetic, noise, the device's ledger. (A device's process lets the garbage collector pass
over what Flower has loaded, an empty app's does not: so the difference may be below zero.)
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.devices import CASES, OTHER_CASES, record_messages
from benchmarks.timing import entry

RUNS = 3
# One of every sort: a round, a masked one, the last message of a run, and one that needs torch.
QUICK = {
    "consensus-graph": ("train",),
    "joint-precision-dp": ("query.personal",),
    "server-graph-dp": ("train.secagg_masked",),
    "cluster-admm": ("train",),
    "gromov-wasserstein-dp": ("query.enrol", "query.embed"),
}

_ROOT = Path(__file__).parents[1]
_EMPTY = """
from benchmarks.devices import import_as_flower_does
import_as_flower_does()
import numpy as np
from flwr.app import Context, Message, Metadata, RecordDict
from flwr.supercore.task_identity import TaskIdentity
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
from trellis.strategies.core import wire
from benchmarks.echo_app.echo.client_app import app
message = Message(RecordDict({"arrays": wire.record({"x": np.zeros(9)})}), 1, "train")
app(message, Context(1, 1, {}, RecordDict(), {}))
"""


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return CPU seconds by study and kind of message; ``full`` takes every kind of all cases."""
    cases = {**CASES, **OTHER_CASES} if full else {name: CASES[name] for name in QUICK}
    files = {}
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        for name, case in cases.items():
            kept = record_messages(case, Path(folder) / name)
            for kind in kept if full else QUICK[name]:
                files[name, kind] = kept[kind]
        return _rows(files)


def _rows(files: Mapping[tuple[str, str], Path]) -> list[dict[str, Any]]:
    """Return a row a message; all of them and the empty app take turns."""
    for file in files.values():  # compiles what the measured ones read
        output_of(["-m", "benchmarks.devices", str(file)])
    output_of(["-c", _EMPTY])
    peer: list[float] = []
    ours: dict[tuple[str, str], list[float]] = {place: [] for place in files}
    parts: dict[tuple[str, str], list[list[float]]] = {place: [] for place in files}
    for _ in range(RUNS):
        peer.append(cpu_seconds(["-c", _EMPTY]))
        for place, file in files.items():
            before = _spent()
            told = output_of(["-m", "benchmarks.devices", str(file)])
            ours[place].append(_spent() - before)
            parts[place].append([float(part) for part in told.splitlines()[-1].split()])
    rows = []
    for (name, kind), seconds in ours.items():
        importing, answering = np.median(parts[name, kind], axis=0)
        rows.append(
            entry(
                f"device-start-{name}-{kind.partition('.')[2] or kind}",
                seconds,
                peer,
                peer_version=f"flwr {importlib.metadata.version('flwr')}, an empty app",
                unit="CPU s",
                setting=f"one {kind} message, a process of its own",
                ours_cores=1,
                peer_cores=1,
                above_floor=float(np.median(np.subtract(seconds, peer))),
                importing=float(importing),
                answering=float(answering),
            )
        )
    return rows


def cpu_seconds(arguments: Sequence[str]) -> float:
    """Return the CPU seconds of a Python process, from its start to its end."""
    before = _spent()
    output_of(arguments)
    return _spent() - before


def output_of(arguments: Sequence[str]) -> str:
    """Return what a Python process prints.

    Raises
    ------
    RuntimeError
        Where it fails; with the end of what it said.
    """
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, env=_with_byte_code())
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)[:200]}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


@functools.cache
def _with_byte_code() -> dict[str, str]:
    """Return an environment whose processes keep what they compile, as Python does by itself.

    Where PYTHONDONTWRITEBYTECODE is set ours would be compiled every time, and Flower, which pip
    has compiled, would not.
    """
    folder = tempfile.TemporaryDirectory(prefix="trellis-bench-")
    atexit.register(folder.cleanup)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder.name}


def _spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
