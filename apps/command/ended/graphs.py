"""``trellis graphs``: the graphs of a run's clients as files and pictures, whichever are wanted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..saying import say

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser(
        "graphs", help="write graphs of a run as GraphML and pictures: of any client, or of all"
    )
    command.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run")
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--client",
        nargs="+",
        default=[],
        metavar="NAME",
        help="whose graphs; the shared one if none",
    )
    which.add_argument("--all", action="store_true", help="the graphs of all clients")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="default: DIR/graphs")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Write the graphs, and say which files there are."""
    from rich.progress import Progress

    from trellis.apps.common.results import RunResult
    from trellis.apps.runs.graphs import wanted_graphs, write_wanted

    result = RunResult.load(options.folder)
    wanted = wanted_graphs(result, options.client, everyone=options.all)
    out = options.folder / "graphs" if options.out is None else options.out
    written: list[Path] = []
    with Progress(console=console, transient=True, disable=len(wanted) < 5) as progress:
        task = progress.add_task("graphs", total=len(wanted))
        for paths in write_wanted(result, wanted, out):
            written += paths
            progress.advance(task)
    for path in written[:12]:
        say(console, str(path))
    if len(written) > 12:
        say(console, f"and {len(written) - 12:,} more files in {out}")
    return 0
