"""What was released about whom in a run: a list of events a client, and what they add up to.

Kept by the server from what clients report. It is the run's account, not a client's protection:
that is the device's own ledger (`privacy.accounting.budget`), which the server cannot write to.
Only releases that a client really made are counted, so a client that took part in fewer rounds
spent less. Releases that are alike, round after round, take the room of one (`series`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .composition import kairouz_composition
from .events import PrivacyEvent
from .series import Account, Series
from .totals import pld_epsilon, rdp_epsilon, total_epsilon, total_rho

MODES = ("none", "paper", "dp")
_VERSION = 3  # 2 had every release by itself, and is still read
_MOST_OPINIONS, _MOST_EPSILON = 3, 100.0
_MOST_EVENTS = 100_000  # a client must not be able to drown the account
_LISTED = 100  # releases that are alike are told one by one up to here


class Ledger:
    """The events of every client of one run, and the totals.

    Parameters
    ----------
    mode : the run's ``privacy`` setting
    delta : the delta at which ``dp`` totals are given
    """

    def __init__(self, mode: str, delta: float = 1e-5) -> None:
        if mode not in MODES:
            raise ValueError(f"privacy={mode!r}: use one of {', '.join(MODES)}")
        self.mode = mode
        self.delta = delta
        self._accounts: dict[str, Account] = {}

    def commit(self, client: str, event: PrivacyEvent) -> None:
        """Enter one release of ``client``; entering it again changes nothing.

        Raises
        ------
        ValueError
            For an event where nothing is released with noise, or for a known name with other
            numbers.
        """
        if self.mode == "none":
            raise ValueError(f"release {event.name!r} in a run without privacy")
        account = self._accounts.setdefault(client, Account())
        known = account.find(event.name)
        if known is None:
            if account.count >= _MOST_EVENTS:
                raise ValueError(f"more than {_MOST_EVENTS} releases")
            account.enter(event)
        elif known != event:
            raise ValueError(f"release {event.name!r} was reported before with other numbers")

    def events(self, client: str) -> list[PrivacyEvent]:
        """Return the releases of one client."""
        return list(self._accounts.get(client, ()))

    def series(self, client: str) -> list[Series]:
        """Return the releases of one client, those that are alike together."""
        known = self._accounts.get(client)
        return list(known.series) if known is not None else []

    def _costs(self, client: str) -> list[PrivacyEvent]:
        """Return one event for every release of a client, with its numbers but not its name."""
        return [one.first for one in self.series(client) for _ in range(one.times)]

    def total(self, client: str) -> tuple[float, float]:
        """Return (epsilon, delta) of all of one client's releases.

        ``dp``: from the noise, by the tightest bound we can prove. ``paper``: (32) from the
        claims, with the first release's delta as slack.
        """
        events = self._costs(client)
        if not events:
            return 0.0, 0.0
        if self.mode == "paper":
            return kairouz_composition(
                [e.epsilon for e in events], [e.delta for e in events], events[0].delta
            )
        return total_epsilon(events, self.delta), self.delta

    def report(self, clients: Sequence[str], statement: Mapping[str, str]) -> dict[str, Any]:
        """Return the ledger for ``run.json``: the statement of the claim, totals, every event.

        More than a hundred releases that are alike are one entry, with ``times`` and ``steps``
        (`series.every` lists them).
        """
        entries: list[dict[str, Any]] = []
        for client in clients:
            epsilon, delta = self.total(client)
            events = self._costs(client)
            entry: dict[str, Any] = {"name": client, "epsilon": epsilon, "delta": delta}
            if self.mode == "dp" and events:
                entry["rho"] = total_rho(events)
            told = [record for one in self.series(client) for record in _told(one)]
            entries.append({**entry, "events": told})
        self._add_opinions(entries)
        worst = max(entries, key=lambda entry: entry["epsilon"], default=None)
        totals = {} if worst is None else {"epsilon": worst["epsilon"], "delta": worst["delta"]}
        return {"mode": self.mode, **statement, **totals, "clients": entries}

    def _add_opinions(self, entries: Sequence[dict[str, Any]]) -> None:
        """Add the totals by other accountants for the clients that spent most.

        These take seconds for a long list of releases: with hundreds of clients they would take
        longer than the run. Of a total far beyond any protection they cannot even be computed.
        """
        known: dict[tuple[float, float], dict[str, float]] = {}
        for entry in sorted(entries, key=lambda entry: -entry["epsilon"]):
            events = self._costs(entry["name"])
            spent = entry["epsilon"], entry.get("rho", 0.0)
            if self.mode != "dp" or not events or entry["epsilon"] > _MOST_EPSILON:
                continue
            if spent not in known and len(known) < _MOST_OPINIONS:
                known[spent] = {}
                with suppress(ImportError):
                    known[spent]["epsilon_rdp"] = rdp_epsilon(events, self.delta)
                    known[spent]["epsilon_pld"] = pld_epsilon(events, self.delta)
            entry |= known.get(spent, {})

    def state_dict(self) -> dict[str, Any]:
        """Return the events as plain data, for a checkpoint."""
        events = {c: [one.as_record() for one in a.series] for c, a in self._accounts.items()}
        return {"version": _VERSION, "mode": self.mode, "events": events}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        if state.get("version") not in (2, _VERSION) or state.get("mode") != self.mode:
            raise ValueError("the ledger in the checkpoint belongs to another version or mode")
        self._accounts = {}
        for client, records in state["events"].items():
            account = self._accounts[client] = Account()
            for record in records:
                account.restore(Series.from_record(record))


def _told(one: Series) -> list[dict[str, Any]]:
    """Return what a report lists of a series: short ones release by release."""
    if one.times > _LISTED:
        return [one.as_record()]
    return [event.as_record() for event in one]
