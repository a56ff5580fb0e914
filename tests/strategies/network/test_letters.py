"""What stands in a letter, and what cannot be read as one."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from trellis.privacy.secagg.errors import BadMessage
from trellis.strategies.network.bridges import PULSE
from trellis.strategies.network.letters import Written


def test_arrays_and_notes_come_back_as_they_were():
    arrays = {
        "model": np.array([1.5, -0.0, 1e-300]),
        "words": np.array([2**64 - 1], np.uint64),
        "none": np.zeros((0, 2), np.int64),
    }
    notes = {"next": {"1": 2**62}, "quiet": {"0": [-1, 3]}, "last": True}
    found = Written.decode(7, Written(7, arrays, notes).encode())
    assert found.number == 7
    assert found.notes == notes
    assert set(found.arrays) == set(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


def test_a_letter_may_be_empty():
    assert Written.decode(0, Written(0).encode()) == Written(0)


def packed(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def as_array(values):
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def with_notes(notes):
    text = notes if isinstance(notes, bytes) else json.dumps(notes).encode()
    return packed(notes=as_array(np.frombuffer(text, np.uint8)))


def damaged():
    data = bytearray(packed(notes=as_array(np.zeros(1000, np.uint8))))
    data[60:64] = b"\xff" * 4
    return bytes(data)


NONSENSE = {
    "empty": b"",
    "a sign of life": PULSE,
    "a single array": as_array(np.zeros(3)),
    "an archive of nothing": packed(),
    "no array in it": packed(notes=b"text"),
    "half a letter": Written(1, {"model": np.zeros(9)}).encode()[:-40],
    "objects": packed(notes=as_array(np.array([{}], dtype=object))),
    "notes that are no text": with_notes(b"\xff\xfe"),
    "notes that are a list": with_notes([1]),
    "notes without end": with_notes(b"[" * 5000),
    "a damaged archive": damaged(),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_is_refused(what):
    with pytest.raises(BadMessage, match="a letter that cannot be read"):
        Written.decode(1, NONSENSE[what])


def test_an_array_of_objects_is_not_unpickled():
    letter = packed(
        notes=as_array(np.frombuffer(b"{}", np.uint8)),
        model=as_array(np.array([{}], dtype=object)),
    )
    with pytest.raises(BadMessage):
        Written.decode(1, letter)
