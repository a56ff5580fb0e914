"""Which server of a graph a run config makes this ServerApp."""

from __future__ import annotations

import math
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.graphs import server_folders
from trellis.apps.common.settings import ConfigError
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.network.place import DEFAULTS, bridges, clients_here, place_of, terms
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.strategies.topology.graph import topology

CONFIG = ServerGraphConfig(servers=3, clients=9, topology="path", enrol_timeout=11.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return server_folders(tmp_path_factory.mktemp("servers"), 3)[1]


def run_config(folder, **more):
    own = {"server": 1, "server-folder": str(folder), "graph-run": "a run"}
    return {**own, **{key.replace("_", "-"): value for key, value in more.items()}}


def test_a_place_is_what_the_run_config_says(folder):
    place = place_of(run_config(folder, max_staleness=2, server_timeout=7), CONFIG, 5)
    assert (place.server, place.folder, place.run) == (1, folder, "a run")
    assert (place.max_staleness, place.timeout, place.greeting_timeout) == (2, 7.0, 22.0)
    assert place.terms == terms(CONFIG, 5, 2)


def test_without_a_server_all_are_in_this_process(folder):
    assert place_of({}, CONFIG, 1) is None
    assert place_of(run_config("nowhere", server=-1), CONFIG, 1) is None


def test_defaults_are_those_of_the_project_file():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    written = project["tool"]["flwr"]["app"]["config"]
    assert {key: written[key] for key in DEFAULTS} == DEFAULTS


def test_an_endless_timeout_is_a_number(folder):
    place = place_of(run_config(folder, server_timeout=math.inf), CONFIG, 1)
    assert 1e6 < place.timeout < math.inf


WRONG = {
    "server=3: the servers are numbered 0 to 2": {"server": 3},
    "server=-2: a whole number, -1 at least": {"server": -2},
    "server='1': a whole number": {"server": "1"},
    "server=True: a whole number": {"server": True},
    "server=1.0: a whole number": {"server": 1.0},
    "graph-run='': a name for this run": {"graph_run": ""},
    "server-timeout=0: seconds, more than 0": {"server_timeout": 0},
    "server-timeout=-1.0: seconds": {"server_timeout": -1.0},
    "server-timeout=nan: seconds": {"server_timeout": math.nan},
    "server-timeout='60': seconds": {"server_timeout": "60"},
    "server-timeout=True: seconds": {"server_timeout": True},
    "max-staleness=-1: a whole number, 0 at least": {"max_staleness": -1},
    "max-staleness=1.5: a whole number": {"max_staleness": 1.5},
    "server-folder='relative/folder': the absolute path": {"server_folder": "relative/folder"},
    "server-folder='.': the absolute path": {"server_folder": ""},
    "server-folder='/not/there': the absolute path": {"server_folder": "/not/there"},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_is_named(folder, words):
    with pytest.raises(ConfigError) as error:
        place_of(run_config(folder, **WRONG[words]), CONFIG, 1)
    assert str(error.value).startswith(words)


def test_a_study_with_one_server_has_no_places(folder):
    with pytest.raises(ConfigError, match="consensus-graph has one server; leave server out"):
        place_of(run_config(folder), ConsensusGraphConfig(), 1)


def test_a_folder_that_cannot_be_used_is_an_error_of_the_config(folder):
    place = place_of(run_config(folder), CONFIG, 1)
    with pytest.raises(ConfigError, match="leave server out"):
        bridges(topology("path", 1), place)
    with pytest.raises(ConfigError, match=r"servers.txt: 3 servers, the run has 4"):
        bridges(topology("path", 4), place)
    with pytest.raises(ConfigError, match="not the key of server 2"):
        bridges(topology("path", 3), replace(place, server=2))


# --- clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "servers"), [(9, 3), (10, 3), (11, 4), (3, 3)])
def test_every_client_is_some_servers(clients, servers):
    shares = [clients_here({}, clients, servers, server) for server in range(servers)]
    assert sum(shares) == clients
    assert max(shares) - min(shares) <= 1


def test_the_number_of_clients_can_be_said():
    assert clients_here({"clients-here": 5}, 9, 3, 1) == 5
    with pytest.raises(ConfigError, match="clients-here=-1: a whole number, 0 at least"):
        clients_here({"clients-here": -1}, 9, 3, 1)


def test_a_server_that_would_wait_for_nobody_is_told_so():
    with pytest.raises(ConfigError, match="clients=2: of so few server 2 of 3 gets none"):
        [clients_here({}, 2, 3, server) for server in range(3)]
    assert clients_here({"clients-here": 1}, 2, 3, 2) == 1


# --- terms ---------------------------------------------------------------------------------------

DP = {"privacy": "dp"}
OWN_AFFAIR = {"timeout": 5.0, "enrol_timeout": 5.0, "clients_least": 4}
OTHER = {
    "rounds": 7, "tolerance": 1e-3, "clients": 12, "sample": 2, "epsilon": 2.0, "delta": 1e-6,
    "method": "none", "norm_bound": 3.0, "robust": "clip", "trim": 0.2, "held_out": 0.1,
    "dropout": 0.2, "colluding": 0.2, "servers": 4, "topology": "ring", "weights": "laplacian",
    "step": 0.2, "batch": 5, "local_steps": 2, "clip": 1.0, "average": 0.4, "sigma": 0.3,
    "ridge": 0.02, "loss": "least-squares", "secure_aggregation": "off", "failures": "1:5",
    "on_server_loss": "rehome", "features": 3, "samples": "50", "spread": 0.4,
    "privacy": "dp", "standardise": "shared",
    "scales": "h1:0:1,h2:0:1",
}  # fmt: skip


def changed(key, value):
    # Some need others beside them.
    beside = {
        "norm_bound": {"secure_aggregation": "off", "robust": "none"},
        "robust": {"secure_aggregation": "off", "norm_bound": 3.0},
        **{key: dict(DP) for key in ("epsilon", "dropout", "colluding", "average")},
        "clip": {"method": "none"},
        "scales": {"standardise": "auto"},
    }
    more = beside.get(key, {})
    before = getattr(CONFIG, key)
    base = replace(CONFIG, **more)
    assert value != before
    return base, replace(base, **{key: value})


def test_every_setting_is_in_one_of_the_tables():
    assert {f.name for f in fields(ServerGraphConfig)} == {*OWN_AFFAIR, *OTHER}


@pytest.mark.parametrize("key", OWN_AFFAIR)
def test_how_long_to_wait_and_for_how_many_is_a_servers_own_affair(key):
    other = replace(CONFIG, **{key: OWN_AFFAIR[key]})
    assert other != CONFIG
    assert terms(other, 1, 0) == terms(CONFIG, 1, 0)


@pytest.mark.parametrize("key", OTHER)
def test_every_other_setting_must_be_shared(key):
    base, other = changed(key, OTHER[key])
    assert terms(other, 1, 0) != terms(base, 1, 0)


def test_seed_staleness_and_study_must_be_shared():
    assert len({terms(CONFIG, 1, 0), terms(CONFIG, 2, 0), terms(CONFIG, 1, 1)}) == 3


def test_of_a_graph_in_a_file_the_content_counts_and_not_its_place(tmp_path):
    edges = "source,target\na,b\nb,c\n"
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(edges)
    other.write_text(edges)
    config = replace(CONFIG, topology=str(one))
    assert terms(config, 1, 0) == terms(replace(CONFIG, topology=str(other)), 1, 0)
    before = terms(config, 1, 0)
    one.write_text(edges + "a,c\n")
    assert terms(config, 1, 0) != before
