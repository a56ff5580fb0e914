"""``tuning.html``: what was found, the picture, the table, what it would cost, how to go on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from trellis.apps.common.results import write_atomically
from trellis.apps.pages.figure import svg
from trellis.apps.pages.page import (
    Badge,
    Block,
    Code,
    FigureBlock,
    Notice,
    Paragraph,
    Section,
    Table,
)
from trellis.apps.pages.templates import render
from trellis.apps.pages.wording import counted, duration

from .outcome import AS_GOOD, BEST, Tuning, cost_in_words, in_words
from .picture import draw, worst_drawn

_ONE_ERROR = (
    f"'{AS_GOOD}' marks settings that the splits cannot tell from the best: split by split they "
    "are no further from it than one standard error of that distance. Among these take what is "
    "cheapest or simplest. The gain is taken split by split, against the settings before; below 0 "
    "it is worse. Splits of the same records overlap, so the true error is somewhat larger than "
    "the one shown."
)


def write(tuning: Tuning, path: Path) -> Path:
    """Write the page, whole or not at all."""
    sections = [
        Section("What was found", [*map(Paragraph, in_words(tuning)), _figure(tuning)]),
        Section("All settings that were tried", [table(tuning), Paragraph(_ONE_ERROR)]),
    ]
    if cost := cost_in_words(tuning):
        blocks: list[Block] = [Notice(cost[0]), *map(Paragraph, cost[1:])]
        sections.append(Section("What tuning costs", blocks))
    sections.append(_next(tuning, path))
    page = render(
        "titled",
        title=f"{tuning.plan.study}: settings, tuned",
        summary=_summary(tuning),
        numbers=_numbers(tuning),
        blocks=sections,
    )
    write_atomically(path, page.encode())
    return path


def notebook(tuning: Tuning) -> str:
    """Return the sentences and the table, to stand in somebody else's page."""
    blocks: list[Block] = [*map(Paragraph, [*in_words(tuning), *cost_in_words(tuning)])]
    return "\n".join(block.html() for block in [*blocks, table(tuning)])


def table(tuning: Tuning) -> Table:
    """Return the table of all settings, the best first."""
    rows = []
    for row in tuning.rows():
        remark = row.pop("remark")
        kind = "good" if remark.startswith(BEST) else "bad" if remark.startswith("failed") else ""
        badge: Any = Badge(remark, kind) if remark and len(remark) < 60 else remark
        rows.append([*row.values(), badge])
    better = "less" if tuning.lower else "more"
    headers = [*tuning.plan.keys, *list(tuning.rows()[0])[len(tuning.plan.keys) :]]
    return Table(headers, rows, caption=f"Mean of {tuning.measure}; {better} is better.")


def _figure(tuning: Tuning) -> FigureBlock:
    words = f"{tuning.measure} over {', '.join(tuning.plan.keys)}"
    caption = f"Means over {counted(len(tuning.plan.seeds), 'split')}"
    if len(tuning.plan.keys) == 1:
        caption += ", with one standard error"
    if worst_drawn(tuning) is not None:
        caption += "; settings that are far worse lie outside"
    return FigureBlock(words, svg(draw(tuning), words), f"{caption}.")


def _summary(tuning: Tuning) -> str:
    plan = tuning.plan
    runs = sum(len(trial.found) for trial in tuning.trials)
    where = "synthetic data" if plan.data is None else plan.data
    return (
        f"{counted(len(tuning.trials), 'setting')} on {counted(len(plan.seeds), 'split')}, "
        f"{counted(runs, 'run')} on {where}, by {plan.search}, in {duration(tuning.seconds)}"
    )


def _numbers(tuning: Tuning) -> dict[str, object]:
    best = tuning.best_trial
    numbers: dict[str, object] = dict(zip(tuning.plan.keys, best.values, strict=True))
    numbers[tuning.measure] = tuning.value
    numbers["the settings before"] = tuning.default_value
    if best.alone is not None:
        numbers["learning alone"] = best.alone
    if tuning.plan.share is not None:
        numbers["epsilon of all runs, at most"] = tuning.plan.share.total
    return numbers


def _next(tuning: Tuning, path: Path) -> Section:
    words = ["trellis", "run", tuning.plan.study, "--config", str(path.with_name("best.toml"))]
    if tuning.plan.data is not None:
        words += ["--data", tuning.plan.data]
    text = "best.toml has the settings. To run with them, on records of another split:"
    # A seed that no split had: its held-out records judged nothing yet.
    words += ["--seed", str(max(tuning.plan.seeds) + 1)]
    return Section("How to go on", [Paragraph(text), Code(shlex.join(words))])
