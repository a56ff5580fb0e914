"""Gradients of single graphs, clipped: against autograd one graph at a time, and by hand."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

from dataclasses import replace

from trellis.apps.gromov_wasserstein.graphs import Graph, undirected
from trellis.apps.gromov_wasserstein.model import clipping
from trellis.apps.gromov_wasserstein.model.clipping import clipped_sum, gradients
from trellis.apps.gromov_wasserstein.model.gnn import build_model, collate, load, nn, torch, weights
from trellis.apps.gromov_wasserstein.synthetic import CLASSES, synthetic_graphs


def some(count=9, seed=1):
    found = synthetic_graphs(count, np.random.default_rng(seed))
    lone = Graph(undirected([], 1), np.ones((1, 3)), 1, np.array([2]))
    bare = Graph(undirected([], 4), np.ones((4, 3)), 0, np.array([0, -1, 1, -1]))
    return [*found, lone, bare]


def model_of(name, task, seed=1):
    return build_model(name, 3, CLASSES, task, 5, seed=seed)


@pytest.mark.parametrize("name", ["gcn", "gin"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_one_backward_pass_gives_the_gradient_of_every_graph(name, task, monkeypatch):
    monkeypatch.setattr(clipping, "TOGETHER", 4)
    graphs, model = some(), model_of(name, task)
    start = weights(model)
    found = np.concatenate(gradients(model, graphs, start, task))
    for row, graph in zip(found, graphs, strict=True):
        load(model, start)
        one = collate([graph], task)
        _, logits = model(one.x, one.edge_index, one.batch)
        known = one.labels >= 0
        loss = nn.functional.cross_entropy(logits[known], one.labels[known])
        parts = torch.autograd.grad(loss, list(model.parameters()))
        np.testing.assert_allclose(
            row, np.concatenate([part.numpy().ravel() for part in parts]), atol=1e-12
        )


class Linear(nn.Module):
    """A model whose gradient is known: logits are W times the mean of the features."""

    def __init__(self, features: int, classes: int, task: str, width: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(classes, features))

    def forward(self, x, edge_index, batch):
        """Return rows and logits."""
        count = int(batch.max()) + 1
        mean = torch.stack([x[batch == k].mean(0) for k in range(count)])
        return x @ self.w.T, mean @ self.w.T


def test_a_model_of_one_s_own_gets_graphs_one_at_a_time_and_each_is_clipped():
    graphs = synthetic_graphs(6, np.random.default_rng(2))
    model = Linear(3, CLASSES, "graph", 3).double()
    each = []
    for graph in graphs:  # at W = 0: (softmax - one-hot) times the mean of the features
        error = np.full(CLASSES, 1.0 / CLASSES) - np.eye(CLASSES)[graph.label]
        each.append(np.outer(error, graph.features.astype(np.float64).mean(axis=0)).ravel())
    found = clipped_sum(model, graphs, weights(model), "graph", 0.3)
    norms = [np.linalg.norm(g) for g in each]
    assert min(norms) > 0.3
    expected = sum(0.3 * g / norm for g, norm in zip(each, norms, strict=True))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(
        clipped_sum(model, graphs, weights(model), "graph", 100.0), sum(each), atol=1e-12
    )


@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_graph_that_cannot_be_learned_from_adds_nothing_and_spoils_no_other(task):
    graphs, model = some(), model_of("gcn", task)
    start = weights(model)
    plain = clipped_sum(model, graphs, start, task, 1.0)
    n = graphs[0].nodes
    unknown = replace(graphs[0], label=-1, node_labels=np.full(n, -1))
    beyond = replace(graphs[0], label=CLASSES, node_labels=np.full(n, CLASSES))
    broken = replace(graphs[0])
    object.__setattr__(broken, "features", np.full((n, 3), np.nan))  # past what files allow
    without = clipped_sum(model, graphs[1:], start, task, 1.0)
    for odd in (unknown, beyond, broken):
        found = clipped_sum(model, [odd, *graphs[1:]], start, task, 1.0)
        np.testing.assert_allclose(found, without, atol=1e-12)
        assert np.linalg.norm(found - plain) <= 1.0 + 1e-9


class Fragile(Linear):
    """A model of one's own that fails where features are large."""

    def forward(self, x, edge_index, batch):
        """Return rows and logits."""
        if float(x.max()) > 1e5:
            raise ValueError("too large")
        return super().forward(x, edge_index, batch)


@pytest.mark.parametrize("model", ["own", "gcn"])
def test_a_graph_that_makes_a_model_fail_costs_no_other_its_gradient(model, monkeypatch):
    """Or one graph replaced would move the sum by what all the others add."""
    graphs = some()
    odd = replace(graphs[0], features=np.full((graphs[0].nodes, 3), 1e6))
    if model == "gcn":  # where all graphs go through one pass
        made, find = model_of("gcn", "graph"), clipping._row_by_row

        def fails(model, batch, task):
            if float(batch.x.max()) > 1e5:
                raise ValueError("too large")
            return find(model, batch, task)

        monkeypatch.setattr(clipping, "_row_by_row", fails)
    else:
        made = Fragile(3, CLASSES, "graph", 3).double()
    start = weights(made)
    without = clipped_sum(made, graphs[1:], start, "graph", 1.0)
    assert np.linalg.norm(without) > 0.1
    found = clipped_sum(made, [odd, *graphs[1:]], start, "graph", 1.0)
    np.testing.assert_allclose(found, without, atol=1e-12)


def test_a_gradient_whose_square_vanishes_keeps_to_the_bound():
    (tiny,) = synthetic_graphs(1, np.random.default_rng(2))
    # Past what files allow, where features are float32.
    object.__setattr__(tiny, "features", tiny.features.astype(np.float64) * 1e-170)
    model = Linear(3, CLASSES, "graph", 3).double()
    found = clipped_sum(model, [tiny], weights(model), "graph", 1e-200)
    assert 0.0 < np.max(np.abs(found)) <= 1e-200 * (1.0 + 1e-9)


def test_no_graphs_add_nothing():
    model = model_of("gcn", "graph")
    assert not clipped_sum(model, [], weights(model), "graph", 1.0).any()
