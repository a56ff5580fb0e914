from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from trellis.apps.gromov_wasserstein.graphs import Graph  # noqa: E402
from trellis.apps.gromov_wasserstein.model.gnn import build_model, collate, load, weights  # noqa: E402
from trellis.apps.gromov_wasserstein.model.training import embed, evaluate, local_training  # noqa: E402

from .test_gnn import CLASSES, EVERY, FEATURES, WIDTH, random_graph  # noqa: E402

ADAM = {
    "epochs": 3,
    "batch": 0,
    "learning_rate": 0.01,
    "weight_decay": 5e-4,
    "proximal": 0.0,
    "rng_seed": 1,
}
ONE_STEP = {**ADAM, "epochs": 1, "learning_rate": 0.1, "optimiser": "sgd"}


def build(name="gcn", task="node", seed=1):
    return build_model(name, FEATURES, CLASSES, task, WIDTH, seed=seed)


def graphs(count=6, seed=0):
    rng = np.random.default_rng(seed)
    return [random_graph(rng, int(rng.integers(1, 9))) for _ in range(count)]


def train(model, some, task="node", start=None, **changes):
    start = weights(model) if start is None else start
    return local_training(model, some, start, task, **{**ADAM, **changes})


def loss_of(model, vector, some, task):
    """Return the mean loss of the labelled items at given weights, by torch."""
    load(model, vector)
    batch = collate(some, task)
    with torch.no_grad():
        _, logits = model(batch.x, batch.edge_index, batch.batch)
    p = torch.log_softmax(logits, dim=1).numpy()
    labels = batch.labels.numpy()
    known = np.flatnonzero(labels >= 0)
    return -float(np.mean(p[known, labels[known]]))


def numerical_gradient(model, start, some, task, at):
    """Return a few entries of the gradient by central differences."""
    found = []
    for j in at:
        step = np.zeros_like(start)
        step[j] = 1e-6
        up, down = (loss_of(model, start + s * step, some, task) for s in (1, -1))
        found.append((up - down) / 2e-6)
    return np.array(found)


@EVERY
def test_one_step_goes_down_the_numerical_gradient(name, task):
    model, some = build(name, task), graphs()
    start = weights(model)
    at = np.random.default_rng(0).choice(start.size, 12, replace=False)
    gradient = numerical_gradient(model, start, some, task, at) + 5e-4 * start[at]
    done = train(model, some, task, start, **ONE_STEP)
    np.testing.assert_allclose((start - done.weights)[at] / 0.1, gradient, atol=1e-6)
    assert done.loss == pytest.approx(loss_of(model, start, some, task), rel=1e-10)


@EVERY
def test_the_mean_of_clients_steps_is_the_step_on_their_pooled_graphs(name, task):
    model, some = build(name, task), graphs(9, seed=3)
    some[2] = replace(some[2], label=-1, node_labels=np.full(some[2].nodes, -1))
    start = weights(model)
    pooled = train(model, some, task, start, **ONE_STEP)
    parts = [some[:2], some[2:3], some[3:8], some[8:]]
    done = [train(model, part, task, start, **ONE_STEP) for part in parts]
    total = sum(d.count for d in done)
    mean = sum(d.count * d.weights for d in done) / total
    assert done[1].count == 0
    assert total == pooled.count
    assert np.linalg.norm(pooled.weights - start) > 1e-3
    np.testing.assert_allclose(mean, pooled.weights, atol=1e-12)
    assert sum(d.count * d.loss for d in done) / total == pytest.approx(pooled.loss)


def test_the_proximal_term_pulls_towards_the_start():
    model, some = build(), graphs()
    start = weights(model)
    settings = {"epochs": 2, "learning_rate": 0.1, "weight_decay": 0.0, "optimiser": "sgd"}
    first = train(model, some, start=start, **{**settings, "epochs": 1}).weights
    free = train(model, some, start=start, **settings).weights
    held = train(model, some, start=start, proximal=2.0, **settings).weights
    # The first step begins at w_0, where there is no pull; the second has mu (w_1 - w_0) more.
    np.testing.assert_allclose(held - free, -0.1 * 2.0 * (first - start), atol=1e-12)
    far, near = (train(model, some, start=start, epochs=30, proximal=mu) for mu in (0.0, 100.0))
    assert np.linalg.norm(near.weights - start) < 0.5 * np.linalg.norm(far.weights - start)


@EVERY
@pytest.mark.parametrize("batch", [0, 2])
def test_the_same_seed_gives_the_same_bits(name, task, batch):
    some = graphs()
    runs = [train(build(name, task), some, task, batch=batch) for _ in range(2)]
    assert runs[0].weights.tobytes() == runs[1].weights.tobytes()
    assert runs[0].loss == runs[1].loss
    rows = [np.concatenate(embed(build(name, task), some)) for _ in range(2)]
    assert rows[0].tobytes() == rows[1].tobytes()
    other = train(build(name, task), some, task, batch=batch, rng_seed=2)
    assert (other.weights.tobytes() == runs[0].weights.tobytes()) == (batch == 0)


class Dropping(torch.nn.Module):
    """A model that draws from torch's own generator, which is the process's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(FEATURES, CLASSES).double()

    def forward(self, x, edge_index, batch):
        rows = self.linear(torch.nn.functional.dropout(x, 0.5, self.training))
        return rows, rows


def test_draws_of_a_model_repeat_also_where_clients_share_a_process():
    some, start = graphs(), weights(Dropping())
    long = {"start": start, "epochs": 60}
    alone = [train(Dropping(), some, **long, rng_seed=seed).weights for seed in range(4)]
    found: dict[int, np.ndarray] = {}
    models = [Dropping() for _ in range(4)]  # before: to make one draws too, `build_model` waits

    def work(seed):
        found[seed] = train(models[seed], some, **long, rng_seed=seed).weights

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not np.array_equal(alone[0], alone[1])
    assert [found[s].tobytes() for s in range(4)] == [a.tobytes() for a in alone]


def test_embeddings_and_scores_are_without_dropout():
    (graph,), model = graphs(1, seed=4), Dropping().train()
    with torch.no_grad():
        wanted = torch.softmax(model.linear(torch.tensor(graph.features).double()), dim=1).numpy()
    np.testing.assert_allclose(embed(model, [graph])[0], wanted, atol=1e-14)
    model.train()
    hits = np.count_nonzero(wanted.argmax(axis=1) == graph.node_labels)
    score = evaluate(model, [graph], "node", {"all": np.ones(graph.nodes, bool)})["all"]
    assert score.correct == hits
    assert score.loss_sum == pytest.approx(
        -np.log(wanted[np.arange(graph.nodes), graph.node_labels]).sum()
    )


@pytest.mark.parametrize("task", ["node", "graph"])
def test_unlabelled_and_masked_items_count_for_nothing(task):
    some = graphs(5, seed=1)
    mask = np.zeros(sum(g.nodes for g in some) if task == "node" else 5, bool)
    mask[::2] = True
    model = build("gin", task)
    start = weights(model)
    by_mask = train(model, some, task, start, mask=mask, batch=2)
    blanked, at = [], 0
    for graph in some:
        if task == "node":
            keep, at = mask[at : at + graph.nodes], at + graph.nodes
            labels = np.where(keep, graph.node_labels, -1)
            blanked.append(replace(graph, node_labels=labels))
        else:
            keep, at = mask[at], at + 1
            blanked.append(graph if keep else replace(graph, label=-1))
    by_label = train(model, blanked, task, start, batch=2)
    assert by_mask.weights.tobytes() == by_label.weights.tobytes()
    assert by_mask.count == by_label.count == np.count_nonzero(mask)
    everything = train(model, some, task, start, batch=2)
    assert everything.count == mask.size
    assert not np.array_equal(everything.weights, by_mask.weights)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_client_without_labels_returns_the_start_with_count_zero(task):
    model = build("gcn", task)
    start = weights(model)
    bare = [replace(g, label=-1, node_labels=np.full(g.nodes, -1)) for g in graphs()]
    for some in (bare, []):
        done = train(model, some, task, start)
        assert done.weights.tobytes() == start.tobytes()
        assert (done.count, done.loss) == (0, 0.0)


@EVERY
def test_training_learns_what_can_be_learnt(name, task):
    rng = np.random.default_rng(5)
    some = []
    for k in range(24):
        n, label = int(rng.integers(3, 8)), k % 2
        features = rng.standard_normal((n, FEATURES)) + 3.0 * label
        edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
        some.append(Graph(edges, features.astype(np.float32), label, np.full(n, label)))
    model = build_model(name, FEATURES, 2, task, WIDTH)
    items = 24 if task == "graph" else sum(g.nodes for g in some)
    masks = {"train": np.ones(items, bool)}
    before = evaluate(model, some, task, masks)["train"]
    # Five layers do not bear the step that two do: Adam moves every weight by about this much.
    train(model, some, task, epochs=60, batch=8, learning_rate=0.01 if name == "gcn" else 0.001)
    after = evaluate(model, some, task, masks)["train"]
    assert after.accuracy > 0.95
    assert after.loss_sum < 0.5 * before.loss_sum


@pytest.mark.parametrize("task", ["node", "graph"])
def test_scores_are_counts_over_labelled_items_of_a_mask(task):
    model, some = build("gin", task), graphs(7, seed=2)
    some[3] = replace(some[3], label=-1, node_labels=np.full(some[3].nodes, -1))
    batch = collate(some, task)
    with torch.no_grad():
        logits = model(batch.x, batch.edge_index, batch.batch)[1].numpy()
    labels = batch.labels.numpy()
    split = np.arange(labels.size) % 3
    masks = {name: split == k for k, name in enumerate(("train", "validation", "test"))}
    scores = evaluate(model, some, task, masks)
    for name, mask in masks.items():
        known = mask & (labels >= 0)
        hits = logits[known].argmax(axis=1) == labels[known]
        assert scores[name].count == known.sum()
        assert scores[name].correct == hits.sum()
        assert scores[name].accuracy == hits.mean()
    nobody = evaluate(model, some, task, {"none": np.zeros(labels.size, bool)})["none"]
    assert (nobody.count, nobody.correct, nobody.loss_sum) == (0, 0, 0.0)
    assert np.isnan(nobody.accuracy)


def test_wrong_masks_and_labels_and_diverging_steps_are_named():
    model, some = build(), graphs(3)
    nodes = sum(g.nodes for g in some)
    with pytest.raises(ValueError, match=rf"mask test: bool of shape \(2,\).*\({nodes},\)"):
        evaluate(model, some, "node", {"test": np.ones(2, bool)})
    with pytest.raises(ValueError, match="mask: int64"):
        train(model, some, mask=np.ones(nodes, np.int64))
    wrong = [replace(some[0], node_labels=np.full(some[0].nodes, CLASSES + 2))]
    for call in (train, lambda m, g: evaluate(m, g, "node", {"a": np.ones(g[0].nodes, bool)})):
        with pytest.raises(ValueError, match=f"label is {CLASSES + 2}.*set classes={CLASSES + 3}"):
            call(model, wrong)
    with pytest.raises(ValueError, match=r"diverged.*lower learning-rate=1e\+200"):
        train(model, some, epochs=5, learning_rate=1e200, optimiser="sgd")


def test_an_embedding_depends_on_no_other_graph():
    class Mixing(Dropping):
        def forward(self, x, edge_index, batch):
            rows = self.linear(x - x.mean(dim=0))  # over the whole batch
            return rows, rows

    some, model = graphs(4), Mixing()
    for alone, among in zip((embed(model, [g])[0] for g in some), embed(model, some), strict=True):
        assert alone.tobytes() == among.tobytes()
