"""``trellis info``: a study's settings with meaning, unit, range and default, figures and pages.

`described` takes all of it from the study's config class, `words` lays it out for a terminal, and
`pages` for the reference of the documentation.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..given import StudyNames

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser(
        "info", help="a study's settings with meaning, unit, range and default; its figures"
    )
    command.add_argument("study", choices=StudyNames(), metavar="STUDY")
    command.add_argument("setting", nargs="?", metavar="SETTING", help="one setting only")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Print what there is to know about a study, or about one of its settings."""
    from . import described, words

    wide = min(console.width, 100)
    if options.setting is not None:
        lines = words.one(options.study, described.setting(options.study, options.setting), wide)
    else:
        lines = words.study(options.study, wide)
    for line in lines:
        console.print(line, highlight=False, no_wrap=True, overflow="ignore", crop=False)
    return 0
