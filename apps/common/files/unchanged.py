"""What was read from a file or a folder, read again only where that has changed.

In a simulation every client looks into the same folder and the same table, each for its own line:
of ten thousand clients, ten thousand times ten thousand.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")

_MOST_KEPT = 8
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class _Reading:
    """What was found, when, and when what it was read from had last changed."""

    found: Any
    stamp: tuple[int, ...]
    read_at: int

    def is_sure(self) -> bool:
        """Return whether a change since would show: file systems tell the time in steps."""
        coarse = all(part % _SECOND == 0 for part in self.stamp)
        return self.read_at - max(self.stamp) > (2 * _SECOND if coarse else _SECOND // 10)


_kept: OrderedDict[tuple[Callable[[Path], Any], Path], _Reading] = OrderedDict()


def unless_changed(read: Callable[[Path], Found], path: Path, *beside: Path) -> Found:
    """Return ``read(path)``, or what it returned before where nothing has changed since.

    Parameters
    ----------
    read : a function of a module; whoever is given what it returns must not change that
    path : a file, or a folder, of which names count and not what is in its files
    beside : other files that it reads, which need not be there
    """
    changed = [0]
    with suppress(OSError):  # reading it gives the error that names it
        changed = [os.stat(path).st_mtime_ns]
    for other in beside:
        with suppress(OSError):
            changed.append(os.stat(other).st_mtime_ns)
    key, stamp = (read, path), tuple(changed)
    known = _kept.get(key)
    if known is not None and known.stamp == stamp and known.is_sure():
        return known.found
    read_at = time.time_ns()
    found = read(path)
    _kept[key] = _Reading(found, stamp, read_at)
    while len(_kept) > _MOST_KEPT:
        with suppress(KeyError):  # another thread has
            _kept.popitem(last=False)
    return found
