"""What one graph adds to a step of training, clipped: the sum whose noise can be counted.

    g_k = gradient at w of graph k's loss        mean of -log softmax(prediction)_label, (d,)
    s   = sum_k g_k min(1, C / |g_k|)            what a client adds to the noisy sum

The loss of a graph is the mean over its own labelled items: its nodes, or itself. So one graph
replaced by any other changes s by 2 C at most, whatever the others are: a record is a graph with
both tasks. A graph without labels adds 0, and so does one whose gradient is not finite.

FedProx's pull mu (w - w_0) is 0 at w = w_0, where the one step of a round begins: with one step it
is FedAvg. Weight decay knows no data, and is the server's.

For the built-in models the gradients of many graphs come from one backward pass: every layer here
is linear in its weights row by row, so that of a linear layer with inputs a_u and gradients b_u of
its outputs

    g_k = sum_{u in k} a_u b_u'                  over the nodes u of graph k

and no row of one graph enters another's. A model of one's own may mix the graphs of a batch, so it
gets them one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.privacy.mechanisms.clipping import clip_rows

from .gnn import GCN, GIN, Batch, Tensor, Vector, collate, load, nn, repeatable, torch
from .layers import GraphConvolution

if TYPE_CHECKING:
    from ..graphs import Graph

# What is said here stays on the device.
log = logging.getLogger("trellis.device")

TOGETHER = 128  # graphs of one backward pass; GIN's gradients of so many take 45 MB


def clipped_sum(
    model: nn.Module, graphs: Sequence[Graph], start: Vector, task: str, bound: float
) -> Vector:
    """Return the sum (d,) of the graphs' gradients at ``start``, each clipped to norm ``bound``.

    Parameters
    ----------
    model : is left with the weights ``start``
    graphs : of one client
    start : w (d,)
    task : ``node`` or ``graph``
    bound : C
    """
    total = np.zeros_like(start)
    for part in gradients(model, graphs, start, task):
        total += clip_rows(part, bound).sum(axis=0)
    return total


def gradients(model: nn.Module, graphs: Sequence[Graph], start: Vector, task: str) -> list[Vector]:
    """Return the gradients of the graphs' losses at ``start``, (some graphs, d) each, in order."""
    load(model, start)
    model.train()
    size = TOGETHER if _is_built_in(model) else 1
    return [
        _part(model, graphs[first : first + size], task) for first in range(0, len(graphs), size)
    ]


def _part(model: nn.Module, graphs: Sequence[Graph], task: str) -> Vector:
    """Return the gradients (graphs, d) of some graphs; zeros for one that has none.

    A failure costs the graph that it comes from and no other: if all were lost with it, one graph
    replaced would move the terms of all.
    """
    find = _row_by_row if _is_built_in(model) else _one
    try:
        with repeatable(0):
            return find(model, collate(graphs, task), task)
    except Exception:  # whatever it is, it comes from a graph or from the weights that came
        if len(graphs) == 1:
            log.warning("a graph has no gradient; it adds nothing", exc_info=True)
            return np.zeros((1, sum(p.numel() for p in model.parameters())))
    return np.concatenate([_part(model, [graph], task) for graph in graphs])


def _is_built_in(model: nn.Module) -> bool:
    return type(model) in (GCN, GIN)


def _losses(logits: Tensor, batch: Batch, task: str, count: int) -> Tensor:
    """Return the sum over graphs of their losses; the mean over labelled items of each."""
    labels = batch.labels
    known = (labels >= 0) & (labels < logits.shape[1])
    owner = batch.batch if task == "node" else torch.arange(count)
    items = torch.bincount(owner[known], minlength=count).clamp(min=1)
    each = nn.functional.cross_entropy(
        logits, torch.where(known, labels, torch.tensor(0)), reduction="none"
    )
    return (each[known] / items[owner[known]]).sum()


def _one(model: nn.Module, batch: Batch, task: str) -> Vector:
    """Return the gradient (1, d) of a batch that is one graph."""
    parameters = list(model.parameters())
    _, logits = model(batch.x, batch.edge_index, batch.batch)
    found = torch.autograd.grad(_losses(logits, batch, task, 1), parameters, allow_unused=True)
    each = [
        np.zeros(p.numel()) if part is None else part.numpy().ravel()
        for p, part in zip(parameters, found, strict=True)
    ]
    return np.concatenate(each)[None, :]


def _row_by_row(model: nn.Module, batch: Batch, task: str) -> Vector:
    """Return the gradients (graphs, d) of a built-in model from one backward pass."""
    count, nodes = int(batch.batch.max()) + 1, len(batch.batch)
    kept: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(name: str) -> Callable[[Any, Any, Tensor], None]:
        def hook(_module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
            kept[name] = given[0].detach(), output
            output.retain_grad()

        return hook

    layers = {name: m for name, m in model.named_modules() if any(True for _ in _own(m))}
    hooks = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
    try:
        _, logits = model(batch.x, batch.edge_index, batch.batch)
    finally:
        for hook in hooks:
            hook.remove()
    _losses(logits, batch, task, count).backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    found: dict[str, Tensor] = {}
    places = _Places(batch.batch, count)
    for name, layer in layers.items():
        given, output = kept[name]
        if output.grad is None:
            continue
        one_each = len(output) == count and len(output) != nodes  # pooled: a row is a graph
        a, b = given, output.grad
        for key, part in _parts(layer, a, b, (lambda x: x[:, None, :]) if one_each else places):
            found[f"{name}.{key}"] = part.reshape(count, -1)
    rows = [
        found.get(name, torch.zeros(count, p.numel(), dtype=torch.float64))
        for name, p in model.named_parameters()
    ]
    return np.asarray(torch.cat(rows, dim=1).numpy(), dtype=np.float64)


class _Places:
    """Rows of all nodes -> rows by graph, (graphs, most nodes, width), zeros behind the last."""

    def __init__(self, owner: Tensor, count: int) -> None:
        sizes = torch.bincount(owner, minlength=count)
        first = torch.cumsum(sizes, 0) - sizes
        self.at = owner, torch.arange(len(owner)) - first[owner]
        self.shape = count, int(sizes.max())

    def __call__(self, rows: Tensor) -> Tensor:
        made = torch.zeros(*self.shape, rows.shape[1], dtype=rows.dtype)
        made[self.at] = rows
        return made


def _parts(
    layer: nn.Module, a: Tensor, b: Tensor, by_graph: Callable[[Tensor], Tensor]
) -> list[tuple[str, Tensor]]:
    """Return name and gradient, (graphs, ...), of a layer's own parameters."""
    grouped = by_graph(b)
    if isinstance(layer, nn.Linear):
        weight = torch.bmm(grouped.transpose(1, 2), by_graph(a))
        return [("weight", weight), *([] if layer.bias is None else [("bias", grouped.sum(1))])]
    if isinstance(layer, nn.LayerNorm):
        flat = nn.functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
        return [("weight", by_graph(flat * b).sum(1)), ("bias", grouped.sum(1))]
    if isinstance(layer, GraphConvolution):  # its matrix is a linear layer inside
        return [("bias", grouped.sum(1))]
    raise TypeError(f"{type(layer).__name__}: no rule for the gradients of single graphs")


def _own(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters(recurse=False) if p.requires_grad]
