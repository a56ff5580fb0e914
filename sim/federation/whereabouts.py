"""At which SuperLink a device should be, by what it hears of them and when: no process, no clock.

A device has one SuperLink of its own and, where its owner names some, others for the time in which
its own is gone (``fallback`` in its ``device.toml``). It

- goes away when its own has not answered for ``after`` seconds, to the first of the others that
  does; where none does it stays, for its SuperNode tries its own again and again by itself;
- goes on to another when the one it went to does not answer for as long, or ends its SuperNode;
- goes home when its own has answered at every look for `STEADY` seconds, so that a server which
  comes and goes does not take its devices with it.

Nobody but the owner names an address: a server has no say in this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trellis.sim.reach import Reach

STEADY = 5.0  # seconds for which the own SuperLink must answer again, twice at least
AGAIN = 15.0  # seconds until a SuperLink that ended the device's SuperNode is tried again
NOWHERE = ""


@dataclass(frozen=True)
class Move:
    """To which address a device goes, and in words why; empty where it just starts at its own."""

    to: str
    why: str


class Whereabouts:
    """Where a device is, and where it should go.

    Parameters
    ----------
    own : its own SuperLink, host:port
    fallback : others, in the order in which they are tried
    after : seconds without an answer until a SuperLink counts as gone
    now : seconds on the clock by which everything here goes

    Attributes
    ----------
    at : where it is; `NOWHERE` before it has started
    complaint : why it cannot go where it should; empty where all is well
    """

    def __init__(self, own: str, fallback: Sequence[str], after: float, now: float) -> None:
        self.at, self.complaint = NOWHERE, ""
        self._own, self._fallback, self._after = own, tuple(fallback), after
        self._home_heard = self._heard = now  # when the own one answered last, and where it is
        self._started = False
        self._steady: float | None = None  # since when the own one has answered, while away
        self._refused: dict[str, float] = {}

    def look(self, now: float, ask: Callable[[str], Reach]) -> Move | None:
        """Ask who answers; return where to go, or None to stay."""
        home = ask(self._own)
        if home.ok:
            self._home_heard, self.complaint = now, ""
            return self._with_home(now)
        self._steady = None
        missed, here, heard = self._own, home, self._home_heard
        if self.at not in (NOWHERE, self._own):
            missed, here = self.at, ask(self.at)
            if here.ok:
                self._heard, self.complaint = now, ""
                return None
            heard = self._heard
        silent = now - heard
        if silent < self._after:
            return None
        why = f"{missed} has not answered for {silent:.0f} s: {here.words}"
        for address in self._fallback:
            if address != self.at and self._may_try(address, now) and ask(address).ok:
                self.complaint = ""
                return Move(address, why)
        self.complaint = f"{why}; nor does any fallback answer"
        return None

    def moved(self, address: str, now: float) -> None:
        """Take note that its SuperNode has been started for ``address``."""
        self.at, self._heard, self._steady, self._started = address, now, None, True

    def ended(self, now: float) -> None:
        """Take note that its SuperNode has ended by itself: that SuperLink does not want it."""
        self._refused[self.at] = now
        self.at = NOWHERE

    def _with_home(self, now: float) -> Move | None:
        """Return whether to go home, where the own SuperLink has just answered."""
        if self.at == self._own:
            return None
        if not self._started:
            return Move(self._own, "")
        if self.at == NOWHERE:  # nothing to lose
            return Move(self._own, f"{self._own} answers again")
        if self._steady is None:
            self._steady = now
        if now - self._steady < STEADY:
            return None
        return Move(self._own, f"{self._own} answers again")

    def _may_try(self, address: str, now: float) -> bool:
        return now - self._refused.get(address, -math.inf) >= AGAIN
