"""The HTML report of a run, made to be read by a scientist, and the index of several runs.

What was learned, how it converged, what was sent, what privacy was spent, how to repeat it. The
study writes the first part, from the blocks re-exported here; the rest is the same for all. A
report is one file without references to the network; the same result gives the same bytes.
"""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trellis.apps.common.results import RunResult, write_atomically
from trellis.apps.pages.clients.chosen import first_of
from trellis.apps.pages.clients.spread import in_words
from trellis.apps.pages.figure import save_svg
from trellis.apps.pages.held_out import held_out_section
from trellis.apps.pages.page import (
    Badge,
    Block,
    Code,
    Facts,
    FigureBlock,
    Gallery,
    Heading,
    Link,
    Notice,
    Paragraph,
    Picture,
    Section,
    Table,
)
from trellis.apps.pages.privacy import privacy_section, spent
from trellis.apps.pages.repeat import repeat_section
from trellis.apps.pages.rounds import convergence_section
from trellis.apps.pages.templates import render
from trellis.apps.pages.wording import Wording, counted, duration, number, size

__all__ = [
    "Badge",
    "Block",
    "Code",
    "Facts",
    "FigureBlock",
    "Gallery",
    "Heading",
    "Link",
    "Notice",
    "Paragraph",
    "Section",
    "Table",
    "Wording",
    "number",
    "write_index",
    "write_report",
]

_CLIENT_COLUMNS = {
    "name": "client",
    "count": "signals or samples",
    "rounds": "rounds answered",
    "failures": "failed or rejected",
}
_USUAL = Wording()
_MOST_NOTES = 40
PICTURE = "picture.svg"
_LARGEST_PICTURE = 400_000  # bytes; of a larger one the report itself is the better place
_PICTURES = "The first picture of every run; it leads to the run's report."
_COSTS = (
    "Each study ran twice on the same data: open, and with noise such that the whole run spends "
    "the epsilon shown. In a simulation noise comes from the seed and protects nobody: this is "
    "what it would cost. Learning alone is what a client reaches without any federation."
)


def write_report(
    result: RunResult, sections: Sequence[Section], path: Path, wording: Wording = _USUAL
) -> Path:
    """Write the report of one run.

    Parameters
    ----------
    result : RunResult
        The run; nothing else is read but the names of the files beside ``path``.
    sections : the study's part
        What was learned.
    path : Path
        The file, usually ``report.html`` in the run's folder; written whole or not at all.
    wording : Wording
        What the study calls its numbers.
    """
    first = _first_figure([block for part in sections for block in part.blocks])
    if first is not None:  # before the page, which lists the files beside it
        save_svg(first.svg, path.with_name(PICTURE))
    scored = held_out_section(result)
    parts = [
        *sections,
        *([scored] if scored is not None else []),
        convergence_section(result, wording),
        _traffic(result),
        privacy_section(result),
        repeat_section(result, path.parent),
    ]
    page = render(
        "report",
        title=f"{result.study}: report",
        result=result,
        badge=_badge(result),
        summary=_summary(result),
        numbers=_numbers(result, wording),
        notes=_notes(result.notes),
        blocks=parts,
    )
    write_atomically(path, page.encode())
    return path


def _first_figure(blocks: Sequence[Block]) -> FigureBlock | None:
    """Return what a page shows first, of all that it shows."""
    for block in blocks:
        if isinstance(block, FigureBlock):
            return block
        if isinstance(block, Gallery) and isinstance(block.figures[0], FigureBlock):
            return block.figures[0]
    return None


def write_index(
    results: Sequence[RunResult],
    path: Path,
    wordings: Mapping[str, Wording] | None = None,
    costs: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None,
) -> Path:
    """Write the table of several runs, with links to the report of each.

    ``wordings`` has what the studies call their numbers, by the studies' names; ``costs`` headers
    and rows of what privacy cost.
    """
    rows, pictures = [], []
    for result in results:
        report = None if result.folder is None else result.folder / "report.html"
        name: object = result.study
        if report is not None and report.is_file():
            address = quote(Path(os.path.relpath(report, path.parent)).as_posix())
            name = Link(result.study, address)
            pictures += _picture(result, report.with_name(PICTURE), address)
        shown = (wordings or {}).get(result.study, _USUAL).shown(result.headline)
        headline = "; ".join(f"{name}: {number(value)}" for name, value in shown.items())
        rows.append(
            [
                name,
                _badge(result),
                headline,
                len(result.metrics),
                duration(result.seconds),
                size(result.bytes_up),
                size(result.bytes_down),
                None if result.status == "failed" and not result.ledger else spent(result),
            ]
        )
    failed = [result for result in results if result.status == "failed"]
    summary = f"{len(results) - len(failed)} of {len(results)} runs without failure"
    if early := sum(result.status in ("stopped", "interrupted") for result in results):
        summary += f", {early} stopped before the end"
    headers = ["study", "status", "result", "rounds", "time", "sent up", "sent down", "privacy"]
    blocks: list[Block] = [Table(headers, rows, stack=True)]
    if pictures:
        blocks = [Paragraph(_PICTURES), Gallery(pictures), *blocks]
    if costs is not None and costs[1]:
        table = Table(list(costs[0]), [list(row) for row in costs[1]], stack=True)
        blocks.append(Section("What privacy cost", [Paragraph(_COSTS), table]))
    if failed:
        errors: list[Block] = []
        for result in failed:
            errors.append(Heading(f"{result.study} (seed {result.seed}, {result.engine})"))
            errors.append(Code("\n".join(_notes(result.notes)) or "no error was recorded"))
        blocks.append(Section("What failed", errors))
    noted = [result for result in results if result.notes and result.status != "failed"]
    if noted:
        lines = [[result.study, " ".join(_notes(result.notes))] for result in noted]
        table = Table(["study", "to know before using the result"], lines, stack=True)
        blocks.append(Section("Warnings", [table]))
    page = render("index", title="Trellis: studies", summary=summary, blocks=blocks)
    write_atomically(path, page.encode())
    return path


def _picture(result: RunResult, path: Path, address: str) -> list[Picture]:
    """Return the picture of a run for the index, which holds it whole; none where there is none."""
    if not path.is_file() or path.stat().st_size > _LARGEST_PICTURE:
        return []
    drawn = path.read_bytes()
    label = re.search(rb'aria-label="([^"]*)"', drawn)
    shows = html.unescape(label.group(1).decode()) if label else f"The result of {result.study}"
    source = f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode()}"
    how = "open" if result.config.get("privacy", "none") == "none" else spent(result)
    return [Picture(source, shows, f"{result.study}, {how}", address)]


def _notes(notes: Sequence[str]) -> list[str]:
    """Return the notes, or the first of very many: a thousand clients may each have one."""
    if len(notes) <= _MOST_NOTES:
        return list(notes)
    return [*notes[:_MOST_NOTES], f"{len(notes) - _MOST_NOTES:,} more notes are in run.json."]


def _badge(result: RunResult) -> Badge:
    return Badge(result.status, {"completed": "good", "failed": "bad"}.get(result.status, ""))


def _summary(result: RunResult) -> str:
    """Return the run in one line, which stands after its status."""
    many = f"{counted(len(result.metrics), 'round')} with {counted(len(result.clients), 'client')}"
    if names := result.network.get("names"):
        here = result.network.get("merged") or [result.network.get("name", "")]
        many = f"{', '.join(here)} of {counted(len(names), 'server')}: {many}"
    return (
        f"{many} in {duration(result.seconds)}, engine {result.engine}, seed {result.seed}, "
        f"started {result.started.replace('T', ' ').replace('Z', ' UTC')}"
    )


def _numbers(result: RunResult, wording: Wording) -> dict[str, object]:
    """Return the headline numbers at the top of the page, and what they are called."""
    numbers: dict[str, object] = {wording.label(k): v for k, v in result.headline.items()}
    numbers["sent up"] = size(result.bytes_up)
    numbers["sent down"] = size(result.bytes_down)
    numbers["privacy spent"] = spent(result)
    return numbers


def _traffic(result: RunResult) -> Section:
    """Return the section on what was sent and who took part."""
    rounds = max(len(result.metrics), 1)
    # Where the rounds tell who answered, failed replies do not thin the average.
    answers = sum(row.get("clients", len(result.clients)) for row in result.metrics)
    answers = max(answers, 1.0)
    failed = sum(row.get("failed", 0.0) for row in result.metrics)
    up, down = result.bytes_up, result.bytes_down
    table = Table(
        ["", "in total", "bytes", "a round", "a client and round"],
        [
            ["up, client to server", size(up), up, size(up / rounds), size(up / answers)],
            ["down, server to client", size(down), down, size(down / rounds), size(down / answers)],
        ],
    )
    text = f"{number(answers)} replies were used over {counted(rounds, 'round')}; "
    text += f"failed or rejected: {number(failed)}." if failed else "none failed."
    blocks: list[Block] = [table, Paragraph(text)]
    if result.clients:
        blocks.append(_clients(result.clients))
    return Section("What was sent", blocks)


def _clients(clients: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of who took part: known columns first, then what a study adds."""
    found = dict.fromkeys(key for client in clients for key in client)
    first = [key for key in _CLIENT_COLUMNS if key in found or key == "name"]
    more = [
        key
        for key in found
        if key not in first
        and all(isinstance(client.get(key), (int, float, str, type(None))) for client in clients)
    ]
    failed = [_countable(client.get("failures")) for client in clients]
    chosen = first_of([n if isinstance(n, int | float) else 0 for n in failed]).tolist()
    rows = [
        [
            _countable(clients[index].get(key))
            if key != "name"
            else str(clients[index].get(key, index))
            for key in (*first, *more)
        ]
        for index in chosen
    ]
    caption = "Who took part."
    if len(chosen) < len(clients):
        caption += (
            f" {len(chosen)} of {len(clients):,} clients, those first that failed or were rejected "
            "most often; all are in run.json."
        )
        for key in ("count", "rounds"):
            if key in first:
                told = in_words([client.get(key) for client in clients])
                caption += f" {_CLIENT_COLUMNS[key].capitalize()} over all: {told}."
    headers = [_CLIENT_COLUMNS.get(key, key.replace("_", " ")) for key in (*first, *more)]
    return Table(headers, rows, caption=caption)


def _countable(value: object) -> object:
    """Return how many, where a client lists its failures one by one."""
    return len(value) if isinstance(value, (list, tuple)) else value
