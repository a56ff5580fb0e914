"""``trellis device result``: opens the newest page, says it in words, lists the others."""

from __future__ import annotations

import webbrowser

import numpy as np
import pytest

from tests.apps.owner_runs import devices, kept_by, run_on
from trellis.apps.command import main

SETTINGS = {"method": "fedavg", "rounds": 2, "held-out": 0.2}


@pytest.fixture
def node(tmp_path):
    rng = np.random.default_rng(0)
    tables = [{"X": rng.normal(size=(20, 2)), "y": np.sign(rng.normal(size=20))} for _ in range(2)]
    nodes = devices(tmp_path, tables)
    run_on(nodes, "server-graph", tmp_path / "one", SETTINGS)
    first = kept_by(nodes[0])
    run_on(nodes, "server-graph", tmp_path / "two", SETTINGS)
    return nodes[0] | {"first": first}


@pytest.fixture
def opened(monkeypatch):
    found = []
    monkeypatch.setattr(webbrowser, "open", lambda page: found.append(page) or True)
    return found


def says(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main(["device", *map(str, arguments)]) == code
    return " ".join(capsys.readouterr().out.split())


def test_the_newest_page_is_opened_where_there_is_a_screen(node, opened, capsys, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    words = says(capsys, "result", node["state-path"])
    (page,) = opened
    assert page.startswith("file:///")
    assert node["first"].folder.name not in page
    assert f"run {node['first'].folder.name}" in words.partition("other results")[2]
    words = says(capsys, "result", node["state-path"], "--run", node["first"].folder.name)
    assert opened[1].endswith(f"{node['first'].folder.name}/result.html")
    says(capsys, "result", node["state-path"], "--no-browser")
    assert len(opened) == 2


def test_without_a_screen_it_is_said_in_words(node, opened, capsys, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    words = says(capsys, "result", node["state-path"])
    assert not opened
    assert "tells label 1 from label -1" in words
    assert "this result: mean loss" in words
    assert "learning alone, on the same records: mean loss" in words
    assert "not covered by any epsilon" in words
    assert "model (2,)" in words
    assert "page: " in words


def test_a_run_that_is_not_there_is_named(node, capsys):
    words = says(capsys, "result", node["state-path"], "--run", "7", code=1)
    assert "no result of run 7" in words
    assert node["first"].folder.name in words
    words = says(capsys, "predict", node["state-path"], "x.csv", "--run", "7", code=1)
    assert "no result of run 7" in words


def test_log_and_ledger_name_the_server_that_the_owner_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    tables = [{"X": rng.normal(size=(30, 4))} for _ in range(3)]
    named = {"server-name": "City clinic", "max-epsilon": 3.0}
    nodes = devices(tmp_path, tables, **named)
    settings = {"privacy": "dp", "rounds": 2}
    run_on(nodes, "consensus-graph", tmp_path / "out", settings)
    state, run = nodes[0]["state-path"], kept_by(nodes[0]).about["run"]
    words = says(capsys, "log", state)
    assert words.count("asked by City clinic") == 3  # enrolled, released, result
    assert f"result consensus-graph run {run} query.personal, asked by City clinic" in words
    assert "asked by City clinic" in says(capsys, "ledger", state)
