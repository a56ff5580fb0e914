"""``trellis run all``: every study open and private, an index of them, what privacy cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from trellis import apps
from trellis.apps.common.settings import ConfigError

from .closing import escape, show, words_of
from .given import assignments
from .showcase import COST_HEADERS, SHOWCASES, Showcase, cost_rows

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.common.results import RunResult

_MEASURE = 22  # characters of a line
_NOT_FOR_ALL = {
    "data": "studies want different data; run them one by one, as in trellis run STUDY --data DIR",
    "config": "a file has the settings of one study; trellis run STUDY --config FILE, or --set "
    "STUDY.KEY=VALUE here",
    "resume": "this starts every study anew; trellis run --resume DIR goes on with one run",
}


def run_all(options: argparse.Namespace, console: Console) -> int:
    """Run every study twice; one that fails, or cannot even be loaded, does not stop the others."""
    from trellis.apps.common.progress import display_on, listening
    from trellis.apps.common.runner import run
    from trellis.apps.pages.report import write_index

    planned = _planned(options)
    out = (options.out or Path("results")).resolve()
    seed, engine = 1 if options.seed is None else options.seed, options.engine
    results, failed = [], 0
    with display_on(console) as display, listening(display):
        for study, suffix, settings in planned:
            folder = options.resumable = out / f"{study}{suffix}"
            before = _header(folder)
            try:
                # Forced: these folders are this command's own, and it is there to be repeated.
                more = {"engine": engine, "seed": seed, "workers": options.workers, "force": True}
                results.append(run(study, settings, out=folder, **more))
                display.finish(study)
            except Exception as error:  # the others go on
                failed += 1
                text = _told(error)
                console.print(f"[red]{study} failed:[/] {escape(text)}", soft_wrap=True)
                results.append(_what_is_left(study, folder, before, seed, engine, text))
    del options.resumable  # all have ended
    show(console, results)
    words = {study: words_of(study) for study in apps.STUDIES}
    costs = cost_rows(results, words)
    _show_costs(console, costs)
    path = write_index(results, out / "index.html", words, (COST_HEADERS, costs))
    console.print(f"report: {path}", soft_wrap=True)
    return 1 if failed else 0


def _planned(options: argparse.Namespace) -> list[tuple[str, str, dict[str, Any]]]:
    """Return study, what is added to its folder's name and settings of every run, all checked.

    Raises
    ------
    ConfigError
        For an option that makes no sense for all studies, and a setting that a study refuses.
    """
    from trellis.apps.common.settings import config_class

    for name, why in _NOT_FOR_ALL.items():
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} with all studies: {why}")
    if options.workers and options.engine != "local":
        raise ConfigError(f"--workers {options.workers}: threads are of --engine local")
    planned = []
    for study in apps.STUDIES:
        given = _given(options, study)
        runs = SHOWCASES.get(study, Showcase()).runs
        for suffix, settings in runs.items():
            try:
                mine = settings | _with_effect(study, given, settings, runs.values())
            except Exception:  # the same, and so is what `run` says of it
                mine = settings | given
            planned.append((study, suffix, mine))
            try:
                config_class(study).from_settings(mine)
            except ConfigError as error:
                if given:
                    raise ConfigError(f"--set with all studies: {study}: {error}") from None
            except Exception:  # its package is broken, which is told when its turn comes
                continue
    return planned


def _with_effect(
    study: str,
    given: Mapping[str, Any],
    settings: Mapping[str, Any],
    runs: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the given settings without those that only the study's other run uses."""
    from trellis.apps.common.settings import config_class

    kind = config_class(study)
    known = kind.kinds()

    def used(key: str, run: Mapping[str, Any]) -> bool:
        return key not in known or kind.has_effect(key, {**run, **given})

    alone = {key for key in given if not any(used(key, run) for run in runs)}
    return {key: v for key, v in given.items() if key in alone or used(key, settings)}


def _given(options: argparse.Namespace, study: str) -> dict[str, Any]:
    """Return what ``--set`` says for one study: KEY for all of them, STUDY.KEY for one."""
    found = {}
    for key, value in assignments(options).items():
        whose, _, name = key.rpartition(".")
        if (name or key) == "privacy":
            raise ConfigError(
                "--set privacy with all studies: each runs open and private; run one study with it"
            )
        if whose and whose not in apps.STUDIES:
            raise ConfigError(f"--set {key}: {whose} is no study; use {', '.join(apps.STUDIES)}")
        if not whose or whose == study:
            found[name] = value
    return found


def _header(folder: Path) -> bytes:
    path = folder / "run.json"
    return path.read_bytes() if path.is_file() else b""


def _what_is_left(
    study: str, folder: Path, before: bytes, seed: int, engine: str, text: str
) -> RunResult:
    """Return what a run that failed has written; where that is nothing, that it failed and why."""
    from trellis.apps.common.results import RunResult

    if _header(folder) not in (b"", before):
        return RunResult.load(folder)
    return RunResult(study, seed, engine, {}, status="failed", notes=[text])


def _told(error: Exception) -> str:
    """Return an error in words; what no user can mend with its kind, to be found again."""
    from trellis.apps.common.results import said

    from . import USER_ERRORS

    kind = "" if isinstance(error, USER_ERRORS) else f"{type(error).__name__}: "
    return said(error) if said(error) == type(error).__name__ else f"{kind}{said(error)}"


def _show_costs(console: Console, rows: Sequence[tuple[str, ...]]) -> None:
    """Print what privacy cost, study by study."""
    from rich.table import Table

    # What is measured stands below the study, so that 80 columns are enough for whole words.
    table = Table(title="What privacy cost")
    for header in (COST_HEADERS[0], *COST_HEADERS[2:]):
        table.add_column(header.replace(" ", "\n"))
    for study, measure, *numbers in rows:
        named = "\n".join((f"[bold]{study}[/]", *map(escape, wrap(measure, _MEASURE))))
        table.add_row(named, *(part.replace(": ", ":\n") for part in numbers), end_section=True)
    console.print(table)
