"""All verdicts that were reached, in one file, and the page made of it.

The record is ``docs/papers.json``, the page ``docs/papers.md`` beside it. Figures at the papers'
own sizes take the place of quick looks, never the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trellis.apps import STUDIES
from trellis.apps.common.results import write_atomically

from .driver import Made
from .figures import Claim, figures, untested
from .finding import VERDICTS

Entry = dict[str, Any]
OURS = "ours"  # the place of a claim that is not a paper's

_INTRODUCTION = """\
# The papers, claim by claim

Made by `make paper` from what was run: {full} rows at the papers' own sizes, {quick} by the quick
variant (`make paper QUICK=1`: fewer seeds, smaller sizes; a verdict may change with more). A row is
one figure, table, theorem or headline claim: what the paper says and where that number comes from,
what we get (mean ± standard error over seeds unless it says otherwise), the verdict, the command
that shows it and how long it took. Each command writes its numbers as csv, and plots, into
`results/paper/STUDY`; `tests/apps/experiments/test_every_figure.py` makes every one of them in a
reduced size, with all its seeds.

| Verdict on a paper's claims | How many |
| --- | --- |
{counts}

Claims of our own, which no paper makes, stand below each paper's and are not counted here.
"""
_ABOUT = {
    "reproduced": "reproduced: we get what the paper says",
    "partly": "partly: we get some of it, and say which",
    "refuted": "refuted: we get something else",
    "not testable": "not testable: and why",
}


def read(path: Path) -> dict[str, Entry]:
    """Return the record by ``STUDY/CLAIM``; empty where there is none."""
    if not path.is_file():
        return {}
    found: dict[str, Entry] = json.loads(path.read_text())
    return found


def entered(record: dict[str, Entry], made: Iterable[Made]) -> dict[str, Entry]:
    """Return the record with what was made, in the order of studies and figures."""
    found = dict(record)
    for one in made:
        for finding in one.findings:
            key = f"{one.figure.study}/{finding.claim}"
            if one.size != "full" and found.get(key, {}).get("size") == "full":
                continue
            found[key] = {
                **asdict(finding),
                "size": one.size,
                "seconds": round(one.seconds, 1),
                "day": one.day,
            }
    known = [key for key, _, _ in _all_claims()]
    return {key: found[key] for key in known if key in found}


def write(path: Path, record: dict[str, Entry]) -> Path:
    """Write the record and the page beside it; return the page."""
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode())
    page = path.with_suffix(".md")
    write_atomically(page, markdown(record).encode())
    return page


def markdown(record: dict[str, Entry]) -> str:
    """Return the page."""
    rows = _all_rows(record)
    verdicts = [row["verdict"] for _, claim, row in rows if row and claim.place != OURS]
    counts = [f"| {_ABOUT[name]} | {verdicts.count(name)} |" for name in VERDICTS]
    missing = sum(row is None for _, claim, row in rows if claim.place != OURS)
    if missing:
        counts.append(f"| not run yet | {missing} |")
    sizes = [row.get("size") for _, _, row in rows if row]
    known = {"full": sizes.count("full"), "quick": sizes.count("quick")}
    lines = [_INTRODUCTION.format(**known, counts="\n".join(counts))]
    for study in STUDIES:
        own = [row for row in rows if row[0].startswith(f"{study}/")]
        theirs = [row for row in own if row[1].place != OURS]
        lines += [f"## {study}", "", *_table(study, theirs), ""]
        if ours := [row for row in own if row[1].place == OURS]:
            lines += [f"### Claims of our own, {study}", "", *_table(study, ours, "We say"), ""]
    return "\n".join(lines)


def _table(
    study: str, rows: Sequence[tuple[str, Claim, Entry | None]], who: str = "The paper says"
) -> list[str]:
    names = ("Where", who, "We get", "Verdict", "Shown by")
    lines = [f"| {' | '.join(names)} |", "| --- | --- | --- | --- | --- |"]
    for _, claim, row in rows:
        says = f"{claim.says} ({claim.source})"
        cells = [claim.place, says, *_found(row), _shown(study, claim, row)]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def _found(row: Entry | None) -> tuple[str, str]:
    if row is None:
        return "", "not run yet"
    seeds = f" ({row['seeds']} seeds)" if row.get("seeds", 0) > 1 else ""
    why = f": {row['why']}" if row["why"] else ""
    return f"{row['found']}{seeds}", f"**{row['verdict']}**{why}"


def _shown(study: str, claim: Claim, row: Entry | None) -> str:
    for figure in figures(study).values():
        if claim in figure.claims:
            quick = " --quick" if row and row.get("size") == "quick" else ""
            time = f", {_time(row['seconds'])}" if row else ""
            return f"`{figure.command}{quick}`{time}"
    return ""


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _all_claims() -> list[tuple[str, Claim, Entry | None]]:
    """Return every claim by ``STUDY/CLAIM``, with its row where that is known without a run."""
    found: list[tuple[str, Claim, Entry | None]] = []
    for study in STUDIES:
        for figure in figures(study).values():
            found += [(f"{study}/{claim.name}", claim, None) for claim in figure.claims]
        found += [(f"{study}/{c.name}", c, asdict(finding)) for c, finding in untested(study)]
    return found


def _all_rows(record: dict[str, Entry]) -> list[tuple[str, Claim, Entry | None]]:
    return [(key, claim, row or record.get(key)) for key, claim, row in _all_claims()]
