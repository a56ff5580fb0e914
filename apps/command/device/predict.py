"""``trellis device predict``: use what a run has left on the device, on new data."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say

from .state import there

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.common.private.using import Predictions

_SHOWN = 20


def add(parts: Any) -> None:
    """Describe the subcommand."""
    parser = parts.add_parser("predict", help="use a result on new data")
    parser.add_argument("state", type=Path, help="the device's state-path")
    parser.add_argument("file", type=Path, help="new data: csv or npz with the same columns")
    parser.add_argument("--run", help="the run, in place of the newest")
    parser.add_argument("--out", type=Path, help="write all rows to this csv")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Say, or write, what a kept result makes of new data."""
    from trellis.apps import study_module
    from trellis.apps.common.private.kept import find_result

    there(options.state)
    kept = find_result(options.state, options.run)
    found: Predictions = study_module(kept.about["study"], "owner.predict").predict(
        kept, options.file
    )
    say(console, f"by run {kept.folder.name} ({kept.about['study']}, {kept.about['time']}):")
    tell(console, found, options.out)
    return 0


def tell(console: Console, found: Predictions, out: Path | None) -> None:
    """Say the first rows, or write all of them to a csv; say the notes."""
    if out is not None:
        with out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("row", *found.columns))
            writer.writerows((number, *row) for number, row in enumerate(found.rows, start=1))
        say(console, f"{len(found.rows)} rows written to {out}")
    else:
        say(console, "row  " + "  ".join(found.columns))
        for number, row in enumerate(found.rows[:_SHOWN], start=1):
            say(console, f"{number:>3}  " + "  ".join(_shown(value) for value in row))
        if len(found.rows) > _SHOWN:
            say(console, f"... {len(found.rows) - _SHOWN} more; --out writes all to a csv")
    for note in found.notes:
        say(console, note)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
