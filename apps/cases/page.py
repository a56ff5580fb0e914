"""The page of a case: the question, its answer, what it rests on, and how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.apps.common.results import write_atomically
from trellis.apps.pages.page import Block, Code, Link, Notice, Paragraph, Section, Table
from trellis.apps.pages.privacy import spent
from trellis.apps.pages.templates import render
from trellis.apps.pages.wording import counted

if TYPE_CHECKING:
    from .case import Case, Planned, Runs, Story

_QUICK = "These are reduced runs, to try it out: the numbers are not those of the case."


def write(
    case: Case, planned: Sequence[Planned], story: Story, runs: Runs, path: Path, *, quick: bool
) -> Path:
    """Write the page, whole or not at all; it names no place of this machine."""
    answer: list[Block] = [*map(Paragraph, story.answer.splitlines())]
    if quick:
        answer.insert(0, Notice(_QUICK))
    sections = [Section(case.question, answer)]
    for title, blocks in (
        ("What was learned", story.learned),
        ("How sure is it?", story.sure),
        ("What did it cost in privacy?", story.cost),
        ("Is it better than learning alone?", story.better),
        ("What this does not show", story.careful),
    ):
        if blocks:
            sections.append(Section(title, blocks))
    sections.append(Section("Where the data comes from", [Paragraph(case.source)]))
    sections.append(_again(case, planned, quick))
    sections.append(_single(planned, runs))
    page = render(
        "titled",
        title=case.title,
        summary=_summary(case, runs),
        numbers=story.numbers,
        blocks=sections,
    )
    write_atomically(path, page.encode())
    return path


def _summary(case: Case, runs: Runs) -> str:
    every = [run for several in runs.values() for run in several]
    clients = counted(max(len(run.clients) for run in every), case.client)
    splits = counted(max(len(several) for several in runs.values()), "split")
    return f"{clients}, {counted(len(every), 'run')} on {splits} of their records"


def commands(planned: Sequence[Planned], data: str) -> str:
    """Return the single runs as commands that can be typed."""
    lines = []
    for one in planned:
        words = ["trellis", "run", one.study, "--data", f"{data}/{one.data}"]
        for key, value in one.settings_in(data).items():
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        lines.append(shlex.join([*words, "--out", f"results/{one.name}"]))
    return "\n".join(lines)


def _again(case: Case, planned: Sequence[Planned], quick: bool) -> Section:
    data = f"{case.name}-data"
    whole = f"trellis case {case.name}{' --quick' if quick else ''}"
    blocks: list[Block] = [
        Paragraph("All of it, this page included; what is done already is not made again:"),
        Code(whole),
        Paragraph("The files alone, one per client, and the single runs on them:"),
        Code(f"trellis case {case.name} --data-only {data}\n{commands(planned, data)}"),
    ]
    return Section("How to make it again", blocks)


def _single(planned: Sequence[Planned], runs: Runs) -> Section:
    rows = [
        [
            Link(
                f"{one.study}, {one.words}",
                f"runs/{one.name}/seed-{runs[one.name][0].seed}/report.html",
            ),
            spent(runs[one.name][0]),
        ]
        for one in planned
    ]
    text = "Every way of learning has a report of its own, here that of its first split."
    return Section("The single runs", [Paragraph(text), Table(["report", "privacy"], rows)])
