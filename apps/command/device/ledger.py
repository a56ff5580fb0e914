"""``trellis device ledger``: what was released, for which run, and what is left."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say

from .state import asker, config_of, there

if TYPE_CHECKING:
    from rich.console import Console


def add(parts: Any) -> None:
    """Describe the subcommand."""
    parser = parts.add_parser("ledger", help="what was released, for which run, and what is left")
    parser.add_argument("state", type=Path, help="the device's state-path")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Say what was released from a state folder."""
    from trellis.privacy.accounting.budget import DeviceLedger, Policy
    from trellis.privacy.accounting.totals import total_epsilon

    there(options.state)
    policy = Policy.from_node_config(config_of(options.state))
    ledger = DeviceLedger(options.state, policy)
    entries, events = ledger.entries(), ledger.events()
    for entry, event in zip(entries, events, strict=True):
        sure = "" if entry["state"] == "released" else " (begun, counted as made)"
        say(
            console,
            f"{entry.get('time', 'time unknown')}  epsilon {event.epsilon:.4g}, delta "
            f"{event.delta:g}  {event.what}{sure}; {entry.get('study', 'study unknown')}, "
            f"run {entry.get('run', 'unknown')}, message {entry.get('message', 'unknown')}"
            f"{asker(entry)}",
        )
    for run in sorted({str(entry.get("run", "unknown")) for entry in entries}):
        of_run = [
            event
            for entry, event in zip(entries, events, strict=True)
            if str(entry.get("run", "unknown")) == run
        ]
        spent = total_epsilon(of_run, policy.delta)
        say(console, f"run {run}: {len(of_run)} releases, epsilon {spent:.4g}")
    spent = total_epsilon(events, policy.delta)
    say(console, f"all: {len(events)} releases, epsilon {spent:.4g} at delta {policy.delta:g}")
    if math.isfinite(policy.max_epsilon):
        say(console, f"the owner allows epsilon {policy.max_epsilon:g} over all runs")
    return 0
