"""Using a kept graph neural network: the classes of new graphs, or of their nodes. Needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from apps.common.private.kept import Kept
from apps.common.private.using import Predictions
from apps.common.tables import DataError, graph_folder
from apps.gromov_wasserstein.config import MODELS
from apps.gromov_wasserstein.data import featured
from apps.gromov_wasserstein.files.npz import read_graphs
from apps.gromov_wasserstein.files.tudataset import read_tudataset


def predict(kept: Kept, path: Path) -> Predictions:
    """Return the class of every graph, or with ``task = "node"`` of every node, from 0.

    Raises
    ------
    DataError, ValueError
        For a file that cannot be used, other features, or a model of one's own.
    ImportError
        Without torch; says how to install it.
    """
    about = kept.about["model"]
    if about["model"] not in MODELS:
        raise ValueError(
            f"the result was learned with model={about['model']!r}, a class of one's own; use its "
            f"array {about['array']!r} in result.npz with that class"
        )
    from apps.gromov_wasserstein.model.gnn import build_model, load
    from apps.gromov_wasserstein.model.training import predicted

    if path.is_dir() and graph_folder(path) is None:
        raise DataError(f"{path}: no graphs; an npz file or a folder in TUDataset's format")
    graphs = featured(read_tudataset(path, relabel=False) if path.is_dir() else read_graphs(path))
    features = graphs[0].features.shape[1]
    if features != about["features"]:
        raise DataError(
            f"{path}: its nodes have {features} features, the model knows {about['features']}"
        )
    model = build_model(about["model"], features, about["classes"], about["task"], about["width"])
    load(model, np.asarray(kept.arrays[about["array"]], dtype=np.float64))
    found = predicted(model, graphs, about["task"]).tolist()
    rows: list[tuple[Any, ...]]
    if about["task"] == "graph":
        rows = [(int(label),) for label in found]
        truth = np.array([graph.label for graph in graphs])
        return Predictions(("class",), rows, _right(np.array(found), truth))
    places = [(g, v) for g, graph in enumerate(graphs, start=1) for v in range(graph.nodes)]
    rows = [(*place, int(label)) for place, label in zip(places, found, strict=True)]
    truth = np.concatenate([graph.node_labels for graph in graphs])
    return Predictions(("graph", "node", "class"), rows, _right(np.array(found), truth))


def _right(found: Any, truth: Any) -> list[str]:
    known = truth >= 0
    if not known.any():
        return []
    share = float(np.mean(found[known] == truth[known]))
    return [f"share of right labels: {share:.4g} of {int(known.sum())} that are known"]
