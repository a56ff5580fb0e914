"""What the papers' experiments share: many runs side by side, tables from them, data in memory."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from trellis.apps.common.results import RunResult, metrics_csv, write_atomically
from trellis.apps.common.threads import one_blas_thread
from trellis.apps.pages.plots import save
from trellis.strategies.core.jobs import how_many_at_once, side_by_side

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Job:
    """One run of a study, and ``row``, what it is called in the table it is for.

    ``keep`` names the arrays of the result that the table needs.
    """

    study: str
    settings: Mapping[str, Any]
    seed: int
    row: tuple[Any, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a table or figure needs of one run."""

    job: Job
    headline: dict[str, float]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def in_processes(
    function: Callable[[Item], Found], items: Sequence[Item], console: Console, title: str
) -> Iterator[tuple[int, Found]]:
    """Yield the place and the value of every item as it is found, with a progress bar.

    Each is computed with one BLAS thread, in processes on this machine or on what else
    ``joblib.parallel_config`` names: the same bits everywhere.
    """
    at_once = how_many_at_once(len(items))
    work = partial(_with_one_thread, function)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, transient=True) as progress,
        closing(side_by_side(work, items, at_once)) as values,
    ):
        task = progress.add_task(title, total=len(items))
        for place, value in values:
            yield place, value
            progress.advance(task)


def on_all_cores(
    function: Callable[[Item], Found], items: Sequence[Item], console: Console, title: str
) -> list[Found]:
    """Return the function's value for every item, in order."""
    found = dict(in_processes(function, items, console, title))
    return [found[place] for place in range(len(items))]


def _with_one_thread(function: Callable[[Item], Found], item: Item) -> Found:
    with one_blas_thread():
        return function(item)


def sweep(jobs: Sequence[Job], console: Console, title: str) -> list[Outcome]:
    """Run the jobs on all cores, in order, with a progress bar."""
    log = logging.getLogger("trellis")
    level = log.level
    try:
        return on_all_cores(run_job, jobs, console, title)
    finally:
        log.setLevel(level)  # where jobs ran in this process


def run_job(job: Job) -> Outcome:
    """Run one job in this process."""
    from trellis.apps.common.runner import run

    logging.getLogger("trellis").setLevel(logging.ERROR)
    result = run(job.study, job.settings, seed=job.seed)
    return Outcome(job, result.headline, {name: result.arrays[name] for name in job.keep})


def by_row(outcomes: Iterable[Outcome]) -> dict[tuple[Any, ...], list[Outcome]]:
    """Return the outcomes of every row, in order of first appearance."""
    rows: dict[tuple[Any, ...], list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.job.row, []).append(outcome)
    return rows


def means(outcomes: Iterable[Outcome]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return the mean headline of every row, in order of first appearance."""
    return {
        row: {name: float(np.mean([o.headline[name] for o in found])) for name in found[0].headline}
        for row, found in by_row(outcomes).items()
    }


def run_on(
    study: str,
    tables: Mapping[str, NDArray[np.float64]],
    settings: Mapping[str, Any],
    *,
    columns: Sequence[str] | None = None,
    seed: int = 1,
    out: Path | None = None,
) -> RunResult:
    """Run a study on tables in memory, one a client, through files as a user would."""
    from trellis.apps.common.runner import run
    from trellis.apps.common.settings import config_class

    with tempfile.TemporaryDirectory(prefix="trellis-data-") as folder:
        names = {} if columns is None else {"columns": np.array(columns)}
        for client, values in tables.items():
            np.savez(Path(folder) / f"{client}.npz", X=values, **names)  # type: ignore[arg-type]
        # As the paper has it; what would be chosen for a person's own data stays out of figures.
        settings = config_class(study).as_defaults(settings)
        # The folder is a figure's own, which is made anew whenever it is asked for.
        return run(study, settings, data=folder, seed=seed, out=out, force=True)


def show_rows(rows: Sequence[Mapping[str, Any]], title: str, console: Console) -> None:
    """Print a table; numbers with four digits, nothing for what is not known."""
    table = Table(*rows[0], title=title)
    for row in rows:
        texts = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values())
        table.add_row(*("" if text == "nan" else text for text in texts))
    console.print(table)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Write a table as csv and say where."""
    write_atomically(path, metrics_csv(rows).encode())
    console.print(f"wrote {path}", soft_wrap=True)


def save_plot(figure: Any, stem: Path) -> None:
    """Write a figure as png and svg."""
    for suffix in (".png", ".svg"):
        save(figure, stem.with_name(stem.name + suffix))
