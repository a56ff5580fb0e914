"""``trellis audit``: attack a study's privacy claims."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trellis import apps
from trellis.apps.common.settings import ConfigError

from .given import StudyNames, add_settings, assignments

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("audit", help="attack a study's privacy claims")
    command.add_argument("study", choices=StudyNames(), metavar="STUDY")
    command.add_argument("--trials", type=int, default=1_000_000, help="runs on each data set")
    command.add_argument("--seed", type=int, default=1, help="the same seed, the same draws")
    add_settings(command)
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> None:
    """Run the study's audits and print what they found beside what is claimed."""
    from rich.table import Table

    if find_spec(f"{apps.study_package(options.study)}.audit") is None:
        raise ConfigError(f"{options.study} has no audits")
    audits = apps.study_module(options.study, "audit").audits
    findings = audits(assignments(options), trials=options.trials, seed=options.seed)
    table = Table(title=f"{options.study}: epsilon claimed, and found by attack", show_lines=True)
    for column in ("mechanism", "claimed (delta)", "attack shows", "verdict"):
        table.add_column(column, no_wrap=column != "mechanism")
    for finding in findings:
        result = finding.result
        table.add_row(
            finding.mechanism,
            f"{finding.claimed:.4g} ({result.delta:.3g})",
            f">= {result.epsilon_lower:.3g}",
            f"[{'red' if finding.refuted else 'green'}]{finding.verdict}[/]",
        )
    console.print(table)
    console.print(
        *(
            f"{finding.mechanism}: {finding.setting}; {finding.result.trials:,} runs on each of "
            "two neighbouring data sets, which show an epsilon of "
            f"{finding.result.ceiling:.3g} at most\n"
            for finding in findings
        ),
        f"Lower bounds at {result.confidence:.0%} confidence.",
        sep="",
        soft_wrap=True,
    )
