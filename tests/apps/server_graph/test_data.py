"""Synthetic clients have the law they claim, files are refused by name, clients have one server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.data import client_table, server_of, synthetic_table
from trellis.apps.server_graph.losses import LeastSquares
from trellis.apps.server_graph.problem import draw_batches, local_steps

NUMBERS = "least-squares"


def config(**settings) -> ServerGraphConfig:
    return ServerGraphConfig(**{"clients": 20, "servers": 4} | settings)


def file_node(path: Path, partition: int = -1) -> Node:
    return Node(path.stem, partition, path, None, False)


def context_of(**node_config) -> Context:
    return Context(1, 1, node_config, RecordDict(), {})


def test_labels_are_even_and_features_lie_around_them():
    table = synthetic_table(config(samples="20000", features=3, spread=0.0), 1, 0)
    assert table.columns == ("h1", "h2", "h3")
    assert abs(table.y.mean()) < 0.03
    noise = table.X - table.y[:, None]
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(3), atol=0.03)


@pytest.mark.parametrize(("spread", "low", "high"), [(0.5, 0.5, 1.5), (2.0, 0.1, 3.0)])
def test_the_spread_is_of_the_clients_deviations(spread, low, high):
    settings = config(spread=spread, clients=200, samples="400")
    tables = [synthetic_table(settings, 3, k) for k in range(200)]
    deviations = np.array([np.std(t.X - t.y[:, None]) for t in tables])
    assert low * 0.9 < deviations.min() < low + 0.1 * (high - low)
    assert high - 0.1 * (high - low) < deviations.max() < high * 1.1
    assert np.median(deviations) == pytest.approx((low + high) / 2, rel=0.15)


def test_without_spread_least_squares_has_one_hessian_for_all():
    settings = config(loss=NUMBERS, spread=0.0, samples="30", features=4)
    for k in range(3):
        X = synthetic_table(settings, 1, k).X
        np.testing.assert_allclose(X.T @ X / 30, np.eye(4), atol=1e-13)
    few = synthetic_table(config(loss=NUMBERS, spread=0.0, samples="3", features=4), 1, 0)
    assert few.X.shape == (3, 4)
    spread = synthetic_table(config(loss=NUMBERS, samples="30", features=4), 1, 0).X
    assert np.max(np.abs(spread.T @ spread / 30 - np.eye(4))) > 0.05


def test_with_one_hessian_graph_homomorphic_noise_leaves_the_centroid_alone():
    A = np.array([[0.6, 0.2, 0.2, 0], [0.2, 0.5, 0, 0.3], [0.2, 0, 0.5, 0.3], [0, 0.3, 0.3, 0.4]])

    def gap(spread):
        settings = config(loss=NUMBERS, spread=spread, samples="30")
        tables = [synthetic_table(settings, 1, k) for k in range(20)]
        quiet, noisy, rng = np.zeros((4, 2)), np.zeros((4, 2)), np.random.default_rng(0)
        for _ in range(50):
            chosen = rng.choice(5, 2, replace=False)
            quiet, noisy = (
                np.array(
                    [
                        np.mean([_step(tables[5 * p + k], w[p]) for k in chosen], axis=0)
                        for p in range(4)
                    ]
                )
                for w in (quiet, noisy)
            )
            noise = rng.laplace(0.0, 20.0 / np.sqrt(2.0), (4, 2))
            quiet, noisy = A @ quiet, A @ (noisy + noise) - noise  # (8) with (24)
        return np.max(np.abs(quiet.mean(axis=0) - noisy.mean(axis=0)))

    assert gap(0.0) < 1e-10
    assert gap(0.5) > 1e-2


def _step(table, w):
    everyone = draw_batches(len(table.y), 0, 1, np.random.default_rng(0))
    return local_steps(LeastSquares(), w, table.X, table.y, 0.1, 0.01, 0.0, everyone)


def test_least_squares_clients_have_one_true_model():
    settings = config(loss=NUMBERS, samples="5000", features=3)
    fits = []
    for k in range(2):
        table = synthetic_table(settings, 1, k)
        w, rest, *_ = np.linalg.lstsq(table.X, table.y)
        fits.append(w)
        assert rest[0] / 5000 == pytest.approx(0.25, rel=0.1)
    np.testing.assert_allclose(fits[0], fits[1], atol=0.08)
    assert np.linalg.norm(fits[0]) > 0.3


def test_a_seed_gives_the_same_clients_and_every_client_its_own():
    settings = config(clients=4, samples="5,6,7,8")
    tables = [synthetic_table(settings, 1, k) for k in range(4)]
    assert [t.X.shape for t in tables] == [(5, 2), (6, 2), (7, 2), (8, 2)]
    again = client_table(settings, 1, Node("c", 1, None, None, True))
    np.testing.assert_array_equal(again.X, tables[1].X)
    np.testing.assert_array_equal(again.y, tables[1].y)
    assert not np.any(tables[1].X[:5] == tables[0].X)
    assert not np.any(synthetic_table(settings, 2, 1).X == tables[1].X)


def test_csv_and_npz_hold_the_same_samples(tmp_path):
    (tmp_path / "a.csv").write_text("h1,y,h2\n1,0,2\n3,1,4\n5,1,6\n")
    X, y = np.array([[1, 2], [3, 4], [5, 6]]), np.array([False, True, True])
    np.savez(tmp_path / "b.npz", X=X, y=y, columns=["h1", "h2"])
    for name in ("a.csv", "b.npz"):
        table = client_table(config(), 1, file_node(tmp_path / name))
        assert table.columns == ("h1", "h2")
        np.testing.assert_array_equal(table.X, X)
        np.testing.assert_array_equal(table.y, [-1.0, 1.0, 1.0])
    numbers = client_table(config(loss=NUMBERS), 1, file_node(tmp_path / "a.csv"))
    np.testing.assert_array_equal(numbers.y, [0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no column 'y' among a, b"),
        ("y\n1\n0\n", "no features; 'y' is the only column"),
        ("a,y\n1,2\n", "row 1, y is 2"),
        ("a,y\n1,nan\n", "row 1, column 'y' is nan"),
        ("a,y\n,1\n", "row 1, column 'a' is missing"),
        ("a,y\n", "no rows of data"),
    ],
)
def test_a_csv_that_cannot_be_used_is_refused_by_name(tmp_path, text, message):
    (tmp_path / "ward.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        client_table(config(), 1, file_node(tmp_path / "ward.csv"))
    assert "ward.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((3, 2))}, "holds X; needs the targets 'y'"),
        ({"y": np.ones(3)}, "holds y; needs 'X'"),
        ({"X": np.ones((3, 0)), "y": np.ones(3)}, "no features; X has no columns"),
        ({"X": np.ones((0, 2)), "y": np.ones(0)}, "no rows of data"),
        ({"X": np.ones((3, 2)), "y": np.ones(2)}, r"y has shape \(2,\), X has 3 rows"),
        ({"X": np.ones((3, 2)), "y": np.ones((3, 1))}, r"y has shape \(3, 1\)"),
        ({"X": np.ones((3, 2)), "y": np.array([1, np.nan, 1])}, "row 2, 'y' is nan"),
        ({"X": np.ones((3, 2)), "y": np.array(["a", "b", "c"])}, "y is <U1; numbers are needed"),
        ({"X": np.ones((3, 2)), "y": np.array([1, 1, 3])}, "row 3, y is 3"),
        ({"X": np.full((3, 2), np.inf), "y": np.ones(3)}, "row 1, column 'v1' is inf"),
    ],
)
def test_an_npz_that_cannot_be_used_is_refused_by_name(tmp_path, arrays, message):
    np.savez(tmp_path / "ward.npz", **arrays)
    with pytest.raises(DataError, match=message) as caught:
        client_table(config(), 1, file_node(tmp_path / "ward.npz"))
    assert "ward.npz" in str(caught.value)


def test_a_missing_or_broken_file_is_named(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    for name in ("bad.npz", "absent.npz", "absent.csv"):
        with pytest.raises(DataError, match=name):
            client_table(config(), 1, file_node(tmp_path / name))


@pytest.mark.parametrize("clients", [20, 23, 4])
def test_partitions_are_dealt_evenly_in_order(clients):
    settings = config(clients=clients)
    nodes = [Node("c", k, None, None, True) for k in range(clients)]
    servers = [server_of(settings, node, context_of()) for node in nodes]
    assert servers == sorted(servers)
    counts = Counter(servers)
    assert set(counts) == {0, 1, 2, 3}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_node_config_comes_first_then_the_table_then_the_partition(tmp_path):
    node = file_node(tmp_path / "ward.csv", 19)
    assert server_of(config(), node, context_of()) == 3
    (tmp_path / "assignment.csv").write_text("client, server\nother,0\nward, 2\n")
    assert server_of(config(), node, context_of()) == 2
    (tmp_path / "assignment.csv").write_text("server,client\n1,ward.csv\n")
    assert server_of(config(), node, context_of()) == 1
    assert server_of(config(), node, context_of(server=0)) == 0
    assert server_of(config(), node, context_of(server="3")) == 3
    assert server_of(config(method="fedavg", servers=10), node, context_of(server=3)) == 0


@pytest.mark.parametrize("server", [4, -1, 1.5, "two", True, ""])
def test_a_server_that_is_not_there_is_refused(tmp_path, server):
    with pytest.raises(DataError, match=r"node config of ward.*4 servers are numbered from 0 to 3"):
        server_of(config(), file_node(tmp_path / "ward.csv"), context_of(server=server))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,server\nward,4\n", "row 1: server='4'; the 4 servers are numbered from 0 to 3"),
        ("client,server\nward\n", "row 1: server=None"),
        ("client,server\nother,1\n", "client 'ward' stands there 0 times"),
        ("client,server\nward,1\nward.csv,2\n", "client 'ward' stands there 2 times"),
        ("name,server\nward,1\n", "needs the columns client and server"),
        ("", "needs the columns client and server"),
    ],
)
def test_a_bad_assignment_is_refused_by_name(tmp_path, text, message):
    (tmp_path / "assignment.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        server_of(config(), file_node(tmp_path / "ward.csv"), context_of())
    assert "assignment.csv" in str(caught.value)


@pytest.mark.parametrize("partition", [-1, 20])
def test_a_client_of_nobody_is_told_what_to_set(tmp_path, partition):
    node = file_node(tmp_path / "ward.csv", partition)
    with pytest.raises(DataError, match=r"ward: which server.*set server=0 to 3 in its --node"):
        server_of(config(), node, context_of())
