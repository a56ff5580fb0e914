"""Which server of which graph a ServerApp is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """Which server this is, and how patient it is.

    Attributes
    ----------
    server : its number
    folder : with its identity, the table of servers and its spool
    run : what all servers know the run by
    terms : digest of the settings that all must share
    max_staleness : 0 in step; else how many rounds older than its own a letter may be
    timeout : seconds to wait for a letter
    greeting_timeout : seconds to wait for the other servers at the beginning
    """

    server: int
    folder: Path
    run: str
    terms: str
    max_staleness: int = 0
    timeout: float = 60.0
    greeting_timeout: float = 120.0
