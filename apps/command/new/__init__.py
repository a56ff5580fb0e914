"""``trellis new``: a working study to begin with, in this checkout or as a package of its own.

`naming` says which names can be had, `making` writes the files of `template` under a name and
registers the study. The template is a whole study, federated ridge regression, every file as it
will be but for its name: ``my-study``, ``my_study`` and ``MyStudy`` are replaced.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("new", help="make a study of your own to begin with")
    command.add_argument("name", metavar="NAME", help="of the study, as in my-study")
    command.add_argument(
        "--package", type=Path, metavar="DIR", help="make it a package of its own, in a new folder"
    )
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Make the study and say what to do with it."""
    from trellis.apps.command.saying import say

    from .making import make_package, make_study

    if options.package is None:
        made = make_study(options.name)
        folder = options.name.replace("-", "_")
        page = "docs/extend.md"
        steps = [
            f"trellis run {options.name} --out results/{options.name}",
            f"python -m pytest tests/apps/{folder} tests/strategies/{folder}",
            f"python -m pytest tests/strategies/core/test_contract.py -k {options.name}",
        ]
    else:
        made = make_package(options.name, options.package)
        page = f"{options.package}/README.md"
        steps = [
            f"pip install --no-deps -e {options.package}",
            f"trellis run {options.name}",
            f"cd {options.package} && flwr run . --federation-config 'num-supernodes=10' --stream",
        ]
    say(console, f"made {options.name}, {len(made)} files; to see it work:")
    for step in steps:
        say(console, f"  {step}")
    say(console, f"what is in them, and what to change first: {page}")
    return 0
