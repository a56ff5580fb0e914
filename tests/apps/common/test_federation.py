"""A ServerApp learns how many SuperNodes a simulation has, and what that means for the run."""

from __future__ import annotations

import logging
import re

import pytest

from tests.flower.bits import assert_same_bits
from trellis import apps
from trellis.apps.common.federation import complete_for
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError, config_class
from trellis.sim.grid import run_local

from .test_run_config import app_of

FEW = {
    "cluster-admm": {"rounds": 3, "features": 5},
    "consensus-graph": {"rounds": 3, "nodes": 6},
    "gromov-wasserstein": {"rounds": 2, "task": "graph", "graphs": 6, "downstream": "knn"},
    "joint-precision": {"rounds": 3, "variables": 8, "blocks": 2, "samples": "30"},
    "server-graph": {"rounds": 3, "samples": "20"},
}


def nodes_of(count: int) -> list[dict]:
    return [{"partition-id": i, "num-partitions": count, "simulation": True} for i in range(count)]


@pytest.mark.parametrize("study", FEW)
@pytest.mark.parametrize("count", [2, 4])
def test_as_many_clients_as_supernodes_give_the_bits_of_that_many(study, count, tmp_path, caplog):
    config = app_of(study, seed=3, out=str(tmp_path / "app"), report=False) | FEW[study]
    with caplog.at_level(logging.INFO, "trellis"):
        run_local(apps.server_app, apps.client_app, nodes_of(count), config)
    there = RunResult.load(tmp_path / "app")
    assert there.status == "completed"
    assert len(there.clients) == count
    assert f"{count} SuperNodes are online; {study} runs with {count} clients" in caplog.text
    usual = config_class(study)().clients
    assert f"(its built-in example has {usual}: --federation-config" in caplog.text
    here = apps.run(study, there.config, seed=3)
    assert_same_bits(here, there)


def test_who_sets_the_number_of_clients_waits_for_them(tmp_path):
    config = app_of("consensus-graph", clients=3, out=str(tmp_path), enrol_timeout=0.2)
    with pytest.raises(Exception, match=r"2 of 3 clients could be enrolled"):
        run_local(apps.server_app, apps.client_app, nodes_of(2), config)


def test_more_files_than_supernodes_are_refused_at_once(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text("x,y,z\n1,2,3\n2,3,1\n")
    config = app_of("consensus-graph", data=str(tmp_path))
    with pytest.raises(ConfigError, match=r"3 files, one per client, and 2 SuperNodes.*=3'"):
        run_local(apps.server_app, apps.client_app, nodes_of(2), config)


def test_on_devices_the_number_of_clients_must_be_set():
    class Grid:
        def get_node_ids(self):
            return [5, 6, 7]

    class Context:
        run_config = app_of("joint-precision")

    told = "clients=0: on devices, set clients to how many take part; 3 SuperNodes are online now"
    with pytest.raises(ConfigError, match=re.escape(told)):
        complete_for(Grid(), Context(), simulated=False)


def test_a_misspelt_study_gets_the_nearest(tmp_path):
    config = {**app_of("joint-precision"), "study": "joint-precison"}
    told = "study='joint-precison': did you mean 'joint-precision'?"
    with pytest.raises(ConfigError, match=re.escape(told)):
        run_local(apps.server_app, apps.client_app, nodes_of(2), config)
