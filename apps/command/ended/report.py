"""``trellis report``: (re)make the HTML report of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis import apps

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.common.results import RunResult


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("report", help="(re)make the HTML report of a run")
    command.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Write the report from what the run's folder holds."""
    from trellis.apps.common.results import RunResult

    path = write(RunResult.load(options.folder), options.folder)
    console.print(f"report: {path}", soft_wrap=True)


def write(result: RunResult, folder: Path) -> Path:
    """Write the report and the graphs of a run into its folder; return the report's path."""
    from trellis.apps.common.files.run_folder import note_written
    from trellis.apps.common.recording import wording
    from trellis.apps.pages.clients.once import sharing
    from trellis.apps.pages.report import write_report

    module = apps.study_module(result.study, "report")
    with sharing():
        if result.arrays:
            note_written(folder, module.export_graphs(result, folder))
        path, words = folder / "report.html", wording(result.study)
        return write_report(result, module.sections(result), path, words)
