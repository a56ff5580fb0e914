"""Copies of messages and records, as complete as if they had crossed a network, and cheap."""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, Message, RecordDict

from trellis.sim.private import shallow_copy, with_data, with_parts


def copy_message(message: Message) -> Message:
    """Return a message that shares nothing with ``message`` which either side could change."""
    content = copy_records(message.content) if message.has_content() else None
    return with_parts(message, shallow_copy(message.metadata), content)


def copy_records(records: RecordDict) -> RecordDict:
    """Return the records in containers of their own.

    Only containers are made anew: the bytes of an array cannot change, nor can a number or a text.
    """
    # Loops, not comprehensions: each of those is a function call, and this is the engine's
    # innermost work.
    result = {}
    for name, record in records.items():
        values: dict[str, Any] = {}
        if isinstance(record, ArrayRecord):
            for key, array in record.items():
                values[key] = _copy_array(array)
        else:
            for key, value in record.items():
                values[key] = value.copy() if isinstance(value, list) else value
        result[name] = with_data(record, values)
    return with_data(records, result)


def _copy_array(array: Array) -> Array:
    if type(array.data) is bytes and type(array.shape) is tuple:
        return shallow_copy(array)
    # Whoever put a bytearray or a list there could still change it.
    data = bytes(memoryview(array.data))
    return Array(array.dtype, tuple(array.shape), array.stype, data)
