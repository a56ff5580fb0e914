"""All methods on the same data: what is equal between them, and what a comparison may cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.report import compare as module
from trellis.apps.cluster_admm.report.compare import affordable, as_method, compare
from trellis.apps.cluster_admm.report.page import FEWEST_ROUNDS
from trellis.apps.cluster_admm.simulate import simulate
from trellis.apps.common.settings import ConfigError

SMALL = ClusterAdmmConfig(
    servers=4, topology="ring", clients=18, features=5, samples="6-9", rounds=6, sample=2
)


def test_every_method_has_the_same_data_and_as_many_clients_a_round():
    found = compare(SMALL, 3).found
    assert list(found) == list(module.COMPARED)
    for method, one in found.items():
        assert one.nmsd.shape == (6,)
        np.testing.assert_array_equal(one.truth.models, found["pgfl"].truth.models)
        each = one.took_part.sum(axis=1)
        assert np.all(each == (0 if method == "local" else 8)), method


def test_the_method_of_the_run_has_the_run_s_own_numbers():
    for method in ("pgfl", "clusterfl", "fedavg"):
        config = SMALL.as_method(method)
        np.testing.assert_array_equal(
            compare(config, 2).found[method].nmsd, simulate(config, 2).nmsd
        )


def test_fedavg_draws_what_the_servers_draw_together_and_not_more_than_there_are():
    # 18 clients on 4 servers: 5, 4, 5, 4. Five each would be 20, but there are only 18.
    assert as_method(replace(SMALL, sample=5), "fedavg").sample == 0
    assert as_method(replace(SMALL, sample=0), "fedavg").sample == 0
    assert as_method(SMALL, "fedavg").sample == 8
    assert as_method(SMALL, "gfl").sample == 2


def test_a_run_of_fedavg_is_divided_among_the_servers_of_the_others():
    run = SMALL.as_method("fedavg", sample=18)
    assert as_method(run, "pgfl").sample == 2  # 10 servers, the default
    assert as_method(run, "fedavg").sample == 18
    assert as_method(replace(run, sample=1), "pgfl").sample == 1


def test_clusters_that_had_to_be_found_are_given():
    found = compare(replace(SMALL, clusters="auto:3"), 3)
    given = compare(SMALL, 3)
    assert not found.missing
    np.testing.assert_array_equal(found.found["pgfl"].nmsd, given.found["pgfl"].nmsd)


def test_a_method_that_diverges_is_named_and_the_others_have_their_numbers():
    found = compare(
        replace(SMALL, rho=0.05, tau=0.9, features=20, samples="2-4", rounds=300, sample=0), 1
    )
    assert "rho=0.05" in found.missing["pgfl"]
    assert "local" in found.found


def test_logistic_clients_cannot_be_simulated():
    with pytest.raises(ConfigError, match="logistic"):
        compare(replace(SMALL, loss="logistic"), 1)


def test_the_default_setting_is_compared_in_full_with_noise_for_fewer_rounds():
    default = ClusterAdmmConfig()
    assert affordable(default) == 200
    # A draw a client and round: all 200 would take as long as the whole report may.
    assert FEWEST_ROUNDS < affordable(replace(default, privacy="paper")) < 200


def test_long_runs_are_cut_and_large_data_left_out():
    default = ClusterAdmmConfig()
    assert 200 < affordable(replace(default, rounds=10_000)) < 10_000
    assert affordable(replace(default, privacy="paper", rounds=10_000)) < affordable(
        replace(default, rounds=10_000)
    )
    assert affordable(replace(default, samples="100-2000", features=500)) == 0
    assert affordable(replace(default, samples="5000", features=2)) == 0  # of cubes, not of size
    assert module.MOST_NUMBERS > 150 * 5000 * 2
