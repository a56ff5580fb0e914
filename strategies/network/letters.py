"""What stands in a letter between two servers, as bytes to be sealed.

Arrays, as the method tells them (none where it has nothing to tell this receiver), and notes for
the servers' own book-keeping: who is counted from the next round on, who is quiet.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
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
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            notes = json.loads(arrays.pop(_NOTES).tobytes())
            if not isinstance(notes, dict):
                raise ValueError("its notes are no table")
        except Exception as error:  # of an archive anything can be wrong
            raise BadMessage(f"a letter that cannot be read: {error}") from None
        return cls(number, arrays, notes)
