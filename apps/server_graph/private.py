"""What a client adds to a noisy secure sum of server-graph, and how much noise it needs.

    u_k = 1 / b_k sum_{x in batch} clip_C(grad Q(w; x)),   b_k = q_k n_k the *expected* batch

Client k of server p draws its batch in secret: each of its n_k training samples comes into it with
probability q_k = batch / n_k, independently. The server learns S_p = sum_k u_k + noise over the
clients that stayed, and nothing else of a round; with one step a round

    psi_p = w_p - mu (S_p / K_p + rho w_p)                                      [RS] (6), (7)

is computed from that. The ridge is no data and needs no client.

**Sensitivity.** w is what the server sent, the same whatever the data. One sample's term has norm
C / b_k at most, so replacing it moves u_k, and with it S_p, by at most D_k = 2 C / b_k. It divides
by the expected size of the batch, which is public; by the realised one a term would change with who
else is in the batch, and the size itself would be told.

**Noise.** Client k with `releases` releases at rate q_k needs a ratio D_k / sigma of at most r_k,
so sigma >= D_k / r_k (`needed_deviation`): small clients need more. All clients of a sum add shares
of one sigma, the largest that any of them needs; it is part of the payload. Rounding to the grid is
counted by one ratio for all, that of batches of all samples, which is the least (`least_ratio`): a
share must not depend on a client's own, or clients of other sizes would not add up. A device takes
sigma from the server only as far as it is enough for itself, and since masks cover the payload,
clients that were told another sigma do not add up with it. A digest of the settings is in the
payload as well: a server that gives devices run configs of their own, so that some count on noise
that others do not add, gets no sum either.

**Releases.** A round that has to be made again is another release under fresh noise. Noise is for
`releases` of them, a twentieth more than there are rounds and two at least, so that a run does not
end where a client drops out; devices refuse more.

**Held-out samples** have no part in u_k, learning samples none in the score: which is which goes by
their places alone (`apps.common.evaluation.holding`). The score of a public model is a noisy sum of
terms between 0 and 1, of sensitivity 1, for which a tenth of the budget (in zero-concentrated
terms) is kept.

**The common scale** of features (``standardise``) is another noisy sum before the first round, of
counts by octave (`trellis.apps.common.own_data.units`), for which as much is kept.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.accounting.sampled import ratio_for, spent_by
from trellis.privacy.accounting.zcdp import zcdp_rho
from trellis.privacy.mechanisms.clipping import clip_rows
from trellis.privacy.numerics import brentq

from .config import ServerGraphConfig
from .losses import Loss

Array = NDArray[np.float64]

GRADIENTS, SCORE = "clipped gradients", "the score of held-out samples"  # what is released
SCORE_SHARE = UNITS_SHARE = 0.1
SCORE_RELEASES = 2


@dataclass(frozen=True)
class Rates:
    """How a client of n training samples draws: its rate q and the expected size b of a batch."""

    sampling: float
    expected: float

    @classmethod
    def of(cls, samples: int, batch: int) -> Rates:
        """Return the rates of a client; ``batch = 0``, or more than there are, takes all."""
        if batch == 0 or batch >= samples:
            return cls(1.0, float(max(samples, 1)))
        return cls(batch / samples, float(batch))


@dataclass(frozen=True)
class Terms:
    """What of the settings decides about noise.

    Attributes
    ----------
    epsilon, delta : of the whole run
    rounds : planned
    batch : expected, 0 is all
    clip : C
    held_out : share of the samples that are kept for the score
    units : whether a noisy sum finds the scale of features
    """

    epsilon: float
    delta: float
    rounds: int
    batch: int
    clip: float
    held_out: float
    units: bool = False

    @classmethod
    def of(cls, config: ServerGraphConfig) -> Terms:
        """Return the terms of a run."""
        c = config
        noisy = c.units() == "noisy"
        return cls(c.epsilon, c.delta, c.rounds, c.batch, c.bound, c.held_out, noisy)

    @property
    def releases(self) -> int:
        """How many releases a client makes at most, rounds made again included."""
        return self.rounds + max(2, math.ceil(self.rounds / 20))

    @property
    def score_ratio(self) -> float:
        """Sensitivity over noise of one release of the score."""
        rho = SCORE_SHARE * zcdp_rho(self.epsilon, self.delta)
        return math.sqrt(2.0 * rho / SCORE_RELEASES)

    @property
    def units_ratio(self) -> float:
        """Sensitivity over noise of the one release that finds the scale of features."""
        return math.sqrt(2.0 * UNITS_SHARE * zcdp_rho(self.epsilon, self.delta))

    def kept_back(self, samples: int) -> int:
        """Return how many of a client's samples are held out."""
        return min(math.floor(self.held_out * samples), samples - 1)

    def rates(self, samples: int) -> Rates:
        """Return the rates of a client that has ``samples`` in all."""
        return Rates.of(samples - self.kept_back(samples), self.batch)

    def sensitivity(self, samples: int) -> float:
        """Return D_k of a client that has ``samples`` in all."""
        return 2.0 * self.clip / self.rates(samples).expected

    def ratio(self, samples: int) -> float:
        """Return r_k: the largest ratio at which all releases spend epsilon at most."""
        return self._ratio(self.rates(samples).sampling)

    @property
    def least_ratio(self) -> float:
        """The ratio of clients that take all their samples: no client's is less."""
        return self._ratio(1.0)

    def needed_deviation(self, samples: int) -> float:
        """Return the noise that the sums of a client with ``samples`` need."""
        # A hair more: what all plan together is not less than its own share by a rounding.
        return self.sensitivity(samples) / self.ratio(samples) * (1.0 + 1e-9)

    def needed_by_all(self, samples: Iterable[int]) -> float:
        """Return the noise that a sum over clients with so many samples needs."""
        return max(map(self.needed_deviation, set(samples)))

    def _ratio(self, sampling: float) -> float:
        share = SCORE_SHARE * (self.held_out > 0.0) + UNITS_SHARE * self.units
        rho = share * zcdp_rho(self.epsilon, self.delta) if share else 0.0
        return _training_ratio(self.epsilon, self.delta, self.releases, sampling, rho)


@lru_cache(maxsize=1024)
def _training_ratio(
    epsilon: float, delta: float, releases: int, sampling: float, rho: float
) -> float:
    most = ratio_for(epsilon, delta, releases)
    with suppress(ValueError):  # so small an epsilon that sampling is no help at the orders there
        most = max(most, ratio_for(epsilon, delta, releases, sampling))
    if rho == 0.0:
        return most
    # What rho leaves, without the amplification: always allowed.
    least = math.sqrt(2.0 * (zcdp_rho(epsilon, delta) - rho) / releases)
    if sampling >= 1.0:
        return least

    def excess(ratio: float) -> float:
        return spent_by({(ratio, sampling): releases}, delta, rho) - epsilon

    low = 0.5 * most
    if excess(low) > 0.0:
        return least
    found = brentq(excess, low, most, xtol=1e-12) if excess(most) > 0.0 else most
    while excess(found) > 0.0:  # the private side of the root
        found *= 1.0 - 1e-9
    return max(found, least)


def digest(config: ServerGraphConfig) -> str:
    """Return what all settings of a run are known by, in messages."""
    text = json.dumps(config.settings(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def draw_batch(samples: int, sampling: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which rows (n,) come into a batch, each by a coin of its own."""
    if sampling >= 1.0:
        return np.ones(samples, dtype=bool)
    return rng.random(samples) < sampling


def clipped_mean(
    loss: Loss,
    w: Array,
    X: Array,
    y: Array,
    clip: float,
    taken: NDArray[np.bool_],
    expected: Array | float,
) -> Array:
    """Return u (..., M): the clipped gradients of the rows that are taken over b, of one or many.

    Parameters
    ----------
    w : (..., M)
    X, y : (..., n, d) and (..., n)
    taken : (..., n)
    expected : (...) b
    """
    # A sample of 1e300 overflows: clipping makes that 0, and nothing may tell of it.
    with np.errstate(over="ignore", invalid="ignore"):
        G = clip_rows(loss.gradients(w, X, y), clip)
    total: Array = np.add.reduce(G * taken[..., None], axis=-2)
    return total / np.asarray(expected)[..., None]


def score_terms(loss: Loss, w: Array, X: Array, y: Array) -> Array:
    """Return a number between 0 and 1 for every sample: 1 for a label that is right.

    Where targets are numbers, 1 less the squared error over the target's own scale of 1, and 0 for
    an error above 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = loss.predict(w, X)
        if getattr(loss, "targets", "labels") == "numbers":
            terms = 1.0 - (found - y) ** 2
        else:
            terms = np.where(found == y, 1.0, 0.0)
        clean: Array = np.clip(np.where(np.isfinite(terms), terms, 0.0), 0.0, 1.0)
    return clean
