"""The report: the graph, the servers, the methods side by side, who learns what."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from tests.apps.server_graph.federations import of_method
from trellis import apps
from trellis.apps.common.recording import wording
from trellis.apps.common.results import RunResult
from trellis.apps.pages.figure import svg
from trellis.apps.pages.report import write_report
from trellis.apps.pages.server_map import server_map
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.report import page as report

SETTINGS = {
    "step": 0.5,
    "clients": 12,
    "servers": 4,
    "topology": "path",
    "rounds": 8,
    "samples": "10",
    "batch": 2,
    "secure-aggregation": "off",
}


def run(**changes) -> RunResult:
    settings = {name.replace("_", "-"): value for name, value in changes.items()}
    given = of_method({**SETTINGS, **settings}, settings.get("method", "hybrid"))
    return apps.run("server-graph", given, seed=1)


@pytest.fixture(scope="module")
def hybrid() -> RunResult:
    return run(method="hybrid", clip=1.0, failures="2:3-5,3:7")


@pytest.fixture(scope="module")
def masked() -> RunResult:
    return run(method="masked")


def page(result, tmp_path):
    path = tmp_path / "report.html"
    write_report(result, report.sections(result), path, wording(result.study))
    return path.read_text()


def text_of(section):
    return "\n".join(block.html() for block in section.blocks)


def by_title(result):
    return {section.title: text_of(section) for section in report.sections(result)}


def test_a_whole_page_has_all_sections(hybrid, tmp_path):
    html = page(hybrid, tmp_path)
    for title in (
        "What was learned",
        "The graph of servers",
        "Deviation over the rounds",
        "The methods side by side",
        "Privacy between servers",
    ):
        assert f"<h2>{title}</h2>" in html
    assert html == page(hybrid, tmp_path)


def test_a_run_without_models_says_so():
    empty = RunResult("server-graph", 1, "local", {})
    assert "ended before" in text_of(report.sections(empty)[0])


def test_lost_servers_and_their_clients_are_named(hybrid):
    found = by_title(hybrid)
    assert "server 3" in found["What was learned"]
    assert "are lost" in found["What was learned"]
    assert "Hollow" in found["The graph of servers"]
    for event in ("-2", "+2", "-3"):
        assert f">{event}<" in found["Deviation over the rounds"].replace("\N{MINUS SIGN}", "-")


def test_the_table_of_servers_has_their_clients_and_neighbours(masked):
    table = next(
        block
        for section in report.sections(masked)
        for block in section.blocks
        if getattr(block, "headers", [""])[0] == "server"
    )
    assert [row[1] for row in table.rows] == [3, 3, 3, 3]
    assert [row[2] for row in table.rows] == [1, 2, 2, 1]


def test_the_methods_side_by_side_have_the_numbers_of_the_run(masked):
    section = next(s for s in report.sections(masked) if s.title == "The methods side by side")
    table = section.blocks[-1]
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == list(report.SIDE_BY_SIDE)
    assert rows["masked"][1] == pytest.approx(masked.headline["msd"], abs=0.006)
    assert rows["masked"][2] == pytest.approx(masked.headline["msd-servers"], abs=0.006)
    assert rows["none"][3] == 6  # three edges, both ways


def test_runs_that_have_not_settled_are_called_so(masked):
    assert "still falling" in by_title(masked)["The methods side by side"]
    flat = np.full(40, -20.0)
    assert report._settled(flat)
    assert not report._settled(np.linspace(0.0, -20.0, 40))


def test_masks_on_a_leaf_without_noise_are_left_out_of_the_comparison():
    found = by_title(run(method="hybrid", sigma=0.0))["The methods side by side"]
    assert "Not run, masked" in found


def test_own_data_are_not_compared(masked):
    own = replace(masked, data="/somewhere")
    assert "The methods side by side" not in by_title(own)


def test_large_data_are_not_simulated():
    config = ServerGraphConfig.from_settings({**SETTINGS, "samples": "100000", "features": 10})
    assert report.affordable(config, 100) == 0
    usual = ServerGraphConfig.from_settings({"clients": 500, "sample": 10, "rounds": 5000})
    assert 100 < report.affordable(usual, 5000) < 1000
    assert report.affordable(usual, 5000, 2_000) < report.affordable(usual, 5000)
    assert report.affordable(usual, 50) == 50


def test_a_leaf_is_a_warning_with_masks_only(masked, hybrid):
    assert "one neighbour only" in by_title(masked)["The graph of servers"]
    assert "one neighbour only" not in by_title(hybrid)["The graph of servers"]


def test_epsilon_is_drawn_where_there_is_one(masked, hybrid):
    drawn = by_title(hybrid)["Privacy between servers"]
    assert "Epsilon over the rounds" in drawn
    silent = by_title(masked)["Privacy between servers"]
    assert "does not rest on noise" in silent
    assert "clip &gt; 0" in by_title(run(method="hybrid"))["Privacy between servers"]
    for text in (drawn, silent):
        assert "Threat model of hybrid" in text
        assert "Threat model of masked" in text


def test_one_server_is_a_report_too():
    found = by_title(run(method="fedavg"))
    assert "One server had all clients" in found["What was learned"]


def test_the_graph_and_the_models_are_files(masked, tmp_path):
    written = report.export_graphs(masked, tmp_path)
    assert [p.name for p in written] == ["servers.graphml", "models.csv"]
    space = "{http://graphml.graphdrawing.org/xmlns}"
    edges = ET.parse(written[0]).getroot().findall(f".//{space}edge")
    assert len(edges) == 3
    with written[1].open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["server", "h1", "h2"]
    models = np.array([row[1:] for row in rows[1:-1]], dtype=float)
    assert np.array_equal(models, masked.arrays["models"])
    assert rows[-1][0] == "centroid"


def test_the_drawing_shows_size_loss_and_weight():
    weights = np.array([[0.4, 0.5, 0.1], [0.5, 0.5, 0.0], [0.1, 0.0, 0.9]])
    figure = server_map(weights, ["a", "b", "c"], [10, 5, 0], np.array([True, True, False]))
    axes = figure.axes[0]
    solid, dashed, nodes = axes.collections
    assert [len(one.get_paths()[0].vertices) for one in (solid, dashed)] == [2, 2]
    assert (solid.get_linestyle()[0][1] is None, dashed.get_linestyle()[0][1] is None) == (1, 0)
    assert solid.get_linewidths()[0] > dashed.get_linewidths()[0]
    sizes = nodes.get_sizes()
    assert sizes[0] > sizes[1] > sizes[2]
    assert np.allclose(nodes.get_facecolors()[2][:3], 1.0)
    assert not np.allclose(nodes.get_facecolors()[0][:3], 1.0)


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_single_server_is_drawn_without_a_warning(caplog):
    figure = server_map(np.eye(1), ["only"], [3])
    assert "only" in svg(figure)
    assert caplog.records == []  # where matplotlib tells of limits that it ignored
    assert len(figure.axes) == 1
