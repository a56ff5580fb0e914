"""``trellis device policy``: what the owner allows, in words."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say

from .state import config_of

if TYPE_CHECKING:
    from rich.console import Console


def add(parts: Any) -> None:
    """Describe the subcommand."""
    parser = parts.add_parser("policy", help="check a policy file and say it in words")
    parser.add_argument("path", type=Path, help="the policy's TOML, or the device's state-path")
    parser.add_argument(
        "--example", action="store_true", help="write a commented example to PATH and check it"
    )
    parser.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Say what a policy allows, or write an example."""
    from trellis.privacy.device.policy_file import EXAMPLE

    path: Path = options.path
    if options.example:
        with path.open("x", encoding="utf-8") as file:  # never over a policy that is there
            file.write(EXAMPLE)
        say(console, f"written: {path}; edit it and name it in the node config:")
        say(console, f"  --node-config 'policy=\"{path.resolve()}\" ...'")
    for line in in_words(config_of(path)):
        say(console, line)
    return 0


def in_words(config: Mapping[str, Any]) -> list[str]:
    """Return what a policy allows, a sentence a line; ``config`` as in a node config."""
    from trellis.privacy.device.policy import Policy

    policy = Policy.from_node_config(config)

    def some(words: tuple[str, ...] | None, none: str) -> str:
        return none if words is None else ", ".join(words) or "none"

    budget = "no lifetime budget"
    if math.isfinite(policy.max_epsilon):
        budget = f"at most epsilon {policy.max_epsilon:g} over all runs"
    if math.isfinite(policy.run_epsilon):
        budget += f", at most {policy.run_epsilon:g} by one run"
    return [
        f"Budget: {budget}, counted at delta {policy.delta:g}.",
        f"Studies: {some(policy.studies, 'any')}. Methods: {some(policy.methods, 'any')}.",
        f"Privacy: {', '.join(policy.modes)}.",
        "Updates in the clear, counted nowhere: "
        f"{'allowed' if policy.clear_updates else 'refused'}.",
        f"Labels: {'may be told' if policy.labels else 'are never told'}.",
        f"Classes that a run may name: {some(policy.names, 'none')}.",
        f"Secure sums: {_sums(config)}.",
        f"One message: whole numbers up to {policy.most_steps}, {policy.most_megabytes:g} MB, "
        f"{policy.most_seconds:g} s.",
    ]


def _sums(config: Mapping[str, Any]) -> str:
    fewest, share = config.get("fewest-clients", 3), config.get("fewest-share", 2 / 3)
    peers = config.get("trusted-keys", "the server's word")
    counted = config.get("count-noise-of", "signed")
    if counted == "signed" and "trusted-keys" not in config:
        counted = "nobody (no trusted-keys)"
    colluding = float(config.get("colluding", 0.0))
    doubt = f", less {colluding:.0%} of the clients at least" if colluding else ""
    return (
        f"of at least {fewest} clients, threshold {share:.3g} of the holders, keys by {peers}; "
        f"counts on the noise of: {counted}{doubt}"
    )
