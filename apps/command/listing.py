"""``trellis list``: the studies, and what each learns."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from trellis import apps

from .saying import say

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("list", help="the studies, and what each learns")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Print every study with what it learns; 1 where one is broken."""
    from trellis.apps.outside import fault, outside_studies

    broken = 0
    studies = _studies()
    column = max(map(len, studies)) + 2
    for study, whose in studies.items():
        try:
            learns = _learns(study) + whose
        except Exception as error:  # whatever a package does when it is loaded
            broken += 1
            console.print(f"[bold]{study:<{column}}[/][red]cannot be loaded[/]{whose}")
            say(console, f"  {type(error).__name__}: {error}")
            continue
        first, *more = textwrap.wrap(
            learns, max(min(console.width, 100) - column, 20), break_on_hyphens=False
        )
        console.print(f"[bold]{study:<{column}}[/]", end="")
        say(console, "\n".join([first, *(" " * column + line for line in more)]))
    for other in outside_studies():
        if why := fault(other):
            broken += 1
            console.print(f"[red]cannot be used:[/] {why}", soft_wrap=True)
    console.print()
    say(console, "trellis info STUDY   its settings with meaning and range, its figures and page")
    say(console, "trellis run STUDY    runs it on built-in data, --data DIR on your own")
    return 1 if broken else 0


def _studies() -> dict[str, str]:
    """Return all studies by name, each with whose it is where it is another package's."""
    from trellis.apps.outside import fault, outside_studies

    outside = {one.name: f" ({one.source})" for one in outside_studies() if not fault(one)}
    return dict.fromkeys(apps.STUDIES, "") | outside


def _learns(study: str) -> str:
    """Return what a study learns; its settings are loaded as well, to know that they can be."""
    from trellis.apps.common.settings import config_class

    from .info.described import about

    config_class(study)()
    return about(study)
