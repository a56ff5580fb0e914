"""Runs side by side from Python, and as a page."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import trellis
from trellis.apps.command import main
from trellis.apps.common.settings import ConfigError

from .wards import SETTINGS

STUDY = "consensus-graph"


@pytest.fixture(scope="module")
def pair() -> list[trellis.Result]:
    return [trellis.run(STUDY, SETTINGS[STUDY], rho=rho, lambda_=0.1) for rho in (0.01, 8.0)]


def edges_of(result: trellis.Result, name: str) -> set[frozenset[str]]:
    return {frozenset(edge) for edge in result.graph(name).edges}


def test_edges_of_one_and_not_of_the_other(pair):
    found = trellis.compare(*pair)
    assert found.runs == ["run 1", "run 2"]
    assert found.graphs() == pair[0].graphs
    frame = found.edges("client-1")
    apart = edges_of(pair[0], "client-1") ^ edges_of(pair[1], "client-1")
    assert apart
    assert {frozenset(ends) for ends in zip(frame["from"], frame["to"], strict=True)} == apart
    for _, row in frame.iterrows():
        for run, result in zip(found.runs, pair, strict=True):
            known = result.graph("client-1").get_edge_data(row["from"], row["to"])
            assert np.isnan(row[run]) if known is None else row[run] == known["weight"]
    assert set(found.edges()["graph"]) <= set(found.graphs())
    with pytest.raises(ConfigError, match="'servers': not a graph of all these runs; they share"):
        found.edges("servers")


def test_numbers_and_settings_in_a_table(pair):
    found = trellis.compare(*pair, names=["loose", "tight"])
    frame = found.to_frame()
    assert list(frame.columns) == ["loose", "tight"]
    assert frame.loc["rho"].tolist() == ["0.01", "8.0"]
    assert frame.loc["objective", "tight"] == pair[1].headline["objective"]
    assert "tight" in found._repr_html_()


def test_runs_in_hand_and_kept_ones(pair, tmp_path):
    copy.deepcopy(pair[1]).save(tmp_path / "kept")
    found = trellis.compare(pair[0], tmp_path / "kept")
    assert found.runs == ["run 1", "run 2"]
    copy.deepcopy(pair[0]).save(tmp_path / "other")
    assert trellis.compare(str(tmp_path / "other"), tmp_path / "kept").runs == ["other", "kept"]


def test_what_cannot_be_compared(pair, tmp_path):
    with pytest.raises(ConfigError, match="two runs or more"):
        trellis.compare(pair[0])
    with pytest.raises(ConfigError, match="given twice"):
        trellis.compare(pair[0], pair[0])
    with pytest.raises(ConfigError, match="2 different names"):
        trellis.compare(*pair, names=["a", "a"])
    with pytest.raises(FileNotFoundError, match="holds no run"):
        trellis.compare(pair[0], tmp_path)


def test_data_in_memory_has_one_name_wherever_it_was(tmp_path):
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(20, 4)) for name in "ab"}
    kept = [
        trellis.run(STUDY, data=data, rounds=2, out=tmp_path / name, report=False) for name in "xy"
    ]
    assert trellis.compare(*kept).settings == {}


def test_the_command_writes_a_page(pair, tmp_path, capsys):
    for name, result in zip(("<b>open", "shut"), pair, strict=True):
        kept = copy.deepcopy(result)
        kept.notes = ["<script>alert(1)</script>"]
        kept.save(tmp_path / name)
    page = tmp_path / "pages" / "both.html"
    folders = [str(tmp_path / name) for name in ("<b>open", "shut")]
    assert main(["compare", *folders, "--html", str(page)]) == 0
    assert "written:" in capsys.readouterr().out
    text = page.read_text()
    assert "<b>open" not in text
    assert "<script" not in text
    for word in ("&lt;b&gt;open", "Numbers", "Settings", "rho", "0.01", "Edges", "not in all",
                 "Graphs", "Warnings", "consensus", "loads nothing from the network"):  # fmt: skip
        assert word in text, word
    assert text.count("<svg") == 2
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    found = trellis.compare(*folders)
    apart = len(found.edges())
    assert f"Edges that a run has and another has not: {apart}" in text


def test_held_out_scores_stand_beside_learning_alone(pair):
    runs = [copy.deepcopy(result) for result in pair]
    for result, value in zip(runs, (0.111, 0.222), strict=True):
        result.scores = {
            "measures": ["log likelihood"],
            "main": "log likelihood",
            "clients": [],
            "mean": {"alone": [0.099], "this run": [value]},
        }
    text = trellis.compare(*runs).html()
    assert "Held-out scores" in text
    for number in ("0.099", "0.111", "0.222"):
        assert number in text


def test_studies_of_different_kinds_have_a_page_without_edges(pair):
    other = trellis.run("server-graph", SETTINGS["server-graph"])
    text = trellis.compare(pair[0], other).html()
    assert "consensus-graph, server-graph" in text
    assert "not in all" not in text
