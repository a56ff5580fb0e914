"""``trellis list``: the studies, their settings and figures."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import apps

from .saying import say

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("list", help="the studies, their settings and figures")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Print every study with its settings and the names of its figures; 1 where one is broken."""
    from apps.outside import fault, outside_studies

    broken = 0
    for study, whose in _studies().items():
        try:
            about, settings, figures = _described(study)
        except Exception as error:  # whatever a package does when it is loaded
            broken += 1
            console.print(f"[bold]{study}[/]{whose}  [red]cannot be loaded[/]")
            say(console, f"  {type(error).__name__}: {error}")
            continue
        console.print(f"[bold]{study}[/]{whose}  {about}")
        console.print(f"  settings: {settings}")
        console.print(f"  figures:  {figures}")
    for other in outside_studies():
        if why := fault(other):
            broken += 1
            console.print(f"[red]cannot be used:[/] {why}", soft_wrap=True)
    return 1 if broken else 0


def _studies() -> dict[str, str]:
    """Return all studies by name, each with whose it is where it is another package's."""
    from apps.outside import fault, outside_studies

    outside = {one.name: f" ({one.source})" for one in outside_studies() if not fault(one)}
    return dict.fromkeys(apps.STUDIES, "") | outside


def _described(study: str) -> tuple[str, str, str]:
    """Return what a study is, its settings with their defaults and its figures."""
    from apps.common.settings import config_class
    from apps.experiments.figures import figure_names

    about = (apps.study_module(study).__doc__ or "").strip().partition("\n")[0]
    settings = config_class(study)().settings()
    return (
        about.removeprefix(f"{study}: "),
        ", ".join(f"{key}={value}" for key, value in settings.items()),
        ", ".join(figure_names(study)),
    )
