"""The client: read an array, update an array in the state, reply with an array."""

from __future__ import annotations

from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from trellis.strategies.core import wire

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Reply with the mean of the array received and the one kept, and keep that."""
    mean = _array(message.content["arrays"])
    if "kept" in context.state:
        mean = 0.5 * (mean + _array(context.state["kept"]))
    record = wire.record({"x": mean})
    context.state["kept"] = record
    return Message(RecordDict({"arrays": record}), reply_to=message)


def _array(record: object) -> NDArray[Any]:
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"expected an ArrayRecord, got {type(record).__name__}")
    return wire.unpack(record["x"])
