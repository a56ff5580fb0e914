"""The page of all results, and what stands around the numbers on it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trellis.apps.common.results import write_atomically

from .catalogue import BENCHMARKS
from .growth import write_chart
from .words import figure, ratio_of, sides

DOCS = Path(__file__).parents[1] / "docs"
_HEAD = """# Benchmarks

Every row was measured beside a named peer, in one run on one machine ({cores} cores). The ratio
is the median over runs in which ours and the peer took turns, and the smallest and largest of them
stand behind it; above 1 ours is better. "Cores" says how many each side kept busy, ours first.
This page and the chart are made from `benchmarks/results.json` by

    make bench                  # a quick set, in about five minutes
    make bench FULL=1           # all sizes and more runs, several times as long
    make bench ONLY=gw-mutag    # one of them

and `.venv/bin/python -m benchmarks --page` writes them anew without measuring. Where a peer cannot
be installed beside Trellis it has an environment of its own in `.venv-peers`, with the same numpy,
scipy and torch.
"""
_CHART = """
## How cost grows

![Cost against clients, variables, graphs and rounds, ours and peers'](pictures/growth.svg)

Both axes are logarithmic: a line that rises by one square per square is linear growth. A peer's
line ends where it was no longer run: its row below says why.
"""
_COLUMNS = ("what", "ours", "peer", "unit", "ratio", "cores", "peer is")


def write_page(rows: Sequence[dict[str, Any]], docs: Path = DOCS) -> None:
    """Write ``benchmarks.md`` and the chart from rows."""
    drawn = write_chart(rows, docs / "pictures" / "growth.svg")
    write_atomically(docs / "benchmarks.md", page(rows, drawn).encode())


def page(rows: Sequence[dict[str, Any]], chart: bool) -> str:
    """Return the page's text."""
    cores = {row["machine_cores"] for row in rows if "machine_cores" in row} or {os.cpu_count()}
    parts = [_HEAD.format(cores=" or ".join(str(count) for count in sorted(cores)))]
    if chart:
        parts.append(_CHART)
    for name, listed in BENCHMARKS.items():
        mine = [row for row in rows if row["benchmark"] == name]
        if mine:
            parts.append(f"\n## {listed.title}\n\n`make bench ONLY={name}`{_which(mine)}\n\n")
            parts.append(_table(mine))
    return "".join(parts)


def _which(rows: Sequence[dict[str, Any]]) -> str:
    return ", with `FULL=1`" if any(row.get("set") == "full" for row in rows) else ", the quick set"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for row in rows:
        cells = [
            f"{row['name']}: {row['setting']}",
            figure(row["ours"]),
            figure(row["peer"]),
            row["unit"],
            ratio_of(row),
            sides(row),
            row["peer_version"],
        ]
        lines.append("| " + " | ".join(re.sub(r"\s*\|\s*", "; ", cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"
