"""``trellis merge``: one result of what the servers of a graph left."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.settings import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser(
        "merge", help="gather the results of servers that each have a SuperLink of their own"
    )
    command.add_argument(
        "folders", type=Path, nargs="+", metavar="DIR", help="a server's result; any of them"
    )
    command.add_argument("--out", type=Path, required=True, metavar="OUT", help="keep it here")
    command.add_argument("--no-report", action="store_true", help="result without its page")
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Gather, keep and show."""
    from trellis.apps.common.results import FolderLock
    from trellis.apps.runs.merge import merge

    from .closing import show
    from .ended.report import write

    out: Path = options.out.resolve()
    _refuse_to_replace(out)
    result = merge(options.folders)
    lock = FolderLock(out)
    try:
        for name in ("result.npz", "metrics.csv", "report.html"):
            (out / name).unlink(missing_ok=True)  # of an earlier gathering
        result.save(out)
        if not options.no_report:
            write(result, out)
    finally:
        lock.release()
    show(console, [result])


def _refuse_to_replace(out: Path) -> None:
    """Refuse a folder with a run that is no gathering: a server's own result is there once."""
    path = out / "run.json"
    if path.is_file() and "merged" not in json.loads(path.read_text()).get("network", {}):
        raise ConfigError(f"--out {out}: holds another run's result; choose an empty folder")
