"""The ways of learning: every hospital alone, together, and together with privacy.

Together is the fused penalty, which draws hospitals' graphs to each other edge by edge: in people
whom nobody had learned from it foretold more than the group penalty (docs/cases/brains.md). With
privacy everyone has the common graph (method ``pooled``): a graph of its own would be chosen by
time points of the very people it was learned from, which flatters what was learned alone.
"""

from __future__ import annotations

from typing import Any

from ..case import Planned
from .scans import LEARNED, OTHERS

STUDY = "joint-precision"
ALONE, TOGETHER, WEAK, STRONG = "alone", "together", "epsilon-10", "epsilon-3"
AGAIN, AGAIN_ALONE = "others", "others-alone"
WORDS = {
    ALONE: "every hospital alone",
    TOGETHER: "together, open",
    WEAK: "together, private (epsilon 10)",
    STRONG: "together, private (epsilon 3)",
    AGAIN: "together, open, other people",
    AGAIN_ALONE: "every hospital alone, other people",
}
# A gap this small moves no score in the digits that are shown, and takes a third of the time.
_COMMON: dict[str, Any] = {"tolerance": 1e-3}
_SETTINGS: dict[str, dict[str, Any]] = {
    ALONE: {"method": "glasso"},
    TOGETHER: {"method": "fused"},
    WEAK: {"method": "pooled", "privacy": "dp", "epsilon": 10.0},
    STRONG: {"method": "pooled", "privacy": "dp", "epsilon": 3.0},
    AGAIN: {"method": "fused"},
    AGAIN_ALONE: {"method": "glasso"},
}
_QUICK: dict[str, Any] = {"clients": 4, "tolerance": 1e-2}


def planned(quick: bool) -> list[Planned]:
    """Return the ways of learning; reduced ones are of four hospitals."""
    common = _QUICK if quick else _COMMON
    data = dict.fromkeys((AGAIN, AGAIN_ALONE), OTHERS)
    return [
        Planned(way, STUDY, WORDS[way], {**own, **common}, data.get(way, LEARNED))
        for way, own in _SETTINGS.items()
    ]
