"""cluster-admm without given clusters: clients alone, clusters found, their number chosen."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

import apps
from apps.cluster_admm import server_app
from apps.cluster_admm.config import ClusterAdmmConfig
from apps.cluster_admm.data import held_out_rows, synthetic_truth
from apps.cluster_admm.paper.clusters import oracle
from apps.cluster_admm.problem import optimum
from apps.cluster_admm.simulate import client_tables, simulate
from apps.common.results import RunResult
from apps.common.runner import make_run_config
from apps.common.settings import ConfigError
from sim.faults import Drop, Nonsense, Raise, not_a_number, without_arrays, wrong_shape
from sim.grid import run_local
from strategies.cluster_admm.finding import ClusterFinding
from strategies.cluster_admm.search import agreement
from strategies.core import wire
from strategies.core.base import StudyError
from strategies.core.checkpoint import Checkpoint

# Separated clusters: the true models tell (nearly) all clients apart.
APART = {
    "servers": 4, "topology": "ring", "clients": 36, "features": 12, "samples": "20",
    "similarity": 1.0, "noise": 0.5, "clusters": "auto:3", "assign-every": 5, "rounds": 30,
}  # fmt: skip
SEPARATED = (4, 6, 9)  # seeds that draw them so
TINY = {**APART, "clients": 9, "servers": 3, "features": 4, "assign-every": 2, "rounds": 12}


def run(settings, seed=1, **options):
    return apps.run("cluster-admm", settings, seed=seed, **options)


def config_of(settings):
    return ClusterAdmmConfig.from_settings(settings)


def rows_with(result, name):
    return [row for row in result.metrics if name in row]


# --- clients alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("clusters", ["3", "auto:3", "auto:2-4"])
def test_clients_alone_have_their_own_ridge_solutions(clusters):
    settings = {**TINY, "method": "local", "samples": "2-9", "clusters": clusters, "sample": 1}
    result, config = run(settings, 3), config_of(settings)
    for k, (X, y) in enumerate(client_tables(config, 3)):
        gram = X.T @ X / len(y) + config.ridge * np.eye(config.features)
        alone = np.linalg.solve(gram, X.T @ y / len(y))
        np.testing.assert_allclose(result.arrays["clients"][k], alone, atol=1e-6)
    assert len(result.metrics) == 1


def test_clients_alone_have_the_numbers_of_the_arithmetic():
    settings = {**TINY, "method": "local", "clusters": "3"}
    result, expected = run(settings), simulate(config_of(settings), 1)
    for name in ("models", "clients", "homes"):
        np.testing.assert_allclose(result.arrays[name], getattr(expected, name), atol=1e-6)
    assert result.headline["nmsd"] == pytest.approx(expected.nmsd[-1], abs=1e-6)


def test_clients_alone_without_ridge_take_the_shortest_solution():
    settings = {**TINY, "method": "local", "clusters": "3", "ridge": 0.0, "samples": "2"}
    result, expected = run(settings), simulate(config_of(settings), 1)
    np.testing.assert_allclose(result.arrays["clients"], expected.clients, atol=1e-5)


def test_a_client_alone_that_fails_is_asked_again_and_then_left_at_zero():
    settings = {**TINY, "method": "local", "clusters": "3"}
    late = run(settings, faults={2: Raise(category="train", at=frozenset({1}))})
    np.testing.assert_array_equal(late.arrays["models"], run(settings).arrays["models"])
    assert [row["clients"] for row in late.metrics] == [8.0, 1.0]
    never = run(settings, faults={2: Raise(category="train")})
    assert len(never.metrics) == 3
    np.testing.assert_array_equal(never.arrays["clients"][2], np.zeros(4))
    assert any("left out of 3 rounds" in note for note in never.notes)


def test_clients_alone_have_no_noise_of_the_paper():
    with pytest.raises(ConfigError, match="method='local'"):
        run({**TINY, "method": "local", "clusters": "3", "privacy": "paper"})


# --- clusters found ------------------------------------------------------------------------------


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
    settings = {**APART, "mixing": "exact", "tau": 0.0, "rounds": 500}
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
    content["samples"] = ConfigRecord({"count": 10**6})
    return content


def out_of_proportion(reply):
    return _losses(reply, lambda losses: 1e90 * (1.0 + losses))


def _losses(reply, change):
    content = reply.content
    content["arrays"] = wire.record({"losses": change(wire.arrays(content["arrays"])["losses"])})
    return content


def nothing(reply):
    return RecordDict()


# The first query of a node is its enrolment.
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Nonsense(change=not_a_number, category="query", since=2), "not finite"),
        (Nonsense(change=wrong_shape, category="query", since=2), r"of shape \("),
        (Nonsense(change=without_arrays, category="query", since=2), "arrays"),
        (Nonsense(change=nothing, category="query", since=2), "arrays"),
        (Nonsense(change=negative, category="query", since=2), "below 0"),
        (Nonsense(change=too_many_samples, category="query", since=2), "the client has 20"),
        (Raise(category="query", since=2, text="disk full"), "disk full"),
        (Drop(category="query", since=2), "heartbeat"),
    ],
    ids=lambda value: getattr(getattr(value, "change", value), "__name__", str(value)),
)
def test_a_client_that_tells_no_usable_losses_is_named_and_keeps_its_cluster(fault, reason, caplog):
    caplog.set_level(logging.WARNING, "trellis")
    result = run(APART, 4, faults={7: fault})
    name = result.clients[7]["name"]
    assert any(f"client {name} told no losses and keeps its cluster" in m for m in caplog.messages)
    assert any(re.search(reason, m) for m in caplog.messages)
    assert result.arrays["clusters"][7] == 0  # where all began
    assert result.clients[7]["failures"] == 0 or isinstance(fault, Drop)
    assert result.headline["right"] >= 0.9  # all others


def test_a_client_that_comes_back_is_assigned():
    fault = Raise(category="query", at=frozenset({2}))
    assert run(APART, 4, faults={7: fault}).headline["right"] >= 0.95


def test_one_client_with_losses_out_of_all_proportion_does_not_spoil_the_split():
    fault = Nonsense(change=out_of_proportion, category="query", since=2)
    assert run(APART, 4, faults={7: fault}).headline["right"] >= 0.9


def test_where_nobody_tells_losses_all_stay_together(caplog):
    caplog.set_level(logging.WARNING, "trellis")
    faults = {k: Raise(category="query", since=2) for k in range(9)}
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
        def fit(self, grid, server_round, models):
            losses = super().fit(grid, server_round, models)
            if self.split:
                losses[:, 1] = 1e9
            return losses

    caplog.set_level(logging.WARNING, "trellis")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_app, "ClusterFinding", Leaving)
        result = run({**APART, "tau": 0.0}, 4)
    assert any("nobody is in cluster 1; its model is kept" in m for m in caplog.messages)
    assert np.all(np.linalg.norm(result.arrays["models"][:, 1], axis=1) > 0.0)


def test_one_cluster_needs_no_search():
    one = run({**APART, "clusters": "auto:1", "rounds": 8}, 4)
    given = run({**APART, "clusters": "1", "rounds": 8}, 4)
    np.testing.assert_array_equal(one.arrays["models"], given.arrays["models"])
    assert not rows_with(one, "moved")


# --- their number --------------------------------------------------------------------------------


def test_the_number_of_separated_clusters_is_chosen_and_trained_as_if_given():
    settings = {**APART, "clusters": "auto:2-4", "rounds": 25, "sample": 6}
    result, given = run(settings, 4), run({**settings, "clusters": "auto:3"}, 4)
    assert result.arrays["candidates"].tolist() == [2, 3, 4]
    assert result.headline["clusters"] == 3.0
    losses = result.arrays["held_out"]
    assert losses[1] == min(losses)
    assert [result.headline[f"held-out-{q}"] for q in (2, 3, 4)] == losses.tolist()
    assert result.arrays["models"].tobytes() == given.arrays["models"].tobytes()
    assert result.arrays["clusters"].tobytes() == given.arrays["clusters"].tobytes()
    assert len(result.metrics) == 4 * 25
    asked = rows_with(result, "held-out")
    assert [row["round"] for row in asked] == [25.0, 50.0, 75.0]
    assert [row["held-out"] for row in asked] == losses.tolist()
    assert all(row["tau"] == 0.0 for row in result.metrics[:75])


def test_held_out_losses_are_those_of_samples_that_nobody_trained_with():
    settings = {**APART, "clusters": "auto:1-2", "rounds": 400, "mixing": "exact", "tau": 0.0}
    result = run({**settings, "held-out": 0.3, "samples": "6-9", "clients": 12}, 4)
    config = config_of({**settings, "samples": "6-9", "clients": 12})
    train, rest = [], []
    for X, y in client_tables(config, 4):
        out = held_out_rows(len(y), 0.3)
        train.append((X[~out], y[~out]))
        rest.append((X[out], y[out]))
    best = optimum("ridge", train, config.ridge)
    errors = np.concatenate([y - X @ best for X, y in rest])
    assert result.arrays["held_out"][0] == pytest.approx(np.mean(errors**2), rel=1e-6)


def test_the_choice_survives_clients_that_tell_nothing():
    settings = {**APART, "clusters": "auto:2-3", "rounds": 20}
    result = run(settings, 4, faults={7: Nonsense(change=not_a_number, category="query", since=2)})
    assert np.all(np.isfinite(result.arrays["held_out"]))
    assert result.headline["clusters"] == 3.0


def test_a_choice_without_any_held_out_sample_is_refused():
    with pytest.raises(StudyError, match="two samples at least"):
        run({**TINY, "clusters": "auto:1-2", "samples": "1", "rounds": 6})


# --- going on after a kill -----------------------------------------------------------------------


class Counting(type(apps.client_app)):
    """Counts the messages of one client, and ends the run at the n-th."""

    def __init__(self, kill_at=0):
        super().__init__()
        self.seen, self.kill_at = 0, kill_at

    def __call__(self, message, context):
        if context.node_config["partition-id"] == 1:
            self.seen += 1
            if self.seen == self.kill_at:
                raise KeyboardInterrupt
        return super().__call__(message, context)


def start(settings, out, app=apps.client_app, resume=False):
    run_config = make_run_config("cluster-admm", settings, seed=4, resume=resume)
    nodes = [
        {"partition-id": i, "num-partitions": settings["clients"], "simulation": True}
        for i in range(settings["clients"])
    ]
    run_local(apps.server_app, app, nodes, run_config | {"out": str(out)})
    result = RunResult.load(out)
    for row in result.metrics:
        del row["seconds"]
    return result


@pytest.mark.parametrize(
    "changes",
    [
        {"clusters": "auto:3"},
        {"clusters": "auto:3", "sample": 2},
        {"clusters": "auto:3", "mixing": "exact"},
        {"clusters": "auto:2-3", "rounds": 7},
        {"clusters": "3", "method": "local"},
    ],
    ids=str,
)
def test_a_run_killed_at_any_message_and_resumed_ends_with_the_same_bits(
    changes, tmp_path, monkeypatch
):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    settings = {**TINY, "rounds": 10, "samples": "4", **changes}
    counting = Counting()
    whole = start(settings, tmp_path / "whole", counting)
    for place in range(2, counting.seen + 1):
        folder = tmp_path / f"killed-{place}"
        with pytest.raises(KeyboardInterrupt):
            start(settings, folder, Counting(place))
        resumed = start(settings, folder, resume=True)
        assert set(resumed.arrays) == set(whole.arrays)
        for name, array in whole.arrays.items():
            assert resumed.arrays[name].tobytes() == array.tobytes(), (place, name)
        assert resumed.metrics == whole.metrics


def test_a_choice_is_not_resumed_with_other_rounds(tmp_path):
    settings = {**TINY, "clusters": "auto:1-2"}
    start(settings, tmp_path)
    with pytest.raises(ValueError, match="rounds=12, this run has rounds=13"):
        start({**settings, "rounds": 13}, tmp_path, resume=True)


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusters", ["auto:3", "auto", "auto:2-4"])
@pytest.mark.parametrize("method", ["pgfl", "gfl"])
def test_a_claim_of_privacy_and_a_search_do_not_go_together(clusters, method):
    with pytest.raises(ConfigError, match=r"privacy='sound' with clusters='auto.*no noise"):
        run({**TINY, "clusters": clusters, "method": method, "privacy": "sound"})


def test_noise_without_a_claim_may_search_but_not_choose():
    noisy = {**APART, "privacy": "paper", "phi0": 10.0}
    assert run(noisy, 4).headline["right"] >= 0.95
    with pytest.raises(ConfigError, match="privacy='paper' with clusters='auto:2-3'"):
        run({**noisy, "clusters": "auto:2-3"})


def test_a_run_too_short_to_find_anything_is_refused():
    with pytest.raises(ConfigError, match=r"rounds=10: .*assign-every=5 .*before round 11"):
        run({**APART, "rounds": 10})
    run({**TINY, "rounds": 5, "method": "gfl", "clusters": "auto:2"})


@pytest.mark.parametrize(
    "clusters", ["2-4", "auto:4-2", "auto:0-2", "auto:2-", "auto:", "auto3", "-1"]
)
def test_a_number_of_clusters_that_says_nothing_is_refused(clusters):
    with pytest.raises(ConfigError, match=f"clusters='{clusters}': a whole number >= 1"):
        config_of({"clusters": clusters})


@pytest.mark.parametrize(
    ("clusters", "candidates", "synthetic"),
    [
        ("4", [4], 4),
        ("auto", [3], 3),
        ("auto:5", [5], 5),
        ("auto:2-5", [2, 3, 4, 5], 3),
        ("auto:4-6", [4, 5, 6], 4),
        ("auto:1-2", [1, 2], 2),
    ],
)
def test_what_a_number_of_clusters_means(clusters, candidates, synthetic):
    config = config_of({"clusters": clusters})
    assert list(config.candidates) == candidates
    assert config.cluster_count == synthetic
    assert config.finds_clusters == clusters.startswith("auto")


def test_more_candidates_than_clients_are_refused():
    with pytest.raises(ConfigError, match="more than clients=9"):
        config_of({**TINY, "clusters": "auto:2-10"})


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_part_that_cannot_be_held_out_is_refused(fraction):
    with pytest.raises(ConfigError, match="held-out="):
        replace(ClusterAdmmConfig(), held_out=fraction)
