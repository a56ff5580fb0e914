"""A server that sends results as it likes: at any time, many times, with anything in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from trellis import apps
from trellis.apps.common.private import kept as keeping
from trellis.apps.common.private.kept import kept_results
from trellis.apps.common.runner import make_run_config
from trellis.privacy.device import log
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.exchange import exchange

NAMES = ["a", "b", "c", "d"]
GRAPH = np.arange(6) / 6.0
GOOD = {"weights": GRAPH, "consensus": GRAPH}
SILENCE = {"personal": {"came": True}}


@pytest.fixture
def node(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    np.savez(tmp_path / "x.npz", X=X, columns=np.array(NAMES))
    return {"data-path": str(tmp_path / "x.npz"), "state-path": str(tmp_path / "state")}


def send(node, *contents, **settings):
    """Send results, one after the other, in one run; return all that the device says."""
    config = make_run_config("consensus-graph", {"clients": 3, **settings})
    with LocalGrid(apps.client_app, [node], config) as grid:
        (node_id,) = grid.get_node_ids()
        told = []
        for content in contents:
            message = Message(content, node_id, "query.personal")
            told.append(exchange(grid, {0: message}, 30.0))
    return told


def arrays(**found):
    return RecordDict({"arrays": wire.record(found)})


BAD = {
    "nothing": RecordDict(),
    "other records": RecordDict({"arrays": ConfigRecord({"weights": "x"})}),
    "too small": arrays(weights=GRAPH[:3], consensus=GRAPH),
    "not finite": arrays(weights=np.full(6, np.nan), consensus=GRAPH),
    "negative": arrays(weights=-GRAPH, consensus=GRAPH),
    "whole numbers": arrays(weights=np.arange(6), consensus=GRAPH),
    "half of it": arrays(weights=GRAPH),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_result_is_not_kept_and_the_reply_is_the_same(node, what):
    good, bad = send(node, arrays(**GOOD), BAD[what])
    for told in (good, bad):
        assert not told.failures
        assert {key: dict(record) for key, record in told.content[0].items()} == SILENCE
    assert good.bytes_up == bad.bytes_up
    assert len(kept_results(Path(node["state-path"]))) == 1
    assert log.read(Path(node["state-path"]))[-1]["what"] == "error"


def test_a_result_is_never_written_over(node):
    others = [arrays(weights=GRAPH * k, consensus=GRAPH) for k in range(2, 12)]
    told = send(node, arrays(**GOOD), *others)
    assert all(
        {key: dict(record) for key, record in one.content[0].items()} == SILENCE for one in told
    )
    state = Path(node["state-path"])
    known = kept_results(state)
    assert len(known) == keeping.MOST_OF_A_RUN
    run = known[0].about["run"]
    assert [kept.folder.name for kept in known] == [run, *(f"{run}-{k}" for k in range(2, 6))]
    np.testing.assert_array_equal(known[0].arrays["weights"], GRAPH)
    last = log.read(state)[-1]
    assert last["what"] == "error"
    assert "no more are kept" in last["error"]


def test_the_disk_that_results_take_is_bounded(node, monkeypatch):
    small = {**node, "most-megabytes": 0.02}
    state = Path(node["state-path"])
    for _ in range(8):
        (told,) = send(small, arrays(**GOOD), privacy="none")
        assert not told.failures
    kept = kept_results(state)
    assert 1 <= len(kept) < 8
    size = sum(file.stat().st_size for file in state.glob("results/*/*"))
    assert size <= 20_000
    assert "delete old ones" in log.read(state)[-1]["error"]
    monkeypatch.setattr(keeping, "MOST", len(kept))
    send(node, arrays(**GOOD))  # without that limit, too many are too many
    assert len(kept_results(state)) == len(kept)


def test_a_message_above_the_owner_s_size_is_refused_unread(node):
    big = arrays(**GOOD, junk=np.zeros(40_000))
    (told,) = send({**node, "most-megabytes": 0.1}, big)
    assert "device error E4" in told.failures[0]
    assert not kept_results(Path(node["state-path"]))


def test_texts_of_a_server_are_neither_markup_nor_paths(node, capsys):
    evil = "</td><script>alert(1)</script>\x1b[2J../../etc"
    content = arrays(**GOOD)
    content["order"] = ConfigRecord({evil: evil, "name": evil})
    (told,) = send({**node, "server-name": evil}, content)
    assert not told.failures
    state = Path(node["state-path"])
    (kept,) = kept_results(state)
    page = kept.page.read_text()
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page  # the owner's own word, as text
    assert {path.parent for path in state.rglob("*") if path.is_file()} == {state, kept.folder}
    from trellis.apps.command import main

    for command in (["result", str(state), "--no-browser"], ["log", str(state)]):
        assert main(["device", *command]) == 0
        said = capsys.readouterr().out
        assert "\x1b[2J" not in said


def test_a_result_before_anything_was_learned_tells_nothing(node):
    """The first message of a run may be its last: the reply does not depend on the data."""
    (first,) = send(node, arrays(**GOOD), **{"held-out": 0.3})
    gone = {**node, "data-path": node["data-path"] + ".gone.npz"}
    (second,) = send(gone, arrays(**GOOD), **{"held-out": 0.3})
    assert not second.failures
    for key, record in second.content[0].items():
        assert dict(record) == dict(first.content[0][key])


PRIVATE = {"clients": 3, "held-out": 0.3, "privacy": "dp"}
PUBLIC = {**GOOD, "noise": np.array([0.1])}


@pytest.mark.parametrize("method", ["fedgl", "igl", "fedavg"])
@pytest.mark.parametrize("kind", ["query.personal", "evaluate"])
def test_scores_stay_on_the_device_and_places_are_not_the_server_s_to_choose(node, kind, method):
    settings = {**PRIVATE, "method": method}
    for seed_of_the_server in (1, 2):
        config = make_run_config("consensus-graph", settings, seed=seed_of_the_server)
        with LocalGrid(apps.client_app, [node], config) as grid:
            (node_id,) = grid.get_node_ids()
            told = exchange(grid, {0: Message(arrays(**PUBLIC), node_id, kind)}, 30.0)
        assert {key: dict(record) for key, record in told.content[0].items()} == SILENCE
    first, second = kept_results(Path(node["state-path"]))
    assert first.about["scores"] == second.about["scores"]  # whatever the run's seed
    assert first.about["scores"]["count"] == 9


@pytest.mark.parametrize(("privacy", "tells"), [("none", True), ("dp", False), ("paper", False)])
def test_scores_are_told_without_privacy_only(node, privacy, tells):
    settings = {**PRIVATE, "privacy": privacy}
    if privacy != "dp":
        settings |= {"local-steps": 3}
    config = make_run_config("consensus-graph", settings)
    with LocalGrid(apps.client_app, [node], config) as grid:
        (node_id,) = grid.get_node_ids()
        told = exchange(grid, {0: Message(arrays(**PUBLIC), node_id, "evaluate")}, 30.0)
    assert not told.failures
    assert ("scores" in told.content[0]) is tells
    assert kept_results(Path(node["state-path"]))[0].about["scores"]["count"] == 9
