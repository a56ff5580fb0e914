"""Servers' results gathered: as logical servers have them, from any of the folders, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.apps.runs.cuts import SMALL, cut, cuts, whole
from trellis.apps.common.results import RunResult
from trellis.apps.runs.merge import merge

STUDY = "server-graph"


def kept(parts, folder: Path) -> list[Path]:
    return [part.save(folder / f"part-{k}") for k, part in enumerate(parts)]


@pytest.fixture(scope="module")
def runs() -> dict[str, RunResult]:
    return {study: whole(study) for study in SMALL}


@pytest.mark.parametrize("study", SMALL)
def test_all_servers_together_are_the_run_in_one_process(study, runs, tmp_path):
    logical = runs[study]
    found = merge(kept(cuts(logical), tmp_path)[::-1])  # in any order
    expected = {k: v for k, v in logical.arrays.items() if k not in ("truth", "true_clusters")}
    for name, array in expected.items():
        assert found.arrays[name].dtype == array.dtype, name
        assert np.array_equal(found.arrays[name], array), name
    assert found.clients == logical.clients
    assert found.variables == logical.variables
    assert found.config == logical.config
    assert (found.study, found.seed, found.status) == (study, 1, "completed")
    if study == "server-graph":
        near = pytest.approx(logical.headline["disagreement"])
        assert found.headline["disagreement"] == near


def by_hand(server: int, partitions: list[int], model: list[float]) -> RunResult:
    """Return what one of two servers left, written down number by number."""
    models = np.full((2, 2), np.nan)
    models[server] = model
    return RunResult(
        "server-graph",
        3,
        "deployment",
        {"servers": 2},
        arrays={
            "models": models,
            "homes": np.full(len(partitions), server),
            "personal": np.array([[10.0 * k, server] for k in partitions]),
            "link_rounds": np.array([[1], [1]]),
        },
        metrics=[{"round": 1.0, "epsilon": 0.1 + server}, {"round": 2.0, "epsilon": 0.3 + server}],
        clients=[{"name": f"device-{k}", "partition": k} for k in partitions],
        variables=["age", "dose"],
        status="completed",
        network={
            "server": server,
            "name": "xy"[server],
            "run": "r",
            "names": ["x", "y"],
            "edges": [[0, 1]],
            "neighbours": [1 - server],
            "max_staleness": server,
            "events": [],
        },
    )


def test_clients_of_two_servers_stand_in_order_of_their_partitions(tmp_path):
    parts = [by_hand(1, [3, 0], [3.0, 5.0]), by_hand(0, [2, 1], [1.0, 1.0])]
    found = merge(kept(parts, tmp_path))
    assert [c["name"] for c in found.clients] == ["device-0", "device-1", "device-2", "device-3"]
    assert found.arrays["homes"].tolist() == [1, 0, 0, 1]
    assert found.arrays["personal"].tolist() == [[0, 1], [10, 0], [20, 0], [30, 1]]
    assert found.arrays["models"].tolist() == [[1, 1], [3, 5]]
    assert found.arrays["centroid"].tolist() == [2, 3]
    assert found.headline == {"disagreement": 5.0, "rounds": 2.0}  # 1 + 4 of each
    assert found.arrays["link_rounds"].tolist() == [[1, 1], [1, 1]]
    assert found.arrays["links"].tolist() == [[0, 1], [1, 0]]
    assert [row["epsilon"] for row in found.metrics] == [1.1, 1.3]
    assert "max_staleness" not in found.network  # they had different ones


def test_a_server_that_is_down_is_not_in_the_centroid(tmp_path):
    logical = whole("server-graph", servers=4, clients=12, failures="2:3")
    assert not logical.arrays["alive"].all()
    found = merge(kept([cut(logical, p) for p in (0, 1, 3)], tmp_path))
    assert np.array_equal(found.arrays["alive"], logical.arrays["alive"])
    assert np.array_equal(found.arrays["centroid"], logical.arrays["centroid"])
    assert np.isnan(found.arrays["models"][2]).all()


def test_numbers_of_rounds_add_up_or_are_the_largest(runs, tmp_path):
    parts = cuts(runs["server-graph"])
    parts[1].metrics = parts[1].metrics[:4]  # it stopped before the others
    parts[1].arrays = {
        name: array[:4] if name.startswith("link_") else array
        for name, array in parts[1].arrays.items()
    }
    found = merge(kept(parts, tmp_path))
    first, last = found.metrics[0], found.metrics[-1]
    assert [row["round"] for row in found.metrics] == [1, 2, 3, 4, 5, 6]
    assert (first["clients"], last["clients"]) == (9, 6)
    assert (first["bytes-up"], last["bytes-up"]) == (303, 202)
    assert (first["bytes-down"], first["seconds"], first["oldest"]) == (30, 3, 1)
    assert first["links"] == 1 + 1 + 1  # the middle one has no letter of its second one yet
    assert first["change"] == max(part.metrics[0]["change"] for part in parts)
    assert (found.bytes_up, found.bytes_down, found.seconds) == (3003, 300, 7.0)
    assert found.headline["rounds"] == 6
    used = found.arrays["link_rounds"]
    assert found.arrays["links"].tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert used.tolist()[0] == [1, 1, 0, 1]
    assert used.tolist()[4] == [5, -1, -1, 5]
    assert np.isnan(found.arrays["link_seconds"][4, 1])
    assert np.isnan(found.arrays["link_weights"][5, 2])


@pytest.mark.parametrize("study", SMALL)
@pytest.mark.parametrize("chosen", [(0,), (2, 1), (2, 0)])
def test_any_of_the_servers_will_do(study, chosen, runs, tmp_path):
    logical = runs[study]
    found = merge(kept([cut(logical, server) for server in chosen], tmp_path))
    models = found.arrays["models"]
    for server in range(3):
        if server in chosen:
            assert np.array_equal(models[server], logical.arrays["models"][server])
        else:
            assert np.isnan(models[server]).all()
            assert f"site-{server}" in found.notes[0]
    assert found.notes[0].startswith("Not gathered: ")
    assert found.network["merged"] == [f"site-{server}" for server in sorted(chosen)]
    own = np.isin(logical.arrays["homes"], chosen)
    assert np.array_equal(found.arrays["homes"], logical.arrays["homes"][own])
    if study == "server-graph":
        mean = logical.arrays["models"][sorted(chosen)].mean(axis=0)
        assert np.allclose(found.arrays["centroid"], mean)
        assert ("disagreement" in found.headline) == (len(chosen) > 1)
    else:
        assert np.array_equal(found.arrays["clients"], logical.arrays["clients"][own])


def test_events_notes_and_ledgers_say_whose_they_are(runs, tmp_path):
    happened = [
        [{"round": 3, "seconds": 9.0, "server": 1, "what": "gone"}],
        [{"round": 2, "seconds": 4.0, "server": 0, "what": "late"}],
        [],
    ]
    parts = [cut(runs["server-graph"], p, events) for p, events in enumerate(happened)]
    found = merge(kept(parts, tmp_path))
    assert [event["of"] for event in found.network["events"]] == ["site-1", "site-0"]
    assert found.network["run"] == "trial-7"
    assert found.network["edges"] == [[0, 1], [1, 2]]
    assert found.network["names"] == found.network["merged"] == ["site-0", "site-1", "site-2"]
    assert found.notes == [f"site-{p}: a note of {p}" for p in range(3)]
    assert found.ledger["epsilon"] == 2.5
    names = [entry["name"] for entry in found.ledger["clients"]]
    assert names == [client["name"] for client in runs["server-graph"].clients]


def test_entries_of_servers_are_taken_from_the_server_itself(runs, tmp_path):
    """Where a study accounts for servers, each may list all of them."""
    parts = cuts(runs["server-graph"])
    for server, part in enumerate(parts):
        part.ledger = {
            "mode": "dp",
            "simulated": server == 1,
            "claim": f"of {server}",
            "clients": [{"name": f"site-{p}", "epsilon": 10 * server + p} for p in range(3)],
        }
    ledger = merge(kept(parts, tmp_path)).ledger
    assert [entry["epsilon"] for entry in ledger["clients"]] == [0, 11, 22]
    assert ledger["simulated"] is True
    assert ledger["claim"] == "site-0: of 0 site-1: of 1 site-2: of 2"


def test_a_server_that_failed_before_its_first_model_is_named(runs, tmp_path):
    parts = cuts(runs["cluster-admm"])
    parts[0] = replace(parts[0], status="failed", arrays={}, metrics=[], headline={}, ledger={})
    found = merge(kept(parts, tmp_path))
    assert found.status == "failed"
    assert np.isnan(found.arrays["models"][0]).all()
    assert [client["partition"] for client in found.clients] == [3, 4, 5, 6, 7, 8]
    notes = " ".join(found.notes)
    assert "site-0 ended (failed) before it had a model" in notes
    assert "site-0 left no ledger" in notes


def test_nobody_with_a_model_is_a_result_without_one(runs, tmp_path):
    bare = [replace(part, arrays={}, metrics=[], status="stopped") for part in cuts(runs[STUDY])]
    found = merge(kept(bare, tmp_path))
    assert found.arrays == {}
    assert found.status == "stopped"


def test_what_servers_do_not_agree_on_is_left_out_and_named(runs, tmp_path):
    parts = cuts(runs[STUDY])
    for server, part in enumerate(parts):
        part.arrays["extra"] = np.array([server])
        part.headline["msd"] = -10.0 - server
        part.headline["spectral-gap"] = 0.25
    found = merge(kept(parts, tmp_path))
    assert "extra" not in found.arrays
    assert "extra" in found.notes[0]
    assert "msd" not in found.headline
    assert found.headline["spectral-gap"] == 0.25


def test_a_partition_of_two_servers_is_a_warning(runs, tmp_path):
    parts = cuts(runs[STUDY])
    parts[2].clients = [{**parts[2].clients[0], "partition": 0}, *parts[2].clients[1:]]
    notes = merge(kept(parts, tmp_path)).notes
    assert notes[0].startswith("Partition 0 is a client of site-0 and of site-2")


def test_what_is_gathered_can_be_kept_and_read_again(runs, tmp_path):
    found = merge(kept(cuts(runs[STUDY]), tmp_path))
    again = RunResult.load(found.save(tmp_path / "all"))
    assert again.network == found.network
    assert again.headline == found.headline
    assert np.array_equal(again.arrays["link_rounds"], found.arrays["link_rounds"])


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("network.run", lambda part: part.network.update(run="trial-8")),
        ("network.names", lambda part: part.network.update(names=["a", "b", "c"])),
        ("network.edges", lambda part: part.network.update(edges=[[0, 1]])),
        ("study", lambda part: setattr(part, "study", "cluster-admm")),
        ("seed", lambda part: setattr(part, "seed", 2)),
        ("variables", lambda part: setattr(part, "variables", ["age", "dose"])),
        ("config.step", lambda part: part.config.update(step=0.25)),
        ("config.more", lambda part: part.config.update(more=1)),
        ("config.rounds", lambda part: part.config.pop("rounds")),
    ],
)
def test_folders_of_different_runs_are_refused_by_folder_and_key(key, change, runs, tmp_path):
    parts = cuts(runs[STUDY])
    parts[1].config = dict(parts[1].config)
    change(parts[1])
    folders = kept(parts, tmp_path)
    with pytest.raises(ValueError, match=rf"part-1: {key} is .* in .*part-0; gather folders of"):
        merge(folders)


def test_the_same_server_twice_is_refused(runs, tmp_path):
    one, other, _ = cuts(runs[STUDY])
    folders = kept([one, other, cut(runs[STUDY], 1)], tmp_path)
    with pytest.raises(ValueError, match=r"part-2: network.server: site-1 is in .*part-1 too"):
        merge(folders)


def test_a_folder_without_a_network_is_refused(runs, tmp_path):
    folders = [*kept(cuts(runs[STUDY])[:1], tmp_path), runs[STUDY].save(tmp_path / "logical")]
    with pytest.raises(ValueError, match=r"logical: network: run.json has none"):
        merge(folders)


def test_what_is_gathered_is_not_gathered_again(runs, tmp_path):
    folders = kept(cuts(runs[STUDY])[:2], tmp_path)
    merge(folders).save(tmp_path / "all")
    with pytest.raises(ValueError, match=r"all: network.merged: this is gathered already"):
        merge([tmp_path / "all", *folders])


@pytest.mark.parametrize("name", ["models", "homes", "link_rounds"])
def test_arrays_that_do_not_fit_are_named(name, runs, tmp_path):
    parts = cuts(runs[STUDY])
    parts[2].arrays[name] = np.concatenate([parts[2].arrays[name]] * 2)
    with pytest.raises(ValueError, match=rf"part-2: {name} in result.npz has shape"):
        merge(kept(parts, tmp_path))


def test_an_empty_folder_and_no_folder_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        merge([tmp_path])
    with pytest.raises(ValueError, match="nothing to gather"):
        merge([])


def test_a_result_of_before_there_were_networks_can_be_read(runs, tmp_path):
    runs[STUDY].save(tmp_path)
    header = json.loads((tmp_path / "run.json").read_text())
    assert header.pop("network") == {}
    (tmp_path / "run.json").write_text(json.dumps(header))
    assert RunResult.load(tmp_path).network == {}
