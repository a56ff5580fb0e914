"""``trellis device``: what a device's owner sees and uses, a file per subcommand.

A subcommand's module has `add`, which describes it to argparse, and what it does beside it; one
more is a file here and a name in `PARTS`. `state` is what they share. Whatever is heavy is
imported where it is used, and nothing needs more than a device's own install has.
"""

from __future__ import annotations

from typing import Any

from . import ledger, log, policy, predict, result, start

PARTS = (start, policy, ledger, log, result, predict)


def add(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "device", help="what a device's owner allows, what was spent on what, what came of it"
    )
    names = "|".join(part.__name__.rpartition(".")[2] for part in PARTS)
    parts = parser.add_subparsers(required=True, metavar=names)
    for part in PARTS:
        part.add(parts)
