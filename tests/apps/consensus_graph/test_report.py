"""The consensus-graph study's part of the report, and its graphs as files."""

from __future__ import annotations

import csv

import networkx
import numpy as np
import pytest

from tests.apps.pages.pages import Page
from trellis.apps.common.metrics import edges, matthews, relative_error
from trellis.apps.common.results import RunResult
from trellis.apps.consensus_graph.report.graphs import counted
from trellis.apps.consensus_graph.report.page import export_graphs, sections
from trellis.apps.pages.report import write_report
from trellis.apps.pages.wording import number


def run(nodes=8, clients=3, method="fedgl", truth=True, density=0.4, **changes) -> RunResult:
    rng = np.random.default_rng(5)
    pairs = nodes * (nodes - 1) // 2
    weights = rng.uniform(0.0, 1.0, (clients, pairs)) * (rng.random((clients, pairs)) < density)
    consensus = np.maximum(weights.mean(axis=0) - 0.1, 0.0)
    gamma = 1.0 / np.linalg.norm(weights - consensus, axis=1)
    if method == "igl":
        consensus, gamma = np.zeros(pairs), np.zeros(clients)
    if method == "fedavg":
        weights, gamma = np.tile(consensus, (clients, 1)), np.zeros(clients)
    arrays = {"weights": weights, "consensus": consensus, "gamma": gamma}
    if truth:
        arrays["truth"] = np.where(rng.random(weights.shape) < 0.3, 1.0, 0.0)
        arrays["truth_consensus"] = np.where(rng.random(pairs) < 0.3, 1.0, 0.0)
    values = {
        "config": {"method": method, "privacy": "none"},
        "arrays": arrays,
        "clients": [{"name": f"ward {k}", "count": 10 + k} for k in range(clients)],
        "variables": [f"node{k}" for k in range(nodes)],
        "status": "completed",
        "started": "2025-01-01T00:00:00Z",
    }
    return RunResult("consensus-graph", 1, "local", **{**values, **changes})


def page(result, folder) -> Page:
    found = Page.read(write_report(result, sections(result), folder / "report.html"))
    found.assert_private()
    return found


def test_the_numbers_in_the_report_are_those_of_the_graphs(tmp_path):
    result = run()
    words = page(result, tmp_path).words
    weights, consensus = result.arrays["weights"], result.arrays["consensus"]
    strict, common = edges(weights), edges(consensus)
    assert f"{np.count_nonzero(common)} edges above 0.2 of its largest weight" in words
    for k in range(3):
        fields = [
            f"ward {k}",
            10 + k,
            int(strict[k].sum()),
            int((strict[k] & common).sum()),
            int((strict[k] & ~common).sum()),
            int(edges(weights[k], 1e-4).sum()),
            float(result.arrays["gamma"][k]),
            matthews(weights[k], result.arrays["truth"][k]),
            matthews(weights[k], result.arrays["truth"][k], 1e-4),
            relative_error(weights[k], result.arrays["truth"][k]),
        ]
        assert " ".join(number(field) for field in fields) in words
        assert f"shared with the consensus ({fields[3]})" in words
        assert f"private ({fields[4]})" in words
    for text in ("MCC (threshold 0.2)", "MCC (threshold 1e-4)", "larger means closer"):
        assert text in words
    best = int(np.argmax(consensus))
    a, b = (ends[best] for ends in np.triu_indices(8, 1))
    assert f"node{a} \u2013 node{b} {number(float(consensus[best]))}" in words


def test_without_truth_nothing_is_said_of_agreement(tmp_path):
    words = page(run(truth=False), tmp_path).words
    assert "MCC" not in words
    assert "relative error" not in words


def test_learning_alone_has_no_consensus(tmp_path):
    result = run(method="igl")
    found = page(result, tmp_path)
    assert "there is no consensus" in found.words
    assert "larger means closer" not in found.words
    assert "strongest" not in found.words
    assert len(found.tags("svg")) == 3 + 1
    assert "consensus.graphml" not in {p.name for p in export_graphs(result, tmp_path)}


def test_one_graph_for_all_is_said_and_drawn_once(tmp_path):
    result = run(method="fedavg")
    found = page(result, tmp_path)
    assert "One graph was learned for all clients" in found.words
    assert len(found.tags("svg")) == 2
    names = [path.name for path in export_graphs(result, tmp_path)]
    assert names == ["consensus.graphml", "consensus.svg"]


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("dp", "one secure sum over all clients"),
        ("paper", "This run is not private"),
        ("none", "Nothing was noised"),
    ],
)
def test_privacy_comes_with_what_to_expect(tmp_path, mode, text):
    config = {"method": "fedgl", "privacy": mode, "local-steps": 2 * (mode == "paper")}
    assert text in page(run(ledger={"mode": mode}, config=config), tmp_path).words


def test_a_run_without_a_graph_says_so(tmp_path):
    result = run(arrays={})
    assert "ended before a graph was learned" in page(result, tmp_path).words
    assert export_graphs(result, tmp_path) == []


def test_an_empty_consensus_is_told(tmp_path):
    result = run()
    result.arrays["consensus"] = np.zeros_like(result.arrays["consensus"])
    words = page(result, tmp_path).words
    assert "It is empty: a smaller lambda" in words


def test_names_from_data_are_escaped_everywhere(tmp_path):
    evil = "<script>alert(1)</script>"
    result = run(variables=[f"{evil}{k}" for k in range(8)])
    result.clients[0]["name"] = evil
    export_graphs(result, tmp_path)
    page(result, tmp_path)
    assert "<script" not in (tmp_path / "report.html").read_text()


def test_graphs_are_written_as_files(tmp_path):
    result = run()
    result.clients[1]["name"] = "../ward/1"
    written = export_graphs(result, tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in written} == {
        f"graphs/{stem}.{suffix}"
        for stem in ("consensus", "ward_0", "ward_1", "ward_2")
        for suffix in ("graphml", "svg")
    }
    graph = networkx.read_graphml(tmp_path / "graphs" / "ward_2.graphml")
    weights, consensus = result.arrays["weights"][2], result.arrays["consensus"]
    assert graph.number_of_edges() == np.count_nonzero(edges(weights, 1e-4))
    shared = sum(data["shared"] for _, _, data in graph.edges(data=True))
    assert shared == np.count_nonzero(edges(weights, 1e-4) & edges(consensus, 1e-4))
    result.save(tmp_path)
    links = {a["href"] for a in page(result, tmp_path).tags("a")}
    assert "graphs/ward_2.graphml" in links


def test_the_report_is_the_same_every_time(tmp_path):
    page(run(nodes=50), tmp_path)
    first = (tmp_path / "report.html").read_bytes()
    page(run(nodes=50), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first


def test_a_large_run_gives_a_report_of_sane_size_and_time(tmp_path):
    result = run(nodes=500, clients=200, truth=False)
    written = export_graphs(result, tmp_path)
    found = page(result, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    order = np.argsort(-result.arrays["gamma"])
    assert "Of 200 clients 4 are drawn, at even steps from the one closest to the consensus" in (
        found.words
    )
    drawn = [f"ward {k}" for k in order[[0, 66, 133, 199]]]
    labels = [str(svg["aria-label"]) for svg in found.tags("svg")]
    assert [name for label in labels for name in drawn if f"of {name}:" in label] == drawn
    assert {path.stem for path in written} == {
        "consensus",
        *(n.replace(" ", "_") for n in drawn),
    } | {"clients"}
    with (tmp_path / "clients.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == [f"ward {k}" for k in range(200)]
    assert [float(row["gamma"]) for row in rows] == result.arrays["gamma"].tolist()
    assert "All are in clients.csv" in found.words


def test_what_is_counted_in_blocks_is_what_is_counted_one_by_one():
    result = run(nodes=40, clients=150)
    weights, truth = result.arrays["weights"], result.arrays["truth"]
    weights[3], truth[4] = 0.0, 0.0
    common = result.arrays["consensus"]
    strongest = np.argsort(-common)[:20]
    found = counted(weights, common, strongest, truth)
    np.testing.assert_array_equal(found.strict, edges(weights).sum(axis=1))
    np.testing.assert_array_equal(found.loose, edges(weights, 1e-4).sum(axis=1))
    np.testing.assert_array_equal(found.shared, (edges(weights) & edges(common)).sum(axis=1))
    np.testing.assert_array_equal(found.holders, edges(weights)[:, strongest].sum(axis=0))
    for k in range(150):
        assert found.mcc[k] == matthews(weights[k], truth[k])
        assert found.mcc_loose[k] == matthews(weights[k], truth[k], 1e-4)
        assert found.error[k] == pytest.approx(relative_error(weights[k], truth[k]))
