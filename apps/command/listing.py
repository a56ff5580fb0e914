"""``trellis list``: the studies in short, and where to read on."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

import apps

from .saying import say

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("list", help="the studies in short")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Print every study with what it learns; 1 where one is broken."""
    broken = 0
    column = max(map(len, apps.STUDIES)) + 2
    for study in apps.STUDIES:
        try:
            learns = _learns(study)
        except Exception as error:  # whatever a package does when it is loaded
            broken += 1
            console.print(f"[bold]{study:<{column}}[/][red]cannot be loaded[/]")
            say(console, f"  {type(error).__name__}: {error}")
            continue
        first, *more = textwrap.wrap(
            learns, max(min(console.width, 100) - column, 20), break_on_hyphens=False
        )
        console.print(f"[bold]{study:<{column}}[/]", end="")
        say(console, "\n".join([first, *(" " * column + line for line in more)]))
    console.print()
    say(console, "trellis info STUDY   its settings with meaning and range, its figures and page")
    say(console, "trellis run STUDY    runs it on built-in data, --data DIR on your own")
    return 1 if broken else 0


def _learns(study: str) -> str:
    """Return what a study learns; its settings are loaded as well, to know that they can be."""
    from apps.common.settings import config_class

    from .info.described import about

    config_class(study)()
    return about(study)
