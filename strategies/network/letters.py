"""What stands in a letter between two servers, as bytes to be sealed.

Arrays, as the method tells them (none where it has nothing to tell this receiver), and notes for
the servers' own book-keeping: who is counted from the next round on, who is quiet.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trellis.privacy.secagg.errors import BadMessage

_NOTES = "notes"


@dataclass(frozen=True)
class Written:
    """A letter that is open: the round it is of, its arrays, its notes."""

    number: int
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return arrays and notes as bytes; the round stands on the envelope."""
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(self.notes, sort_keys=True).encode(), np.uint8)
        np.savez(buffer, **{_NOTES: text}, **self.arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def decode(cls, number: int, data: bytes) -> Written:
        """Return what `encode` made of one.

        Raises
        ------
        BadMessage
            For anything else: also a server of the graph may send nonsense.
        """
        try:
            arrays = _arrays(data)
            notes = json.loads(arrays.pop(_NOTES).tobytes())
            if not isinstance(notes, dict):
                raise ValueError("its notes are no table")
        except Exception as error:  # of an archive anything can be wrong
            raise BadMessage(f"a letter that cannot be read: {error}") from None
        return cls(number, arrays, notes)


def _arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive that is not compressed, and so no larger than its bytes.

    `numpy.load` would unpack what it is sent, and make room for what a header declares.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed")
        declared = sum(member.file_size for member in members)
        if declared > len(data):
            raise ValueError(f"{len(data)} bytes that declare {declared}")
        return {
            member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members
        }


def _array(data: bytes) -> NDArray[Any]:
    file = io.BytesIO(data)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, fortran, dtype = read[npy.read_magic(file)](file)
    start = file.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ValueError(f"an array {dtype} of shape {shape} from {len(data) - start} bytes")
    flat = np.frombuffer(data, dtype, math.prod(shape), start)
    return flat.reshape(shape, order="F" if fortran else "C").copy()
