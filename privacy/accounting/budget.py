"""The device has the last word: a lifetime budget for its data, kept where only it can write.

The owner sets the budget (`privacy.device.policy`) and the device refuses what exceeds it, whatever
the server says. The ledger is a file in the device's state folder. A release is entered *before* it
is made, durably, and confirmed after: a crash in between counts it as made, so the ledger never
under-counts. A release that is made again (the same noise from the same secret, see
`privacy.mechanisms.noise`) has the same name and counts once. Every entry has the time, run, study
and message it was made for; ``run-epsilon`` bounds what one run adds.

All releases from this state folder count together, also where the data has changed meanwhile: rows
that stayed are in both releases. A ledger that is gone while the device's secret is there was
deleted: nothing is released then.

Adversary: whoever sees everything this device ever released. Neighbouring: as the events say. Not
covered: an owner who puts an older ledger back or deletes the whole folder, and data that is also
used elsewhere. A device runs the code it is sent: who does not trust the server must check that
code, this file included.
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

from trellis.privacy.device import log
from trellis.privacy.device.codes import PrivacyRefused
from trellis.privacy.device.policy import Policy
from trellis.privacy.device.state import (
    LEDGER,
    LEDGER_VERSION,
    SECRET,
    begin,
    check_writable,
    deleted,
    refusing,
    write_private,
)

from .events import PrivacyEvent
from .totals import total_epsilon

__all__ = ["DeviceLedger", "Policy", "PrivacyRefused"]


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

    def reserve(self, event: PrivacyEvent, run_limit: tuple[float, float] | None = None) -> None:
        """Enter ``event`` before it is released, if the budget allows it.

        ``run_limit`` is the (epsilon, delta) that the run itself has declared as all it spends.

        Raises
        ------
        PrivacyRefused
            Where the total with this event exceeds ``max-epsilon``, or that of its run
            ``run-epsilon`` or ``run_limit``, or nothing can be written. Nothing is entered then.
        """
        begin(self.folder)
        check_writable(self.folder)
        with refusing(self.folder), self._locked():
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
            occasion = log.occasion()
            where = occasion.known() if occasion else {}
            self._check_run(event, entries, where.get("run", ""), run_limit)
            entries[event.name] = {
                "event": event.as_record(),
                "state": "reserved",
                "time": log.now(),
                **where,
            }
            self._write(entries)

    def commit(self, name: str) -> None:
        """Confirm that a reserved release was made.

        Where that cannot be written it stays reserved, which counts the same: it is too late to
        refuse.
        """
        try:
            self._confirm(name)
        except PrivacyRefused:
            raise
        except OSError as error:
            log.note(self.folder, "error", error=f"release {name} stays reserved: {error!r}")

    def _confirm(self, name: str) -> None:
        with self._locked():
            entries = self._read()
            if name not in entries:
                raise ValueError(f"release {name!r} was never reserved")
            if entries[name]["state"] != "released":
                entries[name]["state"] = "released"
                self._write(entries)
                event = entries[name]["event"]
                numbers = {key: event[key] for key in ("epsilon", "delta", "round")}
                log.note(self.folder, "release", name=name, released=event["what"], **numbers)

    def events(self) -> list[PrivacyEvent]:
        """Return every release, made or reserved."""
        return [PrivacyEvent.from_record(e["event"]) for e in self._read().values()]

    def spent(self) -> float:
        """Return the epsilon of all releases so far, at the policy's delta."""
        return total_epsilon(self.events(), self.policy.delta)

    def entries(self) -> list[dict[str, Any]]:
        """Return every release with its state, time, run, study and message, as it is kept."""
        return list(self._read().values())

    def _check_run(
        self,
        event: PrivacyEvent,
        entries: Mapping[str, Any],
        run: str,
        declared: tuple[float, float] | None,
    ) -> None:
        """Refuse what would let one run add more than ``run-epsilon``, or than it declared."""
        if math.isinf(self.policy.run_epsilon) and declared is None:
            return
        mine = [
            PrivacyEvent.from_record(e["event"])
            for e in entries.values()
            if e.get("run", "") == run
        ]
        if declared is not None:
            epsilon, delta = declared
            total = total_epsilon([*mine, event], delta)
            if total > epsilon * (1.0 + 1e-6):
                raise PrivacyRefused(
                    f"refused: run {run} declared epsilon {epsilon:g} at delta {delta:g}; this "
                    f"release would bring it to {total:.4g}"
                )
        total = total_epsilon([*mine, event], self.policy.delta)
        if total > self.policy.run_epsilon * (1.0 + 1e-9):
            raise PrivacyRefused(
                f"refused: this release (epsilon {event.epsilon:g}) would bring run {run} to "
                f"epsilon {total:.4g}, above this device's run-epsilon {self.policy.run_epsilon:g}"
            )

    def _read(self) -> dict[str, dict[str, Any]]:
        path = self.folder / LEDGER
        if not path.is_file():
            if (self.folder / SECRET).exists():
                raise deleted(self.folder)
            return {}
        try:
            content = json.loads(path.read_text())
            entries: dict[str, dict[str, Any]] = content["entries"]
            if content["version"] != LEDGER_VERSION:
                raise ValueError(f"version {content['version']}")
        except (ValueError, KeyError, TypeError) as error:
            # Starting afresh would forget what was spent.
            raise PrivacyRefused(
                f"{path} cannot be read ({error}); nothing is released until its owner mends it"
            ) from None
        return entries

    def _write(self, entries: Mapping[str, Any]) -> None:
        content = json.dumps({"version": LEDGER_VERSION, "entries": entries}, indent=1)
        write_private(self.folder / LEDGER, content.encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of this device from reserving at the same time."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self.folder / ".lock", os.O_CREAT | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
