"""Secure aggregation in a Flower ClientApp: one call registers its actions.

    def summands(message: Message, context: Context) -> Summands:
        ...                                 # what `train` would compute from the same content
        return Summands({"gradient": g})

    register(app, summands)

`answers` has what the actions do, and is loaded when the first of them is asked for: on a device
every message is a process of its own, and most are none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

KEYS, MEET, MASKED = "secagg_keys", "secagg_meet", "secagg_masked"
AGREE, UNMASK = "secagg_agree", "secagg_unmask"
# The directory comes with the first order, beside it, or before it where an order costs a release.
RECORD, DIRECTORY, VECTOR = "secagg", "secagg-directory", "masked"


class Noisers(Protocol):
    """Says how many clients' noise is in a sum, see `Member.noisers`."""

    def __call__(self, colluding: float = 0.0, *, anyone: bool = False, owner: bool = True) -> int:
        """Return that number."""
        ...


class Noise(Protocol):
    """Makes this client's share of the noise of a sum, and counts it."""

    def __call__(
        self, noisers: Noisers, fraction_bits: int, size: int
    ) -> tuple[NDArray[np.int64], RecordDict, bytes]:
        """Return the noise (size,) in units of the ring, what to tell of it, and its terms.

        Terms are bytes that all clients of the sum must have alike.
        """
        ...


@dataclass(frozen=True)
class Summands:
    """What one client contributes.

    Attributes
    ----------
    arrays : float64 arrays by name; the server gets their sums over the clients only
    clear : records that the server reads in the clear, such as privacy events
    noise : makes the noise that is added before masking; None adds none
    """

    arrays: Mapping[str, NDArray[np.float64]]
    clear: RecordDict = field(default_factory=RecordDict)
    noise: Noise | None = None


def register(app: ClientApp, summands: Callable[[Message, Context], Summands]) -> None:
    """Let ``app`` take part in secure sums of what ``summands`` returns.

    ``summands`` gets the message with the content that the strategy sent, nothing else in it.
    """

    @app.query(KEYS)
    def keys(message: Message, context: Context) -> Message:
        from . import answers

        return answers.keys(message, context)

    @app.query(MEET)
    def meet(message: Message, context: Context) -> Message:
        from . import answers

        return answers.meet(message, context)

    @app.train(MASKED)
    def masked(message: Message, context: Context) -> Message:
        from . import answers

        return answers.masked(message, context, summands)

    @app.query(AGREE)
    def agree(message: Message, context: Context) -> Message:
        from . import answers

        return answers.agree(message, context)

    @app.query(UNMASK)
    def unmask(message: Message, context: Context) -> Message:
        from . import answers

        return answers.unmask(message, context)
