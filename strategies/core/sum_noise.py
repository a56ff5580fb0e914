"""How much noise is in a secure sum, by the events of its clients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, RecordDict

from trellis.privacy.accounting.events import PrivacyEvent

# Only a run that gathers its sums masked needs it, and has loaded it then.
if TYPE_CHECKING:
    from .secure import SecureAnswers


def added(event: PrivacyEvent, counted: int) -> float:
    """Return the variance of the noise that one client added to a sum.

    ``counted`` is how many it would count on if it trusted as the run does: one that counts on
    fewer adds the shares of the others itself (`privacy.mechanisms.shares.Share.counting_on`).
    """
    most = max(counted, event.noisers)
    return event.sigma**2 * (most - event.noisers + 1) / most


def noise_in(found: SecureAnswers) -> float:
    """Return the standard deviation of the noise in an entry of a sum, by its clients' own word.

    For shrinkage, forecasts and warnings: nothing checks that a client really added its share.
    """
    variance = 0.0
    for client in found.survivors:
        for key, record in found.clear.get(client, RecordDict()).items():
            if key.startswith("privacy.") and isinstance(record, ConfigRecord):
                event = PrivacyEvent.from_record(dict(record))
                if event.mechanism == "summed-gaussian":
                    variance += added(event, found.counted)
    return math.sqrt(variance)
