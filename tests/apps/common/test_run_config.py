"""Both forms of a Flower run config, and what an app leaves open."""

from __future__ import annotations

import numpy as np
import pytest

from trellis import apps
from trellis.apps.common.run_config import (
    COMMON,
    app_settings,
    by_study,
    common_settings,
    complete,
)
from trellis.apps.common.settings import ConfigError, config_class


def app_of(study: str, **settings) -> dict:
    """Return the run config of a study's own app, with settings in place of its defaults."""
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    config = {**common_settings(study), **app_settings(config_class(study))}
    assert not given.keys() - config.keys()
    return config | given


def completed(study: str, supernodes: int, **settings):
    found = complete(app_of(study, **settings), supernodes)
    return config_class(study).from_run_config(found), found


@pytest.mark.parametrize("study", apps.STUDIES)
def test_no_setting_has_the_name_of_a_common_key(study):
    assert not config_class(study).kinds().keys() & COMMON.keys()


@pytest.mark.parametrize("study", apps.STUDIES)
def test_both_forms_are_the_same_run(study):
    flat = app_of(study, seed=7)
    settings = {f"{study}.{key}": value for key, value in app_settings(config_class(study)).items()}
    nested = {**COMMON, "study": study, "seed": 7, "another-study.rho": 3.0, **settings}
    once = complete(flat, 4)
    assert {**COMMON, "another-study.rho": 3.0, **once} == complete(nested, 4)
    assert complete(once, 4) is once


def test_the_key_under_the_study_s_name_counts():
    found = by_study(
        {"study": "consensus-graph", "consensus-graph.rho": 2.0, "rho": 9.0, "beta": 1}
    )
    assert found == {
        "study": "consensus-graph",
        "consensus-graph.rho": 2.0,
        "consensus-graph.beta": 1,
    }


@pytest.mark.parametrize("study", apps.STUDIES)
@pytest.mark.parametrize("supernodes", [1, 2, 3, 5, 6, 10, 200])
def test_every_study_fits_every_number_of_supernodes(study, supernodes):
    config, _ = completed(study, supernodes)
    assert config.clients == supernodes
    assert getattr(config, "servers", 1) <= supernodes


@pytest.mark.parametrize("study", apps.STUDIES)
def test_the_built_in_example_s_own_number_gives_its_own_settings(study):
    usual = config_class(study)()
    config, found = completed(study, usual.clients)
    assert config == usual
    assert found["chosen"] == ""


def test_what_is_chosen_for_few_clients_is_named_with_the_reason():
    config, found = completed("server-graph", 2)
    assert (config.servers, config.topology, config.secure_aggregation) == (2, "complete", "off")
    assert found["chosen"] == (
        "servers=2 (2 clients), topology=complete (few servers), "
        "secure-aggregation=off (fewer than 3 clients per server)"
    )
    config, found = completed("cluster-admm", 2)
    assert (config.servers, config.topology, config.clusters) == (2, "complete", "2")
    assert "clusters=2 (2 clients)" in found["chosen"]


def test_the_consensus_is_as_sparse_for_any_number_of_supernodes():
    config, found = completed("consensus-graph", 2)
    assert config.lambda_ == 0.12
    assert found["chosen"] == "lambda=0.12 (2 clients)"
    assert completed("consensus-graph", 50)[0].lambda_ == 3.0
    assert completed("consensus-graph", 2, **{"lambda": 0.2})[0].lambda_ == 0.2
    assert completed("consensus-graph", 2, clients=5)[0].lambda_ == 0.3
    # No effect, so nothing is chosen.
    assert completed("consensus-graph", 20, privacy="dp")[1]["chosen"] == ""
    consensus = apps.run("consensus-graph", completed("consensus-graph", 2)[0].settings()).arrays
    assert np.count_nonzero(consensus["consensus"]) > 20  # of 190 pairs; none with 0.3


def test_what_the_user_sets_stays():
    config, _ = completed("cluster-admm", 9, servers=9, clusters="auto:2", topology="ring")
    assert (config.servers, config.topology, config.clusters) == (9, "ring", "auto:2")
    config, _ = completed("server-graph", 2, clients=8)
    assert (config.clients, config.servers) == (8, 2)
    # What is set and does not fit is refused, and not lowered.
    with pytest.raises(ConfigError, match="clients=2: fewer than servers=4"):
        completed("server-graph", 2, servers=4)
    with pytest.raises(ConfigError, match="clusters='5': more than clients=2"):
        completed("cluster-admm", 2, clusters="5")


def test_privacy_loses_no_secure_sums_to_few_clients():
    config, found = completed("server-graph", 5, privacy="dp", clip=1.0)
    assert (config.servers, config.secure_aggregation) == (1, "auto")
    assert config.sums
    assert "secure-aggregation" not in found["chosen"]


def test_a_run_has_as_many_clients_as_files(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n")
    config, _ = completed("server-graph", 5, data=str(tmp_path))
    assert (config.clients, config.servers) == (3, 1)
    (tmp_path / "assignment.csv").write_text("client,server\na,0\nb,1\nc,1\n")
    config, found = completed("server-graph", 7, data=str(tmp_path))
    assert (config.clients, config.servers) == (3, 2)
    assert "servers=2 (as assignment.csv says)" in found["chosen"]


def test_on_devices_nothing_is_lowered_and_no_folder_is_read():
    left = complete(app_of("server-graph", data="/no/such/folder"))
    assert (left["server-graph.clients"], left["server-graph.servers"]) == (0, 0)
    found = complete(app_of("server-graph", clients=4, data="/no/such/folder"))
    assert found["server-graph.servers"] == 1
    assert found["server-graph.secure-aggregation"] == "auto"


def test_a_number_that_is_none_is_named():
    with pytest.raises(ConfigError, match="clients='many': must be a whole number"):
        complete(app_of("consensus-graph", clients="many"), 2)
