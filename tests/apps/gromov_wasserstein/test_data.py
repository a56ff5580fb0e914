"""Clients have the graphs they should, whoever asks, and agree on what they are made of."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from trellis import apps
from trellis.apps.common.node import Node, data_stamp
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.data import (
    MOST_DEGREE,
    class_count,
    client_graphs,
    client_split,
    feature_count,
    split,
    split_counts,
    variables,
)
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.graphs import Graph, undirected
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.strategies.core.enrolment import Client, Heard, judged

from .graph_files import planetoid, tiny

STUDY = "gromov-wasserstein"


def config(**settings) -> GromovWassersteinConfig:
    return GromovWassersteinConfig(**{"clients": 3} | settings)


def device(path: Path) -> Node:
    return Node(path.stem, -1, path, None, False)


def simulated(folder: Path | None, partition: int) -> Node:
    node_config = {"simulation": True, "partition-id": partition}
    run_config = {"data": "" if folder is None else str(folder)}
    return Node.of(Context(1, 1, node_config, RecordDict(), run_config))


def all_graphs(folder: Path | None, settings: GromovWassersteinConfig, seed: int = 1):
    return [client_graphs(settings, seed, simulated(folder, k)) for k in range(settings.clients)]


def fingerprint(graph: Graph) -> bytes:
    return graph.edges.tobytes() + graph.features.tobytes() + bytes([graph.label + 1])


def many_rings(folder: Path, count: int, **files) -> Path:
    """Write ``count`` graphs, number k a ring of 3 + k nodes, with labels k mod 2."""
    edges, owners, start = [], [], 1
    for k in range(count):
        n = 3 + k
        for i in range(n):
            u, v = start + i, start + (i + 1) % n
            edges += [f"{u}, {v}", f"{v}, {u}"]
        owners += [str(k + 1)] * n
        start += n
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "A": "\n".join(edges),
        "graph_indicator": "\n".join(owners),
        "graph_labels": "\n".join(str(k % 2) for k in range(count)),
    } | files
    for name, text in texts.items():
        (folder / f"RINGS_{name}.txt").write_text(text)
    return folder


# Synthetic


def test_ten_clients_have_six_synthetic_graphs_each_by_default():
    settings = GromovWassersteinConfig()
    found = all_graphs(None, settings)
    assert [len(graphs) for graphs in found] == [6] * 10
    assert len({fingerprint(g) for graphs in found for g in graphs}) == 60
    again = client_graphs(settings, 1, simulated(None, 4))
    assert list(map(fingerprint, again)) == list(map(fingerprint, found[4]))
    other = client_graphs(settings, 2, simulated(None, 4))
    assert list(map(fingerprint, other)) != list(map(fingerprint, found[4]))


def test_fewer_synthetic_graphs_than_clients_are_refused():
    with pytest.raises(ConfigError, match="graphs=2: fewer than clients=3"):
        client_graphs(config(graphs=2), 1, simulated(None, 0))
    assert [len(graphs) for graphs in all_graphs(None, config(graphs=4))] == [2, 1, 1]


def test_a_client_beyond_the_last_is_refused():
    with pytest.raises(DataError, match="partition 3: clients are 0 to 2"):
        client_graphs(config(), 1, simulated(None, 3))


# One data set for all


def test_a_data_set_is_dealt_whole_and_once(tmp_path):
    folder = many_rings(tmp_path / "raw", 20).parent
    settings = config(clients=6, dirichlet=0.3)
    found = all_graphs(folder, settings)
    assert sorted(g.nodes for graphs in found for g in graphs) == list(range(3, 23))
    assert min(map(len, found)) >= 1
    again = all_graphs(folder, settings, seed=2)
    assert [len(g) for g in again] != [len(g) for g in found]
    with pytest.raises(DataError, match=f"{folder}: 20 graphs for clients=21"):
        all_graphs(folder, config(clients=21))


def test_graphs_without_features_get_their_degrees(tmp_path):
    (graphs,) = all_graphs(many_rings(tmp_path, 4), config(clients=1))
    for graph in graphs:
        assert graph.features.shape == (graph.nodes, MOST_DEGREE + 1)
        assert (graph.features.argmax(axis=1) == 2).all()


def test_a_citation_graph_is_dealt_in_neighbourhoods(tmp_path):
    settings = config(clients=3, centres=4, hops=2)
    found = [g for graphs in all_graphs(planetoid(tmp_path), settings) for g in graphs]
    # The path's first four nodes are the training nodes: 2 steps reach 3, 4, 5 and 5 nodes.
    assert sorted(g.nodes for g in found) == [3, 4, 5, 5]
    assert all(g.label == g.node_labels[0] for g in found)
    more = [g for graphs in all_graphs(tmp_path, config(centres=9)) for g in graphs]
    assert len(more) == 9
    with pytest.raises(ConfigError, match=r"centres=506: .*ind.small has 505 nodes"):
        client_graphs(config(centres=506), 1, simulated(tmp_path, 0))


def test_a_data_set_that_changes_is_read_anew(tmp_path):
    many_rings(tmp_path, 5)
    node = simulated(tmp_path, 0)
    before = data_stamp(node)
    assert len(client_graphs(config(clients=1), 1, node)) == 5
    many_rings(tmp_path, 4)
    labels = tmp_path / "RINGS_graph_labels.txt"
    assert data_stamp(node) != before
    assert len(client_graphs(config(clients=1), 1, node)) == 4
    before = data_stamp(node)
    os.utime(labels, ns=(1, 1))
    assert data_stamp(node) != before


# A client's own


def test_a_folder_may_hold_one_file_a_client(tmp_path):
    graphs = synthetic_graphs(6, np.random.default_rng(1))
    write_graphs(tmp_path / "b.npz", graphs[:2])
    write_graphs(tmp_path / "a.npz", graphs[2:])
    node = simulated(tmp_path, 0)
    assert (node.name, node.shared) == ("a", False)
    found = client_graphs(config(clients=2), 1, node)
    assert list(map(fingerprint, found)) == list(map(fingerprint, graphs[2:]))


def test_a_folder_may_hold_one_folder_a_client(tmp_path):
    many_rings(tmp_path / "north", 3)
    many_rings(tmp_path / "south" / "raw", 5)
    (tmp_path / "notes").mkdir()
    nodes = [simulated(tmp_path, k) for k in range(2)]
    assert [(n.name, n.shared) for n in nodes] == [("north", False), ("south", False)]
    assert [len(client_graphs(config(clients=2), 1, n)) for n in nodes] == [3, 5]
    with pytest.raises(DataError, match="2 files, none for partition 2"):
        simulated(tmp_path, 2)


def test_a_device_keeps_all_graphs_of_its_folder(tmp_path):
    folder = many_rings(tmp_path / "own", 7)
    node_config = {"data-path": str(folder)}
    node = Node.of(Context(1, 1, node_config, RecordDict(), {"data": "/server"}))
    assert (node.simulated, node.shared, node.name) == (False, False, "own")
    assert [g.nodes for g in client_graphs(config(), 1, node)] == list(range(3, 10))
    (tmp_path / "big").mkdir()
    big = device(planetoid(tmp_path / "big"))
    first = client_graphs(config(centres=9), 1, big)
    # The server's seed has no say in which nodes a device takes.
    second = client_graphs(config(centres=9), 2, big)
    assert list(map(fingerprint, first)) == list(map(fingerprint, second))


@pytest.mark.parametrize("name", ["table.csv", "nowhere"])
def test_what_holds_no_graphs_is_refused_with_what_does(tmp_path, name):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=f"{name}: no graphs; an npz file, or a folder"):
        client_graphs(config(), 1, device(tmp_path / name))


def test_odd_graphs_of_a_device_are_graphs(tmp_path):
    odd = [Graph(undirected(e, n), np.ones((n, 2))) for e, n in (([], 1), ([], 3))]
    odd.append(Graph(undirected([[0, 1], [1, 0], [2, 3], [3, 2]], 5), np.ones((5, 2))))
    write_graphs(tmp_path / "odd.npz", odd)
    found = client_graphs(config(), 1, device(tmp_path / "odd.npz"))
    assert [(g.nodes, len(g.edges)) for g in found] == [(1, 0), (3, 0), (5, 2)]
    assert class_count(config(task="graph"), found) == class_count(config(), found) == 0


# Splits


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, (1, 0, 0)), (2, (2, 0, 0)), (3, (2, 1, 0)), (5, (3, 1, 1)), (6, (4, 1, 1)),
     (10, (7, 2, 1)), (188, (131, 38, 19))],
)  # fmt: skip
def test_a_split_is_seven_two_one(count, sizes):
    parts = split(count, np.random.default_rng(3))
    found = (parts.train, parts.validation, parts.test)
    assert tuple(map(len, found)) == sizes
    assert sorted(np.concatenate(found).tolist()) == list(range(count))


def test_a_device_splits_by_its_secret_and_a_simulation_by_its_seed(tmp_path):
    graphs = synthetic_graphs(40, np.random.default_rng(1))
    others = synthetic_graphs(40, np.random.default_rng(2))

    def test_places(graphs, seed, node, privacy="dp"):
        return client_split(config(privacy=privacy), graphs, seed, node).test.tolist()

    real = replace(device(tmp_path), state_path=tmp_path / "state")
    first, second = simulated(None, 0), simulated(None, 1)
    assert test_places(graphs, 1, real) == test_places(graphs, 2, real)
    # No graph decides which others are learned from.
    assert test_places(graphs, 1, real) == test_places(others, 1, real)
    assert test_places(graphs, 1, first) == test_places(others, 1, first)
    assert test_places(graphs, 1, first) != test_places(graphs, 2, first)
    assert test_places(graphs, 1, first) != test_places(graphs, 1, second)
    another = replace(real, state_path=tmp_path / "another")
    assert test_places(graphs, 1, real) != test_places(graphs, 1, another)
    # Without privacy the same graphs score the result on every runtime.
    placed = replace(real, partition=0)
    assert test_places(graphs, 1, placed, "none") == test_places(graphs, 1, first, "none")
    assert test_places(graphs, 1, placed, "none") != test_places(graphs, 2, placed, "none")


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 188])
@pytest.mark.parametrize("held_out", [0.01, 0.3, 0.9])
def test_graphs_are_held_out_and_one_is_left_to_train_with(count, held_out):
    parts = split(count, np.random.default_rng(3), held_out)
    found = (parts.train, parts.validation, parts.test)
    assert tuple(map(len, found)) == split_counts(count, held_out)
    assert sorted(np.concatenate(found).tolist()) == list(range(count))
    assert len(parts.train) >= 1
    if count >= 10:
        assert len(parts.test) == min(int(held_out * count + 0.5), count - 1)


# What clients have to agree on


def test_the_largest_label_tells_how_many_classes_there_are():
    def of(label, node_labels):
        n = len(node_labels)
        return Graph(np.empty((0, 2), int), np.ones((n, 1)), label, node_labels, f"graph {label}")

    graphs = [of(0, [0, 4]), of(-1, [-1, 1]), of(2, [0])]
    assert class_count(config(task="node"), graphs) == 5
    assert class_count(config(task="graph"), graphs) == 3
    assert class_count(config(task="graph", classes=3), graphs) == 3
    with pytest.raises(DataError, match="graph 2: label 2 of a graph, but classes=2 leaves 0 to 1"):
        class_count(config(task="graph", classes=2), graphs)
    with pytest.raises(DataError, match="graph 0: label 4 of a node"):
        class_count(config(task="node", classes=4), graphs)


def test_clients_with_other_features_are_refused_by_name():
    def client(name, width):
        graphs = [Graph(np.empty((0, 2), int), np.ones((2, width)))]
        return Client(name, -1, 1, variables(config(classes=2), graphs), 1)

    north, south = client("north", 3), client("south", 4)
    assert north.variables == ["feature 1", "feature 2", "feature 3", "class 1", "class 2"]
    assert [feature_count(c.variables) for c in (north, south)] == [3, 4]
    assert not judged(Heard([north, client("west", 3)])).reasons
    found = judged(Heard([north, south]))
    assert found.clients == [north]
    assert "south has other variables than north" in found.reasons[0]
    assert "adds 'feature" in found.reasons[0]


# The folder in the command


@pytest.fixture
def _registered(monkeypatch):
    monkeypatch.setitem(apps.STUDIES, STUDY, "trellis.apps.gromov_wasserstein")


@pytest.mark.usefixtures("_registered")
def test_the_number_of_clients_comes_from_the_files_or_the_setting(tmp_path):
    def clients(folder, **settings):
        return make_run_config(STUDY, settings, data=folder)[f"{STUDY}.clients"]

    shared = tiny_in(tmp_path / "shared")
    assert clients(shared) == GromovWassersteinConfig().clients
    assert clients(shared, clients=2) == 2
    for name in ("a", "b", "c"):
        tiny_in(tmp_path / "each" / name)
    assert clients(tmp_path / "each") == 3
    with pytest.raises(ConfigError, match=r"clients=4: .* holds 3 files"):
        clients(tmp_path / "each", clients=4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no .csv or .npz file"):
        clients(tmp_path / "empty")


def test_other_studies_refuse_a_folder_of_graphs_as_before(tmp_path):
    tiny_in(tmp_path / "set")
    for folder in (tmp_path, tmp_path / "set"):
        with pytest.raises(DataError, match=r"no .csv or .npz file; put one file per client there"):
            make_run_config("consensus-graph", data=folder)


def test_files_of_clients_come_before_a_data_set_beside_them(tmp_path):
    write_graphs(tiny_in(tmp_path) / "own.npz", synthetic_graphs(2, np.random.default_rng(1)))
    node = simulated(tmp_path, 0)
    assert (node.name, node.shared) == ("own", False)


def tiny_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return tiny(folder)
