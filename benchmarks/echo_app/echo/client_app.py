"""The client: read an array, update an array in the state, reply with an array."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from strategies import wire

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Reply with the mean of the array received and the one kept, and keep that."""
    mean = wire.arrays(message.content.array_records["arrays"])["x"]
    state = context.state
    if "kept" in state:
        record = state["kept"]
        assert isinstance(record, ArrayRecord)
        mean = 0.5 * (mean + wire.arrays(record)["x"])
    state["kept"] = wire.record({"x": mean})
    return Message(RecordDict({"arrays": wire.record({"x": mean})}), reply_to=message)
