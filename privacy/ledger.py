"""What was released about whom: a list of events a client, and what they add up to.

An event is one noisy release of something computed from a client's data. Events are named, so a
release reported twice (a reply that was sent again after a restart) counts once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .composition import kairouz_composition
from .gaussian import gaussian_epsilon

_LONGEST_TEXT = 500
MODES = ("none", "paper", "sound")


@dataclass(frozen=True)
class PrivacyEvent:
    """One Gaussian release.

    Attributes
    ----------
    name : unique among a client's events; the same name is the same release
    what : what was released, in words
    round : the round it was released in
    sigma, sensitivity : noise deviation and l2 sensitivity
    epsilon, delta : what the mechanism claims for this release
    """

    name: str
    what: str
    round: int
    sigma: float
    sensitivity: float
    epsilon: float
    delta: float
    mechanism: str = "gaussian"

    def __post_init__(self) -> None:
        # Events come from clients: what a total is computed from must be what it claims to be.
        if not (0.0 < self.sigma < math.inf and 0.0 < self.sensitivity < math.inf):
            raise ValueError(f"sigma={self.sigma}, sensitivity={self.sensitivity}: must be > 0")
        if not (0.0 < self.epsilon < math.inf and 0.0 < self.delta < 1.0):
            raise ValueError(f"epsilon={self.epsilon}, delta={self.delta}: out of range")
        if max(len(self.name), len(self.what), len(self.mechanism)) > _LONGEST_TEXT:
            raise ValueError(f"an event's texts have at most {_LONGEST_TEXT} characters")

    def as_record(self) -> dict[str, Any]:
        """Return the event as a flat mapping, fit for a Flower ConfigRecord."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PrivacyEvent:
        """Read `as_record` back; unknown keys are an error."""
        kinds = {"str": str, "int": int, "float": float}
        known = {f.name: kinds[str(f.type)] for f in fields(cls)}
        if set(record) != set(known):
            raise ValueError(f"not a privacy event: keys {sorted(record)}")
        return cls(**{name: kind(record[name]) for name, kind in known.items()})


class Ledger:
    """The events of every client of one run, and the totals."""

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"privacy={mode!r}: use one of {', '.join(MODES)}")
        self.mode = mode
        self._events: dict[str, dict[str, PrivacyEvent]] = {}

    def commit(self, client: str, event: PrivacyEvent) -> None:
        """Enter one release of ``client``; entering it again changes nothing.

        Raises
        ------
        ValueError
            For a second release where ``sound`` privacy allows one: adding them up needs an
            accountant, and is refused rather than guessed. Or for the same name with other numbers.
        """
        known = self._events.setdefault(client, {})
        if self.mode == "sound" and set(known) - {event.name}:
            raise ValueError(f"a second release, {event.name!r}, where one was due")
        if known.setdefault(event.name, event) != event:
            raise ValueError(f"release {event.name!r} was reported before with other numbers")

    def events(self, client: str) -> list[PrivacyEvent]:
        """Return the releases of one client."""
        return list(self._events.get(client, {}).values())

    def total(self, client: str) -> tuple[float, float]:
        """Return (epsilon, delta) of all of one client's releases.

        ``sound``: its one release, from the noise by the exact formula. ``paper``: (32) with the
        first release's delta as slack.
        """
        events = self.events(client)
        if not events:
            return 0.0, 0.0
        if self.mode == "paper":
            return kairouz_composition(
                [e.epsilon for e in events], [e.delta for e in events], events[0].delta
            )
        (event,) = events
        return gaussian_epsilon(event.sigma, event.delta, event.sensitivity), event.delta

    def report(self, clients: Sequence[str], statement: Mapping[str, str]) -> dict[str, Any]:
        """Return the ledger for ``run.json``: the statement of the claim, totals, every event."""
        entries: list[dict[str, Any]] = []
        for client in clients:
            epsilon, delta = self.total(client)
            events = [event.as_record() for event in self.events(client)]
            entries.append({"name": client, "epsilon": epsilon, "delta": delta, "events": events})
        worst = max(entries, key=lambda entry: entry["epsilon"], default=None)
        totals = {} if worst is None else {"epsilon": worst["epsilon"], "delta": worst["delta"]}
        return {"mode": self.mode, **statement, **totals, "clients": entries}

    def state_dict(self) -> dict[str, Any]:
        """Return the events as plain data, for a checkpoint."""
        events = {c: [e.as_record() for e in named.values()] for c, named in self._events.items()}
        return {"version": 1, "mode": self.mode, "events": events}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        if state.get("version") != 1 or state.get("mode") != self.mode:
            raise ValueError("the ledger in the checkpoint belongs to another version or mode")
        self._events = {
            client: {r["name"]: PrivacyEvent.from_record(r) for r in records}
            for client, records in state["events"].items()
        }
