"""What a device with ``privacy = "dp"`` keeps to itself beyond what `release` noises.

Whether it answers, and what it says beside its counted releases, must not depend on any one graph.
So on a device, where ``privacy = "dp"``:

- the number of classes is the setting ``classes``, never the largest label of the data;
- graphs come from an npz file, whose number of features stands in it (a folder of text files has as
  many as its largest label), and nothing in one graph can make it unreadable;
- graphs' labels are told only where the owner says ``share-labels=true`` in the node config;
- with training, a graph adds its clipped gradient to a sum that has noise (`noisy_part`); which
  graphs train is drawn without a look at them; one whose gradient cannot be computed adds 0;
  neither loss nor hits are told, and no weights; with ``method = "untrained"`` no sum is made;
- a row of an embedding that is not finite counts as evenly spread.

Told at enrolment: the device's name, its number of graphs, the names of features and classes.
Told with an embedding: the graphs' numbers of nodes. All of it is declared public. So nothing that
a device says depends on its graphs but the noisy sums and the encoded embedding, which are counted.

A simulation protects nobody and tells all this, as do runs with other privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.privacy.accounting.budget import PrivacyRefused

from .config import GromovWassersteinConfig
from .graphs import UNKNOWN, Graph

# torch is loaded by who holds a model already: most messages to a device need none.
if TYPE_CHECKING:
    from .model.gnn import nn

Array = NDArray[np.float64]

# What is said here stays on the device.
log = logging.getLogger("trellis.device")


def is_guarded(config: GromovWassersteinConfig, node: Node) -> bool:
    """Return whether the rules above hold for this node."""
    return config.privacy == "dp" and not node.simulated


def require_declared(config: GromovWassersteinConfig, node: Node) -> None:
    """Refuse a run whose settings would have this device tell more; before its data is read."""
    if config.classes < 2:
        raise PrivacyRefused(
            f"classes={config.classes} would tell the largest label of this device's data; set "
            "classes to their number"
        )
    if node.data_path is not None and node.data_path.suffix.lower() != ".npz":
        raise PrivacyRefused(
            "with privacy='dp' a device reads its graphs from an npz file: of a folder of text "
            "files even the number of features depends on the data. "
            "trellis.apps.gromov_wasserstein.files.npz.write_graphs writes one"
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


def noisy_part(model: nn.Module, graphs: Sequence[Graph], config: GromovWassersteinConfig) -> Array:
    """Return the sum (d,) of the graphs' clipped gradients at the model's weights."""
    from .model.clipping import clipped_sum
    from .model.gnn import weights

    return clipped_sum(model, graphs, weights(model), config.task, config.gradient_bound)


def right_part(model: nn.Module, graphs: Sequence[Graph], config: GromovWassersteinConfig) -> Array:
    """Return the sum (1,) over graphs of the share of their labelled items that are told right.

    One graph at a time, each between 0 and 1; one without labels counts as 0.
    """
    from .model.gnn import weights
    from .model.home import score

    start, total = weights(model), 0.0
    for graph in graphs:
        try:
            told = score(model, start, [graph], config.task)
            total += told.correct / told.count if told.count else 0.0
        except Exception:
            log.warning("a graph could not be scored; it counts as wrong", exc_info=True)
    return np.array([total])


def finite_rows(embeddings: Sequence[Array]) -> list[Array]:
    """Return embeddings whose rows that are not finite are evenly spread instead."""
    return [
        np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 1.0 / rows.shape[1])
        for rows in embeddings
    ]
