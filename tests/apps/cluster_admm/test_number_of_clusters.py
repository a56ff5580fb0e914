"""The number of clusters, chosen by held-out losses, and the settings that say it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.apps.cluster_admm.separated import APART, TINY, config_of, rows_with, run
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import held_out_rows
from trellis.apps.cluster_admm.problem import optimum
from trellis.apps.cluster_admm.simulate import client_tables
from trellis.apps.common.settings import ConfigError
from trellis.sim.faults import Nonsense, not_a_number
from trellis.strategies.core.base import StudyError

# --- their number --------------------------------------------------------------------------------


def test_the_number_of_separated_clusters_is_chosen_and_trained_as_if_given():
    settings = {**APART, "clusters": "auto:2-4", "rounds": 40, "sample": 6}
    result, given = run(settings, 4), run({**settings, "clusters": "auto:3"}, 4)
    assert result.arrays["candidates"].tolist() == [2, 3, 4]
    assert result.headline["clusters"] == 3.0
    losses = result.arrays["held_out"]
    assert losses[1] == min(losses)
    assert [result.headline[f"held-out-{q}"] for q in (2, 3, 4)] == losses.tolist()
    assert result.arrays["models"].tobytes() == given.arrays["models"].tobytes()
    assert result.arrays["clusters"].tobytes() == given.arrays["clusters"].tobytes()
    assert len(result.metrics) == 4 * 40
    asked = rows_with(result, "held-out")
    assert [row["round"] for row in asked] == [40.0, 80.0, 120.0]
    assert [row["held-out"] for row in asked] == losses.tolist()
    assert all(row["tau"] == 0.0 for row in result.metrics[:120])


def test_held_out_losses_are_those_of_samples_that_nobody_trained_with():
    settings = {**APART, "clusters": "auto:1-2", "rounds": 150, "mixing": "exact", "tau": 0.0}
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


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusters", ["auto:3", "auto", "auto:2-4"])
@pytest.mark.parametrize("method", ["pgfl", "gfl"])
def test_a_claim_of_privacy_and_a_search_do_not_go_together(clusters, method):
    settings = {"clusters": clusters, "method": method, "privacy": "sound", "release": "each"}
    with pytest.raises(ConfigError, match=r"privacy='sound' with clusters='auto.*no noise"):
        run({**TINY, **settings})


def test_noise_without_a_claim_may_search_but_not_choose():
    noisy = {**APART, "privacy": "paper", "phi0": 10.0, "epsilon": 1e6}
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


@pytest.mark.parametrize("fraction", [1.0, -0.1, float("nan")])
def test_a_part_that_cannot_be_held_out_is_refused(fraction):
    with pytest.raises(ConfigError, match="held-out="):
        replace(ClusterAdmmConfig(), held_out=fraction)
