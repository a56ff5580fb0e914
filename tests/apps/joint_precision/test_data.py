"""The synthetic federation has the graphs it claims, and a client's own file is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, kurtosis

from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError
from trellis.apps.joint_precision import data
from trellis.apps.joint_precision.config import JointPrecisionConfig

KINDS = ("danaher", "shrunk", "paper")


def config(**settings) -> JointPrecisionConfig:
    return JointPrecisionConfig(**{"variables": 24, "blocks": 4, "samples": "60"} | settings)


def own_file(tmp_path: Path, text: str) -> Node:
    path = tmp_path / "ward.csv"
    path.write_text(text)
    return Node("ward", 0, path, None, False)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from(KINDS))
def test_every_subnetwork_is_a_positive_definite_correlation(seed, size, kind):
    rng = np.random.default_rng(seed)
    values = data.edge_values(data.power_law_graph(size, rng), rng)
    precision, covariance = data.block_matrices(values, kind)
    np.testing.assert_allclose(np.diag(covariance), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(covariance)[0] > 1e-3
    assert np.linalg.eigvalsh(precision)[0] > 1e-3
    np.testing.assert_array_equal((precision != 0.0), (values != 0.0) | np.eye(size, dtype=bool))
    if kind == "danaher":
        np.testing.assert_allclose(precision @ covariance, np.eye(size), atol=1e-8)


@pytest.mark.parametrize("leaves", [8, 15, 127])
def test_a_star_is_positive_definite_where_the_usual_reading_is_not(leaves):
    values = np.zeros((leaves + 1, leaves + 1))
    values[0, 1:] = values[1:, 0] = 0.3
    naive = values / (1.5 * values.sum(axis=1, keepdims=True))
    assert np.linalg.eigvalsh(np.eye(leaves + 1) + (naive + naive.T) / 2.0)[0] < 0.0
    precision, _ = data.block_matrices(values, "danaher")
    scale = np.sqrt(np.diag(precision))
    unit = precision / np.outer(scale, scale)
    assert np.linalg.eigvalsh(unit)[0] == pytest.approx(0.1, abs=1e-9)


def test_a_subnetwork_that_is_positive_definite_already_is_as_danaher_has_it():
    values = np.array([[0.0, 0.3, -0.2], [0.3, 0.0, 0.0], [-0.2, 0.0, 0.0]])
    rows = values / (1.5 * np.abs(values).sum(axis=1, keepdims=True))
    expected = np.linalg.inv(np.eye(3) + (rows + rows.T) / 2.0)
    deviations = np.sqrt(np.diag(expected))
    _, covariance = data.block_matrices(values, "danaher")
    np.testing.assert_allclose(covariance, expected / np.outer(deviations, deviations), atol=1e-12)


def test_shrunk_has_the_same_graph_and_six_tenths_of_the_covariances():
    rng = np.random.default_rng(3)
    values = data.edge_values(data.power_law_graph(9, rng), rng)
    whole, shrunk = (data.block_matrices(values, kind) for kind in ("danaher", "shrunk"))
    np.testing.assert_array_equal(whole[0], shrunk[0])
    off = ~np.eye(9, dtype=bool)
    np.testing.assert_allclose(shrunk[1][off], 0.6 * whole[1][off], atol=1e-12)


def test_the_papers_own_covariance_has_not_the_papers_graph():
    truth = data.synthetic_truth(config(generator="paper", variables=54, blocks=6), 1)
    a, b = np.triu_indices(54, 1)
    same = a // 9 == b // 9
    edges, actual = truth.edges()[0], np.abs(np.linalg.inv(truth.covariance[0])[a, b])
    assert np.all(actual[same & ~edges] > 1e-6)
    assert np.all(actual[~same] < 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 60))
def test_a_graph_is_symmetric_without_loops_and_has_edges(seed, size):
    graph = data.power_law_graph(size, np.random.default_rng(seed))
    np.testing.assert_array_equal(graph, graph.T)
    assert not np.any(np.diag(graph))
    assert np.any(graph)


def test_edge_values_have_both_signs_and_the_papers_range():
    values = data.edge_values(~np.eye(60, dtype=bool), np.random.default_rng(0))
    magnitude = np.abs(values[np.triu_indices(60, 1)])
    np.testing.assert_array_equal(values, values.T)
    assert 0.1 <= magnitude.min() < 0.11
    assert 0.39 < magnitude.max() <= 0.4
    assert 0.4 < np.mean(values[np.triu_indices(60, 1)] > 0.0) < 0.6


@pytest.mark.parametrize(
    ("blocks", "lacking"),
    [(4, [0, 1, 2, 0, 1]), (3, [0, 1, 2, 0, 1]), (2, [0, 1, 1, 0, 1]), (1, [0, 0, 0, 0, 0])],
)
def test_clients_share_all_but_the_last_two_subnetworks(blocks, lacking):
    truth = data.synthetic_truth(config(blocks=blocks, clients=5), 2)
    size = 24 // blocks
    for k, count in enumerate(lacking):
        kept = 24 - count * size
        np.testing.assert_array_equal(
            truth.precision[k, :kept, :kept], truth.precision[0, :kept, :kept]
        )
        np.testing.assert_array_equal(truth.precision[k, kept:, kept:], np.eye(count * size))
        assert not np.any(truth.precision[k, :kept, kept:])


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_covariance_of_the_truth(kind):
    settings = config(generator=kind, margins="gaussian", samples="40000")
    truth = data.synthetic_truth(settings, 5)
    for k in range(3):
        seen = np.cov(data.synthetic_table(settings, 5, k).values.T)
        np.testing.assert_allclose(seen, truth.covariance[k], atol=0.03)


def test_margins_change_the_values_and_not_the_ranks():
    plain = data.synthetic_table(config(margins="gaussian"), 1, 0).values
    bent = data.synthetic_table(config(), 1, 0).values
    np.testing.assert_array_equal(np.argsort(plain, axis=0), np.argsort(bent, axis=0))
    assert kendalltau(plain[:, 0], bent[:, 0]).statistic == pytest.approx(1.0)


def test_margins_are_strictly_increasing_far_out_and_differ_between_variables_and_clients():
    line = np.repeat(np.linspace(-5.0, 5.0, 2001)[:, None], 50, axis=1)
    one, two = (data.bent(line, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.all(np.diff(one, axis=0) > 0.0)
    assert len(np.unique(np.round(one[1500], 12))) == 50
    assert not np.any(one[1500] == two[1500])


def test_margins_are_far_from_gaussian():
    bent = data.synthetic_table(config(samples="4000"), 1, 0).values
    assert np.mean(np.abs(kurtosis(bent)) > 0.5) > 0.9


def test_a_seed_gives_the_same_table_and_clients_have_their_own():
    tables = [data.synthetic_table(config(samples="5,6,7"), 1, k) for k in range(3)]
    assert [t.values.shape for t in tables] == [(5, 24), (6, 24), (7, 24)]
    assert tables[0].columns[:2] == ("v01", "v02")
    again = data.client_table(config(samples="5,6,7"), 1, Node("c", 1, None, None, True))
    assert again.digest() == tables[1].digest()
    other = data.synthetic_table(config(samples="5,6,7"), 2, 1)
    assert not np.any(other.values == tables[1].values)
    assert not np.any(tables[0].values == tables[1].values[:5])


def test_edges_are_the_support_above_the_diagonal():
    truth = data.synthetic_truth(config(), 1)
    assert truth.edges().shape == (3, 276)
    assert 2 * truth.edges()[0].sum() + 24 == np.count_nonzero(truth.precision[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "1 row of data; at least 2"),
        ("a\n1\n2\n", "'a' is the only column"),
        ("a,b,c\n1,2,1\n2,1,2\n3,5,3\n", "columns 'a' and 'c' put the 3 rows in the same order"),
        ("a,b,c\n1,2,1\n2,1,8\n3,5,27\n", "columns 'a' and 'c'"),
        ("a,b,c\n1,2,-1\n2,1,-8\n3,5,-27\n", "'a' and 'c' put the 3 rows in exactly opposite"),
        ("a,b,c\n1,2,1\n1,1,1\n3,5,4\n", "columns 'a' and 'c'"),
        ("a,b,c\n1,2,4\n2,1,4\n3,5,4\n", "column 'c' is constant"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        data.client_table(config(), 1, own_file(tmp_path, text))
    assert "ward.csv" in str(caught.value)


def test_a_good_file_is_read(tmp_path):
    table = data.client_table(
        config(), 1, own_file(tmp_path, "a,b,c\n1,2,3\n2,1,0\n0,5,1\n4,4,2\n")
    )
    assert table.columns == ("a", "b", "c")
    assert table.values.shape == (4, 3)
