"""Using the result of a run on new data: predictions of its model, scores of its graphs.

A run's folder says in ``model.json`` what was learned: its features, classes, loss, which array of
``result.npz`` it is, and by which versions. With these two files new data can be scored later, and
elsewhere: on a device that has them, too (``trellis predict``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps import study_module
from trellis.apps.common.evaluation.model_file import MODEL_FILE, model_about
from trellis.apps.common.private.using import Predictions
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError


@dataclass(frozen=True)
class Learned:
    """A model or graph of a run, ready to be used; see `apps.common.private.using.Usable`."""

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    variables: list[str]


def learned(result: RunResult, client: str | None = None) -> Learned:
    """Return what a run has learned, for all or for one client.

    Parameters
    ----------
    result : a run with its arrays
    client : whose, where clients have models or graphs of their own; the shared one otherwise

    Raises
    ------
    ConfigError
        Where there is none, or the client must be named; says which there are.
    """
    about = model_about(result)
    if about is None or about["model"]["array"] not in result.arrays:
        raise ConfigError(f"this run of {result.study} ({result.status}) has nothing to be used")
    model = dict(about["model"])
    arrays = dict(result.arrays)
    if model["per"] == "client":
        if client is None and model.get("shared") in arrays:
            arrays[model["array"]] = arrays[model["shared"]]
        else:
            place = _place(result, client)
            arrays[model["array"]] = arrays[model["array"]][place]
    elif client is not None:
        _place(result, client)  # an unknown name is an error, a known one has the shared model
    return Learned({**about, "model": model}, arrays, about["variables"])


def predict(result: RunResult, data: Any, client: str | None = None) -> Predictions:
    """Return what a run's model or graph makes of new data, record by record.

    Parameters
    ----------
    result : a run with its arrays
    data : a file's path, a DataFrame, an array, or (X, y); of graphs, a file or a list of graphs
    client : see `learned`
    """
    found = learned(result, client)
    told: Predictions = study_module(result.study, "owner.predict").predict(found, data)
    return told


def load_model(folder: Path) -> RunResult:
    """Return a run from its folder, or from the two files that are needed to use it.

    Raises
    ------
    FileNotFoundError
        Where there is neither ``run.json`` nor ``model.json``.
    """
    if (folder / "run.json").is_file():
        return RunResult.load(folder)
    path = folder / MODEL_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: holds neither run.json nor {MODEL_FILE}")
    about = json.loads(path.read_text(encoding="utf-8"))
    with np.load(folder / "result.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return RunResult(
        study=about["study"],
        seed=int(about["seed"]),
        engine="",
        config=dict(about["settings"]),
        arrays=arrays,
        clients=[{"name": name} for name in about["clients"]],
        variables=list(about["variables"]),
        status="completed",
        versions=dict(about["versions"]),
        folder=folder,
    )


def _place(result: RunResult, client: str | None) -> int:
    names = [str(entry["name"]) for entry in result.clients]
    if client is None:
        raise ConfigError(
            f"{result.study} has learned one for each client: say whose with --client NAME, in "
            f"Python client=NAME, of {_some(names)}"
        )
    if client not in names:
        raise ConfigError(f"client={client!r}: the clients are {_some(names)}")
    return names.index(client)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
