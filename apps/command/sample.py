"""``trellis sample``: example data, one file per client."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .given import StudyNames, add_settings, assignments

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("sample", help="write example data, one file per client")
    command.add_argument("study", choices=StudyNames(), metavar="STUDY")
    command.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    command.add_argument("--clients", type=int, metavar="N", help="how many files")
    command.add_argument("--seed", type=int, default=1, help="the same seed, the same data")
    add_settings(command)
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Write the files and say how to use them."""
    from trellis.apps.python.sample import run_command, sample_config, write_sample

    from .saying import say

    config = sample_config(options.study, options.clients, assignments(options))
    write_sample(options.study, config, options.seed, options.folder)
    say(console, f"{config.clients} files, one per client, in {options.folder}; try\n")
    say(console, f"    {run_command(options.study, config, options.folder)}")
