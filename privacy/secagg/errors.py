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
    """Fewer clients are left than the threshold; nothing is revealed."""


class Again(SecAggError):
    """A round that cannot be opened; it can be made again without some clients.

    Attributes
    ----------
    without : why each of them is left out, by client
    """

    def __init__(self, reason: str, without: dict[int, str]) -> None:
        super().__init__(reason)
        self.without = without
