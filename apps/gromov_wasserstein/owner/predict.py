"""Using a kept graph neural network: the classes of new graphs, or of their nodes. Needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trellis.apps.common import plugins
from trellis.apps.common.private.using import Predictions, Usable
from trellis.apps.common.tables import DataError, graph_folder
from trellis.apps.gromov_wasserstein.config import MODELS
from trellis.apps.gromov_wasserstein.data import featured, unit_features
from trellis.apps.gromov_wasserstein.files.npz import read_graphs
from trellis.apps.gromov_wasserstein.files.tudataset import read_tudataset
from trellis.apps.gromov_wasserstein.graphs import Graph


def predict(kept: Usable, data: Any) -> Predictions:
    """Return the class of every graph, or with ``task = "node"`` of every node, from 0.

    ``data`` is an npz file, a folder in TUDataset's format, or a list of graphs. The score is the
    share of right labels among those that are known.

    Raises
    ------
    DataError, ValueError
        For a file that cannot be used, other features, or a model that is not registered here.
    ImportError
        Without torch; says how to install it.
    """
    about = kept.about["model"]
    if about["model"] not in MODELS and not plugins.known("models", about["model"]):
        raise ValueError(
            f"the result was learned with model={about['model']!r}, which is not registered here; "
            f"install its package, or use the array {about['array']!r} in result.npz with its class"
        )
    from trellis.apps.gromov_wasserstein.model.gnn import build_model, load
    from trellis.apps.gromov_wasserstein.model.training import predicted

    graphs, source = _graphs(data)
    if about.get("unit-features"):
        graphs = [unit_features(graph) for graph in graphs]
    features = graphs[0].features.shape[1]
    if features != about["features"]:
        raise DataError(
            f"{source}: its nodes have {features} features, the model knows {about['features']}"
        )
    model = build_model(about["model"], features, about["classes"], about["task"], about["width"])
    load(model, np.asarray(kept.arrays[about["array"]], dtype=np.float64))
    found = predicted(model, graphs, about["task"]).tolist()
    rows: list[tuple[Any, ...]]
    if about["task"] == "graph":
        rows = [(int(label),) for label in found]
        truth = np.array([graph.label for graph in graphs])
        return Predictions(("class",), rows, *_right(np.array(found), truth))
    places = [(g, v) for g, graph in enumerate(graphs, start=1) for v in range(graph.nodes)]
    rows = [(*place, int(label)) for place, label in zip(places, found, strict=True)]
    truth = np.concatenate([graph.node_labels for graph in graphs])
    return Predictions(("graph", "node", "class"), rows, *_right(np.array(found), truth))


def _graphs(data: Any) -> tuple[list[Graph], str]:
    """Return graphs with features, and where they come from."""
    if not isinstance(data, str | Path):
        return featured(list(data)), "the new graphs"
    path = Path(data)
    if path.is_dir() and graph_folder(path) is None:
        raise DataError(f"{path}: no graphs; an npz file or a folder in TUDataset's format")
    found = read_tudataset(path, relabel=False) if path.is_dir() else read_graphs(path)
    return featured(found), str(path)


def _right(found: Any, truth: Any) -> tuple[list[str], float | None]:
    known = truth >= 0
    if not known.any():
        return [], None
    share = float(np.mean(found[known] == truth[known]))
    return [f"share of right labels: {share:.4g} of {int(known.sum())} that are known"], share
