"""The device has the last word: a lifetime budget for its data, kept where only it can write.

A device's owner sets in the node config

    max-epsilon      the most that may ever be released about this data, over all runs
    delta            the delta at which that is counted (1e-5 by default)
    require-privacy  refuse runs without sound privacy, without setting a budget

and the device refuses what exceeds it, whatever the server says. The ledger is a file in the
device's state folder. A release is entered *before* it is made, durably, and confirmed after: a
crash in between counts it as made, so the ledger never under-counts. A release that is made again
(the same noise from the same secret, see `privacy.mechanisms.noise`) has the same name and counts
once.

All releases from this state folder count together, also where the data has changed meanwhile: rows
that stayed are in both releases.

Adversary: whoever sees everything this device ever released. Neighbouring: as the events say. Not
covered: an owner who deletes the ledger, and data that is also used elsewhere. A device runs the
code it is sent: who does not trust the server must check that code, this file included.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .events import PrivacyEvent
from .totals import total_epsilon

VERSION = 1
_FILE = "ledger.json"


class PrivacyRefused(PermissionError):
    """A release that this device does not allow; the message is meant for the server's log."""


@dataclass(frozen=True)
class Policy:
    """What a device's owner allows.

    Attributes
    ----------
    max_epsilon : lifetime budget; infinite where none is set
    delta : where the budget is counted
    require_privacy : whether a run without sound privacy is refused
    """

    max_epsilon: float = math.inf
    delta: float = 1e-5
    require_privacy: bool = False

    @classmethod
    def from_node_config(cls, config: Mapping[str, Any]) -> Policy:
        """Read the owner's node config.

        Raises
        ------
        ValueError
            For a value that is no budget: a typing error must not become "no limit".
        """
        budget = _number(config, "max-epsilon", math.inf)
        delta = _number(config, "delta", 1e-5)
        if not budget > 0.0:
            raise ValueError(f"max-epsilon={budget}: must be > 0")
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta={delta}: must be between 0 and 1, both excluded")
        required = config.get("require-privacy", False)
        if not isinstance(required, bool):
            raise ValueError(f"require-privacy={required!r}: must be true or false")
        return cls(budget, delta, required or math.isfinite(budget))

    def permit(self, mode: str) -> None:
        """Refuse a run whose ``privacy`` setting does not protect this device's data."""
        if self.require_privacy and mode != "sound":
            raise PrivacyRefused(
                f"this device requires privacy='sound', the run asks for privacy={mode!r}"
            )


@dataclass
class DeviceLedger:
    """The releases a device ever made from one state folder.

    Parameters
    ----------
    folder : the device's state folder
    policy : what its owner allows
    """

    folder: Path
    policy: Policy = field(default_factory=Policy)

    def reserve(self, event: PrivacyEvent) -> None:
        """Enter ``event`` before it is released, if the budget allows it.

        Raises
        ------
        PrivacyRefused
            Where the total with this event exceeds ``max-epsilon``. Nothing is entered then.
        """
        with self._locked():
            entries = self._read()
            if event.name in entries:
                if PrivacyEvent.from_record(entries[event.name]["event"]) != event:
                    raise PrivacyRefused(f"release {event.name!r} was made with other numbers")
                return
            known = [PrivacyEvent.from_record(e["event"]) for e in entries.values()]
            spent = total_epsilon(known, self.policy.delta)
            total = total_epsilon([*known, event], self.policy.delta)
            if total > self.policy.max_epsilon * (1.0 + 1e-9):
                raise PrivacyRefused(
                    f"refused: this release (epsilon {event.epsilon:g}) would bring the total to "
                    f"epsilon {total:.4g} at delta {self.policy.delta:g}, above this device's "
                    f"max-epsilon {self.policy.max_epsilon:g}; {spent:.4g} is spent by "
                    f"{len(known)} releases"
                )
            entries[event.name] = {"event": event.as_record(), "state": "reserved"}
            self._write(entries)

    def commit(self, name: str) -> None:
        """Confirm that a reserved release was made."""
        with self._locked():
            entries = self._read()
            if name not in entries:
                raise ValueError(f"release {name!r} was never reserved")
            if entries[name]["state"] != "released":
                entries[name]["state"] = "released"
                self._write(entries)

    def events(self) -> list[PrivacyEvent]:
        """Return every release, made or reserved."""
        return [PrivacyEvent.from_record(e["event"]) for e in self._read().values()]

    def spent(self) -> float:
        """Return the epsilon of all releases so far, at the policy's delta."""
        return total_epsilon(self.events(), self.policy.delta)

    def _read(self) -> dict[str, dict[str, Any]]:
        path = self.folder / _FILE
        if not path.is_file():
            return {}
        try:
            content = json.loads(path.read_text())
            entries: dict[str, dict[str, Any]] = content["entries"]
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}")
        except (ValueError, KeyError, TypeError) as error:
            # Starting afresh would forget what was spent.
            raise PrivacyRefused(
                f"{path} cannot be read ({error}); nothing is released until its owner mends it"
            ) from None
        return entries

    def _write(self, entries: Mapping[str, Any]) -> None:
        path = self.folder / _FILE
        partial = self.folder / f".{_FILE}.{os.getpid()}"
        with partial.open("w") as file:
            json.dump({"version": VERSION, "entries": entries}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        # The folder too: a rename is only durable with it.
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of this device from reserving at the same time."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{key}={value!r}: must be a number")
    return float(value)
