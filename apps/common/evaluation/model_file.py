"""``model.json``: what a run has learned, so that new data can be scored later and elsewhere.

It names the array of ``result.npz`` that is the model or the graph, and whatever is needed to use
it: features, classes, loss, versions. A study says so in ``run_model`` of its ``owner.result``:

    kind    what it is: ``linear``, ``gnn``, ``graph`` or ``precision``
    array   its name in ``result.npz``
    per     ``all`` where it is one for all, ``client`` where its first axis is of clients
    shared  of the latter, the array with the one that all share, if there is one
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.evaluation.scores import numbers

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

MODEL_FILE = "model.json"
FORMAT = 1


def model_about(result: RunResult) -> dict[str, Any] | None:
    """Return the content of ``model.json``; None where the study has nothing to be used."""
    from trellis.apps import study_module

    describe = getattr(study_module(result.study, "owner.result"), "run_model", None)
    model = None if describe is None else describe(result)
    if model is None:
        return None
    return {
        "format": FORMAT,
        "study": result.study,
        "seed": result.seed,
        "time": result.started,
        "settings": dict(result.config),
        "model": model,
        "variables": [str(name) for name in result.variables],
        "clients": [str(client["name"]) for client in result.clients],
        "scores": numbers(result.scores),
        "privacy": {key: result.ledger.get(key) for key in ("mode", "epsilon", "delta")},
        "versions": dict(result.versions),
    }


def write_model_file(result: RunResult, folder: Path) -> None:
    """Write ``model.json`` into a run's folder, where there is something to be used."""
    from trellis.apps.common.results import write_atomically

    about = model_about(result)
    if about is not None and about["model"]["array"] in result.arrays:
        write_atomically(folder / MODEL_FILE, json.dumps(about, indent=2).encode())
