"""The ways of learning: open, and private at two budgets, with what the software chooses itself.

Beside these the ways that suit this data better: of the model, one server, whose one sum over all
hospitals needs no more noise than that of three, and usual values of the measurements that need not
be found out; of the graph, the penalty for clients that are alike.
"""

from __future__ import annotations

from typing import Any

from ..case import Planned
from .data import NUCLEI, OUTCOMES, SCALES

GRAPH, MODEL = "joint-precision", "server-graph"
OPEN, WEAK, STRONG = "open", "epsilon-3", "epsilon-1"
HELPED, ALIKE, BARELY = "epsilon-1-helped", "open-alike", "epsilon-1000"
WORDS = {
    OPEN: "together, open",
    WEAK: "together, private (epsilon 3)",
    STRONG: "together, private (epsilon 1)",
    HELPED: "together, private (epsilon 1), helped",
    ALIKE: "together, open, taken to be alike",
    BARELY: "the private way, hardly any noise",
}
MODELS = (OPEN, WEAK, STRONG, HELPED)
GRAPHS = (OPEN, ALIKE, WEAK, STRONG, BARELY)
_SETTINGS: dict[str, dict[str, Any]] = {
    OPEN: {},
    WEAK: {"privacy": "dp", "epsilon": 3.0},
    STRONG: {"privacy": "dp", "epsilon": 1.0},
    HELPED: {
        "privacy": "dp",
        "epsilon": 1.0,
        "servers": 1,
        "standardise": "public",
        "scales": f"{{data}}/{SCALES}",
    },
    ALIKE: {"method": "fused"},
    BARELY: {"privacy": "dp", "epsilon": 1000.0},
}
# Of 31 patients a fifth is 6, of whom no correlation of eight measurements can be judged.
_HELD_OUT = {"held-out": 0.4}
# What takes long is private: rounds of secure sums, the account of sampled batches of every size,
# and all the ways to trust a common picture.
_QUICK: dict[str, dict[str, Any]] = {MODEL: {"rounds": 5, "batch": 0}, GRAPH: {"method": "fused"}}
_QUESTIONS = (("model", MODEL, MODELS, OUTCOMES), ("graph", GRAPH, GRAPHS, NUCLEI))


def planned(quick: bool) -> list[Planned]:
    """Return the ways of learning, the model's first.

    Open and private graphs are not made alike: with `BARELY` one can see what of their difference
    is noise, and what the method.
    """
    return [
        Planned(f"{kind}-{way}", study, WORDS[way], _settings(study, way, quick), data)
        for kind, study, ways, data in _QUESTIONS
        for way in ways
    ]


def _settings(study: str, way: str, quick: bool) -> dict[str, Any]:
    found = {**_SETTINGS[way], **(_HELD_OUT if study == GRAPH else {})}
    return {**found, **_QUICK[study]} if quick and "privacy" in found else found
