"""``trellis paper``: the figures, tables and theorems of a study's paper, and verdicts on them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis import apps

from .given import StudyNames

if TYPE_CHECKING:
    from rich.console import Console

EVERY = "all"


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("paper", help="reproduce a paper's figures, and judge its claims")
    command.add_argument("study", choices=StudyNames(EVERY), metavar="STUDY", help="or all")
    command.add_argument("figures", nargs="*", metavar="FIGURE", help="all of them by default")
    command.add_argument("--quick", action="store_true", help="smaller runs, fewer seeds")
    command.add_argument("--again", action="store_true", help="also what was made before")
    command.add_argument(
        "--out",
        type=Path,
        default=Path("results/paper"),
        metavar="DIR",
        help="csv files, pictures and verdicts go here",
    )
    command.add_argument(
        "--record",
        type=Path,
        metavar="FILE.json",
        help="enter the verdicts here, with a page",
    )
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Make the figures asked for, all that need no asking by default; 1 where one failed."""
    from trellis.apps.common.settings import ConfigError
    from trellis.apps.experiments import record
    from trellis.apps.experiments.driver import make_figures
    from trellis.apps.experiments.figures import figure, figure_names

    if options.study == EVERY and options.figures:
        raise ConfigError("all: takes no figures; name a study to make some of its figures")
    studies = list(apps.STUDIES) if options.study == EVERY else [options.study]
    wanted = [
        figure(study, name) for study in studies for name in options.figures or figure_names(study)
    ]
    made = make_figures(
        wanted, options.out, console, "quick" if options.quick else "full", options.again
    )
    if options.record:
        page = record.write(options.record, record.entered(record.read(options.record), made))
        console.print(f"wrote {page}", soft_wrap=True)
    bad = [
        one for one in made if one.ended == "failed" or (one.ended == "skipped" and options.figures)
    ]
    if bad:
        names = ", ".join(f"{one.figure.study} {one.figure.name}" for one in bad)
        console.print(f"[red]not made:[/] {names}", soft_wrap=True)
    return 1 if bad else 0
