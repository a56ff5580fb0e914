"""``trellis run``: one study, or all."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apps
from apps.common.settings import ConfigError

from .given import add_settings, assignments, settings_file

if TYPE_CHECKING:
    from rich.console import Console

    from apps.common.results import RunResult


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("run", help="run a study (or all)")
    command.add_argument("study", choices=[*apps.STUDIES, "all"], metavar="STUDY")
    command.add_argument("--config", type=Path, metavar="FILE.toml", help="settings from a file")
    command.add_argument("--data", type=Path, metavar="DIR", help="one file per client")
    command.add_argument("--engine", choices=("local", "flower"), default="local")
    command.add_argument("--seed", type=int, default=None)
    command.add_argument("--out", type=Path, metavar="DIR", help="keep result and report here")
    command.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    command.add_argument("--workers", type=int, default=0, help="threads of the local engine")
    add_settings(command)
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Run and show the closing table."""
    if options.study == "all":
        return _run_all(options, console)
    from apps.common.progress import LiveDisplay, listening
    from apps.common.runner import run

    settings, seed, data, out = requested(options)
    with LiveDisplay(console) as display, listening(display):
        result = run(
            options.study,
            settings,
            data=data,
            engine=options.engine,
            seed=seed,
            out=out,
            resume=options.resume is not None,
            workers=options.workers,
        )
        display.finish(options.study)
    show(console, [result])
    return 0


def requested(
    options: argparse.Namespace,
) -> tuple[dict[str, Any], int, Path | None, Path | None]:
    """Return settings, seed, data and output folder: from the run to resume, file and options."""
    from apps.common.results import RunResult

    settings: dict[str, Any] = {}
    seed, data, out = 1, options.data, options.out
    if options.resume is not None:
        before = RunResult.load(options.resume)
        if before.study != options.study:
            raise ConfigError(f"{options.resume} holds a run of {before.study}")
        settings, seed, out = dict(before.config), before.seed, options.resume
        data = data or (Path(before.data) if before.data else None)
    if options.config is not None:
        settings |= settings_file(options.config, options.study)
    settings |= assignments(options)
    return settings, seed if options.seed is None else options.seed, data, out


def _run_all(options: argparse.Namespace, console: Console) -> int:
    from apps.common.progress import LiveDisplay, listening
    from apps.common.recording import wording
    from apps.common.results import RunResult
    from apps.common.runner import run
    from apps.pages.report import write_index

    from . import USER_ERRORS
    from .showcase import COST_HEADERS, SHOWCASES, Showcase, cost_rows

    out = (options.out or Path("results")).resolve()
    seed, engine = 1 if options.seed is None else options.seed, options.engine
    results, failed = [], 0
    with LiveDisplay(console) as display, listening(display):
        for study in apps.STUDIES:
            for suffix, settings in SHOWCASES.get(study, Showcase()).runs.items():
                folder = out / f"{study}{suffix}"
                try:
                    results.append(run(study, settings, engine=engine, seed=seed, out=folder))
                    display.finish(study)
                except USER_ERRORS as error:  # the others go on
                    failed += 1
                    console.print(f"[red]{study} failed:[/] {_escape(str(error))}")
                    if (folder / "run.json").is_file():
                        results.append(RunResult.load(folder))
    show(console, results)
    words = {study: wording(study) for study in apps.STUDIES}
    costs = cost_rows(results, words)
    _show_costs(console, costs)
    path = write_index(results, out / "index.html", words, (COST_HEADERS, costs))
    console.print(f"report: {path}", soft_wrap=True)
    return 1 if failed else 0


def show(console: Console, results: Sequence[RunResult]) -> None:
    """Print the closing table."""
    from rich.table import Table

    for result in results:
        for note in result.notes:
            console.print(f"[yellow]{result.study}:[/] {_escape(note)}", soft_wrap=True)
    table = Table(title="Trellis")
    table.add_column("study", no_wrap=True)
    for column in ("rounds", "time", "sent up, down", "privacy"):
        table.add_column(column)
    table.add_column("result", no_wrap=True)
    for result in results:
        table.add_row(
            f"{result.study}\n{result.status}",
            str(len(result.metrics)),
            f"{result.seconds:.2f} s",
            f"{result.bytes_up / 1e3:,.0f} kB\n{result.bytes_down / 1e3:,.0f} kB",
            _privacy(result.ledger),
            "\n".join(f"{k} {v:.4g}" for k, v in result.headline.items() if k != "rounds"),
        )
    console.print(table)
    for result in results:
        if result.folder is not None:
            console.print(f"kept in {result.folder}", soft_wrap=True)


def _show_costs(console: Console, rows: Sequence[tuple[str, ...]]) -> None:
    """Print what privacy cost, study by study."""
    from rich.table import Table

    from .showcase import COST_HEADERS

    table = Table(title="What privacy cost")
    for header in COST_HEADERS:
        table.add_column(header, no_wrap=header == "study")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _privacy(ledger: Mapping[str, Any]) -> str:
    mode = str(ledger.get("mode", "none"))
    if not ledger.get("epsilon"):
        return mode
    simulated = " (simulated)" if ledger.get("simulated") else ""
    return f"{mode}, epsilon {ledger['epsilon']:.3g}{simulated}"


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
