"""Offsets and scales that a server sends beside a model, as a client takes them."""

from __future__ import annotations

from flwr.app import ArrayRecord, Message

from apps.common.own_data.scaling import NAMES, Scaling
from strategies.core import wire


def sent_key(message: Message) -> bytes | None:
    """Return what a scaling in a message is known by; None where there is none."""
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or "scale" not in arrays:
        return None
    return b"|".join(arrays[name].data for name in NAMES if name in arrays)


def sent_scaling(message: Message, features: int) -> Scaling:
    """Return the scaling that the server sent beside a model, checked.

    Raises
    ------
    ValueError
        For numbers that nothing can be standardised by.
    """
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    sent = {name: wire.unpack(arrays[name]) for name in NAMES if name in arrays}
    found = Scaling.from_arrays(sent, features)
    assert found is not None
    return found
