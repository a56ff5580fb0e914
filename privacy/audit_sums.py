"""Attacks on a noisy secure sum: one record changed, everything else known, colluders helping.

The observer knows every client's data but one record, subtracts all inputs, and the noise of the
clients that work with the server; what is left of the sum is one client's rounded summand and the
noise of those that are counted on. Draws are those of the mechanism (`privacy.mechanisms.shares`),
in integers.

Neighbouring: the two summands given. Not covered: what secure aggregation must hold for this to be
all that is seen, see `trellis.privacy.secagg.protocol`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.accounting.sampled import spent
from trellis.privacy.audit import Finding, audit
from trellis.privacy.mechanisms.shares import Share

Vector = NDArray[np.float64]

_ENTRIES = 4  # of the sum that the observer looks at: those that tell most


def audit_sum(
    what: str,
    summand: Vector,
    neighbour: Vector,
    share: Share,
    *,
    delta: float,
    trials: int,
    rng: np.random.Generator,
    honest: int | None = None,
) -> Finding:
    """Return what an attack on one sum found beside its claim.

    Parameters
    ----------
    what : the mechanism, in words
    summand, neighbour : (d,) one client's part with either record
    share : the noise every client adds
    honest : clients whose noise is unknown; by default those the share counts on. Fewer than that
        is a broken assumption, and the audit may then disprove the claim
    """
    count = share.noisers if honest is None else honest
    change = np.rint(neighbour / share.grid) - np.rint(summand / share.grid)
    shown = np.argsort(-np.abs(change), kind="stable")[:_ENTRIES]
    # What the other entries tell is left out, so their part of the distance is added to the first.
    length = math.sqrt(float(change @ change))
    kept = math.sqrt(float(change[shown] @ change[shown]))
    steps = change[shown] * (length / kept) if kept > 0.0 else change[shown]

    def sample(moved: bool, draws: int, source: np.random.Generator) -> Vector:
        one = replace(share, size=draws * shown.size)
        noise = sum(one.draw(source) for _ in range(count))
        whole = np.asarray(noise, dtype=np.float64).reshape(draws, shown.size)
        return whole + np.rint(steps) if moved else whole

    found = audit(
        sample,
        False,
        True,
        trials=trials,
        delta=delta,
        rng=rng,
        direction=np.asarray(steps, dtype=np.float64),
    )
    setting = (
        f"one record moves the sum by {length * share.grid:.3g} of at most "
        f"{share.bound * share.grid:.3g}; noise of {count} clients, all inputs known"
    )
    return Finding(what, spent(share.ratio, 1, delta), setting, found)
