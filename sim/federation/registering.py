"""Telling a SuperLink who may connect, each by its key and its name, and noting their numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trellis.sim.flwr_command import CONNECTION, FlwrCommand

from .folder import Federation


def register(
    federation: Federation, command: FlwrCommand, file: Path, say: Callable[[str], None]
) -> None:
    """Tell a SuperLink the devices' keys, each by its name and once; note their numbers."""
    rows = command.ask("supernode", "list")["nodes"]
    known = {row["node-id"] for row in rows if row["status"] != "unregistered"}
    numbers = read_record(file)
    for name in federation.known:
        if numbers.get(name) in known:
            continue
        key = str(federation.public_key(name))
        answer = command.ask("supernode", "register", key, CONNECTION, "--name", name)
        numbers[name] = str(answer["node-id"])
        write_record(file, numbers)
        say(f"registered: {name}")


def read_record(path: Path) -> dict[str, Any]:
    """Return what a file of ours notes; nothing where it is not there or cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(path: Path, content: dict[str, Any]) -> None:
    """Write it, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(partial, path)
