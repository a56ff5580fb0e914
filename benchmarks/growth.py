"""The chart of how cost grows: with clients, variables, graphs, nodes and rounds, ours and peers'.

Rows that belong to it carry ``series`` (what grows), ``x`` (how many) and, if they like, ``line``
(what is measured, where a series has several) and ``peer_name``. Rows of one series and unit share
a panel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trellis.apps.pages.figure import INK, PALETTE, save, style

Point = tuple[float, float]


def write_chart(rows: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draw what grows into ``path``; return whether there was anything to draw."""
    panels = gather(rows)
    if not panels:
        return False
    save(draw(panels), path)
    return True


def gather(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, list[Point]]]:
    """Return lines (name to points) by panel: what grows and the unit of what it costs."""
    panels: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for row in rows:
        if "series" not in row:
            continue
        lines = panels.setdefault((str(row["series"]), str(row["unit"])), {})
        about = row.get("line", "")
        peer = row.get("peer_name") or re.split(r"[,(]", row["peer_version"])[0].strip()
        for who, value in (("Trellis", row["ours"]), (peer, row["peer"])):
            name = f"{who}, {about}" if about else who
            points = lines.setdefault(name, [])
            point = (float(row["x"]), float(value))
            # Ours stands beside every peer, and is drawn once.
            if math.isfinite(value) and value > 0 and point[0] not in [x for x, _ in points]:
                points.append(point)
    for lines in panels.values():
        for name in [name for name, points in lines.items() if not points]:
            del lines[name]
    return {key: lines for key, lines in panels.items() if lines}


@style()
def draw(panels: dict[tuple[str, str], dict[str, list[Point]]]) -> Any:
    """Return the figure, a panel for each thing that grows."""
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    lines_of = -(-len(panels) // columns)
    figure = Figure(figsize=(4.8 * columns, 3.9 * lines_of), layout="constrained")
    for position, ((series, unit), lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(lines_of, columns, position)
        ours = peers = 0
        for name, points in lines.items():
            own = name.startswith("Trellis")
            colour = PALETTE[ours % len(PALETTE)] if own else INK
            dash = "-" if own else ("--", ":", "-.")[peers % 3]
            ours, peers = ours + own, peers + (not own)
            xs, ys = zip(*sorted(points), strict=True)
            axes.plot(xs, ys, dash, color=colour, marker="o", markersize=3.5, label=name)
        axes.set(xscale="log", yscale="log", xlabel=f"number of {series}", ylabel=unit)
        # Where it was measured, in plain numbers: powers of ten name none of these.
        where = sorted({x for points in lines.values() for x, _ in points})
        axes.set_xticks(where, [f"{x:,.0f}" for x in where], fontsize=7.5, rotation=30)
        axes.set_xticks([], minor=True)
        axes.grid(which="major", alpha=0.35)
        axes.legend(fontsize=7.5)
    return figure
