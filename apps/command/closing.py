"""What the command says when runs have ended: what to know of them, a table, how good they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.common.results import RunResult
    from trellis.apps.pages.wording import Wording


def show(console: Console, results: Sequence[RunResult]) -> None:
    """Print notes, the closing table, and of runs with held-out scores what these say."""
    from rich.table import Table

    from trellis.apps.pages.wording import counted

    for result in results:
        for note in result.notes:
            console.print(f"[yellow]{result.study}:[/] {escape(note)}", soft_wrap=True)
    # Few columns, and lines in them: this is to fit into a terminal of 80 characters.
    table = Table(title="Trellis")
    told = _numbers if len(results) == 1 else _first_numbers
    for column in ("study", "cost"):
        table.add_column(column, no_wrap=True)
    table.add_column("result")
    for result in results:
        table.add_row(
            "\n".join((result.study, result.status, *_privacy(result.ledger))),
            f"{counted(len(result.metrics), 'round')}\n{result.seconds:.2f} s\n"
            f"up {result.bytes_up / 1e3:,.0f} kB\ndown {result.bytes_down / 1e3:,.0f} kB",
            "\n".join(f"{name}: {_told(value)}" for name, value in told(result).items()),
            end_section=True,
        )
    console.print(table)
    for result in results:
        _show_scores(console, result)
        if result.folder is not None:
            console.print(f"kept in {result.folder}", soft_wrap=True)


def escape(text: str) -> str:
    """Return a text in which rich finds no markup."""
    return text.replace("[", "\\[")


def words_of(study: str) -> Wording:
    """Return what a study calls its numbers; plain names where its package is broken."""
    from trellis.apps.common.recording import wording
    from trellis.apps.pages.wording import Wording

    try:
        return wording(study)
    except Exception:
        return Wording()


def _numbers(result: RunResult) -> dict[str, float]:
    """Return the headline in words, but for what the other columns and held-out scores tell."""
    from trellis.apps.common.evaluation.scores import numbers

    apart = {"rounds", *numbers(result.scores)}
    if result.ledger.get("epsilon"):
        apart.add("epsilon")
    label = words_of(result.study).label
    return {label(name): value for name, value in result.headline.items() if name not in apart}


def _first_numbers(result: RunResult) -> dict[str, float]:
    """Return of one of many runs what an index of them shows."""
    first = words_of(result.study).shown(result.headline)
    return {name: value for name, value in _numbers(result).items() if name in first}


def _show_scores(console: Console, result: RunResult) -> None:
    """Print how good a result is on records that nobody has learned from, beside alone."""
    if not result.scores:
        return
    from rich.table import Table

    from trellis.apps.pages.held_out import in_words
    from trellis.apps.pages.wording import number

    measures = result.scores["measures"]
    table = Table(title="On data it has not seen, mean of clients")
    table.add_column(result.study)
    for measure in measures:
        table.add_column(measure, justify="right")
    for row, values in result.scores["mean"].items():
        table.add_row(row, *(number(value) for value in values))
    console.print(table)
    console.print(escape(in_words(result.scores)), highlight=False)


def _told(value: float) -> str:
    return "not known" if math.isnan(value) else f"{value:.4g}"


def _privacy(ledger: Mapping[str, Any]) -> list[str]:
    """Return the privacy of a run, in lines."""
    lines = [f"privacy {ledger.get('mode', 'none')}"]
    if ledger.get("epsilon"):
        lines.append(f"epsilon {ledger['epsilon']:.3g}")
        lines += ["(simulated)"] * bool(ledger.get("simulated"))
    return lines
