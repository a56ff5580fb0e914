"""One noisy release of something computed from a client's data, and what it claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

# Gaussian releases have a noise deviation and an l2 sensitivity; pure ones an epsilon and no delta.
# A summed one is of a secure sum to which several clients have added their share of noise.
GAUSSIAN = ("gaussian", "discrete-gaussian", "summed-gaussian")
PURE = ("laplace", "discrete-laplace", "multi-bit")
_LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class PrivacyEvent:
    """One release.

    Attributes
    ----------
    name : unique among a client's events; the same name is the same release
    what : what was released, in words
    round : the round it was released in
    epsilon, delta : what the mechanism claims for this release; delta = 0 for a pure mechanism
    sigma, sensitivity : noise deviation and l2 sensitivity of a Gaussian mechanism
    mechanism : one of `GAUSSIAN` or `PURE`
    noisers : of a sum: how many clients' shares of noise ``sigma`` counts, this client's among them
    sampling : of a batch drawn in secret on the device: how likely a record is in it
    """

    name: str
    what: str
    round: int
    epsilon: float
    delta: float
    sigma: float = 0.0
    sensitivity: float = 0.0
    mechanism: str = "gaussian"
    noisers: int = 1
    sampling: float = 1.0

    def __post_init__(self) -> None:
        # Events come from clients: what a total is computed from must be what it claims to be.
        if self.mechanism not in GAUSSIAN + PURE:
            raise ValueError(f"mechanism={self.mechanism!r}: use {', '.join(GAUSSIAN + PURE)}")
        if not 0.0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon={self.epsilon}: must be > 0")
        if self.mechanism in PURE:
            if self.delta != 0.0:
                raise ValueError(f"delta={self.delta}: must be 0 for {self.mechanism}")
        elif not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta={self.delta}: must be between 0 and 1, both excluded")
        elif not (0.0 < self.sigma < math.inf and 0.0 < self.sensitivity < math.inf):
            raise ValueError(f"sigma={self.sigma}, sensitivity={self.sensitivity}: must be > 0")
        if self.noisers < 1 or not 0.0 < self.sampling <= 1.0:
            raise ValueError(
                f"noisers={self.noisers}, sampling={self.sampling}: must be >= 1, and > 0 and at "
                "most 1"
            )
        if self.mechanism != "summed-gaussian" and (self.noisers > 1 or self.sampling < 1.0):
            raise ValueError(f"noisers and sampling are of sums, not of {self.mechanism}")
        if max(len(self.name), len(self.what)) > _LONGEST_TEXT:
            raise ValueError(f"an event's texts have at most {_LONGEST_TEXT} characters")

    @property
    def noise_ratio(self) -> float:
        """Sensitivity over noise of a Gaussian release; what its privacy depends on."""
        return self.sensitivity / self.sigma

    @property
    def rho(self) -> float:
        """The release's zero-concentrated privacy: it is rho-zCDP, however its batch was drawn.

        Exactly ratio^2 / 2 for both Gaussians; a pure epsilon is epsilon^2 / 2 (Bun & Steinke 2016,
        Proposition 1.4).
        """
        return 0.5 * (self.noise_ratio if self.mechanism in GAUSSIAN else self.epsilon) ** 2

    def as_record(self) -> dict[str, Any]:
        """Return the event as a flat mapping, fit for a Flower ConfigRecord or JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> PrivacyEvent:
        """Read `as_record` back; unknown keys are an error, those of sums may be missing."""
        kinds = {"str": str, "int": int, "float": float}
        known = {f.name: kinds[str(f.type)] for f in fields(cls)}
        if not set(known) - {"noisers", "sampling"} <= set(record) <= set(known):
            raise ValueError(f"not a privacy event: keys {sorted(record)}")
        return cls(**{name: known[name](value) for name, value in record.items()})
