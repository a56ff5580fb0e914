"""The mathematics in hand, each against an implementation of somebody else."""

from __future__ import annotations

import networkx as nx
import numpy as np
import ot
import pandas as pd
import pytest
import scipy.sparse
import scipy.stats
from gglasso.solver.admm_solver import ADMM_MGL
from torch_geometric.utils import from_networkx

import trellis
from trellis.privacy.mechanisms.gaussian import gaussian_delta


def correlations(count: int = 3, p: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    mix = np.eye(p) + 0.5 * np.eye(p, k=1)
    return [np.corrcoef(rng.normal(size=(60, p)) @ mix, rowvar=False) for _ in range(count)]


@pytest.mark.parametrize(("penalty", "name"), [("group", "GGL"), ("fused", "FGL")])
def test_joint_graphical_lasso_agrees_with_gglasso(penalty, name):
    S = np.array(correlations())
    if penalty == "fused":
        S = S[:2]  # of two, all differences and those in a row are the same
    ours = trellis.joint_graphical_lasso(S, 0.12, 0.06, penalty, tolerance=1e-9)
    start = np.array([np.eye(6)] * len(S))
    found, _ = ADMM_MGL(S, 0.12, 0.06, name, start, tol=1e-10, rtol=1e-10, max_iter=20000)
    np.testing.assert_allclose(ours, found["Theta"], atol=2e-5)
    assert np.count_nonzero(ours) < ours.size


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_covariances_in_any_unit(unit):
    scale = np.array([1.0, 2.0, 0.5, 1.5, 3.0, 1.0])
    S = np.array(correlations()) * np.outer(scale, scale)
    ours = trellis.joint_graphical_lasso(S * unit, 0.12 * unit, 0.06 * unit, tolerance=1e-9)
    start = np.array([np.eye(6)] * len(S))
    found, _ = ADMM_MGL(S, 0.12, 0.06, "GGL", start, tol=1e-10, rtol=1e-10, max_iter=20000)
    np.testing.assert_allclose(ours * unit, found["Theta"], atol=5e-5)


def test_joint_graphical_lasso_says_that_it_was_stopped():
    with pytest.warns(UserWarning, match="stopped after rounds=2"):
        trellis.joint_graphical_lasso(correlations(), 0.12, 0.06, rounds=2)


def test_joint_graphical_lasso_refuses_what_are_no_covariances():
    S = correlations()
    for bad, words in (
        ([S[0], np.diag([1.0, 0, 1, 1, 1, 1])], "matrix 1 has a variance .* of variable 1"),
        ([S[0] + np.triu(np.ones((6, 6)), 1)], "matrix 0 is not symmetric"),
        (np.full((2, 2), np.nan), "not finite"),
        (np.ones((2, 3)), "shape"),
        ([S[0], np.eye(3)], "of one size"),
        ([[1.0, 2.0], [2.0, 1.0]], "is not positive semidefinite"),
    ):
        with pytest.raises(ValueError, match=words):
            trellis.joint_graphical_lasso(bad, 0.1, 0.1)
    with pytest.raises(ValueError, match="use one of group, fused"):
        trellis.joint_graphical_lasso(S, 0.1, 0.1, "ridge")
    with pytest.raises(ValueError, match="lambda2=-1"):
        trellis.joint_graphical_lasso(S, 0.1, -1)
    assert trellis.joint_graphical_lasso(S[0], 0.1, 0.0).shape == (1, 6, 6)


def shapes() -> list[nx.Graph]:
    return [nx.cycle_graph(6), nx.star_graph(5), nx.path_graph(5), nx.complete_graph(4)]


def test_gw_distances_agree_with_pot():
    # Points in general position: where many distances are equal there are many optima.
    rng = np.random.default_rng(0)
    clouds = [rng.normal(size=(n, 3)) for n in (4, 5, 6, 7)]
    paths = [np.linalg.norm(x[:, None] - x[None], axis=-1) for x in clouds]
    found = trellis.gw_distances(paths)
    assert np.array_equal(found, found.T)
    assert not np.diagonal(found).any()
    for a in range(4):
        for b in range(a):
            expected = ot.gromov.gromov_wasserstein2(paths[a], paths[b])
            assert found[a, b] == pytest.approx(float(expected), abs=1e-9)


def test_graphs_of_any_kind_have_the_same_distances():
    graphs = shapes()
    found = trellis.gw_distances(graphs)
    ring, star = (np.asarray(nx.floyd_warshall_numpy(graph)) for graph in graphs[:2])
    assert found[0, 1] == pytest.approx(float(ot.gromov.gromov_wasserstein2(ring, star)))
    assert np.array_equal(found, trellis.gw_distances([from_networkx(g) for g in graphs]))
    sparse = [scipy.sparse.csr_array(nx.to_scipy_sparse_array(graph)) for graph in graphs]
    assert np.array_equal(found, trellis.gw_distances(sparse))
    paths = [nx.floyd_warshall_numpy(graph) for graph in graphs]
    assert np.array_equal(found, trellis.gw_distances(paths))
    with pytest.raises(ValueError, match=r"graph 1: .*square matrix"):
        trellis.gw_distances([graphs[0], np.ones(3)])
    with pytest.raises(ValueError, match=r"graph 0: .*list"):
        trellis.gw_distances([[1, 2]])


def test_kendall_agrees_with_scipy():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, size=(40, 4)).astype(float)  # with ties
    found = trellis.kendall(X)
    for a in range(4):
        for b in range(4):
            expected = scipy.stats.kendalltau(X[:, a], X[:, b]).statistic
            assert found[a, b] == pytest.approx(expected, abs=1e-12)
    frame = pd.DataFrame(X, columns=list("wxyz"))
    pd.testing.assert_frame_equal(trellis.kendall(frame), frame.corr(method="kendall"))


def test_noise_is_the_least_that_is_enough():
    sigma = trellis.gaussian_sigma(1, 1e-5, 2)
    assert gaussian_delta(sigma, 1.0, 2.0) <= 1e-5
    assert gaussian_delta(sigma * (1 - 1e-9), 1.0, 2.0) > 1e-5
    with pytest.raises(ValueError, match="epsilon=0"):
        trellis.gaussian_sigma(0, 1e-5, 1)


@pytest.mark.parametrize("count", [2, 3, 5, 70])
def test_a_secure_sum_is_the_sum_on_its_grid(count):
    rng = np.random.default_rng(count)
    values = {f"client {k}": rng.normal(size=(2, 3)) * 1e3 for k in range(count)}
    found = trellis.secure_sum(values)
    on_grid = sum(np.rint(value * 2.0**32) for value in values.values()) / 2.0**32
    assert np.array_equal(found, on_grid)
    rough = trellis.secure_sum(values, fraction_bits=0)
    assert np.array_equal(rough, sum(np.rint(value) for value in values.values()))


def test_a_secure_sum_refuses_in_words():
    with pytest.raises(ValueError, match="of two clients or more"):
        trellis.secure_sum({"a": [1.0]})
    with pytest.raises(ValueError, match="client 'c' has shape"):
        trellis.secure_sum({"a": [1.0], "b": [2.0], "c": [1.0, 2.0]})
    with pytest.raises(ValueError, match="client 'c' has entries that are not finite"):
        trellis.secure_sum({"a": [1.0], "b": [2.0], "c": [np.nan]})
    with pytest.raises(OverflowError, match=r"client 'b'.*too large"):
        trellis.secure_sum({"a": [1.0], "b": [1e12], "c": [1.0]})
    assert trellis.secure_sum({"a": 1, "b": 2, "c": 4}).item() == 7.0


def test_a_smooth_graph_is_the_one_of_learning_alone():
    data = trellis.sample("consensus-graph", clients=1, nodes=8)["ward-1"]
    graph = trellis.smooth_graph(data, alpha=2.0, beta=0.05)
    alone = trellis.run(
        "consensus-graph",
        data={"a": data},
        method="igl",
        rounds=1,
        held_out=0,
        standardise="none",
        alpha=2.0,
        beta=0.05,
    )
    weights = alone.arrays["weights"][0]
    matrix = graph.to_sparse().toarray()[np.triu_indices(8, 1)]
    np.testing.assert_allclose(matrix, weights, atol=1e-9)
    assert list(graph.nodes) == list(data.columns)
    # Without a ridge of one's own, the unit of the data does not matter.
    first, second = (trellis.smooth_graph(data * unit).to_frame() for unit in (1.0, 1000.0))
    assert first[["from", "to"]].equals(second[["from", "to"]])
    with pytest.raises(ValueError, match="alpha=0"):
        trellis.smooth_graph(data, alpha=0)
    with pytest.raises(ValueError, match="names: 2 for 8"):
        trellis.smooth_graph(data, names=["a", "b"])
    with pytest.raises(ValueError, match="two at least"):
        trellis.smooth_graph(data[["v1"]])


@pytest.mark.parametrize("penalty", ["group", "fused"])
def test_sparse_graphical_lasso_is_the_dense_one(penalty):
    rng = np.random.default_rng(5)
    tables = [
        np.repeat(rng.normal(size=(90, 8)), 2, axis=1) + rng.normal(size=(90, 16)) for _ in range(2)
    ]
    S = [np.corrcoef(table, rowvar=False) for table in tables]
    dense = trellis.joint_graphical_lasso(S, 0.3, 0.1, penalty, tolerance=1e-9)
    found = trellis.sparse_graphical_lasso(
        tables, 0.3, 0.1, penalty, correlation="pearson", tolerance=1e-9
    )
    for ours, whole in zip(found, dense, strict=True):
        np.testing.assert_allclose(ours.toarray(), whole, rtol=0, atol=1e-6)
        assert ours.nnz == np.count_nonzero(whole)
    with pytest.raises(ValueError, match="tables: shapes"):
        trellis.sparse_graphical_lasso([tables[0], tables[1][:, :3]], 0.3)
    with pytest.warns(UserWarning, match="rounds=1"):
        trellis.sparse_graphical_lasso(tables, 0.3, correlation="pearson", rounds=1)
