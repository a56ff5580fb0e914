"""What a report of a large run takes, counted: figures, lines, rows, files, bytes. Not seconds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.large_results import MAKERS
from benchmarks.report import report_of
from tests.apps.pages.pages import Page
from trellis.apps.common.results import RunResult
from trellis.apps.consensus_graph.report import graphs as consensus_graphs
from trellis.apps.joint_precision.report.graphs import Graphs

MOST_BYTES = 3_000_000


def large(study: str, privacy: str) -> RunResult:
    """Return a result with 1,000 clients, and as many nodes as memory allows beside other tests."""
    size = {"joint-precision": 18, "gromov-wasserstein": 1000}.get(study, 50)
    return MAKERS[study](1000, size, privacy=privacy)


@pytest.mark.parametrize("privacy", ["none", "dp"])
@pytest.mark.parametrize("study", MAKERS)
def test_a_thousand_clients_take_no_more_work_than_a_few(tmp_path, study, privacy):
    if study == "server-graph" and privacy == "dp":
        result = MAKERS[study](1000, 10, privacy=privacy)
    else:
        result = large(study, privacy)
    path = report_of(result, tmp_path)
    text = path.read_text()
    assert len(text.encode()) < MOST_BYTES
    page = Page(text)
    page.assert_private()
    assert len(page.tags("svg")) <= 20
    assert len(page.tags("path")) < 2_000  # one per width of lines, not one per line
    for table in re.findall(r"<tbody>.*?</tbody>", text, re.DOTALL):
        assert table.count("<tr>") <= 54
    assert len(list((tmp_path / "graphs").glob("*"))) <= 12
    assert " of 1,000 clients" in page.words
    assert page.headings.count("What was sent") == 1


def test_a_consensus_of_300_nodes_and_1000_clients_is_counted_without_copies(tmp_path, monkeypatch):
    result = MAKERS["consensus-graph"](8, 300)
    # The shape of the real thing, 359 MB and as much of truth, without its memory: any copy of it
    # would be seen.
    for name in ("weights", "truth"):
        one = result.arrays[name][:1]
        result.arrays[name] = np.broadcast_to(one, (1000, one.shape[1]))
    result.arrays["gamma"] = np.linspace(2.0, 1.0, 1000)
    result.clients = [{"name": f"ward-{k + 1}", "count": 50} for k in range(1000)]
    largest = 0
    count = consensus_graphs._count

    def watched(mask):
        nonlocal largest
        largest = max(largest, mask.size)
        return count(mask)

    monkeypatch.setattr(consensus_graphs, "_count", watched)
    path = report_of(result, tmp_path)
    assert 0 < largest <= 2**16
    assert path.stat().st_size < MOST_BYTES
    words = Page.read(path).words
    assert "1,000 clients, 300 nodes, 44,850 possible edges" in words
    labels = [str(one["aria-label"]) for one in Page.read(path).tags("svg")]
    for name in ("ward-1", "ward-334", "ward-667", "ward-1000"):
        assert any(f"Graph of {name}:" in label for label in labels)


def test_precision_matrices_are_looked_at_once_for_page_and_files(tmp_path, monkeypatch):
    result = MAKERS["joint-precision"](60, 30)
    asked = []
    partial_of = Graphs.partial_of
    monkeypatch.setattr(Graphs, "partial_of", lambda g, k: asked.append(k) or partial_of(g, k))
    report_of(result, tmp_path)
    # All once to be counted and once for their overlaps; more for the few that are drawn.
    assert len(asked) < 2 * 60 + 40
