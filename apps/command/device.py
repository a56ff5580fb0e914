"""``trellis device``: what a device's owner sees: its policy, its ledger, its log, its results."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .start import add_start

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser(
        "device", help="what a device's owner allows, what was spent on what, what happened"
    )
    parts = parser.add_subparsers(required=True, metavar="start|policy|ledger|log|result")
    add_start(parts)
    policy = parts.add_parser("policy", help="check a policy file and say it in words")
    policy.add_argument("path", type=Path, help="the policy's TOML, or the device's state-path")
    policy.add_argument(
        "--example", action="store_true", help="write a commented example to PATH and check it"
    )
    policy.set_defaults(act=act_policy)
    ledger = parts.add_parser("ledger", help="what was released, for which run, and what is left")
    ledger.add_argument("state", type=Path, help="the device's state-path")
    ledger.set_defaults(act=act_ledger)
    log = parts.add_parser("log", help="what happened on the device")
    log.add_argument("state", type=Path, help="the device's state-path")
    log.add_argument("--last", type=int, default=20, help="how many lines, 20 by default")
    log.add_argument("--traces", action="store_true", help="with the traces of errors")
    log.set_defaults(act=act_log)
    result = parts.add_parser(
        "result", help="what runs have left on the device, for its owner only"
    )
    result.add_argument("state", type=Path, help="the device's state-path")
    result.set_defaults(act=act_result)


def act_policy(options: argparse.Namespace, console: Console) -> int:
    """Say what a policy allows, or write an example."""
    from privacy.device.policy_file import EXAMPLE

    path: Path = options.path
    if options.example:
        with path.open("x", encoding="utf-8") as file:  # never over a policy that is there
            file.write(EXAMPLE)
        _say(console, f"written: {path}; edit it and name it in the node config:")
        _say(console, f"  --node-config 'policy=\"{path.resolve()}\" ...'")
    for line in in_words(_config(path)):
        _say(console, line)
    return 0


def act_ledger(options: argparse.Namespace, console: Console) -> int:
    """Say what was released from a state folder."""
    from privacy.accounting.budget import DeviceLedger, Policy
    from privacy.accounting.totals import total_epsilon

    _there(options.state)
    policy = Policy.from_node_config(_config(options.state))
    ledger = DeviceLedger(options.state, policy)
    entries, events = ledger.entries(), ledger.events()
    for entry, event in zip(entries, events, strict=True):
        sure = "" if entry["state"] == "released" else " (begun, counted as made)"
        _say(
            console,
            f"{entry.get('time', 'time unknown')}  epsilon {event.epsilon:.4g}, delta "
            f"{event.delta:g}  {event.what}{sure}; {entry.get('study', 'study unknown')}, "
            f"run {entry.get('run', 'unknown')}, message {entry.get('message', 'unknown')}",
        )
    for run in sorted({str(entry.get("run", "unknown")) for entry in entries}):
        of_run = [
            event
            for entry, event in zip(entries, events, strict=True)
            if str(entry.get("run", "unknown")) == run
        ]
        spent = total_epsilon(of_run, policy.delta)
        _say(console, f"run {run}: {len(of_run)} releases, epsilon {spent:.4g}")
    spent = total_epsilon(events, policy.delta)
    _say(console, f"all: {len(events)} releases, epsilon {spent:.4g} at delta {policy.delta:g}")
    if math.isfinite(policy.max_epsilon):
        _say(console, f"the owner allows epsilon {policy.max_epsilon:g} over all runs")
    return 0


def act_log(options: argparse.Namespace, console: Console) -> int:
    """Say what happened on a device, newest last."""
    from privacy.device import log
    from privacy.device.codes import CODES

    _there(options.state)
    lines = log.read(options.state)
    if not lines:
        _say(console, f"nothing has happened in {options.state}")
    for line in lines[-options.last :] if options.last > 0 else []:
        where = f"{line.get('study', '')} run {line.get('run', '')} {line.get('kind', '')}"
        detail = line.get("reason") or line.get("error") or line.get("released") or ""
        code = str(line.get("code", ""))
        told = f" [{code}: {CODES.get(code, '')}]" if code else ""
        _say(console, f"{line.get('time')}  {line.get('what')}  {where}{told} {detail}".rstrip())
        if options.traces and "trace" in line:
            _say(console, str(line["trace"]))
    return 0


def act_result(options: argparse.Namespace, console: Console) -> int:
    """Say which results of its own a device has kept, oldest first, and where."""
    import numpy as np

    _there(options.state)
    pages = sorted(
        options.state.glob("results/*/result.html"), key=lambda path: path.stat().st_mtime
    )
    if not pages:
        _say(console, f"no results in {options.state}: runs with personal='device' leave them here")
    for page in pages:
        with np.load(page.parent / "result.npz", allow_pickle=False) as arrays:
            shapes = [f"{name} {arrays[name].shape}" for name in arrays.files]
        _say(console, f"run {page.parent.name}: {page}")
        _say(console, f"  arrays in result.npz: {', '.join(shapes)}")
    return 0


def in_words(config: Mapping[str, Any]) -> list[str]:
    """Return what a policy allows, a sentence a line; ``config`` as in a node config."""
    from privacy.device.policy import Policy

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


def _config(path: Path) -> dict[str, Any]:
    """Return the keys of a policy file, or those that were last in force in a state folder."""
    from privacy.device.policy_file import whole_config
    from privacy.device.state import kept_policy

    return kept_policy(path) if path.is_dir() else whole_config({"policy": str(path.resolve())})


def _there(state: Path) -> None:
    if not state.is_dir():
        raise ValueError(f"{state}: no such folder; give the device's state-path")


def _say(console: Console, text: str) -> None:
    # Texts from a run are data: no markup, no colours of theirs, no control characters.
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    console.print(shown, markup=False, highlight=False, soft_wrap=True)
