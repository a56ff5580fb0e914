"""``trellis device result``: what a run has left on the device, for its owner only."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say

from .state import there

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.common.private.kept import Kept


def add(parts: Any) -> None:
    """Describe the subcommand."""
    parser = parts.add_parser("result", help="open what the newest run has left on the device")
    parser.add_argument("state", type=Path, help="the device's state-path")
    parser.add_argument("--run", help="the run, in place of the newest")
    parser.add_argument("--no-browser", action="store_true", help="say it here, open no page")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Open the page of a result, or say it in a few lines; list the others."""
    from trellis.apps.common.private.kept import find_result, kept_results

    there(options.state)
    known = kept_results(options.state)
    if not known and options.run is None:
        say(console, f"no results in {options.state}: a run leaves one here when it ends")
        return 0
    chosen = find_result(options.state, options.run)
    opened = not options.no_browser and has_display() and _open(chosen.page)
    for line in in_words(chosen):
        say(console, line)
    say(console, f"{'opened' if opened else 'page'}: {chosen.page}")
    others = [kept for kept in known if kept.folder != chosen.folder]
    if others:
        say(console, "other results, oldest first (--run opens one):")
    for kept in others:
        say(console, f"  run {kept.folder.name}  {kept.about['time']}  {kept.about['study']}")
    return 0


def in_words(kept: Kept) -> list[str]:
    """Return a result in a few lines."""
    from trellis.apps.common.private.about import spent_in_words
    from trellis.apps.common.private.page import NOT_HELD_OUT, where_it_is

    about = kept.about
    lines = [
        f"run {kept.folder.name}: {about['study']}, method {about['method']}, privacy "
        f"{about['privacy']}, {about['time']}",
        *about["words"],
        *where_it_is(about),
    ]
    scores = about["scores"]
    if scores is None:
        lines.append(NOT_HELD_OUT)
    elif "rows" in scores:
        for name, row in scores["rows"].items():
            shown = ("-" if value is None else f"{value:.4g}" for value in row)
            pairs = zip(scores["measures"], shown, strict=True)
            lines.append(f"  {name}: " + ", ".join(f"{what} {value}" for what, value in pairs))
    lines += spent_in_words(about["spent"], about["privacy"])
    shapes = [f"{name} {array.shape}" for name, array in kept.arrays.items()]
    return [*lines, f"arrays in result.npz: {', '.join(shapes)}"]


def has_display() -> bool:
    """Return whether there is a screen on which a browser could open."""
    if sys.platform in ("darwin", "win32"):
        return not os.environ.get("SSH_CONNECTION")
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(page: Path) -> bool:
    import webbrowser

    return webbrowser.open(page.resolve().as_uri())
