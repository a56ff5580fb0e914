"""cluster-admm without given clusters: clusters found, among clients that fail or lie."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict

from tests.apps.cluster_admm.separated import APART, SEPARATED, TINY, config_of, rows_with, run
from trellis.apps.cluster_admm import build
from trellis.apps.cluster_admm.data import synthetic_truth
from trellis.apps.cluster_admm.paper.clusters import oracle
from trellis.apps.cluster_admm.problem import optimum
from trellis.apps.cluster_admm.simulate import client_tables
from trellis.sim.faults import Drop, Nonsense, Raise, not_a_number, without_arrays, wrong_shape
from trellis.strategies.cluster_admm.finding import ClusterFinding
from trellis.strategies.cluster_admm.search import agreement
from trellis.strategies.core import wire


@pytest.mark.parametrize("seed", SEPARATED)
def test_separated_clusters_are_found(seed):
    assert oracle(APART, seed) >= 0.97
    result = run(APART, seed)
    assert result.headline["right"] >= 0.95
    assert (
        agreement(result.arrays["clusters"], synthetic_truth(config_of(APART), seed).clusters, 3)
        == (result.headline["right"])
    )


@pytest.mark.parametrize(
    "changes",
    [{"mixing": "exact"}, {"sample": 4}, {"method": "clusterfl"}, {"servers": 1}],
    ids=str,
)
def test_separated_clusters_are_found_in_every_variant(changes):
    assert run({**APART, **changes}, 4).headline["right"] >= 0.95


def test_in_the_papers_setting_as_many_are_right_as_with_the_true_models():
    settings = {"clusters": "auto", "samples": "20", "rounds": 32, "servers": 5, "assign-every": 8}
    shares = [(run(settings, s).headline["right"], oracle(settings, s)) for s in (1, 2)]
    assert max(best for _, best in shares) < 0.95  # nobody can do better
    assert all(right > best - 0.1 for right, best in shares)


def test_found_clusters_end_at_their_own_optimum():
    settings = {**APART, "mixing": "exact", "tau": 0.0, "rounds": 150}
    result, tables = run(settings, 4), client_tables(config_of(settings), 4)
    for cluster in range(3):
        mine = np.flatnonzero(result.arrays["clusters"] == cluster)
        best = optimum("ridge", [tables[k] for k in mine], 0.1)
        found = result.arrays["models"][:, cluster]
        np.testing.assert_allclose(found, np.tile(best, (4, 1)), atol=1e-7)


def test_clusters_whose_models_have_nothing_in_common_are_found_in_files(tmp_path):
    rng = np.random.default_rng(0)
    models, truth = rng.normal(size=(3, 15)), np.arange(30) % 3
    for k, cluster in enumerate(truth):
        X = rng.normal(size=(8, 15))
        np.savez(tmp_path / f"c{k:02}.npz", X=X, y=X @ models[cluster] + rng.normal(size=8))
    settings = {"servers": 3, "topology": "ring", "clusters": "auto:3", "rounds": 60}
    result = run(settings, data=tmp_path)
    assert agreement(result.arrays["clusters"], truth, 3) >= 0.95
    assert "right" not in result.headline  # nothing here knows it


def test_labels_are_clustered_as_well(tmp_path):
    rng = np.random.default_rng(1)
    models, truth = np.array([[4.0, 0.0, 1.0], [-4.0, 0.0, 1.0]]), np.arange(16) % 2
    for k, cluster in enumerate(truth):
        X = rng.normal(size=(30, 3))
        np.savez(tmp_path / f"c{k:02}.npz", X=X, y=np.sign(X @ models[cluster]))
    settings = {"servers": 2, "clusters": "auto:2", "rounds": 20, "assign-every": 4}
    result = run({**settings, "loss": "logistic", "topology": "complete"}, data=tmp_path)
    assert agreement(result.arrays["clusters"], truth, 2) == 1.0


def test_the_search_ends_when_nobody_moves_and_clusters_then_learn_from_each_other():
    result = run(APART, 4)
    asked = rows_with(result, "moved")
    assert [row["round"] for row in asked] == [11.0 + 5.0 * i for i in range(len(asked))]
    assert asked[-1]["moved"] == 0.0
    end = asked[-1]["round"]
    assert all((row["tau"] > 0.0) == (row["round"] >= end) for row in result.metrics)
    assert result.metrics[0]["right"] == pytest.approx(1 / 3)  # one model for all


def test_losses_are_counted_in_the_traffic():
    result = run(APART, 4)
    asked, quiet = result.metrics[10], result.metrics[8]
    assert asked["bytes-down"] > quiet["bytes-down"] + 36 * 3 * 12 * 8
    assert asked["bytes-up"] > quiet["bytes-up"] + 36 * 3 * 8
    rows = sum(row["bytes-up"] for row in result.metrics)
    enrolment = run({**APART, "clusters": "3"}, 4)
    assert result.bytes_up - rows == pytest.approx(
        enrolment.bytes_up - sum(row["bytes-up"] for row in enrolment.metrics), abs=36 * 8
    )


def negative(reply):
    return _losses(reply, lambda losses: losses - 1e9)


def too_many_samples(reply):
    content = reply.content
    content["metrics"] = MetricRecord({"num-examples": 10**6})
    return content


def out_of_proportion(reply):
    return _losses(reply, lambda losses: 1e90 * (1.0 + losses))


def _losses(reply, change):
    content = reply.content
    content["arrays"] = wire.record({"losses": change(wire.arrays(content["arrays"])["losses"])})
    return content


def nothing(reply):
    return RecordDict()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Nonsense(change=not_a_number, category="evaluate", since=1), "not finite"),
        (Nonsense(change=wrong_shape, category="evaluate", since=1), r"of shape \("),
        (Nonsense(change=without_arrays, category="evaluate", since=1), "arrays"),
        (Nonsense(change=nothing, category="evaluate", since=1), "arrays"),
        (Nonsense(change=negative, category="evaluate", since=1), "below 0"),
        (Nonsense(change=too_many_samples, category="evaluate", since=1), "enrolled with 20"),
        (Raise(category="evaluate", since=1, text="disk full"), "disk full"),
        (Drop(category="evaluate", since=1), "has stopped answering"),
    ],
    ids=lambda value: getattr(getattr(value, "change", value), "__name__", str(value)),
)
def test_a_client_that_tells_no_usable_losses_is_named_and_keeps_its_cluster(fault, reason, caplog):
    caplog.set_level(logging.WARNING, "trellis")
    result = run(APART, 4, faults={7: fault})
    assert any("client 8 sent no losses and keeps its cluster" in m for m in caplog.messages)
    assert any(re.search(reason, m) for m in caplog.messages)
    assert result.arrays["clusters"][7] == 0  # where all began
    assert result.headline["right"] >= 0.9  # all others


def test_a_client_that_comes_back_is_assigned():
    fault = Raise(category="evaluate", at=frozenset({1}))
    assert run(APART, 4, faults={7: fault}).headline["right"] >= 0.95


def test_one_client_with_losses_out_of_all_proportion_does_not_spoil_the_split():
    fault = Nonsense(change=out_of_proportion, category="evaluate", since=1)
    assert run(APART, 4, faults={7: fault}).headline["right"] >= 0.9


def test_where_nobody_tells_losses_all_stay_together(caplog):
    caplog.set_level(logging.WARNING, "trellis")
    faults = {k: Raise(category="evaluate", since=1) for k in range(9)}
    result = run(TINY, faults=faults)
    assert not np.any(result.arrays["clusters"])
    assert any("the split has to wait" in message for message in caplog.messages)


def test_clients_that_do_not_differ_are_not_split(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "trellis")
    X = np.random.default_rng(0).normal(size=(6, 3))
    for k in range(6):
        np.savez(tmp_path / f"c{k}.npz", X=X, y=X[:, 0])
    settings = {"servers": 1, "clusters": "auto:2", "rounds": 9, "assign-every": 2}
    result = run(settings, data=tmp_path)
    assert not np.any(result.arrays["clusters"])
    assert any("clients do not differ" in message for message in caplog.messages)


def test_a_cluster_that_everyone_leaves_keeps_its_model_and_is_named(caplog):
    class Leaving(ClusterFinding):
        def ask_losses(self, grid, server_round, models):
            sent = super().ask_losses(grid, server_round, models)
            if self.split:
                sent.values[:, 1] = 1e9
            return sent

    caplog.set_level(logging.WARNING, "trellis")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "ClusterFinding", Leaving)
        result = run({**APART, "tau": 0.0}, 4)
    assert any("nobody is in cluster 1; its model is kept" in m for m in caplog.messages)
    assert np.all(np.linalg.norm(result.arrays["models"][:, 1], axis=1) > 0.0)


def test_one_cluster_needs_no_search():
    one = run({**APART, "clusters": "auto:1", "rounds": 8}, 4)
    given = run({**APART, "clusters": "1", "rounds": 8}, 4)
    np.testing.assert_array_equal(one.arrays["models"], given.arrays["models"])
    assert not rows_with(one, "moved")
