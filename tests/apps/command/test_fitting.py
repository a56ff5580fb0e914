"""Settings are made to fit a federation, and what does not fit is told at once."""

from __future__ import annotations

import pytest

from trellis import apps
from trellis.apps.command.deploy.fitting import fit
from trellis.apps.common.settings import ConfigError, config_class


def devices(count, **more):
    return {
        f"d{i}": {"partition-id": i, "num-partitions": count, "data-path": f"/{i}.csv", **more}
        for i in range(count)
    }


@pytest.mark.parametrize("study", ["consensus-graph", "joint-precision", "gromov-wasserstein"])
def test_all_devices_take_part(study):
    fitted = fit(study, {}, devices(4))
    assert fitted.settings["clients"] == 4
    assert fitted.chosen["clients"] == "clients=4 (all devices)"


@pytest.mark.parametrize("study", list(apps.STUDIES))
def test_what_is_chosen_for_files_of_one_s_own_is_chosen_for_devices(study):
    own = config_class(study).for_own_data({})
    own.pop("method", None)  # which would take devices' updates in the clear
    fitted = fit(study, {}, devices(4))
    assert own.items() <= fitted.settings.items()
    assert fitted.chosen["held-out"] == "held-out=0.2 (for data of one's own)"
    # Under privacy a score is part of what is spent: it must be asked for.
    strict = fit(study, {"privacy": "dp"}, devices(4))
    assert "held-out" not in strict.settings
    # Servers that are apart do not know the units of each other's data.
    assert fit(study, {}, devices(6), apart=True).settings.keys() <= {
        "clients", "servers", "topology", "clusters",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "servers", "topology"), [(3, 1, None), (5, 1, None), (6, 2, "complete")]
)
@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
def test_servers_fit_the_devices(study, count, servers, topology):
    """The defaults, 50 or 150 clients of 10 servers, fit no small federation."""
    settings = fit(study, {}, devices(count)).settings
    assert (settings["clients"], settings["servers"]) == (count, servers)
    assert settings.get("topology") == topology
    config_class(study).from_settings(settings)


def test_what_devices_say_of_their_servers_and_clusters_is_taken():
    nodes = devices(6)
    for i, node in enumerate(nodes.values()):
        node |= {"server": i % 3, "cluster": i % 2}
    settings = fit("cluster-admm", {}, nodes).settings
    assert (settings["servers"], settings["clusters"]) == (3, "2")


def test_everything_that_does_not_fit_comes_in_one_message():
    with pytest.raises(ConfigError) as error:
        fit("server-graph", {"clients": 50, "servers": 60, "stepp": 1.0}, devices(3))
    text = str(error.value)
    assert "clients=50: there are 3 devices" in text
    assert "servers=60: more than clients=50" in text
    assert "stepp: unknown setting of server-graph; did you mean 'step'?" in text


def test_secure_sums_need_three_clients_of_a_server():
    with pytest.raises(ConfigError, match=r"servers=2: 4 clients leave a server with 2.*servers=1"):
        fit("server-graph", {"servers": 2}, devices(4))
    fit("server-graph", {"servers": 2, "method": "none"}, devices(4))


def test_a_device_without_a_place_is_named():
    nodes = devices(3)
    del nodes["d1"]["partition-id"]
    with pytest.raises(ConfigError, match="d1: its node config says neither server nor"):
        fit("server-graph", {}, nodes)
    nodes["d1"]["server"] = 0
    fit("server-graph", {"servers": 1}, nodes)


def test_clusters_that_nobody_says():
    with pytest.raises(ConfigError, match=r"clusters=2: d0, d1, d2 do not say.*clusters=auto:2"):
        fit("cluster-admm", {"clusters": "2"}, devices(3))
    fit("cluster-admm", {"clusters": "auto:2"}, devices(3))


def test_devices_that_want_privacy_get_it_or_it_is_said():
    nodes = devices(3, **{"require-privacy": True})
    assert fit("consensus-graph", {}, nodes).settings["privacy"] == "dp"
    with pytest.raises(ConfigError, match="d0 would refuse: this device requires privacy='dp'"):
        fit("consensus-graph", {"privacy": "none"}, nodes)
    with pytest.raises(ConfigError, match=r"requireprivacy: unknown.*'require-privacy'"):
        fit("consensus-graph", {}, devices(3, requireprivacy=True))


def test_a_setting_of_the_wrong_kind_is_named():
    with pytest.raises(ConfigError, match="clients='many': must be a whole number"):
        fit("server-graph", {"clients": "many"}, devices(3))
