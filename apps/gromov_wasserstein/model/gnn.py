"""Graph neural networks that clients train together, and whose output is the embedding.

    rows, prediction = model(x, edge_index, batch)      H = softmax(rows), row by row

    x : (n, f) float64, features of the nodes of all graphs of a batch, one below the other
    edge_index : (2, 2 E), every edge in both directions      batch : (n,), the graph of each node
    rows : (n, h)      prediction : (n, classes) of nodes, or (G, classes) of graphs

``task = "node"``: rows are the logits of the nodes, h = classes. ``task = "graph"``: rows are the
last hidden layer, h = ``width``; they are pooled over each graph and a linear layer makes the
logits, so they are trained. Either way the rows of H lie in the simplex, and the encoder's range
is alpha = 0, beta = 1 without a look at the data.

``gcn``  2 layers of 16, mean over nodes      ``gin``  5 layers of 64, sum over nodes

A model of one's own has a registered name: a torch module with the ``forward`` above that is made
by ``Class(features=, classes=, task=, width=)``, see `own_model`.

All is in float64: a permuted graph then has its rows permuted to 1e-12, and isomorphic graphs a
distance of 0. No batch normalisation: its running statistics are sums over a client's data that
are no parameters, so they would not be averaged, and would leave with none of the protection of
the updates; and in training it lets the graphs of a batch look at each other. GIN has layer
normalisation in its place, which knows one node at a time, because sums over neighbours grow with
the fifth power of the degree otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.settings import ConfigError

from ..config import MODELS
from . import cannot

if TYPE_CHECKING:
    from ..graphs import Graph


def require_torch() -> None:
    """Refuse, with the pip line, where torch cannot be imported.

    Importing this module does it, so ``from .gnn import ...`` fails with this error and no other.
    """
    try:
        import_module("torch")
    except ImportError as error:
        raise ConfigError(cannot("torch", error)) from None


require_torch()

# Under these names others import it from here, after the check.
import torch as torch  # noqa: E402
from torch import Tensor as Tensor  # noqa: E402
from torch import nn as nn  # noqa: E402

from .layers import GraphConvolution, Isomorphism, added, averaged, norm  # noqa: E402

Vector = NDArray[np.float64]

HIDDEN = {"gcn": 16, "gin": 64}
GIN_LAYERS = 5

_ONE_AT_A_TIME = RLock()  # torch's default generator and number of threads are the process's


class NodeModel(nn.Module):
    """What a model must do; see the module. Yours need not derive from it, only from Module."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows (n, h) and the prediction (n or G, classes), both before softmax."""
        raise NotImplementedError


class GCN(NodeModel):
    """Two graph convolutions (Kipf & Welling 2017)."""

    def __init__(self, features: int, classes: int, task: str, width: int, hidden: int) -> None:
        super().__init__()
        self.first = GraphConvolution(features, hidden)
        self.second = GraphConvolution(hidden, classes if task == "node" else hidden)
        self.head = _Head(hidden, width, classes) if task == "graph" else None

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and prediction; a graph's is made from the mean of its rows."""
        graph = norm(edge_index, len(x), x.dtype)
        z = self.second(self.first(x, *graph).relu(), *graph)
        if self.head is None:
            return z, z
        rows = self.head.rows(z.relu())
        return rows, self.head.logits(averaged(rows, batch, _graphs(batch)))


class GIN(NodeModel):
    """Five graph isomorphism layers (Xu et al. 2019), then two linear ones."""

    def __init__(self, features: int, classes: int, task: str, width: int, hidden: int) -> None:
        super().__init__()
        sizes = [features] + [hidden] * (GIN_LAYERS - 1)
        self.layers = nn.ModuleList(Isomorphism(_mlp(size, hidden)) for size in sizes)
        self.task = task
        self.head = _Head(hidden, hidden if task == "node" else width, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and prediction; a graph's is made from the sum of its rows."""
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        rows = self.head.rows(x)
        if self.task == "node":
            logits = self.head.logits(rows.relu())
            return logits, logits
        return rows, self.head.logits(added(rows, batch, _graphs(batch)).relu())


class _Head(nn.Module):
    """Two linear layers; what lies between them is up to the model."""

    def __init__(self, hidden: int, width: int, classes: int) -> None:
        super().__init__()
        self.rows = nn.Linear(hidden, width)
        self.logits = nn.Linear(width, classes)


def _graphs(batch: Tensor) -> int:
    """Return how many graphs a batch has; none of them is without nodes."""
    return int(batch.max()) + 1


def _mlp(size: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, hidden)
    )


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Give torch one thread and the draws of ``seed``; afterwards it is as it was.

    Both belong to the process, so clients that run on threads of one process take turns.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def build_model(
    name: str, features: int, classes: int, task: str, width: int, hidden: int = 0, seed: int = 0
) -> nn.Module:
    """Return a model of the setting ``model``, its weights drawn from ``seed``.

    Parameters
    ----------
    name : ``gcn``, ``gin``, or the name of a registered model
    features, classes : f and the number of classes
    task : ``node`` or ``graph``
    width : h of ``task = "graph"``
    hidden : of ``gcn`` and ``gin``; 0 takes 16 and 64

    Raises
    ------
    ConfigError
        Where the class is not there, or does not do what a model must; says what.
    """
    if features < 1:
        raise ConfigError(f"features={features}: a node needs one number or more; use its degree")
    if classes < 2:
        raise ConfigError(f"classes={classes}: there is nothing to tell apart; two or more")
    with repeatable(seed):
        if name in MODELS:
            built_in = {"gcn": GCN, "gin": GIN}[name]
            return built_in(features, classes, task, width, hidden or HIDDEN[name]).double()
        from .own import own_model  # late: it needs what is defined here

        return own_model(name, features, classes, task, width)


def weights(model: nn.Module) -> Vector:
    """Return all parameters as one vector (d,), in the order of ``model.parameters()``."""
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()]).astype(
        np.float64
    )


def load(model: nn.Module, vector: Vector) -> None:
    """Set the parameters to ``vector``; see `weights`."""
    size = sum(p.numel() for p in model.parameters())
    if vector.shape != (size,):
        raise ValueError(
            f"weights of shape {vector.shape} for a model with {size}: server and client disagree "
            "about model, features, classes or width"
        )
    start = 0
    with torch.no_grad():
        for p in model.parameters():
            part = np.array(vector[start : start + p.numel()], dtype=np.float64)
            p.copy_(torch.from_numpy(part).reshape(p.shape))
            start += p.numel()


@dataclass(frozen=True)
class Batch:
    """Some graphs as one: what a model takes, and the labels of its items, -1 unknown."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    labels: Tensor


def collate(graphs: Sequence[Graph], task: str) -> Batch:
    """Return graphs as one, its edges in both directions, with the labels that ``task`` learns."""
    if not graphs:
        raise ValueError("no graphs: there is nothing to make a batch of")
    widths = [graph.features.shape[1] for graph in graphs]
    if len(set(widths)) > 1:
        odd = next(i for i, width in enumerate(widths) if width != widths[0])
        raise ValueError(
            f"{graphs[odd].source} has {widths[odd]} features a node, {graphs[0].source} has "
            f"{widths[0]}"
        )
    nodes = np.array([len(graph.features) for graph in graphs])
    first = np.repeat(np.cumsum(nodes) - nodes, [len(graph.edges) for graph in graphs])
    edges = (np.concatenate([graph.edges for graph in graphs]) + first[:, None]).T
    if task == "node":
        labels = np.concatenate([graph.node_labels for graph in graphs])
    else:
        labels = np.array([graph.label for graph in graphs])
    return Batch(
        torch.from_numpy(np.concatenate([graph.features for graph in graphs]).astype(np.float64)),
        torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1).astype(np.int64)),
        torch.from_numpy(np.repeat(np.arange(len(graphs)), nodes)),
        torch.from_numpy(labels.astype(np.int64)),
    )
