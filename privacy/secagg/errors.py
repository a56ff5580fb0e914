"""What goes wrong in secure aggregation, told apart by what one can do about it."""

from __future__ import annotations


class SecAggError(RuntimeError):
    """Any stop of the protocol."""


class Refused(SecAggError):
    """A client will not answer: the request would, or might, tell more than the sum."""


class BadMessage(SecAggError):
    """A message that is malformed, tampered with, or signed by someone else."""


class TooFewClients(SecAggError):
    """Fewer clients are left than the threshold; nothing is revealed."""
