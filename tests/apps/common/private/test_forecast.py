"""What a private run is worth: one formula for all studies, held against what was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.private import forecast as cluster_admm
from trellis.apps.common.private.forecast import HIGHEST, LOWEST, forecast
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.private import forecast as consensus_graph
from trellis.apps.gromov_wasserstein import forecast as gromov_wasserstein
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.private import forecast as joint_precision
from trellis.apps.server_graph import forecast as server_graph
from trellis.apps.server_graph.config import ServerGraphConfig


def consensus_graph_of(clients, epsilon, signals):
    config = ConsensusGraphConfig(privacy="dp", clients=clients, epsilon=epsilon)
    return consensus_graph.forecast_of(config, [signals] * clients, 20)


def joint_precision_of(clients, epsilon, samples):
    config = JointPrecisionConfig(privacy="dp", clients=clients, epsilon=epsilon)
    return joint_precision.forecast_of(config, [samples] * clients, 54)


def server_graph_of(clients, epsilon, samples):
    config = ServerGraphConfig(
        privacy="dp", clients=clients, servers=clients // 5, rounds=50, epsilon=epsilon, batch=0
    )
    return server_graph.forecast_of(config, [samples] * clients, 2)


def cluster_admm_of(clients, epsilon, features):
    loss = "ridge" if features == 60 else "logistic"
    config = ClusterAdmmConfig(
        privacy="dp", clients=clients, features=features, loss=loss, epsilon=epsilon
    )
    return cluster_admm.forecast_of(config, [20] * clients, features)


def gromov_wasserstein_of(clients, epsilon, graphs):
    config = GromovWassersteinConfig(
        privacy="dp", method="fedavg", clients=clients, epsilon=epsilon
    )
    return gromov_wasserstein.forecast_of(config, [graphs] * clients, 700)


OF = {
    "consensus-graph": consensus_graph_of,
    "joint-precision": joint_precision_of,
    "server-graph": server_graph_of,
    "cluster-admm": cluster_admm_of,
    "gromov-wasserstein": gromov_wasserstein_of,
}

# The number of clients from which a private run was better than local-only learning, at epsilon
# 0.3, 1 and 3: the tables of the studies' pages, by ``trellis paper STUDY break-even``. The number
# in the middle is of signals, samples, features or graphs.
MEASURED = [
    ("consensus-graph", 20, (100, 50, 20)),
    ("consensus-graph", 50, (50, 20, 10)),
    ("joint-precision", 150, (160, 40, 10)),
    ("server-graph", 20, (50, 10, 5)),
    ("cluster-admm", 60, (200, 50, 20)),
    ("cluster-admm", 20, (50, 20, 10)),
    ("gromov-wasserstein", 7, (300, 200, 60)),
]


@pytest.mark.parametrize(("study", "size", "clients"), MEASURED)
def test_the_ratio_is_near_one_where_private_runs_began_to_pay(study, size, clients):
    for number, epsilon in zip(clients, (0.3, 1.0, 3.0), strict=True):
        assert 0.4 < OF[study](number, epsilon, size).ratio < 1.8


@pytest.mark.parametrize(("study", "size"), {study: size for study, size, _ in MEASURED}.items())
def test_more_clients_and_more_epsilon_are_better_and_the_break_even_is_where_it_says(study, size):
    found = OF[study]
    assert found(100, 1.0, size).ratio < found(50, 1.0, size).ratio
    assert found(50, 3.0, size).ratio < found(50, 1.0, size).ratio
    even = found(50, 1.0, size).break_even
    assert found(50, even, size).ratio == pytest.approx(1.0, abs=1e-4)


def test_the_formula_is_that_of_two_means():
    """Against errors of drawn means: of one client's records, and of all with noise."""
    rng, draws = np.random.default_rng(0), 4000
    counts, noise = [25, 25, 25, 25], 0.15
    own = rng.normal(size=(draws, 25)).mean(axis=1)
    together = rng.normal(size=(draws, 100)).mean(axis=1) + noise * rng.normal(size=draws)
    found = forecast(lambda epsilon: noise / epsilon, counts, 1.0)
    assert found.ratio == pytest.approx(together.std() / own.std(), rel=0.05)
    assert found.break_even == pytest.approx(noise / math.sqrt(1 / 25 - 1 / 100), rel=1e-5)


def test_there_may_be_no_break_even_or_any_epsilon_will_do():
    alone = forecast(lambda epsilon: 1.0 / epsilon, [50], 1.0)
    assert alone.break_even == math.inf
    assert "at no epsilon up to 1000" in alone.text()
    assert "inf" not in alone.text()
    assert alone.text().startswith("Forecast: with 1 client and ")
    assert forecast(lambda epsilon: 0.0, [10] * 5, 1.0).break_even == LOWEST
    assert forecast(lambda epsilon: HIGHEST, [10] * 5, 1.0).break_even == math.inf


def test_the_text_has_the_ratio_and_the_epsilon():
    text = forecast(lambda epsilon: 0.1 / epsilon, [1200, 1400, 1600], 2.0).text()
    assert text == (
        "Forecast: with 3 clients and epsilon=2 the error of what is learned together is about 2 "
        "times that of a client's own 1,400 records. Below 1 it pays to learn together: from about "
        "epsilon=4.6 on."
    )
