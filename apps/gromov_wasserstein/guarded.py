"""What a device with ``privacy = "sound"`` keeps to itself beyond what `release` noises.

Whether it answers, and what it says beside its counted releases, must not depend on any one graph.
So on a device, where ``privacy = "sound"``:

- the number of classes is the setting ``classes``, never the largest label of the data;
- graphs come from an npz file, whose number of features stands in it (a folder of text files has as
  many as its largest label), and nothing in one graph can make it unreadable;
- graphs' labels are told only where the owner says ``share-labels=true`` in the node config;
- updates are masked, and weigh by the number of graphs to train with, which is public, not by how
  many of them have labels; loss and hits are not told; a training that diverges leaves the weights
  that were sent;
- a row of an embedding that is not finite counts as evenly spread.

Told at enrolment: the device's name, its number of graphs, the names of features and classes.
Told with an embedding: the graphs' numbers of nodes. All of it is declared public. **Not covered**:
the updates themselves, which are computed from the raw graphs; the server learns their sum over
clients in every round it asks for.

A simulation protects nobody and tells all this, as do runs with other privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.common.node import Node
from privacy.accounting.budget import PrivacyRefused

from .config import GromovWassersteinConfig
from .graphs import UNKNOWN, Graph
from .model.gnn import nn, weights
from .model.update import client_update

Array = NDArray[np.float64]

# What is said here stays on the device.
log = logging.getLogger("trellis.device")


def is_guarded(config: GromovWassersteinConfig, node: Node) -> bool:
    """Return whether the rules above hold for this node."""
    return config.privacy == "sound" and not node.simulated


def require_declared(config: GromovWassersteinConfig, node: Node) -> None:
    """Refuse a run whose settings would have this device tell more; before its data is read."""
    if not config.secure_aggregation:
        raise PrivacyRefused(
            "the updates of training have no noise that could be counted. Set "
            "secure-aggregation=true, so that the server sees their sum only"
        )
    if config.classes < 2:
        raise PrivacyRefused(
            f"classes={config.classes} would tell the largest label of this device's data; set "
            "classes to their number"
        )
    if node.data_path is not None and node.data_path.suffix != ".npz":
        raise PrivacyRefused(
            "with privacy='sound' a device reads its graphs from an npz file: of a folder of text "
            "files even the number of features depends on the data. "
            "apps.gromov_wasserstein.files.npz.write_graphs writes one"
        )


def may_tell_labels(
    config: GromovWassersteinConfig, node: Node, node_config: Mapping[str, Any]
) -> bool:
    """Return whether graphs' labels go to the server: the run asks, and the owner has the word."""
    if not config.share_labels:
        return False
    return not is_guarded(config, node) or node_config.get("share-labels") is True


def known_classes(graphs: Sequence[Graph], classes: int) -> list[Graph]:
    """Return the graphs with labels beyond ``classes`` made unknown, and say so on the device."""
    kept, beyond = [], 0
    for graph in graphs:
        nodes = np.where(graph.node_labels < classes, graph.node_labels, UNKNOWN)
        label = graph.label if graph.label < classes else UNKNOWN
        beyond += int(np.sum(nodes != graph.node_labels)) + (label != graph.label)
        kept.append(replace(graph, label=label, node_labels=nodes))
    if beyond:
        log.warning("%d labels beyond classes=%d count as unknown", beyond, classes)
    return kept


def guarded_update(
    model: nn.Module, graphs: Sequence[Graph], config: GromovWassersteinConfig, draw: int
) -> dict[str, Array]:
    """Return this client's summands: of the same names and shapes whatever its labels are."""
    start, count = weights(model), float(len(graphs))
    found = start
    try:
        client_update(model, graphs, start, config, draw)
        if np.isfinite(count * weights(model)).all():
            found = weights(model)
        else:
            log.warning("training left weights that are not finite; those that came are sent back")
    except Exception:  # whatever it is, it comes from the data
        log.warning("training failed; the weights that came are sent back", exc_info=True)
    nothing = np.zeros(3)
    return {
        "weights": count * found,
        "count": np.array([count]),
        "loss": np.zeros(1),
        "items": nothing,
        "correct": nothing.copy(),
    }


def finite_rows(embeddings: Sequence[Array]) -> list[Array]:
    """Return embeddings whose rows that are not finite are evenly spread instead."""
    return [
        np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 1.0 / rows.shape[1])
        for rows in embeddings
    ]
