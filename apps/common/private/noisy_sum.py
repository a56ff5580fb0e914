"""A device's part of a noisy secure sum: its share of the noise, and its own account of it.

    def summands(message, context):
        ...
        return noisy(context, config, {"total": x}, what="...", sensitivity=D, ratio=r)

    register(app, summands)

The server sees the sum over the clients that stay, with the noise of one central mechanism, and no
summand. What a device trusts for that: that as many others as it counts on add their share and do
not tell it to the server. It does not take the server's word for how many these are
(`privacy.secagg.protocol.Member.noisers`): they are clients whose signed keys its owner has listed,
less the share that the owner or the run takes for the server's, whichever is more; and a sum that
fewer are in is not opened, by its own refusal. Without signed keys it counts on itself alone and
adds the whole noise, unless its owner says ``count-noise-of = "anyone"``, which holds against a
server that only looks. In a simulation all clients count, and noise comes from the seed.

Devices whose owners doubt more than others' count on fewer, and each of the others adds only what
the least doubtful would: so a device adds, beside its own share, those of all that it does not
count on (`trellis.privacy.mechanisms.shares.Share.counting_on`).

What the others are told is not the server's to choose either: the run config, what is released and
how wide its noise is are in the masks, so that clients of other terms do not add up with this one.

Every vector that is masked is a release, whether its sum opens or not, and has fresh noise: the
same noise in two sums over different sets would cancel. It is entered in the device's ledger before
it is drawn. A run that asks for more releases than it declared, or for more than its epsilon, is
refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import StudyConfig
from trellis.apps.common.tables import DataError
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.sampled import spent
from trellis.privacy.mechanisms.noise import fresh_noise
from trellis.privacy.mechanisms.shares import Share, Together, plan_share
from trellis.privacy.secagg.client import Noisers, Summands

Array = NDArray[np.float64]

_COUNT, _ATTEMPT = "sum-releases", "sum-attempts"
_LEAST_EPSILON = 1e-12  # of one event; an event must claim something


def noisy(
    context: Context,
    config: StudyConfig,
    arrays: Mapping[str, Array],
    *,
    what: str,
    sensitivity: float,
    ratio: float,
    server_round: int = 0,
    sampling: float = 1.0,
    releases: int = 1,
    together: Together | None = None,
) -> Summands:
    """Return what a client adds to a noisy sum.

    Parameters
    ----------
    context, config : of the message that is answered
    arrays : float64, by name; all of them get one noise, entry by entry. A part that is scaled up
        has more of the budget; the server scales it back
    what : what is released, in words
    sensitivity : l2 distance, all arrays together, that replacing one record moves them at most.
        With ``sampling``: twice the largest norm of one record's term
    ratio : sensitivity over noise that one release may have, see `privacy.accounting.sampled`
    server_round : for the ledger
    sampling : how likely a record is in the batch, where batches are drawn in secret on the device
    releases : how many releases of ``what`` a run makes at most, those of rounds made again too
    together : by which all clients plan the noise where they need it for sensitivities or ratios of
        their own; None where these are the same for all
    """
    task = _Task(
        *(context, config, what, sensitivity, ratio, server_round, sampling, releases, together)
    )
    return Summands(arrays, noise=task.noise)


@dataclass(frozen=True)
class _Task:
    context: Context
    config: StudyConfig
    what: str
    sensitivity: float
    ratio: float
    server_round: int
    sampling: float
    releases: int
    together: Together | None

    def noise(
        self, noisers: Noisers, fraction_bits: int, size: int
    ) -> tuple[NDArray[np.int64], RecordDict, bytes]:
        """Return this client's share of the noise, counted, the event in the clear, and its terms.

        Terms are what all clients of the sum must have in common, or they could not count on each
        other: what is released, and how wide the noise is.
        """
        context, node = self.context, Node.of(self.context)
        number, attempt = self._numbers()
        colluding = self.config.colluding
        counted = noisers(colluding, anyone=node.simulated)
        # Other honest clients may count on more than this one does, and add a smaller share.
        most = max(counted, noisers(colluding, anyone=True, owner=False))
        share = self._share(most, fraction_bits, size)
        event = replace(self._event(share, attempt), noisers=counted)
        terms = f"{self.what}\n{self.server_round}\n{share.steps}\n{most}".encode()
        if counted < most:
            share = share.counting_on(counted)
        if node.simulated:
            # By round and attempt: a run that is resumed goes on with the noise of its round.
            seed, purpose = seed_of(context), f"sum noise {self.what} {attempt}"
            drawn = share.draw(generator(seed, purpose, node.partition, self.server_round))
        else:
            drawn = self._on_device(share, event, node)
        self._note(_COUNT, number)
        self._note(_ATTEMPT, [self.server_round, attempt])
        told = RecordDict({f"privacy.{event.name}": ConfigRecord(event.as_record())})
        return drawn, told, terms

    def _note(self, record: str, value: int | list[int]) -> None:
        """Keep a number of this kind of release, in place of the last: state must not grow."""
        known = self._noted(record)
        self.context.state[record] = ConfigRecord({**known, self.what: value})

    def _noted(self, record: str) -> ConfigRecord:
        return self.context.state.config_records.get(record, ConfigRecord())

    def _numbers(self) -> tuple[int, int]:
        """Return the number of this release in the run and in its round, from 1.

        Those beyond the declared ones are refused.
        """
        number = int(self._noted(_COUNT).get(self.what, 0)) + 1  # type: ignore[arg-type]
        before = self._noted(_ATTEMPT).get(self.what)
        again = isinstance(before, list) and before[0] == self.server_round
        attempt = 1 + (int(before[1]) if again else 0)  # type: ignore[index]
        if number > self.releases:
            raise PrivacyRefused(
                f"{self.what}: the run declares {self.releases} releases, and this would be number "
                f"{number}"
            )
        return number, attempt

    def _share(self, noisers: int, fraction_bits: int, size: int) -> Share:
        plan = plan_share if self.together is None else self.together.plan
        try:
            return plan(
                *(fraction_bits, self.ratio, self.sensitivity, size, noisers),
                sampled=self.sampling < 1.0,
            )
        except (ValueError, ArithmeticError) as error:
            raise PrivacyRefused(
                f"{self.what}: no noise for a sum of {size} numbers: {error}"
            ) from None

    def _event(self, share: Share, attempt: int) -> PrivacyEvent:
        delta = self.config.delta
        epsilon = spent(share.ratio, 1, delta, self.sampling)
        return PrivacyEvent(
            name=f"sum-{self.what}-{self.server_round}-{attempt}"[-500:],
            what=self.what,
            round=self.server_round,
            epsilon=max(epsilon, _LEAST_EPSILON),
            delta=delta,
            sigma=share.sigma,
            sensitivity=share.sensitivity,
            mechanism="summed-gaussian",
            noisers=share.noisers,
            sampling=self.sampling,
        )

    def _on_device(self, share: Share, event: PrivacyEvent, node: Node) -> NDArray[np.int64]:
        """Draw the noise from the operating system, after the device's ledger has taken it."""
        if node.state_path is None:
            raise DataError(
                f"{node.name}: no folder for its ledger; set state-path in --node-config"
            )
        ledger = DeviceLedger(node.state_path, Policy.from_node_config(self.context.node_config))
        name = secrets.token_hex(12)  # a release of its own, each time
        ledger.reserve(replace(event, name=name), (self.config.epsilon, self.config.delta))
        drawn = share.draw(fresh_noise())
        ledger.commit(name)
        return drawn
