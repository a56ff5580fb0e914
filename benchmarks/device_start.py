"""CPU seconds of the process that Flower starts on a device for one message, beside an empty app's.

A message of every kind, recorded from a run of each study, is answered in a process of its own with
the modules in it that Flower's own process has. The peer answers a message of the same process with
the smallest ClientApp there is (`echo_app`). User and system time, the least of some repeats, so
that other work on the machine shows as little as may be. What Flower does around it, unpacking the
app for one, is not in it: see ``deployment`` for whole rounds.
"""

from __future__ import annotations

import importlib.metadata
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.devices import CASES, record_messages

REPEATS = 5

_ROOT = Path(__file__).parents[1]
_EMPTY = """
from benchmarks.devices import import_as_flower_does
import_as_flower_does()
import numpy as np
from flwr.app import Context, Message, Metadata, RecordDict
from flwr.supercore.task_identity import TaskIdentity
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
from strategies.core import wire
from benchmarks.echo_app.echo.client_app import app
message = Message(RecordDict({"arrays": wire.record({"x": np.zeros(9)})}), 1, "train")
app(message, Context(1, 1, {}, RecordDict(), {}))
"""


def run() -> list[dict[str, Any]]:
    """Return CPU seconds by study and kind of message."""
    entries = []
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        for name, case in CASES.items():
            messages = record_messages(case, Path(folder) / name)
            floor, found = _measure({kind: str(file) for kind, file in messages.items()})
            for kind, seconds in found.items():
                entries.append(
                    {
                        "name": f"device-start-{name}-{kind.partition('.')[2] or kind}",
                        "ours": round(seconds, 3),
                        "peer": round(floor, 3),
                        "peer_version": f"flwr {importlib.metadata.version('flwr')}, an empty app",
                        "ratio": round(floor / seconds, 3),
                        "unit": "CPU s",
                        "setting": f"one {kind} message, a process of its own; least of {REPEATS}",
                    }
                )
    return entries


def _measure(messages: dict[str, str]) -> tuple[float, dict[str, float]]:
    """Return the empty app's seconds and those by kind, taken in turns."""
    commands = {"": ["-c", _EMPTY]}
    commands |= {kind: ["-m", "benchmarks.devices", file] for kind, file in messages.items()}
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(REPEATS):
        for kind, command in commands.items():
            best[kind] = min(best[kind], _cpu_seconds([sys.executable, *command]))
    return best.pop(""), best


def _cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=_ROOT, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
