"""``trellis compare``: runs side by side."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("compare", help="put runs side by side")
    command.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a run's folder")
    command.add_argument("--csv", type=Path, metavar="FILE", help="write the table here, too")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page with all of it")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Show the numbers of the runs, and the settings in which they differ."""
    from trellis.apps.common.results import write_atomically
    from trellis.apps.runs.compare import compare

    found = compare(options.folders)
    _show(console, "Runs side by side", found.runs, found.numbers)
    if found.settings:
        _show(console, "What differs", found.runs, found.settings)
    else:
        console.print("The runs have the same settings.")
    for path, make in ((options.csv, found.csv), (options.html, found.html)):
        if path is not None:
            write_atomically(path, make().encode())
            console.print(f"written: {path}", soft_wrap=True)


def _show(
    console: Console, title: str, runs: Sequence[str], rows: Mapping[str, Sequence[object]]
) -> None:
    from rich.markup import escape
    from rich.table import Table

    from trellis.apps.pages.wording import number

    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for run in runs:
        table.add_column(escape(run), justify="right", overflow="fold")
    for name, cells in rows.items():
        table.add_row(escape(name), *(escape(number(cell)) for cell in cells))
    console.print(table)
