from __future__ import annotations

import sys
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from trellis.apps.common import plugins  # noqa: E402
from trellis.apps.common.settings import ConfigError  # noqa: E402
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig  # noqa: E402
from trellis.apps.gromov_wasserstein.graphs import Graph  # noqa: E402
from trellis.apps.gromov_wasserstein.model.gnn import (  # noqa: E402
    build_model,
    collate,
    load,
    repeatable,
    require_torch,
    weights,
)
from trellis.apps.gromov_wasserstein.model.training import embed  # noqa: E402

KINDS = [(name, task) for name in ("gcn", "gin") for task in ("node", "graph")]
EVERY = pytest.mark.parametrize(("name", "task"), KINDS)
FEATURES, CLASSES, WIDTH = 3, 4, 5


def random_graph(rng: np.random.Generator, n: int, density: float = 0.4) -> Graph:
    u, v = np.triu_indices(n, 1)
    chosen = rng.random(u.size) < density
    return Graph(
        edges=np.stack([u[chosen], v[chosen]], axis=1),
        features=rng.standard_normal((n, FEATURES)).astype(np.float32),
        label=int(rng.integers(CLASSES)),
        node_labels=rng.integers(CLASSES, size=n),
    )


def build(name: str, task: str, seed: int = 1):
    return build_model(name, FEATURES, CLASSES, task, WIDTH, seed=seed)


def numpy_of(model) -> dict[str, np.ndarray]:
    return {key: value.detach().numpy() for key, value in model.named_parameters()}


def relu(x):
    return np.maximum(x, 0.0)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def adjacency(graph: Graph) -> np.ndarray:
    A = np.zeros((graph.nodes, graph.nodes))
    A[tuple(graph.edges.T)] = 1.0
    return A + A.T


def gcn_by_hand(p, graph, task):
    """Return rows and prediction from dense matrices, D^-1/2 (A + I) D^-1/2 X W + b."""
    A = adjacency(graph) + np.eye(graph.nodes)
    d = A.sum(axis=1) ** -0.5
    S = d[:, None] * A * d
    z = relu(S @ graph.features @ p["first.lin.weight"].T + p["first.bias"])
    z = S @ z @ p["second.lin.weight"].T + p["second.bias"]
    if task == "node":
        return z, z
    rows = relu(z) @ p["head.rows.weight"].T + p["head.rows.bias"]
    return rows, (rows.mean(axis=0) @ p["head.logits.weight"].T + p["head.logits.bias"])[None]


def gin_by_hand(p, graph, task):
    """Return rows and prediction from dense matrices, mlp((A + I) X) five times."""
    A, z = adjacency(graph) + np.eye(graph.nodes), np.asarray(graph.features, np.float64)
    for layer in range(5):
        q = {k[len(f"layers.{layer}.nn.") :]: v for k, v in p.items() if f"layers.{layer}." in k}
        z = A @ z @ q["0.weight"].T + q["0.bias"]
        z = (z - z.mean(axis=1, keepdims=True)) / np.sqrt(z.var(axis=1, keepdims=True) + 1e-5)
        z = relu(z * q["1.weight"] + q["1.bias"])
        z = relu(z @ q["3.weight"].T + q["3.bias"])
    rows = z @ p["head.rows.weight"].T + p["head.rows.bias"]
    pooled = relu(rows) if task == "node" else relu(rows.sum(axis=0))[None]
    logits = pooled @ p["head.logits.weight"].T + p["head.logits.bias"]
    return (logits, logits) if task == "node" else (rows, logits)


@EVERY
def test_the_models_are_the_formulas_on_dense_matrices(name, task):
    model, graph = build(name, task), random_graph(np.random.default_rng(0), 9)
    made = model(*_inputs(graph))
    wanted = {"gcn": gcn_by_hand, "gin": gin_by_hand}[name](numpy_of(model), graph, task)
    for tensor, array in zip(made, wanted, strict=True):
        np.testing.assert_allclose(tensor.detach().numpy(), array, rtol=1e-9, atol=1e-10)


def _inputs(*graphs):
    batch = collate(list(graphs), "graph")
    return batch.x, batch.edge_index, batch.batch


@EVERY
def test_a_batch_gives_what_its_graphs_give_alone(name, task):
    rng = np.random.default_rng(1)
    graphs = [random_graph(rng, n) for n in (1, 6, 4)]
    model = build(name, task)
    rows, prediction = model(*_inputs(*graphs))
    alone = [model(*_inputs(graph)) for graph in graphs]
    torch.testing.assert_close(rows, torch.cat([a for a, _ in alone]), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(prediction, torch.cat([b for _, b in alone]), rtol=1e-10, atol=1e-12)
    assert rows.shape == (11, CLASSES if task == "node" else WIDTH)
    assert prediction.shape == (11 if task == "node" else 3, CLASSES)


@EVERY
@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 12), density=st.floats(0.0, 1.0), seed=st.integers(0, 1000))
def test_permuted_nodes_have_permuted_rows(name, task, n, density, seed):
    rng = np.random.default_rng(seed)
    graph, turn = random_graph(rng, n, density), rng.permutation(n)
    place = np.argsort(turn)  # node turn[k] of the one is node k of the other
    edges = np.unique(np.sort(place[graph.edges], axis=1), axis=0)
    other = Graph(edges, graph.features[turn])
    model = build(name, task, seed)
    first, second = embed(model, [graph, other])
    np.testing.assert_allclose(second, first[turn], atol=1e-12)


@EVERY
def test_rows_lie_in_the_simplex_also_without_edges_and_with_one_node(name, task):
    rng = np.random.default_rng(2)
    none = np.zeros((0, 2), np.int64)
    graphs = [
        Graph(none, np.ones((1, FEATURES), np.float32)),
        Graph(none, rng.standard_normal((5, FEATURES)).astype(np.float32)),
        Graph(np.array([[0, 1]]), 100 * rng.standard_normal((3, FEATURES)).astype(np.float32)),
    ]
    for graph, rows in zip(graphs, embed(build(name, task), graphs), strict=True):
        assert rows.dtype == np.float64
        assert rows.shape == (graph.nodes, CLASSES if task == "node" else WIDTH)
        assert rows.min() >= 0.0
        assert rows.max() <= 1.0
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-12)


@EVERY
def test_every_parameter_is_trained(name, task):
    # A layer outside the path to the prediction would keep its random start for ever.
    rng = np.random.default_rng(3)
    model = build(name, task)
    _, prediction = model(*_inputs(random_graph(rng, 8), random_graph(rng, 7)))
    prediction.square().sum().backward()
    dead = [k for k, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert dead == []


def test_edges_go_both_ways_and_later_graphs_are_shifted():
    one = Graph(np.array([[0, 1], [1, 2]]), np.ones((3, 1), np.float32), 5, np.array([0, -1, 2]))
    two = Graph(np.array([[0, 1]]), np.full((2, 1), 2.0, np.float32), -1, np.array([3, 4]))
    batch = collate([one, two], "node")
    assert batch.edge_index.tolist() == [[0, 1, 3, 1, 2, 4], [1, 2, 4, 0, 1, 3]]
    assert batch.batch.tolist() == [0, 0, 0, 1, 1]
    assert batch.labels.tolist() == [0, -1, 2, 3, 4]
    assert collate([one, two], "graph").labels.tolist() == [5, -1]


def test_graphs_that_do_not_go_together_are_named():
    none = np.zeros((0, 2), np.int64)
    graphs = [Graph(none, np.ones((2, f), np.float32), source=f"file {f}") for f in (3, 3, 2)]
    with pytest.raises(ValueError, match="file 2 has 2 features a node, file 3 has 3"):
        collate(graphs, "node")
    with pytest.raises(ValueError, match="no graphs"):
        collate([], "node")


@EVERY
def test_weights_go_out_and_in_without_loss(name, task):
    model, other = build(name, task, 1), build(name, task, 2)
    vector = weights(model)
    assert vector.dtype == np.float64
    assert not np.array_equal(vector, weights(other))
    load(other, vector)
    assert weights(other).tobytes() == vector.tobytes()
    with pytest.raises(ValueError, match=f"for a model with {vector.size}: server and client"):
        load(other, vector[:-1])


def test_loaded_weights_are_a_copy():
    model, vector = build("gcn", "node"), weights(build("gcn", "node", 2))
    read_only = np.frombuffer(vector.tobytes(), np.float64)
    load(model, read_only)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert np.count_nonzero(read_only)


def test_a_seed_makes_one_start_and_leaves_torch_as_it_was():
    torch.manual_seed(7)
    threads, before = torch.get_num_threads(), torch.get_rng_state()
    first, again, other = (weights(build("gin", "graph", seed)) for seed in (5, 5, 6))
    assert first.tobytes() == again.tobytes()
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    with repeatable(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads


def test_layers_have_the_papers_sizes():
    gcn, gin = build("gcn", "node"), build("gin", "node")
    assert tuple(gcn.first.lin.weight.shape) == (16, FEATURES)
    assert [tuple(layer.nn[3].weight.shape) for layer in gin.layers] == [(64, 64)] * 5
    narrow = build_model("gcn", FEATURES, CLASSES, "node", WIDTH, hidden=7)
    assert tuple(narrow.first.lin.weight.shape) == (7, FEATURES)


@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_nothing_but_parameters_changes_in_training(name):
    model = build(name, "graph")
    before = {k: v.clone() for k, v in model.named_buffers()}
    model.train()
    model(*_inputs(random_graph(np.random.default_rng(4), 6)))
    assert all(torch.equal(v, before[k]) for k, v in model.named_buffers())


@pytest.mark.parametrize(
    ("features", "classes", "reason"), [(0, 2, "features=0"), (3, 1, "classes=1: there is nothing")]
)
def test_sizes_that_cannot_be_learnt_are_refused(features, classes, reason):
    with pytest.raises(ConfigError, match=reason):
        build_model("gcn", features, classes, "node", 5)


class Good(torch.nn.Module):
    def __init__(self, features, classes, task, width):
        super().__init__()
        self.task = task
        self.rows = torch.nn.Linear(features, classes if task == "node" else width)
        self.out = torch.nn.Linear(width, classes)

    def forward(self, x, edge_index, batch):
        rows = self.rows(x)
        if self.task == "node":
            return rows, rows
        total = torch.zeros(int(batch.max()) + 1, rows.shape[1], dtype=x.dtype)
        return rows, self.out(total.index_add(0, batch, rows))


class NotAModule:
    pass


class OtherArguments(Good):
    def __init__(self, features, classes):
        super().__init__(features, classes, "node", 2)


class OtherForward(Good):
    def forward(self, data):
        return data


class OneOutput(Good):
    def forward(self, x, edge_index, batch):
        return self.rows(x)


class WrongShape(Good):
    def forward(self, x, edge_index, batch):
        rows = self.rows(x)
        return rows, rows[:, :-1]


class Broken(Good):
    def forward(self, x, edge_index, batch):
        raise RuntimeError("out of cheese")


class Single(Good):
    def forward(self, x, edge_index, batch):
        rows = self.rows(x).float()
        return rows, rows


class NotFinite(Good):
    def forward(self, x, edge_index, batch):
        rows = self.rows(x) / torch.bincount(edge_index[0], minlength=len(x))[:, None]
        return rows, rows


class Normalised(Good):
    def __init__(self, features, classes, task, width):
        super().__init__(features, classes, task, width)
        self.norm = torch.nn.BatchNorm1d(features)

    def forward(self, x, edge_index, batch):
        return super().forward(self.norm(x), edge_index, batch)


class Fixed(torch.nn.Module):
    def __init__(self, features, classes, task, width):
        super().__init__()

    def forward(self, x, edge_index, batch):
        return x[:, :1].repeat(1, 4), x[:, :1].repeat(1, 4)


@pytest.fixture
def mine():
    """Return the name under which one of the classes above is registered."""

    def registered(kind):
        plugins.register("models", kind.lower(), globals()[kind])
        return kind.lower()

    return registered


@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_model_of_ones_own_is_named_and_seeded(mine, task):
    first, again = (build(mine("Good"), task, seed=3) for _ in range(2))
    assert type(first) is Good
    assert weights(first).tobytes() == weights(again).tobytes()
    (rows,) = embed(first, [random_graph(np.random.default_rng(5), 6)])
    assert rows.shape == (6, CLASSES if task == "node" else WIDTH)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("NotAModule", "is no class of torch modules"),
        ("OtherArguments", r"cannot be called as OtherArguments\(features=, .*width=\).*'task'"),
        ("OtherForward", r"forward\(x, edge_index, batch\)"),
        ("OneOutput", "must return two tensors"),
        ("WrongShape", r"prediction of 4 nodes in 2 graphs have shape \(4, 3\), not \(4, 4\)"),
        ("Broken", "RuntimeError: out of cheese"),
        ("Single", "float64"),
        ("NotFinite", "lone node are not finite"),
        ("Normalised", "statistics of its data outside its parameters .norm"),
        ("Fixed", "no parameters"),
    ],
)
def test_a_model_that_would_fail_later_is_refused_now(mine, kind, reason):
    with pytest.raises(ConfigError, match=reason):
        build(mine(kind), "node")


@pytest.mark.parametrize("name", ["no_such_package.Model", "gat"])
def test_a_model_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError, match=f"model='{name}': use one of gcn, gin.*trellis.models"):
        build(name, "node")
    with pytest.raises(ConfigError, match=f"model='{name}': use one of gcn, gin.*trellis.models"):
        GromovWassersteinConfig(model=name)


def test_a_registered_model_runs_and_predicts(mine, tmp_path):
    import trellis
    from trellis.apps import run

    name = mine("Good")
    settings = {"clients": 3, "graphs": 9, "rounds": 1, "downstream": "none", "model": name}
    found = run("gromov-wasserstein", settings, report=False, out=tmp_path / "run")
    assert found.config["model"] == name
    assert trellis.load(tmp_path / "run").arrays["weights"].size


def test_without_torch_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"torch cannot.*pip install '\.\[gnn\]'"):
        require_torch()
    monkeypatch.delitem(sys.modules, "trellis.apps.gromov_wasserstein.model.gnn")
    with pytest.raises(ConfigError, match="pip install"):
        import_module("trellis.apps.gromov_wasserstein.model.gnn")
