"""Distances by class, owner and size, and the pictures that are drawn of them."""

from __future__ import annotations

import csv
import itertools
import math
import sys

import numpy as np
import pytest
from scipy.stats import spearmanr

from trellis.apps.gromov_wasserstein.report import distances as report_distances
from trellis.apps.gromov_wasserstein.report import page as report
from trellis.apps.gromov_wasserstein.report.pictures import (
    block_means,
    class_styles,
    clustered_order,
)

from .runs import DISTANCES, LABEL, OWNER, PICTURE, SIZE, changed, page, run, shown, table, without


def test_mean_distances_by_class_are_of_two_different_graphs():
    rows = table(run(), DISTANCES, "class 0")
    D = run().arrays["distances"]
    for a, b in itertools.product((0, 1), repeat=2):
        pairs = [
            D[i, j]
            for i, j in itertools.permutations(range(12), 2)
            if (LABEL[i], LABEL[j]) == (a, b)
        ]
        assert rows[f"class {a}"][f"class {b}"] == pytest.approx(sum(pairs) / len(pairs))
    assert rows["class 0"]["graphs"] == 6
    mean = sum(n for n, y in zip(SIZE, LABEL, strict=True) if y == 0) / 6
    assert rows["class 0"]["nodes, mean"] == pytest.approx(mean)
    same = [D[i, j] for i, j in itertools.permutations(range(12), 2) if LABEL[i] == LABEL[j] >= 0]
    assert f"same class: {sum(same) / len(same):.4g}." in shown(run(), DISTANCES)


def test_mean_distances_by_owner_are_to_its_own_and_to_others():
    rows = table(run(), DISTANCES, "owner")
    D = run().arrays["distances"]
    assert list(rows) == ["oslo", "<rome>", "bern"]
    for k, row in enumerate(rows.values()):
        for header, same in (("to its own", True), ("to others'", False)):
            pairs = [
                D[i, j]
                for i, j in itertools.permutations(range(12), 2)
                if OWNER[i] == k and (OWNER[j] == k) == same
            ]
            assert row[header] == pytest.approx(sum(pairs) / len(pairs))


def test_an_owner_or_class_of_one_graph_has_no_distance_to_itself():
    alone = changed(run(), owner=np.arange(12), labels=np.arange(12))
    assert all(row["to its own"] is None for row in table(alone, DISTANCES, "owner").values())
    assert all(row["class 3"] is None for row in [table(alone, DISTANCES, "class 3")["class 3"]])
    many = changed(run(), labels=np.repeat([0, 1, 2], 4))
    assert set(table(many, DISTANCES, "class 2")) == {"class 0", "class 1", "class 2"}


def test_the_correlation_with_sizes_is_spearman_s():
    sizes = np.arange(1, 13)
    gaps = np.abs(sizes[:, None] - sizes).astype(float)
    text = shown(changed(run(), sizes=sizes, distances=gaps**3), DISTANCES)
    assert "gives away: 1.00." in text
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 50).astype(float), rng.normal(size=50)
    assert report_distances.rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert report_distances.rank_correlation(a, np.ones(50)) is None
    equal = changed(run(), sizes=np.full(12, 7))
    assert "all of one size" in shown(equal, DISTANCES)


def test_clustering_puts_groups_side_by_side_whatever_the_order_they_come_in():
    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat([0, 1, 2], 7))
    points = np.column_stack([10.0 * groups, rng.normal(size=21)])
    D = np.array([[math.dist(a, b) for b in points] for a in points])
    order = clustered_order(D)
    assert sorted(order) == list(range(21))
    assert np.count_nonzero(np.diff(groups[order])) == 2


def test_graphs_that_average_linkage_merges_are_neighbours_in_the_order():
    D = np.random.default_rng(6).random((14, 14))
    D = np.where(np.eye(14, dtype=bool), 0.0, D + D.T)
    place = np.argsort(clustered_order(D))
    groups = [(k,) for k in range(14)]
    while len(groups) > 1:
        a, b = min(
            itertools.combinations(groups, 2),
            key=lambda two: np.mean([D[i, j] for i in two[0] for j in two[1]]),
        )
        groups = [one for one in groups if one not in (a, b)] + [a + b]
        assert np.ptp(place[list(a + b)]) == len(a + b) - 1


@pytest.mark.parametrize("count", [3, 10, 11, 25, 301])
def test_blocks_are_means_and_keep_the_mean_of_every_block(count):
    rng = np.random.default_rng(count)
    matrix = rng.random((count, count))
    small = block_means(matrix, 10)
    assert small.shape == (min(count, 10),) * 2
    if count <= 10:
        assert small is matrix
        return
    edges = [k * count // 10 for k in range(11)]
    for a, b in ((0, 0), (3, 7), (9, 9)):
        block = matrix[edges[a] : edges[a + 1], edges[b] : edges[b + 1]]
        assert small[a, b] == pytest.approx(block.mean())


def test_many_graphs_are_drawn_in_blocks_and_written_whole(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(report_distances, "MOST_POINTS", 40)
    rng = np.random.default_rng(2)
    points = rng.random((310, 2))
    D = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    few = {"owner": np.arange(310) % 3, "sizes": np.full(310, 4), "anomaly": D.mean(axis=1)}
    labels = np.arange(310) % 20
    result = changed(without(run(), "spectral-clusters"), distances=D, labels=labels, **few)
    html = page(result, tmp_path)
    assert "310 graphs are drawn in 130 x 130 blocks" in html
    assert "a random sample of 40 of 310 graphs is drawn" in html
    assert "a random sample of 120 of 310 graphs is drawn" in html  # of t-SNE
    assert "to others" in next(iter(table(result, DISTANCES, "within it").values()))
    assert len(html) < 1_000_000
    path = report.export_graphs(result, tmp_path)[0]
    with path.open() as file:
        rows = list(csv.reader(file))
    np.testing.assert_array_equal(np.array([row[1:] for row in rows[1:]], dtype=float), D)


def test_every_named_class_has_a_look_of_its_own():
    labels = np.repeat(np.arange(20), np.arange(20, 0, -1))
    styles = class_styles(labels)
    assert list(styles) == list(range(12))  # the commonest
    assert len(set(styles.values())) == len({colour for colour, _ in styles.values()}) == 12
    assert class_styles(np.full(5, -1)) == {}


def test_pictures_without_scikit_learn_leave_out_t_sne_with_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    text = shown(run(), PICTURE)
    assert "t-SNE is left out: classification and clustering need scikit-learn" in text
    assert "Multidimensional scaling" in text


def test_points_in_a_plane_are_scaled_without_loss():
    points = np.random.default_rng(4).random((12, 2))
    D = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    assert "with the real ones 1.00" in shown(changed(run(), distances=D), PICTURE)
