"""The ways of learning: a model of harm, and distances between molecules; open and private.

Distances come from a network with weights drawn by the seed, which has seen no label: what
neighbours tell of each other is then no echo of what it was taught.
"""

from __future__ import annotations

from typing import Any

from ..case import Planned
from .owners import FOLDER

STUDY = "gromov-wasserstein"
MODEL, PRIVATE_MODEL = "model-open", "model-epsilon-3"
ALIKE, WEAK, STRONG = "alike-open", "alike-epsilon-300", "alike-epsilon-3"
WORDS = {
    MODEL: "together, open",
    PRIVATE_MODEL: "together, private (epsilon 3)",
    ALIKE: "all companies, open",
    WEAK: "all companies, epsilon 300",
    STRONG: "all companies, private (epsilon 3)",
}
_COMMON: dict[str, Any] = {"task": "graph", "downstream": "knn"}
# With one draw of the control per run, there are as many as there are splits.
_PRIVATE: dict[str, Any] = {"privacy": "dp", "classes": 2, "draws": 1}
_SETTINGS: dict[str, dict[str, Any]] = {
    MODEL: {"method": "fedavg"},
    PRIVATE_MODEL: {"method": "fedavg", **_PRIVATE, "epsilon": 3.0},
    ALIKE: {"method": "untrained"},
    WEAK: {"method": "untrained", **_PRIVATE, "epsilon": 300.0},
    STRONG: {"method": "untrained", **_PRIVATE, "epsilon": 3.0},
}
# What is learned here is a model; its distances are not used, and this metric is the quickest.
_MODELS: dict[str, Any] = {"metric": "wasserstein", "downstream": "none"}
_QUICK: dict[str, Any] = {"clients": 4, "rounds": 3}


def planned(quick: bool) -> list[Planned]:
    """Return the ways of learning; reduced ones are of four companies and three rounds."""
    found = []
    for way, own in _SETTINGS.items():
        model = _MODELS if way in (MODEL, PRIVATE_MODEL) else {}
        settings = {**_COMMON, **own, **model, **(_QUICK if quick else {})}
        found.append(Planned(way, STUDY, WORDS[way], settings, FOLDER))
    return found
