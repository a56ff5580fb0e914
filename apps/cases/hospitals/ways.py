"""The ways of learning: open, and private at two budgets, with what the software chooses itself.

Of the model also a private way that is helped: one server, whose one sum over all hospitals needs
no more noise than that of three, and usual values of the measurements that need not be found out.
"""

from __future__ import annotations

from typing import Any

from ..case import Planned
from .data import NUCLEI, OUTCOMES, SCALES

GRAPH, MODEL = "joint-precision", "server-graph"
OPEN, WEAK, STRONG = "open", "epsilon-3", "epsilon-1"
HELPED, BARELY = "epsilon-1-helped", "epsilon-1000"
WORDS = {
    OPEN: "together, open",
    WEAK: "together, private (epsilon 3)",
    STRONG: "together, private (epsilon 1)",
    HELPED: "together, private (epsilon 1), helped",
    BARELY: "the private way, hardly any noise",
}
MODELS = (OPEN, WEAK, STRONG, HELPED)
GRAPHS = (OPEN, WEAK, STRONG, BARELY)
_SETTINGS: dict[str, dict[str, Any]] = {
    OPEN: {},
    WEAK: {"privacy": "sound", "epsilon": 3.0},
    STRONG: {"privacy": "sound", "epsilon": 1.0},
    HELPED: {
        "privacy": "sound",
        "epsilon": 1.0,
        "servers": 1,
        "standardise": "public",
        "scales": f"{{data}}/{SCALES}",
    },
    BARELY: {"privacy": "sound", "epsilon": 1000.0},
}
_QUICK_ROUNDS = 20


def planned(quick: bool) -> list[Planned]:
    """Return the ways of learning, the model's first.

    Open and private graphs are not made alike: with `BARELY` one can see what of their difference
    is noise, and what the method.
    """
    rounds = {"rounds": _QUICK_ROUNDS} if quick else {}
    models = [
        Planned(f"model-{way}", MODEL, WORDS[way], {**_SETTINGS[way], **rounds}, OUTCOMES)
        for way in MODELS
    ]
    graphs = [Planned(f"graph-{way}", GRAPH, WORDS[way], _SETTINGS[way], NUCLEI) for way in GRAPHS]
    return [*models, *graphs]
