"""What happened on a device, for its owner: one JSON object a line, in the state folder.

Every line has time, run, study, message and its kind, the name that the owner gives the server
where there is one, and ``what``: ``enrolled``, ``release``, ``result``, ``refused`` or ``error``,
with the details that no server is told. A device that its owner lets go to other SuperLinks while
its own is gone also notes ``moved``, ``ended`` and ``waits``, with address and reason. Readable by
the owner only, and turned over at `LARGEST` bytes: the file before is kept as ``device.log.1``.
What was *released* is never lost by that, it stands in the ledger.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = "device.log"
LARGEST = 5_000_000
_LONGEST_TEXT = 20_000

_logger = logging.getLogger("trellis.device")


@dataclass(frozen=True)
class Occasion:
    """The message that a device works on: its run, study, kind and id, and who asks.

    ``server`` is the owner's word for it (``server-name`` in the node config), or nothing: a
    ClientApp is not told which SuperLink its messages come from.
    """

    run: str
    study: str
    kind: str
    message: str
    server: str = ""

    def known(self) -> dict[str, str]:
        """Return what is known, for a line of the log or an entry of the ledger."""
        return {key: value for key, value in asdict(self).items() if key != "server" or value}


_occasion: ContextVar[Occasion | None] = ContextVar("occasion", default=None)


@contextmanager
def working_on(occasion: Occasion) -> Iterator[None]:
    """Let ledger and log know the message that all that happens meanwhile is for."""
    token = _occasion.set(occasion)
    try:
        yield
    finally:
        _occasion.reset(token)


def occasion() -> Occasion | None:
    """Return the message that this device works on; None outside of a run."""
    return _occasion.get()


def now() -> str:
    """Return the time, in UTC and to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def note(folder: Path | None, what: str, **details: Any) -> None:
    """Append a line to the log in ``folder``; where that cannot be, tell it to `logging`.

    Never raises: that a log is full must not become something the server hears of.
    """
    known = _occasion.get()
    line = {"time": now(), **(known.known() if known else {}), "what": what}
    line |= {key: _short(value) for key, value in details.items()}
    text = json.dumps(line, default=str)
    if folder is None:
        _logger.error("no state folder for the device's log: %s", text)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / FILE
        if path.exists() and path.stat().st_size + len(text) > LARGEST:
            os.replace(path, folder / f"{FILE}.1")
        handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            data = (text + "\n").encode()
            # One call: lines of two processes stay apart. A disk that is nearly full takes a part.
            if os.write(handle, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
    except OSError as error:
        _logger.error("the device's log in %s cannot be written (%s): %s", folder, error, text)


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all lines that are kept, oldest first; one cut off by a crash is left out."""
    lines: list[dict[str, Any]] = []
    for path in (folder / f"{FILE}.1", folder / FILE):
        if not path.is_file():
            continue
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                lines.append(line)
    return lines


def _short(value: Any) -> Any:
    # The end of a trace says most.
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"... {value[-_LONGEST_TEXT:]}"
    return value
