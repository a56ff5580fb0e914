"""`python -m benchmarks [--full] [name ...]`: run benchmarks, print them, keep them.

Results are kept in ``results.json`` beside this file, one list of rows. What is printed and kept is
also a page (``docs/benchmarks.md``) and a chart of how cost grows (``docs/pictures/growth.svg``):
`page` and `growth` make them, from ``results.json`` alone.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import time
import traceback
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape

from trellis.apps.common.results import write_atomically

from .catalogue import BENCHMARKS, RESULTS, as_json, known
from .page import write_page
from .words import figure, ratio_of, sides


def main() -> None:
    """Run the benchmarks that are named, or all; end with 1 where one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--full", action="store_true", help="all sizes and more runs; several times as long"
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, write page and chart anew"
    )
    arguments = parser.parse_args()
    if arguments.page:
        write_page(known())
        return
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    names = arguments.names or [
        name for name, listed in BENCHMARKS.items() if arguments.full or not listed.only_full
    ]
    logging.disable(logging.WARNING)  # what studies say of runs that nobody wants to keep
    if failed := measure(names, arguments.full, Console()):
        raise SystemExit(f"failed: {', '.join(failed)}; the others are kept")


def measure(names: list[str], full: bool, console: Console) -> list[str]:
    """Run benchmarks one after the other; return those that failed."""
    failed = []
    for position, name in enumerate(names, 1):
        console.print(f"[bold]{name}[/bold] ({position} of {len(names)}) ...")
        began = time.perf_counter()
        module, _, function = BENCHMARKS[name].where.partition(":")
        try:
            rows = getattr(importlib.import_module(module), function or "run")(full=full)
        except Exception:
            # An hour of measurements does not hang on one of them.
            console.print(traceback.format_exc(), style="red", markup=False)
            failed.append(name)
            continue
        keep(name, rows, "full" if full else "quick")
        for line in lines(rows):
            console.print(line, highlight=False)
        console.print(f"{time.perf_counter() - began:.0f} s", style="dim")
    write_page(known())
    return failed


def keep(name: str, rows: list[dict[str, Any]], chosen: str) -> None:
    """Replace what is kept of the benchmark ``name``; one that was skipped has no rows."""
    if not rows:
        return
    others = [row for row in known() if row["benchmark"] != name]
    mine = [{**row, "benchmark": name, "set": chosen} for row in rows]
    order = list(BENCHMARKS)
    merged = sorted([*others, *mine], key=lambda row: _position(row["benchmark"], order))
    write_atomically(RESULTS, as_json(merged).encode())


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield rows for people: what was measured, then the two numbers and their ratio."""
    for row in rows:
        good = "green" if row["ratio"] > 1 else "red"
        yield f"  [bold]{row['name']}[/]: {escape(row['setting'])}"
        yield (
            f"    {figure(row['ours'])} against {figure(row['peer'])} {row['unit']}, ratio "
            f"[{good}]{ratio_of(row)}[/]; cores {sides(row)}; {escape(row['peer_version'])}"
        )


def _position(name: str, order: list[str]) -> int:
    return order.index(name) if name in order else len(order)


if __name__ == "__main__":
    main()
