"""What a device's owner is told beside a result: who asked, and what privacy was spent.

From what the device itself knows: its own ledger, its node config and the run's settings, checked.
A ClientApp is not told which SuperLink it works for; ``server-name`` in the node config is the
owner's own word for it. Texts of a run's settings are cut to a length and are never markup or
paths: pages are built as trees, and folders are named by the run's number.
"""

from __future__ import annotations

import math
from typing import Any

from flwr.app import Context

from trellis.apps.common.node import Node
from trellis.apps.common.settings import StudyConfig, config_class
from trellis.privacy.accounting.budget import DeviceLedger, Policy
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.totals import total_epsilon
from trellis.privacy.device import log

_LONGEST = 200
# What says nothing beyond what stands beside it.
_TOLD_ELSEWHERE = ("method", "privacy")


def asked_by(node: Node, context: Context) -> dict[str, Any]:
    """Return who asked for a result, for what and when."""
    config = config_class(str(context.run_config["study"])).from_run_config(context.run_config)
    server = str(context.node_config.get("server-name", ""))
    return {
        "run": str(context.run_id),
        "study": config.study,
        "method": str(getattr(config, "way", config.method)),
        "privacy": config.privacy,
        "settings": own_settings(config),
        "time": log.now(),
        "server": server[:_LONGEST],
        "client": node.name,
    }


def own_settings(config: StudyConfig) -> dict[str, Any]:
    """Return the settings of a run that are not the study's defaults."""
    defaults = type(config)().settings()
    return {
        key: value[:_LONGEST] if isinstance(value, str) else value
        for key, value in config.settings().items()
        if value != defaults[key] and key not in _TOLD_ELSEWHERE
    }


def spent(node: Node, context: Context) -> dict[str, Any]:
    """Return what the device's ledger says of this run and of all, and the owner's limits."""
    policy = Policy.from_node_config(context.node_config)
    account: dict[str, Any] = {"delta": policy.delta}
    if math.isfinite(policy.max_epsilon):
        account["max-epsilon"] = policy.max_epsilon
    if node.state_path is None:
        return account
    entries = DeviceLedger(node.state_path, policy).entries()
    run = str(context.run_id)
    for name, chosen in (
        ("run", [entry for entry in entries if str(entry.get("run", "")) == run]),
        ("all", entries),
    ):
        events = [PrivacyEvent.from_record(entry["event"]) for entry in chosen]
        account[f"{name}-releases"] = len(events)
        account[f"{name}-epsilon"] = total_epsilon(events, policy.delta) if events else 0.0
    return account


def spent_in_words(account: dict[str, Any], privacy: str) -> list[str]:
    """Return what was spent, a sentence each."""
    words = []
    if privacy != "dp":
        words.append(
            f"This run had privacy={privacy!r}: what this device sent is not covered by any "
            "epsilon and was not counted."
        )
    if "run-releases" in account:
        words.append(
            f"This run made {account['run-releases']} counted releases from this device, epsilon "
            f"{account['run-epsilon']:.4g} at delta {account['delta']:g}."
        )
        words.append(
            f"All runs together: {account['all-releases']} releases, epsilon "
            f"{account['all-epsilon']:.4g}."
        )
    limit = account.get("max-epsilon")
    words.append(
        "You have set no limit over all runs (max-epsilon)."
        if limit is None
        else f"Your limit over all runs is epsilon {limit:g}."
    )
    return words
