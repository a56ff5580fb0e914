"""``trellis list``: the studies, their settings and figures."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Any

import apps

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("list", help="the studies, their settings and figures")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Print every study with its settings and the names of its figures."""
    from apps.common.settings import config_class
    from apps.experiments.figures import figure_names

    for study in apps.STUDIES:
        about = (import_module(apps.STUDIES[study]).__doc__ or "").strip().partition("\n")[0]
        console.print(f"[bold]{study}[/]  {about.removeprefix(f'{study}: ')}")
        settings = config_class(study)().settings()
        console.print("  settings: " + ", ".join(f"{k}={v}" for k, v in settings.items()))
        console.print("  figures:  " + ", ".join(figure_names(study)))
