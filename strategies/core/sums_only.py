"""Which of Flower's strategies cannot run on secure sums, and why.

A secure sum gives a strategy one reply, the mean over all clients. A median of one reply is that
reply: a strategy that compares replies would run on without protecting anybody, and a wrapper that
clips every reply would clip the mean, whose noise is then too small for what it claims. Neither
fails by itself, so both are refused here.
"""

from __future__ import annotations

import sys

from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from .enrolment import StudyError

_COMPARES = "it compares single replies, and a secure sum has none: its result would be the mean"
_CLIPS = (
    "it clips each reply by itself and sizes its noise for that; clipped is here the mean, which "
    "one client can move by twice the whole norm, so the epsilon it reports would not hold. Use "
    "DifferentialPrivacyClientSideFixedClipping with its client mod, or noise in the sum"
)
_COUNTS = (
    "it counts which single updates were clipped, and a secure sum has none. Use "
    "DifferentialPrivacyClientSideFixedClipping"
)
_WHY = {
    **dict.fromkeys(("FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan"), _COMPARES),
    **dict.fromkeys(("QFedAvg", "FedXgbBagging", "FedXgbCyclic"), _COMPARES),
    "DifferentialPrivacyServerSideFixedClipping": _CLIPS,
    "DifferentialPrivacyServerSideAdaptiveClipping": _CLIPS,
    "DifferentialPrivacyClientSideAdaptiveClipping": _COUNTS,
}
_KINDS = {getattr(flower, name): why for name, why in _WHY.items() if hasattr(flower, name)}


def running_strategy() -> Strategy | None:
    """Return the strategy whose loop, Flower's or ours, has led to this call."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        owner = frame.f_locals.get("self")
        found = owner if isinstance(owner, Strategy) else getattr(owner, "strategy", None)
        if isinstance(found, Strategy):
            return found
    return None


def refuse_single_replies(strategy: Strategy | None) -> None:
    """Refuse a strategy, or what it wraps, that needs clients' single replies.

    Raises
    ------
    StudyError
        Names the strategy, and why it cannot run on sums.
    """
    while isinstance(strategy, Strategy):
        for kind, why in _KINDS.items():
            if isinstance(strategy, kind):
                raise StudyError(f"{type(strategy).__name__} on SecureGrid: {why}")
        strategy = getattr(strategy, "strategy", None)  # what a wrapper wraps
