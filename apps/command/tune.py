"""``trellis tune``: settings chosen by data that no run has learned from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .given import StudyNames, add_settings, assignments, settings_file

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.apps.tuning.outcome import Tuning


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("tune", help="choose settings by held-out data")
    command.add_argument("study", choices=StudyNames(), metavar="STUDY")
    command.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="KEY=LOW:HIGH[:log|:lin][:POINTS] or KEY=a,b,c",
        help="a setting to tune, and what it may be; may be repeated",
    )
    command.add_argument(
        "--data", type=Path, metavar="DIR", help="one file per client; none is synthetic data"
    )
    command.add_argument("--config", type=Path, metavar="FILE.toml", help="settings from a file")
    command.add_argument(
        "--splits", type=int, default=3, help="runs per setting, each with other records held out"
    )
    command.add_argument("--seed", type=int, default=1, help="of the first split")
    command.add_argument(
        "--search", choices=("grid", "optuna"), default="grid", help="all points, or proposals"
    )
    command.add_argument("--trials", type=int, default=0, help="settings that optuna may try")
    command.add_argument(
        "--by", default="", metavar="NUMBER", help="a measure of the scores, or a headline number"
    )
    command.add_argument(
        "--better", choices=("lower", "higher"), default="", help="which way NUMBER is better"
    )
    command.add_argument(
        "--spend", type=float, metavar="EPSILON", help="what all runs may spend (privacy=dp)"
    )
    command.add_argument(
        "--public", action="store_true", help="the data are public: nobody is to be protected"
    )
    command.add_argument("--out", type=Path, metavar="DIR", help="keep runs, best.toml, page here")
    command.add_argument(
        "--force", action="store_true", help="throw away what --out holds of another tuning"
    )
    command.add_argument("--workers", type=int, help="runs side by side; all cores by default")
    add_settings(command)
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Tune, with a bar, and show the table."""
    from trellis.apps.tuning.space import read_over
    from trellis.apps.tuning.terminal import Display, explain, show
    from trellis.apps.tuning.tuner import Interrupted, tune

    settings: dict[str, Any] = {}
    if options.config is not None:
        settings |= settings_file(options.config, options.study)
    settings |= assignments(options)
    try:
        with Display(console) as display:
            tuning = tune(
                options.study,
                read_over(options.over, options.study),
                settings,
                data=options.data,
                splits=options.splits,
                seed=options.seed,
                by=options.by,
                better=options.better,
                search=options.search,
                trials=options.trials,
                spend=options.spend,
                public=options.public,
                out=options.out,
                force=options.force,
                workers=options.workers,
                watch=display,
            )
    except Interrupted as stopped:
        show(console, stopped.tuning)
        kept = stopped.tuning.folder is not None
        how = "give the same command again to go on" if kept else "nothing is kept without --out"
        console.print(f"[yellow]interrupted[/]; {how}")
        return 130
    show(console, tuning)
    explain(console, tuning)
    _say_where(console, tuning)
    return 0


def _say_where(console: Console, tuning: Tuning) -> None:
    from .saying import say

    words = ["trellis", "run", tuning.plan.study]
    if tuning.folder is None:
        for key, value in tuning.best.items():
            words += ["--set", f"{key}={value}"]
    else:
        say(console, f"page: {tuning.folder / 'tuning.html'}")
        words += ["--config", str(tuning.folder / "best.toml")]
    if tuning.plan.data is not None:
        words += ["--data", tuning.plan.data]
    say(console, f"to run with them: {shlex.join(words)}")
