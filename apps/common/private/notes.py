"""What a reader of a result must know about the noise in its sums."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger
from trellis.strategies.core.sum_noise import added

# Below, nobody would notice.
_WORTH_SAYING = 1.02


def sum_notes(ledger: Ledger, groups: Mapping[str, int]) -> list[str]:
    """Return how much more noise a run's sums have than the claim needs, and why.

    ``groups`` says which clients, by name, are summed with which.
    """
    shares = {name: _summed([one.first for one in ledger.series(name)]) for name in groups}
    there = {name: event for name, event in shares.items() if event is not None}
    if not there:
        return []
    alone = sorted(name for name, event in there.items() if event.noisers == 1)
    notes = []
    if alone:
        some = ", ".join(alone[:5]) + (", ..." if len(alone) > 5 else "")
        notes.append(
            f"{len(alone)} of {len(there)} clients counted on no noise but their own ({some}): a "
            "device counts on others whose signed keys its owner has listed (trusted-keys), or on "
            "anyone where the owner says so (count-noise-of). Each of these added the whole noise."
        )
    sums = defaultdict(list)
    for name, event in there.items():
        sums[groups[name]].append(event)
    excess = max(_excess(events) for events in sums.values())
    if excess > _WORTH_SAYING:
        notes.append(
            f"The sums have {excess:.2f} times the noise that the claim needs, so that it also "
            "holds where clients drop out or work with the server (dropout, colluding)."
        )
    return notes


def _excess(events: list[PrivacyEvent]) -> float:
    """Return the noise of one sum over that which the claim needs."""
    most = max(event.noisers for event in events)
    variance = math.fsum(added(event, most) for event in events)
    return math.sqrt(variance) / max(event.sigma for event in events)


def _summed(events: list[PrivacyEvent]) -> PrivacyEvent | None:
    """Return a client's last release in a sum."""
    found = [event for event in events if event.mechanism == "summed-gaussian"]
    return found[-1] if found else None
