"""Rows of finished rounds in a file that is only ever added to.

A checkpoint would have to be written anew with all rounds so far; this file takes the new ones at
its end. How long it was, and a checksum of that, stand in the checkpoint that was written after
it: what comes behind is of rounds after that checkpoint, whole or torn, and is cut off when the
next rows are added.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .rows import Rows


@dataclass
class RowFile:
    """The file, and how much of it is known to be whole.

    Parameters
    ----------
    path : the file
    """

    path: Path
    _count: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _checksum: int = field(default=0, init=False)

    def add(self, rows: Rows, count: int) -> dict[str, Any]:
        """Add what is new of the first ``count`` rows, on disk when this returns.

        Returns what `read` needs to know. Nothing of what a `read` before this has returned is
        touched, so whoever knows of that finds it whatever happens in here.
        """
        if count < self._count:
            raise ValueError(f"{self.path}: {self._count} rows are kept, and {count} are left")
        if count > self._count:
            content = rows.content(self._count, count)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "r+b" if self._bytes else "wb") as file:
                file.truncate(self._bytes)
                file.seek(self._bytes)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._count, self._bytes = count, self._bytes + len(content)
            self._checksum = zlib.crc32(content, self._checksum)
        kinds = [list(names) for names in rows.kinds]
        return {
            "count": self._count,
            "bytes": self._bytes,
            "checksum": self._checksum,
            "kinds": kinds,
        }

    def read(self, known: dict[str, Any]) -> Rows:
        """Return the rows that were kept when `add` returned ``known``; changes nothing.

        Raises
        ------
        ValueError
            Where the file is shorter than it was, or other bytes are in it.
        """
        try:
            with open(self.path, "rb") as file:
                content = file.read(known["bytes"])
        except FileNotFoundError:
            content = b""
        if len(content) < known["bytes"]:
            raise ValueError(f"{len(content)} bytes, where there were {known['bytes']}")
        if zlib.crc32(content) != known["checksum"]:
            raise ValueError("other bytes than were written")
        rows = Rows.read(known["kinds"], content)
        if len(rows) != known["count"]:
            raise ValueError(f"{len(rows)} rows, where there were {known['count']}")
        self._count, self._bytes = known["count"], known["bytes"]
        self._checksum = known["checksum"]
        return rows

    def clear(self) -> None:
        """Forget all rows."""
        self.path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Begin anew: the next rows replace whatever the file holds."""
        self._count = self._bytes = self._checksum = 0
