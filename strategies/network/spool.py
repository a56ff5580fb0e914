"""A server's letters as files, from where its bridges take them.

A bridge is a SuperNode of the sender's host, connected to the receiver's SuperLink. It shares this
folder with the sender's ServerApp and nothing else: letters are sealed, so who reads the folder
learns how many there are.

    SPOOL/RUN/board            the greetings that the server knows
    SPOOL/RUN/P/ROUND.letter   the letter of a round to server P
    SPOOL/RUN/epoch            when the server last started
    SPOOL/RUN/told             the last round that the server has told, before it did
    SPOOL/RUN/P/pulse          that the server lives, sealed for P, every second

RUN is a digest of the run's name. Files appear whole or not at all. The last `KEPT` letters to a
server stay: one that is a little behind, or asks again, still finds its own.

Standard library only: a bridge's process starts with every message.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

KEPT = 4
NEWEST, NO_LETTER = -2, -1  # in place of a round
_BOARD, _LETTER, _PULSE, _TOLD, _EPOCH = "board", ".letter", "pulse", "told", "epoch"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1


@dataclass(frozen=True)
class Found:
    """What a bridge found.

    Attributes
    ----------
    letter : sealed; empty where there is none
    board : the sender's greetings where they are not those that the receiver has; else empty
    pulse : the last sign of life; empty where there is none
    """

    letter: bytes = b""
    board: bytes = b""
    pulse: bytes = b""


def digest(data: bytes) -> str:
    """Return by what a board is known."""
    return hashlib.sha256(data).hexdigest()


class Spool:
    """The letters of one run.

    Parameters
    ----------
    folder : the server's spool
    run : the run's name
    """

    def __init__(self, folder: Path, run: str) -> None:
        # Not the name itself: a bridge gets it from another server.
        self.folder = folder / hashlib.sha256(run.encode()).hexdigest()[:32]

    # --- the server's side -------------------------------------------------------------------

    def clear(self, receiver: int | None = None) -> None:
        """Forget letters, to one server or to all, that nobody can open any more."""
        place = self.folder if receiver is None else self.folder / str(receiver)
        _make(place)
        for path in place.rglob(f"*{_LETTER}"):
            path.unlink(missing_ok=True)

    def put_board(self, data: bytes) -> None:
        """Let others read the greetings that this server knows."""
        _write(self.folder / _BOARD, data)

    def put(self, receiver: int, number: int, data: bytes) -> None:
        """Put a letter in, and take out what is too old."""
        place = self.folder / str(receiver)
        _write(place / f"{number}{_LETTER}", data)
        for old in sorted(_rounds(place))[:-KEPT]:
            (place / f"{old}{_LETTER}").unlink(missing_ok=True)

    @property
    def told(self) -> int:
        """The last round of which letters were, or may have been, put in; 0 before the first."""
        return int(_read(self.folder / _TOLD) or 0)

    def about_to_tell(self, number: int) -> None:
        """Note that letters of a round come next, so that it is never told a second time."""
        _write(self.folder / _TOLD, str(number).encode(), lasting=True)

    def new_epoch(self) -> int:
        """Return the time of this start, or a little more where the clock was set back."""
        epoch = max(time.time_ns(), int(_read(self.folder / _EPOCH) or 0) + 1)
        _write(self.folder / _EPOCH, str(epoch).encode(), lasting=True)
        return epoch

    def put_pulse(self, receiver: int, data: bytes) -> None:
        """Let a server see that this one lives."""
        _write(self.folder / str(receiver) / _PULSE, data)

    # --- the bridge's side -------------------------------------------------------------------

    def take(self, receiver: int, number: int, known: str, wait: float) -> Found:
        """Return a letter, and the board where it has changed; wait until there is one of the two.

        Parameters
        ----------
        receiver : who asks
        number : the first letter of this round or a later one; or `NEWEST`, or `NO_LETTER`
        known : digest of the board that the receiver has
        wait : seconds
        """
        pause, deadline = _FIRST_PAUSE, time.monotonic() + wait
        while True:
            letter, board = self._letter(receiver, number), self._board(known)
            if letter or board or time.monotonic() >= deadline:
                return Found(letter, board, _read(self.folder / str(receiver) / _PULSE))
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _board(self, known: str) -> bytes:
        data = _read(self.folder / _BOARD)
        return data if data and digest(data) != known else b""

    def _letter(self, receiver: int, number: int) -> bytes:
        place = self.folder / str(receiver)
        there = [] if number == NO_LETTER else sorted(_rounds(place))
        if number == NEWEST:
            there = there[-1:]
        chosen = next((r for r in there if r >= number), None)
        return b"" if chosen is None else _read(place / f"{chosen}{_LETTER}")


def _rounds(place: Path) -> list[int]:
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(_LETTER) for name in names if name.endswith(_LETTER))
    return [int(stem) for stem in stems if stem.isdecimal()]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _make(folder: Path) -> None:
    """Make a folder and those above it that are missing, all of them the owner's alone."""
    if not folder.is_dir():
        _make(folder.parent)  # not `parents=True`, which lets others in
        folder.mkdir(exist_ok=True, mode=0o700)


def _write(path: Path, data: bytes, lasting: bool = False) -> None:
    """Write a file whole or not at all; ``lasting`` makes it outlive a power cut."""
    _make(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
