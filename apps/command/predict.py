"""``trellis predict``: use what a run has learned, on new data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .device.predict import tell
from .saying import say

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("predict", help="use what a run has learned on new data")
    command.add_argument(
        "folder", type=Path, help="a run's folder, or any with its model.json and result.npz"
    )
    command.add_argument("file", type=Path, help="new data: csv or npz with the same columns")
    command.add_argument("--client", help="whose model or graph, where every client has its own")
    command.add_argument("--out", type=Path, help="write all rows to this csv")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Say, or write, what a run's result makes of new data."""
    from trellis.apps.runs.using import load_model, predict

    result = load_model(options.folder)
    found = predict(result, options.file, options.client)
    whose = f", client {options.client}" if options.client else ""
    say(console, f"by {options.folder} ({result.study}{whose}):")
    tell(console, found, options.out)
    return 0
