"""``trellis device log``: every enrolment, release, result, refusal, error and move."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say

from .state import asker, there

if TYPE_CHECKING:
    from rich.console import Console


def add(parts: Any) -> None:
    """Describe the subcommand."""
    parser = parts.add_parser("log", help="what happened on the device")
    parser.add_argument("state", type=Path, help="the device's state-path")
    parser.add_argument("--last", type=int, default=20, help="how many lines, 20 by default")
    parser.add_argument("--traces", action="store_true", help="with the traces of errors")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Say what happened on a device, newest last."""
    from trellis.privacy.device import log
    from trellis.privacy.device.codes import CODES

    there(options.state)
    lines = log.read(options.state)
    if not lines:
        say(console, f"nothing has happened in {options.state}")
    for line in lines[-options.last :] if options.last > 0 else []:
        where = f"{line.get('study', '')} run {line.get('run', '')} {line.get('kind', '')}"
        if "run" not in line:  # it was no message, but the device itself
            where = str(line.get("address", ""))
        told = ("reason", "error", "released", "kept_in")
        detail = next((str(line[key]) for key in told if line.get(key)), "")
        code = str(line.get("code", ""))
        meaning = f" [{code}: {CODES.get(code, '')}]" if code else ""
        what = f"{line.get('time')}  {line.get('what')}  {where}{asker(line)}{meaning} {detail}"
        say(console, what.rstrip())
        if options.traces and "trace" in line:
            say(console, str(line["trace"]))
    return 0
