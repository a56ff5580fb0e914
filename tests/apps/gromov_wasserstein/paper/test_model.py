"""Models of the paper's experiments see the labels they may see, of the graphs they may see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from tests.apps.datasets import needs
from trellis.apps.gromov_wasserstein.graphs import labels_of
from trellis.apps.gromov_wasserstein.paper import model as paper_model

from .samples import FAST, two_classes


def test_no_model_of_graph_labels_embeds_a_graph_whose_label_it_saw(monkeypatch):
    graphs = two_classes(24)
    seen: list[set[str]] = []
    real = paper_model.federated_model

    def spy(config, given, classes, seed):
        seen.append({graph.source for graph in given})
        return real(config, given, classes, seed)

    monkeypatch.setattr(paper_model, "federated_model", spy)
    parts = paper_model.embedded(replace(FAST, task="graph"), graphs, 1)
    assert sorted(np.concatenate([part.places for part in parts])) == list(range(24))
    for part, trained_on in zip(parts, seen, strict=True):
        assert not trained_on & {graphs[place].source for place in part.places}
        np.testing.assert_array_equal(part.labels, labels_of(graphs)[part.places])


def test_labels_of_graphs_do_not_reach_the_model_of_node_labels():
    # With one client nothing is dealt by label, so any difference would be a leak.
    graphs = two_classes(6)
    config = replace(FAST, clients=1)
    turned = [replace(graph, label=1 - graph.label) for graph in graphs]
    first, second = (paper_model.embedded(config, given, 1)[0] for given in (graphs, turned))
    for a, b in zip(first.rows, second.rows, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_fedavg_in_one_round_is_the_mean_of_what_clients_learn_by_their_items():
    graphs = two_classes(8)
    config = replace(FAST, rounds=1, local_epochs=2)
    found = paper_model.weights(paper_model.federated_model(config, graphs, 3, 1))
    rng = paper_model.generator(1, "split")
    dealt = paper_model.dirichlet_split(labels_of(graphs), 3, 1.0, rng)
    draw = int(paper_model.generator(1, "model").integers(2**62))
    each, items = [], []
    for client, part in enumerate(dealt):
        model = paper_model.build_model("gcn", 3, 3, "node", 16, seed=draw)
        own = [graphs[place] for place in part]
        seed = int(paper_model.generator(1, "training", client, 1).integers(2**62))
        start = paper_model.weights(model)
        done = paper_model.local_training(
            model, own, start, "node", 2, 0, config.rate, config.weight_decay, 0.0, seed
        )
        each.append(done.weights)
        items.append(sum(graph.nodes for graph in own))
    np.testing.assert_allclose(found, np.average(each, axis=0, weights=items), rtol=1e-12)


@needs("CiteSeer")
def test_compared_subgraphs_of_citeseer_have_centres_no_model_saw():
    training, others = paper_model.neighbourhoods("CiteSeer", 30, 1)
    known = {
        graph.features[node].tobytes()
        for graph in training
        for node in np.flatnonzero(graph.node_labels >= 0)
    }
    assert len(others) == 30
    assert all(graph.label >= 0 for graph in others)
    assert not any(graph.features[0].tobytes() in known for graph in others)


@needs("MUTAG")
def test_a_sample_of_mutag_is_the_same_every_time():
    first, second = (paper_model.collection("MUTAG", 20) for _ in range(2))
    assert [graph.source for graph in first] == [graph.source for graph in second]
    assert len(first) == 20
    assert len(paper_model.collection("MUTAG")) == 188


@needs("PubMed")
def test_subgraphs_of_all_training_nodes_are_there_where_no_number_is_given():
    training, same = paper_model.neighbourhoods("PubMed", 0, 1)
    assert [graph.nodes for graph in training] == [graph.nodes for graph in same]
    assert len(same) == 60
    assert all(graph.label >= 0 for graph in same)
