"""Synthetic clients have the law they claim; every client has one server and one cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import (
    client_table,
    cluster_of,
    server_of,
    synthetic_table,
    synthetic_truth,
)
from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError


def config(**options) -> ClusterAdmmConfig:
    return ClusterAdmmConfig(**options)


def made(partition: int) -> Node:
    return Node(f"client-{partition + 1}", partition, None, None, True)


def file_node(path: Path, partition: int = -1) -> Node:
    return Node(path.stem, partition, path, None, False)


def context_of(**node_config) -> Context:
    return Context(1, 1, node_config, RecordDict(), {})


def test_true_models_are_multiples_of_one_base():
    scales = []
    for seed in range(200):
        models = synthetic_truth(config(), seed).models
        assert models.shape == (3, 60)
        assert np.linalg.matrix_rank(models) == 1
        common = synthetic_truth(config(similarity=0.0), seed).models[0]
        scales.extend(models @ common / (common @ common) - 1.0)
    scales = np.array(scales)
    assert 0.145 < scales.max() <= 0.15
    assert -0.15 <= scales.min() < -0.145
    assert abs(scales.mean()) < 0.015
    np.testing.assert_allclose(scales.std(), 0.3 / np.sqrt(12.0), rtol=0.06)


def test_clients_are_split_evenly_and_at_random():
    first, second = (synthetic_truth(config(clients=151), seed).clusters for seed in (1, 2))
    assert sorted(np.bincount(first)) == [50, 50, 51]
    assert np.any(first != second)
    assert np.any(np.diff(first[:20]) != 1)
    np.testing.assert_array_equal(first, synthetic_truth(config(clients=151), 1).clusters)


def test_samples_have_the_paper_s_law():
    settings = config(features=5, samples="30000", noise=0.5, clients=6)
    truth = synthetic_truth(settings, 4)
    for k in range(2):
        table = synthetic_table(settings, 4, k)
        np.testing.assert_allclose(np.cov(table.X.T), np.eye(5), atol=0.03)
        rest = table.y - table.X @ truth.models[truth.clusters[k]]
        assert abs(rest.mean()) < 0.015
        assert rest.std() == pytest.approx(0.5, rel=0.02)
        np.testing.assert_allclose(table.X.T @ rest / 30000, 0.0, atol=0.015)


def test_labels_have_logistic_probabilities():
    settings = config(loss="logistic", features=2, samples="60000", clusters="1", clients=2)
    table = synthetic_table(settings, 3, 0)
    margin = table.X @ synthetic_truth(settings, 3).models[0]
    assert set(table.y) == {-1.0, 1.0}
    for low in (-1.5, -0.5, 0.5):
        inside = (margin > low) & (margin < low + 0.2)
        expected = np.mean(1.0 / (1.0 + np.exp(-margin[inside])))
        assert np.mean(table.y[inside] > 0) == pytest.approx(expected, abs=0.04)


def test_the_numbers_of_samples_fill_their_range():
    counts = [len(synthetic_table(config(clients=400), 1, k).y) for k in range(400)]
    assert set(counts) == set(range(2, 10))
    assert np.bincount(counts)[2:].min() > 25


def test_a_seed_gives_the_same_clients_and_every_client_its_own():
    first = client_table(config(), 1, made(3))
    np.testing.assert_array_equal(first.X, synthetic_table(config(), 1, 3).X)
    other = synthetic_table(config(), 1, 4)
    assert not np.any(first.X[0] == other.X[0])
    assert not np.any(first.X[0] == synthetic_table(config(), 2, 3).X[0])
    assert first.columns[0] == "x01"
    with pytest.raises(DataError, match="the clients are 0 to 149"):
        synthetic_table(config(), 1, 150)


def test_servers_have_contiguous_clients_and_fedavg_has_one_server():
    servers = [server_of(config(), made(k), context_of()) for k in range(150)]
    assert servers == sorted(servers)
    assert np.bincount(servers).tolist() == [15] * 10
    assert server_of(config(method="fedavg"), made(149), context_of()) == 0
    assert server_of(config(), made(149), context_of(server=2)) == 2


def test_a_synthetic_client_s_cluster_is_the_truth_s():
    clusters = [cluster_of(config(), 5, made(k), context_of()) for k in range(150)]
    np.testing.assert_array_equal(clusters, synthetic_truth(config(), 5).clusters)
    auto = config(clusters="auto:3")
    assert cluster_of(auto, 5, made(1), context_of(cluster=2)) == -1


@pytest.fixture
def ward(tmp_path) -> Path:
    path = tmp_path / "ward.csv"
    path.write_text("a,y\n1,0.5\n2,1\n")
    return path


def test_a_file_s_cluster_comes_from_its_node_config_or_the_table(ward):
    node = file_node(ward)
    assert cluster_of(config(), 1, node, context_of(cluster=2)) == 2
    (ward.parent / "assignment.csv").write_text("client,server,cluster\nother,0,0\nward,7,1\n")
    assert cluster_of(config(), 1, node, context_of()) == 1
    assert server_of(config(), node, context_of()) == 7
    assert cluster_of(config(), 1, node, context_of(cluster=0)) == 0


def test_a_cluster_that_is_not_there_is_refused_by_name(ward):
    node = file_node(ward)
    for wrong in (3, -1, "x", True, 1.5):
        with pytest.raises(DataError, match="the 3 clusters are numbered from 0 to 2") as caught:
            cluster_of(config(), 1, node, context_of(cluster=wrong))
        assert "ward" in str(caught.value)
    table = ward.parent / "assignment.csv"
    table.write_text("client,cluster\nward,3\n")
    with pytest.raises(DataError, match=r"assignment.csv: row 1: cluster='3'"):
        cluster_of(config(), 1, node, context_of())
    table.write_text("client,cluster\nward,1\nward.csv,1\n")
    with pytest.raises(DataError, match="stands there 2 times"):
        cluster_of(config(), 1, node, context_of())
    table.write_text("client,server\nward,1\n")
    with pytest.raises(DataError, match="needs the columns client and cluster"):
        cluster_of(config(), 1, node, context_of())


def test_where_nothing_tells_only_methods_that_need_no_cluster_go_on(ward):
    node = file_node(ward)
    with pytest.raises(DataError, match="clusters=auto:3"):
        cluster_of(config(), 1, node, context_of())
    for settings in ({"clusters": "1"}, {"method": "gfl"}, {"method": "local"}):
        assert cluster_of(config(**settings), 1, node, context_of()) == 0
    (ward.parent / "assignment.csv").write_text("client,server\nward,1\n")
    assert cluster_of(config(method="gfl"), 1, node, context_of()) == 0


def test_own_files_are_read_as_the_loss_wants_them(ward):
    numbers = client_table(config(), 1, file_node(ward))
    np.testing.assert_array_equal(numbers.y, [0.5, 1.0])
    with pytest.raises(DataError, match=r"row 1, y is 0\.5"):
        client_table(config(loss="logistic"), 1, file_node(ward))
