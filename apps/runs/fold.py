"""Numbers of several servers as one: of their rounds, their headlines and their privacy accounts.

What is counted adds up, what limits (time, change, age, epsilon) is the largest. Any other number
is kept where all servers say the same, and left out where they do not: the mean of two deviations
in decibels is the deviation of nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trellis.apps.common.results import Row

_ADDED = {"clients", "failed", "links", "moved", "between-servers"}
_ADDED_BEGIN = ("bytes", "messages")
_LARGEST = {"change", "oldest", "rounds", "seconds"}
_LARGEST_BEGIN = ("epsilon",)
_LARGEST_END = ("-seconds",)
# One server knows its own model only, so whatever it says of this is of no use.
_OF_ALL = {"disagreement"}


def fold(rows: Sequence[Mapping[str, float]]) -> Row:
    """Return one row of the rows that servers have for the same thing; see the module."""
    names = dict.fromkeys(name for row in rows for name in row)
    found: Row = {}
    for name in names:
        values = [row[name] for row in rows if not math.isnan(row.get(name, math.nan))]
        value = _one(name, values, len(rows))
        if value is not None:
            found[name] = value
    return found


def fold_rounds(parts: Sequence[Sequence[Row]]) -> list[Row]:
    """Return one row a round; a server that has no row for a round is left out of it."""
    by_round: dict[float, list[Row]] = {}
    for rows in parts:
        for index, row in enumerate(rows):
            by_round.setdefault(row.get("round", index + 1.0), []).append(row)
    found = []
    for at, rows in sorted(by_round.items()):
        one = {"round": at, **fold(rows)}
        if "servers" in one or any("servers" in row for row in rows):
            one["servers"] = float(len(rows))
        found.append(one)
    return found


def fold_ledgers(ledgers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return one account of the accounts of servers, by name; empty ones are passed over.

    Clients' entries stand one after the other, totals are the largest. A server's entry, where a
    study accounts for servers, is taken from that server's own account.
    """
    known = {name: ledger for name, ledger in ledgers.items() if ledger}
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for ledger in known.values() for key in ledger):
        values = {name: ledger[key] for name, ledger in known.items() if key in ledger}
        first = next(iter(values.values()))
        if key == "clients":
            found[key] = _entries(values, set(ledgers))
        elif key == "simulated":
            found[key] = any(values.values())  # a part of it protects nobody
        elif all(value == first for value in values.values()):
            found[key] = first
        elif all(isinstance(value, int | float) for value in values.values()):
            found[key] = max(values.values())
        else:
            found[key] = " ".join(f"{name}: {value}" for name, value in values.items())
    return found


def _entries(parts: Mapping[str, Any], servers: set[str]) -> list[dict[str, Any]]:
    return [
        entry
        for name, entries in parts.items()
        for entry in entries
        if entry.get("name") not in servers - {name}
    ]


def _one(name: str, values: Sequence[float], servers: int) -> float | None:
    """Return what one number of several servers is together; None where that is not known."""
    if not values or name in _OF_ALL:
        return None
    if name in _ADDED or name.startswith(_ADDED_BEGIN):
        return float(sum(values))
    if name in _LARGEST or name.startswith(_LARGEST_BEGIN) or name.endswith(_LARGEST_END):
        return float(max(values))
    alike = len(values) == servers and all(value == values[0] for value in values)
    return values[0] if alike else None
