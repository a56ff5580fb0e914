"""Training without messages is training through messages, to the bit."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric")

from trellis.apps import run
from trellis.apps.common.node import Node
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.data import class_count, client_graphs, client_split, variables
from trellis.apps.gromov_wasserstein.model.gnn import build_model, load
from trellis.apps.gromov_wasserstein.model.update import client_hits
from trellis.apps.gromov_wasserstein.server_app import first_model
from trellis.apps.gromov_wasserstein.simulate import federated_weights
from trellis.strategies.core.declared import Client
from trellis.strategies.gromov_wasserstein.strategy import SPLITS

SMALL = {"clients": 4, "graphs": 22, "rounds": 3, "local-epochs": 2, "downstream": "none"}
SEED = 3


class Federation:
    """What the clients and the server of a run have before the first round."""

    def __init__(self, config: GromovWassersteinConfig, seed: int) -> None:
        nodes = [Node(f"c{k}", k, None, None, True) for k in range(config.clients)]
        self.graphs = [client_graphs(config, seed, node) for node in nodes]
        self.splits = [
            client_split(config, own, seed, n) for own, n in zip(self.graphs, nodes, strict=True)
        ]
        names = variables(config, self.graphs[0])
        known = [
            Client(node.name, node.partition, len(own), names, 1, classes=class_count(config, own))
            for node, own in zip(nodes, self.graphs, strict=True)
        ]
        self.first = first_model(config, seed, known)
        width = self.graphs[0][0].features.shape[1]
        self.model = build_model(config.model, width, self.first.classes, config.task, config.width)

    def trained_with(self):
        pairs = zip(self.graphs, self.splits, strict=True)
        return [[own[place] for place in split.train] for own, split in pairs]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task": "graph", "model": "gin", "width": 6},
        {"method": "fedprox", "proximal": 2.0, "batch": 2},
    ],
    ids=str,
)
def test_both_end_at_the_same_weights(settings):
    chosen = {**SMALL, **settings}
    config = GromovWassersteinConfig.from_settings(chosen)
    real = run("gromov-wasserstein", chosen, seed=SEED, report=False)
    here = Federation(config, SEED)
    clients, start = here.trained_with(), here.first.weights
    found = federated_weights(here.model, clients, start, config, SEED)
    assert found.tobytes() == real.arrays["weights"].tobytes()
    other = federated_weights(here.model, clients, start, config, SEED + 1)
    # The seed orders batches: of one batch there is nothing to order.
    assert (other.tobytes() == found.tobytes()) == (config.batch == 0)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_hits_are_told_in_the_server_s_order_of_parts(task):
    # Nine graphs a client: six to train with, two for validation, one for test.
    chosen = {**SMALL, "task": task, "rounds": 1, "graphs": 36}
    config = GromovWassersteinConfig.from_settings(chosen)
    told = run("gromov-wasserstein", chosen, seed=SEED, report=False).metrics[0]
    here = Federation(config, SEED)
    load(here.model, here.first.weights)
    each = [
        client_hits(here.model, own, split, task)
        for own, split in zip(here.graphs, here.splits, strict=True)
    ]
    total = {key: sum(hits[key] for hits in each) for key in each[0]}
    for name in SPLITS:
        places = [getattr(split, name) for split in here.splits]
        parts = [[own[i] for i in part] for own, part in zip(here.graphs, places, strict=True)]
        assert total[f"{name}-items"] == sum(
            graph.nodes if task == "node" else 1 for part in parts for graph in part
        )
        assert told[f"{name}-accuracy"] == total[f"{name}-correct"] / total[f"{name}-items"]
    assert len({total[f"{name}-items"] for name in SPLITS}) == len(SPLITS)
