"""The clusters' models and the graph of servers, in tables and numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.apps.cluster_admm.report.reading import (
    CLUSTERS,
    ROUNDS,
    SERVERS,
    by_title,
    changed,
    run,
    shown,
    table,
)
from trellis.apps.cluster_admm.report.outcome import Outcome, distances


def test_the_table_of_clusters_has_who_is_where_and_how_copies_differ(pgfl):
    models, homes, groups = (pgfl.arrays[name] for name in ("models", "homes", "clusters"))
    truth, true_groups = pgfl.arrays["truth"], pgfl.arrays["true_clusters"]
    for q in range(3):
        row = table(pgfl, CLUSTERS, "cluster")[f"cluster {q}"]
        members = np.flatnonzero(groups == q)
        used = sorted(set(homes[members].tolist()))
        assert (row["clients"], row["servers that have them"]) == (len(members), len(used))
        copies = [models[s, q] for s in used]
        middle = sum(copies) / len(copies)
        spread = math.sqrt(sum(float((w - middle) @ (w - middle)) for w in copies) / len(copies))
        assert row["disagreement of servers"] == pytest.approx(spread)
        assert row["length of the model"] == pytest.approx(math.sqrt(float(middle @ middle)))
        errors = []
        for k in members:
            w, target = models[homes[k], q], truth[true_groups[k]]
            errors.append(float((w - target) @ (w - target)) / float(target @ target))
        assert row["NMSD, dB"] == pytest.approx(10.0 * math.log10(sum(errors) / len(errors)))


def test_the_nearest_cluster_is_another_one(pgfl):
    models = np.zeros((4, 3, 5))
    models[:, 1, 0], models[:, 2, 0] = 1.0, 5.0
    rows = table(changed(pgfl, models=models), CLUSTERS, "cluster")
    assert [row["nearest cluster"] for row in rows.values()] == [
        "cluster 1",
        "cluster 0",
        "cluster 1",
    ]
    assert [row["distance to it"] for row in rows.values()] == [1.0, 1.0, 4.0]


def test_the_table_of_servers_counts_clients_and_neighbours(pgfl):
    rows = table(pgfl, CLUSTERS, "server")
    assert [row["clients"] for row in rows.values()] == [3, 3, 3, 3]
    assert [row["neighbours"] for row in rows.values()] == [1, 2, 2, 1]
    for name, row in rows.items():
        mine = pgfl.arrays["homes"] == int(name.removeprefix("server-"))
        for q in range(3):
            assert row[f"cluster {q}"] == np.count_nonzero(mine & (pgfl.arrays["clusters"] == q))


def test_a_copy_at_a_server_without_such_clients_does_not_count(pgfl):
    models = np.ones((4, 3, 5))
    models[3, 0] = 100.0
    homes = np.zeros(12, dtype=int)
    rows = table(changed(pgfl, models=models, homes=homes), CLUSTERS, "cluster")
    assert rows["cluster 0"]["disagreement of servers"] == 0.0


def test_clusters_that_were_found_are_held_against_the_true_ones(pgfl):
    true_groups = pgfl.arrays["true_clusters"]
    found = np.array([1, 2, 0])[true_groups]
    found[0] = true_groups[0]
    result = changed(pgfl, clusters=found)
    result.metrics = [row | {"right": 0.5, "moved": 3.0} for row in pgfl.metrics]
    rows = table(result, CLUSTERS, "")
    whole = np.array([[row[f"cluster {q}"] for q in range(3)] for row in rows.values()])
    assert whole.sum() == 12
    assert whole[np.arange(3), [1, 2, 0]].sum() == 11
    assert whole[true_groups[0], true_groups[0]] == 1
    assert "clients that changed cluster" in shown(result, ROUNDS).lower()
    with pytest.raises(StopIteration):  # where they are the true ones, there is nothing to add
        table(pgfl, CLUSTERS, "")


def test_one_task_for_all_is_shown_by_true_cluster():
    result = run(method="gfl", rounds=3)
    assert len(table(result, CLUSTERS, "")) == 3
    assert len(table(result, CLUSTERS, "cluster")) == 1


def test_the_graph_has_the_numbers_of_a_path(pgfl):
    text = shown(pgfl, SERVERS)
    for term, value in (("Servers", 4), ("Edges", 3), ("Diameter", 3), ("Components", 1)):
        assert f"<dt>{term}</dt><dd>{value}</dd>" in text
    # (A + I) with rows divided by their sums, on a path of four.
    M = np.array([[3, 3, 0, 0], [2, 2, 2, 0], [0, 2, 2, 2], [0, 0, 3, 3]]) / 6.0
    second = sorted(np.abs(np.linalg.eigvals(M)))[-2]
    assert f"<dd>{second:.4g};" in text


def test_the_paper_s_mixing_is_called_inexact_unless_all_servers_are_neighbours(pgfl):
    word = "does not end at a cluster"
    assert word in shown(pgfl, SERVERS)
    assert word not in by_title(changed(pgfl, adjacency=np.ones((4, 4))))[SERVERS]
    exact = replace(pgfl, config={**pgfl.config, "mixing": "exact"})
    assert word not in shown(exact, SERVERS)
    apart = changed(pgfl, adjacency=np.zeros((4, 4), dtype=bool))
    assert "4 components" in shown(apart, SERVERS)
    clusterfl = replace(apart, config={**pgfl.config, "method": "clusterfl"})
    assert "did not talk" in shown(clusterfl, SERVERS)


def test_distances_are_euclidean(pgfl):
    points = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
    assert np.allclose(distances(points), [[0, 5, 3], [5, 0, 4], [3, 4, 0]])
    outcome = Outcome.of(pgfl)
    assert outcome is not None
    assert outcome.counts.sum() == 12
