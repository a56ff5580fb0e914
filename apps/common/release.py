"""A client's private statistic, and its one noisy release.

A study with ``privacy = "dp"`` computes one statistic from a client's data, noises it once, and
computes everything it ever sends from that. Here is what such studies share: the statistic as it
stays in ``context.state``, the noise calibrated to its sensitivity, and on a device the ledger and
the secret the noise is drawn from.

Which noise, by the setting ``noise``:

``discrete``  integers times a grid that is tied to the sensitivity, in exact arithmetic. Whatever
              clip, epsilon and delta a server chooses, the values that can come out are the same
              for all data.
``gaussian``  floats. A server that chooses the scales can make the noise smaller than the spacing
              of the numbers it is added to, and their last bits tell of the data: in simulation
              only, devices refuse it.
``auto``      discrete on a device, gaussian in a simulation, where noise comes from the seed and
              protects nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError, Table
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.mechanisms.discrete import plan_release
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.privacy.mechanisms.noise import NoiseSource, device_secret, release_noise
from trellis.strategies.core import wire

Vector = NDArray[np.float64]

NOISES = ("auto", "gaussian", "discrete")

# A discrete release's statistic is computed in floats, whose rounding moves it by less than this
# share of the sensitivity (measured: 5e-11 at a million records, and it grows as they do).
_ROUNDING = 1e-6
# Outside, grid or noise would leave the range of floats. Far from all that is of use.
_SENSITIVITIES = (1e-150, 1e150)
_MOST_STEPS = 2.0**51  # whole numbers of grid steps that are floats, noise added


def noise_of(noise: str, node: Node) -> str:
    """Return the noise that ``node`` uses where the settings say ``noise``.

    Raises
    ------
    PrivacyRefused
        For ``gaussian`` on a device.
    """
    if noise == "auto":
        return "gaussian" if node.simulated else "discrete"
    if noise == "gaussian" and not node.simulated:
        raise PrivacyRefused(
            "noise='gaussian' is made of floats, whose last bits can tell of the data; a device "
            "releases with noise='auto' or 'discrete' only"
        )
    return noise


@dataclass(frozen=True)
class Statistic:
    """A client's statistic as it may be used, how many records it stands for, and its release."""

    values: Vector
    count: int
    events: tuple[PrivacyEvent, ...] = ()

    def keep(self, state: RecordDict) -> None:
        """Store the statistic in a node's ``context.state``."""
        state["statistic"] = wire.record({"values": self.values})
        state["statistic-count"] = ConfigRecord({"count": self.count})
        for event in self.events:
            state["statistic-event"] = ConfigRecord(event.as_record())

    @classmethod
    def from_records(cls, state: RecordDict) -> Statistic:
        """Return what `keep` stored."""
        # Not `array_records` and `config_records`, which copy all records.
        values = wire.unpack(state["statistic"]["values"])  # type: ignore[arg-type]
        count = int(state["statistic-count"]["count"])  # type: ignore[arg-type]
        events: tuple[PrivacyEvent, ...] = ()
        if "statistic-event" in state:
            events = (PrivacyEvent.from_record(dict(state["statistic-event"])),)
        return cls(values, count, events)

    def event_records(self) -> dict[str, ConfigRecord]:
        """Return the releases as records of a reply."""
        return {f"privacy.{e.name}": ConfigRecord(e.as_record()) for e in self.events}


class Release:
    """The one noisy release of a statistic: its noise, and what the ledger says of it.

    Parameters
    ----------
    study, what : for the ledger: whose statistic, and what it is
    size : how many numbers it has
    sensitivity : the largest l2 distance that replacing one record can move it
    epsilon, delta : what one client spends on it
    noise : ``gaussian`` or ``discrete``, see `noise_of`
    details : what else tells this release from another of the same data

    Raises
    ------
    PrivacyRefused
        For numbers with which no release can be made: a sensitivity or a noise beyond floats, a
        noise of less than a grid step or of more than there are. It depends on settings and sizes,
        never on data.
    """

    def __init__(
        self,
        study: str,
        what: str,
        size: int,
        sensitivity: float,
        epsilon: float,
        delta: float,
        noise: str = "gaussian",
        details: str = "",
    ) -> None:
        self.study = study
        self.details = details
        self.plan = None
        try:
            if not _SENSITIVITIES[0] <= sensitivity <= _SENSITIVITIES[1]:
                raise ValueError(f"a sensitivity of {sensitivity:g}")
            if noise == "discrete":
                # A grid so fine that rounding adds a thousandth to the sensitivity.
                grid = 2.0 ** math.floor(math.log2(1e-3 * sensitivity / math.sqrt(size)))
                bound = sensitivity * (1.0 + _ROUNDING)
                self.plan = plan_release(grid, epsilon, delta, bound, size)
                if self.plan.steps < 1:
                    raise ValueError("the noise is less than one step of its grid")
                sigma, sensitivity = self.plan.sigma, self.plan.sensitivity
            else:
                sigma = gaussian_sigma(epsilon, delta, sensitivity)
            if not math.isfinite(sigma):
                raise ValueError(f"noise of {sigma:g}")
        except (ValueError, ArithmeticError, RuntimeError) as error:  # the last: no convergence
            raise PrivacyRefused(
                f"no release with epsilon={epsilon:g}, delta={delta:g} of {size} numbers: {error}; "
                "choose ordinary values of epsilon, delta and clip"
            ) from None
        self.event = PrivacyEvent(
            name="statistic",
            what=what,
            round=0,
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            sensitivity=sensitivity,
            mechanism="discrete-gaussian" if self.plan is not None else "gaussian",
        )

    def apply(self, values: Vector, source: NoiseSource) -> Vector:
        """Return the noisy statistic."""
        if self.plan is not None:
            # Clipping moves two statistics no further apart, and there is nothing left to refuse.
            most = _MOST_STEPS * self.plan.grid
            return self.plan.apply(np.clip(values, -most, most), source)
        return values + self.event.sigma * source.standard_normal(values.size)

    def of(self, values: Vector, table: Table, node: Node, seed: int, policy: Policy) -> Vector:
        """Release a client's statistic of its ``table``; on a device its ledger is written first.

        Raises
        ------
        PrivacyRefused
            Where the device's ``policy`` does not allow it.
        ValueError
            For a statistic that is not finite, before anything is entered or released.
        """
        if not np.isfinite(values).all():
            raise ValueError(f"{self.event.what}: not finite, so nothing is released")
        if node.simulated:
            return self.apply(values, generator(seed, "release", node.partition))
        if node.state_path is None:
            raise DataError(
                f"{node.name}: no folder for its secret; set state-path in --node-config"
            )
        if self.plan is None:
            raise PrivacyRefused("a device releases with discrete noise only")
        secret = device_secret(node.state_path)
        description = (
            self.study,
            table.digest(),
            f"{self.event.what}, {self.details}, {self.event!r}",
        )
        # The device's name for this release; the server must not see a fingerprint of the data.
        name = release_noise(secret, "name", *description).bytes(12).hex()
        ledger = DeviceLedger(node.state_path, policy)
        ledger.reserve(replace(self.event, name=name))
        noisy = self.apply(values, release_noise(secret, *description))
        ledger.commit(name)
        return noisy
