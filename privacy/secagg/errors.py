"""What goes wrong in secure aggregation, told apart by what one can do about it."""

from __future__ import annotations


class SecAggError(RuntimeError):
    """Any stop of the protocol."""


class Refused(SecAggError):
    """A client will not answer: the request would, or might, tell more than the sum."""


class NoSuchSession(Refused):
    """A client knows no such session; it was restarted, or never in it."""


class BadMessage(SecAggError):
    """A message that is malformed, tampered with, or signed by someone else."""


class TooFewClients(SecAggError):
    """Fewer clients are left than a sum needs; nothing is revealed."""

    @classmethod
    def left(cls, left: int, asked: int, what: str, fewest: int) -> TooFewClients:
        """Return the error that ``left`` of the ``asked`` clients are too few, in words."""
        return cls(
            f"{left} of {asked} clients {what}; a secure sum needs {fewest} at least, as one of "
            "fewer would tell a client the values of another; no sum was learnt"
        )


class Again(SecAggError):
    """A round that cannot be opened; it can be made again without some clients.

    Attributes
    ----------
    without : why each of them is left out, by client
    """

    def __init__(self, reason: str, without: dict[int, str]) -> None:
        super().__init__(reason)
        self.without = without
