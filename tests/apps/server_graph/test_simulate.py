"""The arithmetic without messages is the study's, draw by draw."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.server_graph.federations import of_method
from trellis import apps
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.simulate import simulate

SMALL = {
    "clients": 15,
    "servers": 5,
    "sample": 2,
    "rounds": 12,
    "batch": 3,
    "samples": "20",
    "topology": "path",  # its ends have one neighbour: masks keep noise there
    "secure-aggregation": "off",
}


def both(seed=3, **changes):
    settings = {**SMALL, **{name.replace("_", "-"): value for name, value in changes.items()}}
    settings = of_method(settings, settings.get("method", "hybrid"))
    run = apps.run("server-graph", settings, seed=seed)
    return run, simulate(ServerGraphConfig.from_settings(settings), seed)


def same(run, found):
    np.testing.assert_array_equal(found.models, run.arrays["models"])
    np.testing.assert_array_equal(found.truth, run.arrays["truth"])
    for name, values in (("msd", found.msd), ("msd-servers", found.msd_servers)):
        np.testing.assert_allclose(values, [row[name] for row in run.metrics], atol=1e-6)
    told = [row["disagreement"] for row in run.metrics]
    np.testing.assert_allclose(found.disagreement, told, atol=1e-12)


@pytest.mark.parametrize("method", ["none", "iid", "hybrid", "masked", "fedavg"])
def test_the_models_are_those_of_the_run(method):
    same(*both(method=method))


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "least-squares", "features": 4, "step": 0.05},
        {"clip": 0.3, "local_steps": 3},
        {"batch": 0, "sample": 0, "samples": ",".join(str(5 + k) for k in range(15))},
        {"topology": "erdos-renyi:0.5", "weights": "laplacian"},
    ],
    ids=["least-squares", "clipped-steps", "unequal-clients", "laplacian"],
)
def test_the_models_are_those_of_the_run_with_other_settings(changes):
    same(*both(method="hybrid", **changes))


@pytest.mark.parametrize("loss", ["drop", "rehome"])
@pytest.mark.parametrize("method", ["iid", "masked"])
def test_servers_fail_as_in_the_run(method, loss):
    changes = {"failures": "1:4-8,4:6", "on_server_loss": loss, "topology": "complete"}
    run, found = both(method=method, **changes)
    same(run, found)
    assert not run.arrays["alive"][4]


def test_masks_without_noise_are_refused_where_a_server_has_one_neighbour():
    config = ServerGraphConfig.from_settings({**SMALL, "method": "masked", "sigma": 0.0})
    with pytest.raises(ConfigError, match="in round 1 server-0 has one neighbour"):
        simulate(config, 1)


def test_a_loss_of_another_kind_is_refused():
    config = ServerGraphConfig.from_settings({**SMALL, "loss": "small-mlp"})
    with pytest.raises(ConfigError, match="logistic"):
        simulate(config, 1)


def test_methods_share_their_draws_and_noise_does_not_leak_between_them():
    config = ServerGraphConfig.from_settings({**SMALL, "method": "none"})
    alone = simulate(config, 8).models
    noisy = simulate(ServerGraphConfig.from_settings({**SMALL, "method": "iid"}), 8).models
    assert np.max(np.abs(noisy - alone)) > 1e-3
    assert np.array_equal(simulate(config, 8).models, alone)


def test_fewer_rounds_are_the_first_of_many():
    config = ServerGraphConfig.from_settings(SMALL)
    assert np.array_equal(simulate(config, 2, rounds=5).msd, simulate(config, 2).msd[:5])
