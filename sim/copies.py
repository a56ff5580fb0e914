"""Copies of messages and records, as complete as if they had crossed a network, and cheap."""

from __future__ import annotations

from typing import TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict

from sim.private import make_message, with_data

_Record = ArrayRecord | MetricRecord | ConfigRecord
_Thing = TypeVar("_Thing", Array, Metadata)


def copy_message(message: Message) -> Message:
    """Return a message that shares nothing with ``message`` which either side could change."""
    metadata = shallow_copy(message.metadata)
    if message.has_error():
        return make_message(metadata, error=message.error)
    return make_message(metadata, copy_records(message.content))


def copy_records(records: RecordDict) -> RecordDict:
    """Return the records in containers of their own.

    Only containers are made anew: the bytes of an array cannot change, nor can a number or a text.
    """
    return with_data(records, {name: _copy_record(record) for name, record in records.items()})


def _copy_record(record: _Record) -> _Record:
    if isinstance(record, ArrayRecord):
        return with_data(record, {name: _copy_array(array) for name, array in record.items()})
    values = {
        name: value.copy() if isinstance(value, list) else value for name, value in record.items()
    }
    return with_data(record, values)


def _copy_array(array: Array) -> Array:
    if type(array.data) is bytes and type(array.shape) is tuple:
        return shallow_copy(array)
    # Whoever put a bytearray or a list there could still change it.
    data = bytes(memoryview(array.data))
    return Array(array.dtype, tuple(array.shape), array.stype, data)


def shallow_copy(thing: _Thing) -> _Thing:
    """Return what ``copy.copy`` does, in a quarter of its time."""
    result = object.__new__(type(thing))
    result.__dict__.update(thing.__dict__)
    return result
