"""``trellis case``: real data from clients' files to one page, worked through."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("case", help="worked cases on real data, each with its page")
    command.add_argument("name", nargs="?", metavar="NAME", help="without one: what there is")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="runs and page; results/NAME by default"
    )
    command.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="splits, each with other records held out"
    )
    command.add_argument(
        "--data-only", type=Path, metavar="DIR", help="write the clients' files here, and no more"
    )
    command.add_argument("--quick", action="store_true", help="reduced runs, to try it out")
    command.add_argument("--force", action="store_true", help="make everything anew")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Run a case, with a bar, and say its answer; without a name, list them."""
    from trellis.apps.cases import load

    from .saying import say

    if options.name is None:
        return _list(console)
    case = load(options.name)
    if options.data_only is not None:
        return _data_only(options, console)
    from trellis.apps.cases.case import PAGE, run_case
    from trellis.apps.tuning.terminal import Display

    out = options.out or Path("results") / case.name
    try:
        with Display(console, case.name) as display:
            story = run_case(
                case,
                out,
                seeds=options.seeds,
                quick=options.quick,
                force=options.force,
                watch=display.show,
            )
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/]; give the same command again to go on")
        return 130
    say(console, f"{case.question}\n{story.answer}")
    say(console, f"page: {out / PAGE}")
    return 0


def _data_only(options: argparse.Namespace, console: Console) -> int:
    from trellis.apps.cases import load
    from trellis.apps.cases.case import prepare_into
    from trellis.apps.cases.page import commands

    from .saying import say

    case, folder = load(options.name), options.data_only
    prepare_into(case, folder)
    say(console, f"the clients' files are in {folder}; try\n")
    say(console, commands(case.planned(options.quick), str(folder)))
    return 0


def _list(console: Console) -> int:
    """Print every case with its question; 1 where one cannot be loaded."""
    from trellis.apps.cases import CASES, load

    from .saying import say

    broken = 0
    for name in CASES:
        try:
            case = load(name)
        except Exception as error:  # whatever a package does when it is loaded
            broken += 1
            console.print(f"[bold]{name}[/]  [red]cannot be loaded[/]")
            say(console, f"  {type(error).__name__}: {error}")
            continue
        console.print(f"[bold]{name}[/]  {case.title}")
        say(console, f"  {case.question}\n  data: {case.source}")
        if case.needs:
            say(console, f"  needs: {case.needs}")
    say(console, "to run one: trellis case NAME")
    return 1 if broken else 0
