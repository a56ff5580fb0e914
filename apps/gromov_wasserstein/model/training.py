"""What a client does with a model: learn from its labels, count its hits, embed its graphs.

    min_w  (1 / c) sum over labelled items of -log softmax(prediction)_label + (mu / 2) |w - w_0|^2

from w_0, the weights that the server sent: E epochs of Adam, whose moments begin at zero in every
round (a client keeps nothing between two), [JC] Algorithm 3 lines 1-5. Its first step is then as
long as the learning rate in *every* weight: 0.01 suits two layers, five need 0.001 or so.

mu = 0 is FedAvg, mu > 0 FedProx (Li et al. 2020). c is the number of labelled items: nodes, or
graphs, by the task. An item with label -1, or outside ``mask``, takes part in messages between
nodes but in no loss.

A mask is over all items of ``graphs`` in their order: (total nodes,), or (graphs,).

The same seed gives the same bits: one thread, float64, one order of sums, see `gnn.repeatable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from .adam import Adam, Descent
from .gnn import Batch, Tensor, Vector, collate, load, nn, repeatable, torch, weights

if TYPE_CHECKING:
    from ..graphs import Graph

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Trained:
    """Weights after training (d,), labelled items c, and their mean loss in the last epoch."""

    weights: Vector
    count: int
    loss: float


@dataclass(frozen=True)
class Score:
    """How a model does on some labelled items: numbers that can be added up over clients."""

    count: int
    correct: int
    loss_sum: float

    @property
    def accuracy(self) -> float:
        """Share of items that are told right; nan of none."""
        return self.correct / self.count if self.count else float("nan")


def local_training(
    model: nn.Module,
    graphs: Sequence[Graph],
    start: Vector,
    task: str,
    epochs: int,
    batch: int,
    learning_rate: float,
    weight_decay: float,
    proximal: float,
    rng_seed: int,
    *,
    mask: Mask | None = None,
    optimiser: Literal["adam", "sgd"] = "adam",
) -> Trained:
    """Train from ``start``; a client without labels returns it, with count 0.

    Parameters
    ----------
    model : is changed, and left with the new weights
    start : w_0 (d,)
    epochs : E, passes over the labelled items
    batch : graphs a step; 0 takes all
    learning_rate, weight_decay : of the optimiser; the decay adds weight_decay w to the gradient
    proximal : mu
    rng_seed : of the order of graphs, and of what the model draws
    mask : items to learn from; None is all that have a label
    optimiser : ``adam``, or ``sgd``, without momentum

    Raises
    ------
    ValueError
        Where the loss is not finite any more: the weights would spoil everyone's mean.
    """
    load(model, start)
    items = _Items.of(graphs, task, mask)
    if not items.count:
        return Trained(np.array(start, dtype=np.float64), 0, 0.0)
    order = np.random.default_rng(rng_seed)
    anchor = [p.detach().clone() for p in model.parameters()]
    made = Adam if optimiser == "adam" else Descent
    steps = made(model.parameters(), learning_rate, weight_decay)
    model.train()
    with repeatable(rng_seed):
        for epoch in range(1, epochs + 1):
            total = 0.0
            for part in items.parts(batch, order):
                known = part.labels >= 0
                _, logits = model(part.x, part.edge_index, part.batch)
                loss = _loss(logits[known], part.labels[known], "mean")
                steps.forget()
                loss.backward()  # type: ignore[no-untyped-call]
                if proximal > 0.0:
                    _pull(model, anchor, proximal)
                steps.step()
                total += float(loss.detach()) * int(known.sum())
            if not np.isfinite(total):
                raise ValueError(
                    f"training diverged: the loss is {total} in epoch {epoch}; lower learning-rate="
                    f"{learning_rate:g}, or look for features that are huge"
                )
    return Trained(weights(model), items.count, total / items.count)


def evaluate(
    model: nn.Module, graphs: Sequence[Graph], task: str, masks: Mapping[str, Mask]
) -> dict[str, Score]:
    """Return the score on every mask's labelled items, of ``train``, ``validation``, ``test``."""
    whole = collate(graphs, task)
    with _still(model):
        _, logits = model(whole.x, whole.edge_index, whole.batch)
    scores = {}
    for name, mask in masks.items():
        labels = _masked(whole.labels, mask, f"mask {name}")
        known = labels >= 0
        hits = logits[known].argmax(dim=1) == labels[known]
        loss = _loss(logits[known], labels[known], "sum")
        scores[name] = Score(int(known.sum()), int(hits.sum()), float(loss))
    return scores


def predicted(model: nn.Module, graphs: Sequence[Graph], task: str) -> NDArray[np.int64]:
    """Return the classes that the model gives to all items of the graphs, in order."""
    whole = collate(graphs, task)
    with _still(model):
        _, logits = model(whole.x, whole.edge_index, whole.batch)
    return np.asarray(logits.argmax(dim=1).numpy(), dtype=np.int64)


def embed(model: nn.Module, graphs: Sequence[Graph]) -> list[Vector]:
    """Return H of every graph, (n_i, h) each, its rows in the simplex.

    One graph at a time: whatever a model does with a batch, the rows of a graph then depend on
    that graph and the weights alone, which is what a privacy claim for one graph needs.
    """
    made = []
    with _still(model):
        for graph in graphs:
            one = collate([graph], "graph")
            rows, _ = model(one.x, one.edge_index, one.batch)
            made.append(np.asarray(rows.softmax(dim=1).numpy(), dtype=np.float64))
    return made


@dataclass(frozen=True)
class _Items:
    """The graphs with something to learn from, and the labels that may be learnt."""

    graphs: list[Graph]
    labels: list[Tensor]
    task: str

    @classmethod
    def of(cls, graphs: Sequence[Graph], task: str, mask: Mask | None) -> _Items:
        if not graphs:
            return cls([], [], task)
        labels = collate(graphs, task).labels
        if mask is not None:
            labels = _masked(labels, mask, "mask")
        sizes = [len(graph.features) if task == "node" else 1 for graph in graphs]
        pairs = zip(graphs, torch.split(labels, sizes), strict=True)
        kept = [(graph, part) for graph, part in pairs if bool((part >= 0).any())]
        return cls([graph for graph, _ in kept], [part for _, part in kept], task)

    @property
    def count(self) -> int:
        return sum(int((part >= 0).sum()) for part in self.labels)

    @cached_property
    def whole(self) -> Batch:
        return self._batch(range(len(self.graphs)))

    def parts(self, size: int, order: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches of one epoch."""
        if size == 0 or size >= len(self.graphs):
            yield self.whole
            return
        turn = order.permutation(len(self.graphs))
        for first in range(0, len(turn), size):
            yield self._batch(turn[first : first + size].tolist())

    def _batch(self, chosen: Sequence[int]) -> Batch:
        made = collate([self.graphs[i] for i in chosen], self.task)
        return replace(made, labels=torch.cat([self.labels[i] for i in chosen]))


def _masked(labels: Tensor, mask: Mask, name: str) -> Tensor:
    """Return the labels with -1 outside the mask."""
    if mask.shape != tuple(labels.shape) or mask.dtype != np.bool_:
        raise ValueError(
            f"{name}: {mask.dtype} of shape {mask.shape}; bool of shape {tuple(labels.shape)} is "
            "needed, one entry an item"
        )
    return torch.where(torch.tensor(mask), labels, -1)


def _loss(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    largest, classes = int(labels.max()) if len(labels) else -1, logits.shape[1]
    if largest >= classes:
        raise ValueError(
            f"a label is {largest}, but the model tells {classes} classes apart, 0 to "
            f"{classes - 1}; set classes={largest + 1}"
        )
    return nn.functional.cross_entropy(logits, labels, reduction=reduction)


def _pull(model: nn.Module, anchor: Sequence[Tensor], proximal: float) -> None:
    """Add the gradient of (mu / 2) |w - w_0|^2, mu (w - w_0)."""
    for p, start in zip(model.parameters(), anchor, strict=True):
        if p.grad is not None:
            p.grad.add_(p.detach() - start, alpha=proximal)


@contextmanager
def _still(model: nn.Module) -> Iterator[None]:
    """Let a model answer and learn nothing, without dropout."""
    model.eval()
    with repeatable(0), torch.no_grad():
        yield
