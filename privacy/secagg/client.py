"""Secure aggregation in a Flower ClientApp: one call registers its actions.

    def summands(message: Message, context: Context) -> Summands:
        ...                                 # what `train` would compute from the same content
        return Summands({"gradient": g})

    register(app, summands)

`answers` has what the actions do, and is loaded when the first of them is asked for: on a device
every message is a process of its own, and most are none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
# The array of a client's weight, where its other arrays were multiplied by it.
COUNT = "num-examples"
# Arrays (1,) of this name are metrics: the server gets their plain sum.
METRIC = "metric."


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


def secure_aggregation(app: ClientApp) -> ClientApp:
    """Let a plain Flower ClientApp take part in secure means: the client's half of `SecureGrid`.

    What the app's own ``train`` and ``evaluate`` functions reply is multiplied by their metric
    ``num-examples``, masked, and added up over all clients; the server gets the weighted mean. All
    arrays of a reply must be floating-point numbers. Other metrics are not sent.

        app = ClientApp()

        @app.train()
        def train(message, context): ...

        secure_aggregation(app)
    """

    def summands(message: Message, context: Context) -> Summands:
        kind = message.metadata.message_type
        message.metadata.message_type = kind.partition(".")[0]  # as the app knows it
        try:
            return weighted_summands(app(message, context))
        finally:
            message.metadata.message_type = kind

    register(app, summands, summands)
    return app


def weighted_summands(reply: Message, metrics: Iterable[str] = ()) -> Summands:
    """Return a reply's arrays times its ``num-examples``, and that number, as summands.

    ``metrics`` names those of the reply's metrics whose sums the server gets as well.

    Raises
    ------
    ValueError
        For a reply without both, or with arrays that are not of floating-point numbers.
    """
    (arrays,) = reply.content.array_records.values()
    (numbers,) = reply.content.metric_records.values()
    count = float(numbers[COUNT])  # type: ignore[arg-type]
    if not 0.0 <= count < 2.0**53:
        raise ValueError(f"{COUNT}={count:g}: must be a number of examples")
    found: dict[str, NDArray[np.float64]] = {COUNT: np.array([count])}
    for name, array in arrays.items():
        values = array.numpy()
        if not np.issubdtype(values.dtype, np.floating):
            raise ValueError(f"array {name!r} is of {values.dtype}; a mean needs floating point")
        found[name] = count * values.astype(np.float64)
    for name in metrics:
        found[f"{METRIC}{name}"] = np.array([float(numbers[name])])  # type: ignore[arg-type]
    return Summands(found)


def register(
    app: ClientApp,
    summands: Callable[[Message, Context], Summands],
    evaluated: Callable[[Message, Context], Summands] | None = None,
    **actions: Callable[[Message, Context], Summands],
) -> None:
    """Let ``app`` take part in secure sums of what ``summands`` returns.

    ``summands`` gets the message with the content that the strategy sent, nothing else in it;
    ``evaluated`` is the same for ``evaluate`` messages, and one of ``actions`` for ``train``
    messages with that action: ``units`` for ``train.units``.
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

    for action, summand in actions.items():

        @app.train(f"{MASKED}_{action}")
        def masked_action(
            message: Message,
            context: Context,
            summand: Callable[[Message, Context], Summands] = summand,
        ) -> Message:
            from . import answers

            return answers.masked(message, context, summand)

    if evaluated is not None:

        @app.evaluate(MASKED)
        def masked_scores(message: Message, context: Context) -> Message:
            from . import answers

            return answers.masked(message, context, evaluated)

    @app.query(AGREE)
    def agree(message: Message, context: Context) -> Message:
        from . import answers

        return answers.agree(message, context)

    @app.query(UNMASK)
    def unmask(message: Message, context: Context) -> Message:
        from . import answers

        return answers.unmask(message, context)
