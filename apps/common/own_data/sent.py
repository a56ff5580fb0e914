"""Offsets and scales that a server sends with a model, as a client takes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

import numpy as np
from flwr.app import ArrayRecord, Message
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.own_data.scaling import NAMES, Scaling
from trellis.apps.common.own_data.units import columns_of
from trellis.strategies.core import wire
from trellis.strategies.preprocessing_grid import RECORD

Array = NDArray[np.float64]
Samples = TypeVar("Samples", bound=Any)  # X (n, d), y (n,), and itself ``standardised``


@dataclass(frozen=True)
class SampledClient(Generic[Samples]):
    """A client with features and targets, ready to answer.

    Attributes
    ----------
    node : who it is
    samples : all it has
    held : (n,) samples that are kept out of learning, and score the result
    numbers : whether targets are numbers, which have units of their own
    scaled : itself, standardised as a server said last, by what it said
    """

    node: Node
    samples: Samples
    held: NDArray[np.bool_]
    numbers: bool
    scaled: dict[bytes, Self] = field(default_factory=dict, init=False)

    @cached_property
    def learning(self) -> tuple[Array, Array]:
        """X and y of the samples that are learned from."""
        X, y = self.samples.X, self.samples.y
        return (X[~self.held], y[~self.held]) if self.held.any() else (X, y)

    @property
    def columns(self) -> Array:
        """What has units (n, D), of the samples that are learned from."""
        return columns_of(*self.learning, self.numbers)

    def standardised(self, message: Message) -> Self:
        """Return this client with its samples mapped as the message says; itself if it does not."""
        key = sent_key(message)
        if key is None:
            return self
        if key not in self.scaled:
            found = sent_scaling(message, self.samples.X.shape[1])
            samples = self.samples.standardised(found, self.numbers)
            self.scaled.clear()  # a server that changes it every round must not fill the memory
            self.scaled[key] = replace(self, samples=samples)
        return self.scaled[key]


def sent_record(message: Message) -> ArrayRecord | None:
    """Return the record of a message that has a scaling; None where there is none."""
    for name in (RECORD, "arrays"):
        found = message.content.get(name)
        if isinstance(found, ArrayRecord) and "scale" in found:
            return found
    return None


def sent_key(message: Message) -> bytes | None:
    """Return what a scaling in a message is known by; None if there is none."""
    arrays = sent_record(message)
    if arrays is None:
        return None
    return b"|".join(arrays[name].data for name in NAMES if name in arrays)


def sent_scaling(message: Message, features: int) -> Scaling:
    """Return the scaling that the server sent with a model, checked.

    Raises
    ------
    ValueError
        For numbers that nothing can be standardised by.
    """
    arrays, shapes = sent_record(message), ((features,), (features,), (2,))
    sent = {
        name: wire.received(arrays, name, shape) for name, shape in zip(NAMES, shapes, strict=True)
    }
    found = Scaling.from_arrays(sent, features)
    assert found is not None
    return found
