"""Making figures one after the other: each to its end or to its error, and what became of it.

A figure that fails stops neither the others nor what they have found. One that was made before, by
the same code with the same numbers, is not made again unless it is asked for.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rich.console import Console

from trellis.apps.common.results import write_atomically

from .datasets import DataSetMissing
from .figures import Figure, Size
from .finding import Finding
from .making import Making, code_digest

Ended = Literal["made", "made before", "skipped", "failed"]
_COLOUR = {"reproduced": "green", "partly": "yellow", "refuted": "red", "not testable": "dim"}
log = logging.getLogger("trellis")


@dataclass(frozen=True)
class Made:
    """What became of a figure: how it ended, how long it took, the verdicts on its claims."""

    figure: Figure
    size: Size
    ended: Ended
    seconds: float = 0.0
    day: str = ""
    reason: str = ""
    findings: list[Finding] = field(default_factory=list)


def make_figures(
    wanted: Sequence[Figure], out: Path, console: Console, size: Size = "full", again: bool = False
) -> list[Made]:
    """Make figures in folders of their studies in ``out``; return what became of each, in order."""
    return [make_figure(figure, out / figure.study, console, size, again) for figure in wanted]


def make_figure(
    figure: Figure, folder: Path, console: Console, size: Size = "full", again: bool = False
) -> Made:
    """Make one figure in a folder."""
    making = Making(figure.name, folder, console, figure.numbers(size))
    before = None if again else _before(figure, folder, size)
    if before is not None:
        _say(before, console)
        return before
    if again:
        making.forget()
    console.print(f"[bold]{figure.study} {figure.name}[/]: {figure.title}", soft_wrap=True)
    begin = time.perf_counter()
    try:
        findings = list(figure.function()(making))
        _check(figure, findings)
    except DataSetMissing as error:
        made = Made(figure, size, "skipped", reason=str(error))
    except Exception as error:
        # Whatever a figure stumbles over: the others are worth having.
        log.debug("%s %s", figure.study, figure.name, exc_info=True)
        text = "".join(traceback.format_exception(error))
        write_atomically(folder / f"{figure.name}.error.txt", text.encode())
        made = Made(figure, size, "failed", reason=f"{type(error).__name__}: {error}")
    else:
        seconds = time.perf_counter() - begin
        day = datetime.now(UTC).date().isoformat()
        made = Made(figure, size, "made", seconds, day, findings=findings)
        _note(made, folder)
        (folder / f"{figure.name}.error.txt").unlink(missing_ok=True)
        making.forget()
    _say(made, console)
    return made


def _check(figure: Figure, findings: Sequence[Finding]) -> None:
    """Refuse findings that are not those of the figure's claims."""
    claimed = [claim.name for claim in figure.claims]
    found = [finding.claim for finding in findings]
    if sorted(claimed) != sorted(found):
        raise ValueError(
            f"{figure.name}.toml claims {', '.join(claimed) or 'nothing'}, "
            f"{figure.maker} has found {', '.join(found) or 'nothing'}"
        )


def _say(made: Made, console: Console) -> None:
    name = f"{made.figure.study} {made.figure.name}"
    reason = made.reason.replace("[", "\\[")
    if made.ended == "failed":
        where = f"{made.figure.name}.error.txt"
        console.print(f"[red]{name} failed:[/] {reason} (in full: {where})", soft_wrap=True)
    elif made.ended == "skipped":
        console.print(f"[yellow]{name} skipped:[/] {reason}", soft_wrap=True)
    else:
        how = f"{made.seconds:.0f} s" + (", made before" if made.ended == "made before" else "")
        console.print(f"{name}: {how}")
    for finding in made.findings:
        colour = _COLOUR[finding.verdict]
        why = f" ({finding.why})" if finding.why else ""
        text = f"{finding.claim}: {finding.found}{why}".replace("[", "\\[")
        console.print(f"  [{colour}]{finding.verdict}[/] {text}", soft_wrap=True)


def _note(made: Made, folder: Path) -> None:
    told = {
        "size": made.size,
        "numbers": made.figure.numbers(made.size),
        "code": code_digest(),
        "seconds": made.seconds,
        "day": made.day,
        "findings": [asdict(finding) for finding in made.findings],
    }
    path = folder / f"{made.figure.name}.json"
    write_atomically(path, (json.dumps(told, indent=1) + "\n").encode())


def _before(figure: Figure, folder: Path, size: Size) -> Made | None:
    """Return the figure as it was made before by the same code, where it was."""
    try:
        told = json.loads((folder / f"{figure.name}.json").read_text())
        same = (told["size"], told["numbers"], told["code"])
        if same != (size, figure.numbers(size), code_digest()):
            return None
        findings = [Finding(**finding) for finding in told["findings"]]
        return Made(figure, size, "made before", told["seconds"], told["day"], "", findings)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or none of ours: it is made anew
