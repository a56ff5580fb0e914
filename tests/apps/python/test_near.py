"""Graphs that are alike, from Python: the answers of the whole matrix."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

import trellis

pytest.importorskip("ot")


def graphs():
    found = [networkx.gnp_random_graph(n, 0.4, seed=n) for n in range(4, 16)]
    return [*found, networkx.path_graph(30), found[2]]


def test_neighbours_and_outliers_are_those_of_the_matrix(tmp_path):
    whole = trellis.gw_distances(graphs(), workers=1)
    far = np.where(np.eye(len(whole), dtype=bool), np.inf, whole)
    order = np.argsort(far, axis=1, kind="stable")[:, :3]
    found = trellis.gw_neighbours(graphs(), 3, workers=1, checkpoint=tmp_path / "pairs.npz")
    assert (found.places == order).all()
    assert (found.distances == np.take_along_axis(far, order, axis=1)).all()
    assert 0.0 < found.share < 1.0
    assert (tmp_path / "pairs.npz").is_file()
    scores = np.sort(far, axis=1)[:, 1]
    apart = trellis.gw_outliers(graphs(), 3, k=2, workers=1)
    assert (apart.places[:, 0] == np.argsort(-scores, kind="stable")[:3]).all()
    assert apart.places[0, 0] == 12
    assert apart.share < found.share


def test_medoids_put_a_path_by_itself():
    found = trellis.gw_medoids(graphs(), 2, workers=1)
    assert sorted(np.bincount(found.labels).tolist()) == [1, 13]
    assert 12 in found.medoids


def test_a_graph_that_is_none_is_named():
    with pytest.raises(ValueError, match="graph 1"):
        trellis.gw_neighbours([networkx.path_graph(3), np.ones(3)], 1)
