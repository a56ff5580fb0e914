"""``trellis list``: the studies, their settings and figures."""

from __future__ import annotations

import argparse
from importlib import import_module
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
    broken = 0
    for study in apps.STUDIES:
        try:
            about, settings, figures = _described(study)
        except Exception as error:  # whatever a package does when it is loaded
            broken += 1
            console.print(f"[bold]{study}[/]  [red]cannot be loaded[/]")
            say(console, f"  {type(error).__name__}: {error}")
            continue
        console.print(f"[bold]{study}[/]  {about}")
        console.print(f"  settings: {settings}")
        console.print(f"  figures:  {figures}")
    return 1 if broken else 0


def _described(study: str) -> tuple[str, str, str]:
    """Return what a study is, its settings with their defaults and its figures."""
    from apps.common.settings import config_class
    from apps.experiments.figures import figure_names

    about = (import_module(apps.STUDIES[study]).__doc__ or "").strip().partition("\n")[0]
    settings = config_class(study)().settings()
    return (
        about.removeprefix(f"{study}: "),
        ", ".join(f"{key}={value}" for key, value in settings.items()),
        ", ".join(figure_names(study)),
    )
