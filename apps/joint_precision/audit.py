"""Attacks on what joint-precision releases, to see whether ``dp`` keeps its claim.

The neighbours: n samples, all but one alike. The last is above all others in every variable in the
one data set; in the other it is above them in the first half and below them in the second. The two
rows of signs against any other sample are then orthogonal, which moves a client's concordances as
far as replacing one sample can.

The observer knows all clients' samples but the one, and the noise of all clients that the devices
do not count on; he looks along the line between the two sums.

``none`` and ``paper`` claim nothing to attack: there one message gives S itself.

Adversary: reads the release, knows all samples but one. Neighbouring: one sample replaced. Not
covered: other pairs of data sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.sampled import spent
from trellis.privacy.audit import Finding, audit
from trellis.privacy.mechanisms.shares import plan_share
from trellis.privacy.secagg.graph import expected_noisers

from .config import JointPrecisionConfig
from .private.concordance import FRACTION_BITS, learning_count, sensitivity, summands
from .private.device import learning_ratio

Matrix = NDArray[np.float64]

TRIALS = 1_000_000


class Watched(NamedTuple):
    """What the observer looks at of one data set's release: N(centre, deviation^2 I)."""

    centre: NDArray[np.float64]
    deviation: float

    def draw(self, count: int, rng: np.random.Generator) -> Matrix:
        """Return ``count`` independent releases, a row each."""
        return self.centre + self.deviation * rng.standard_normal((count, self.centre.size))


def audits(settings: Mapping[str, Any], *, trials: int = TRIALS, seed: int = 1) -> list[Finding]:
    """Return what the attack on ``dp`` found; ``trials`` runs on each of two data sets."""
    chosen = str(settings.get("privacy", "dp"))
    if chosen != "dp":
        raise ConfigError(f"privacy={chosen!r} claims nothing to audit; use dp")
    config = JointPrecisionConfig.from_settings({**settings, "privacy": "dp"})
    if not config.sums:
        raise ConfigError(f"method={config.method!r} releases nothing; use group, fused or pooled")
    return [_summed(config, trials, seed)]


def _summed(config: JointPrecisionConfig, trials: int, seed: int) -> Finding:
    """Attack one noisy sum of concordances: the other clients' terms cancel."""
    count, p = learning_count(config.sample_counts()[0], config.held_out), config.variables
    ratio = learning_ratio(config)
    samples = neighbours(count, p, generator(seed, "audit data"))
    sums = [np.concatenate(list(summands(values).values())) for values in samples]
    line = sums[1] - sums[0]
    line /= np.linalg.norm(line)
    counted = expected_noisers(config.clients, config.dropout, config.colluding)
    share = plan_share(FRACTION_BITS, ratio, sensitivity(p), sums[0].size, counted)
    data, neighbour = (Watched(np.array([line @ total]), share.sigma) for total in sums)
    rng = generator(seed, "audit dp")
    result = audit(Watched.draw, data, neighbour, trials=trials, delta=config.delta, rng=rng)
    claimed = spent(share.ratio, 1, config.delta)
    what = f"n = {count}, p = {p}, {counted} clients' noise"
    return Finding("dp, one noisy sum", claimed, what, result)


def neighbours(count: int, variables: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Return two data sets (n, p) that differ in the last sample only, tau as far as can be."""
    data = rng.standard_normal((count, variables))
    above = np.max(np.abs(data)) + 1.0
    neighbour = data.copy()
    data[-1] = above
    neighbour[-1] = np.where(np.arange(variables) < variables // 2, above, -above)
    return data, neighbour
