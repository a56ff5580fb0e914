"""The ``trellis`` command: `main` here, a file per subcommand beside it.

A subcommand's module has `add`, which describes it to argparse, and `act`, which does it. Whatever
is heavy (Flower, numpy, rich, a study) is imported inside `act`: help must come at once.
"""

from __future__ import annotations

import argparse
import gc
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import (
    audit,
    case,
    compare,
    deploy,
    device,
    distances,
    info,
    listing,
    merge,
    new,
    paper,
    predict,
    run,
)
from . import sample as sampling
from . import tune as tuning
from .ended import graphs, report
from .suggesting import SuggestingParser

if TYPE_CHECKING:
    from rich.console import Console

COMMANDS = (
    *(listing, info, run, sampling, tuning, predict, compare, report, graphs, case, paper, audit),
    *(distances, merge, deploy, device, new),
)

# What a user can mend; everything else is a defect and shows its trace.
USER_ERRORS = (ValueError, RuntimeError, OSError, ImportError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code. Without ``arguments`` it is the process's own."""
    options = command_parser().parse_args(arguments)
    code = _act(options)
    if arguments is None:
        # The process ends: to look for garbage in all that is loaded would take a fifth of the
        # time of a run that has used torch.
        gc.freeze()
    return code


def _act(options: argparse.Namespace) -> int:
    from rich.console import Console

    console = Console()
    _set_up_logging(options.verbose)
    try:
        return int(options.act(options, console) or 0)
    except KeyboardInterrupt:
        _say_interrupted(options, console)
        return 130
    except USER_ERRORS as error:
        if options.verbose:
            raise
        from trellis.apps.common.results import said

        text = said(error).replace("[", "\\[")
        console.print(f"[red]error:[/] {text}", soft_wrap=True, highlight=False)
        return 1


def _say_interrupted(options: argparse.Namespace, console: Console) -> None:
    """Say what is left of what was interrupted, and how to go on with it."""
    if hasattr(options, "resumable") and options.resumable is None:
        text = "[yellow]interrupted[/]; nothing is kept. With --out DIR a run can be gone on with"
        console.print(text, soft_wrap=True)
        return
    console.print("[yellow]interrupted[/]; nothing already computed is lost")
    if (out := getattr(options, "resumable", None)) is not None:
        study = "" if options.study == "all" else f" {options.study}"
        console.print(f"go on with: trellis run{study} --resume {out}", soft_wrap=True)


def command_parser() -> argparse.ArgumentParser:
    """Return what reads the command's words, every subcommand described."""
    parser = SuggestingParser(
        prog="trellis", description="Federated graph learning under privacy, on Flower."
    )
    parser.add_argument("--verbose", action="store_true", help="log everything, show traces")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser


def _set_up_logging(verbose: bool) -> None:
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_path=False, show_time=False)
    logger = logging.getLogger("trellis")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
    logging.getLogger("flwr").setLevel(logging.INFO if verbose else logging.WARNING)
