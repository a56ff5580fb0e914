"""``trellis paper``: the figures and tables of a study's paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apps

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("paper", help="reproduce a paper's figures and tables")
    command.add_argument("study", choices=list(apps.STUDIES), metavar="STUDY")
    command.add_argument("figures", nargs="*", metavar="FIGURE", help="all of them by default")
    command.add_argument("--out", type=Path, default=Path("results/paper"), metavar="DIR")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Make the figures asked for, all that need no asking by default."""
    from apps.common.tables import DataError
    from apps.experiments.figures import figure, figure_names

    wanted = options.figures or figure_names(options.study)
    makers = {name: figure(options.study, name) for name in wanted}
    for name, make in makers.items():
        try:
            make(options.out / options.study, console)
        except DataError as error:
            if options.figures:
                raise
            text = str(error).replace("[", "\\[")
            console.print(f"[yellow]{name} skipped:[/] {text}", soft_wrap=True)
