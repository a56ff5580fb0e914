"""One run at a time in a folder: a lock that goes with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from apps.common.settings import ConfigError

FILE = ".lock"


class FolderLock:
    """Holds a run's folder until it is released, or its process has ended, in whatever way.

    Raises
    ------
    ConfigError
        Where another run holds it; nothing in the folder is touched then.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(folder / FILE, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 100).decode(errors="replace").strip()
            os.close(self._handle)
            self._handle = -1
            raise ConfigError(
                f"out={str(folder)!r}: another run writes into this folder"
                f"{f' ({holder})' if holder else ''}; wait for its end or choose another folder"
            ) from None
        os.ftruncate(self._handle, 0)
        os.write(self._handle, f"process {os.getpid()}".encode())

    def release(self) -> None:
        """Let another run have the folder."""
        if self._handle >= 0:
            os.close(self._handle)  # which gives the lock back
            self._handle = -1

    def __del__(self) -> None:
        self.release()
