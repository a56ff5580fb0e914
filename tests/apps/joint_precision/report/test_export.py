"""The graphs as files beside the report."""

from __future__ import annotations

import csv

import networkx
import numpy as np
import pytest

from tests.apps.joint_precision.report.results import run, support
from trellis.apps.joint_precision.report import export
from trellis.apps.joint_precision.report.page import export_graphs


def test_graphs_are_written_as_files(tmp_path):
    result = run()
    result.clients[1]["name"] = "../common"
    result.clients[0]["name"] = "common"
    written = export_graphs(result, tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    assert names == {"graphs/partial-correlations.csv"} | {
        f"graphs/{stem}.{suffix}"
        for stem in ("common", "common-2", "common-3", "site_2")
        for suffix in ("graphml", "svg")
    }
    assert all(path.stat().st_size for path in written)
    held, (first, second) = support(result), np.triu_indices(8, 1)
    files = ("common-2", "common-3", "site_2")
    rows = []
    for k, stem in enumerate(files):
        graph = networkx.read_graphml(tmp_path / "graphs" / f"{stem}.graphml")
        assert list(graph.nodes) == result.variables
        assert graph.number_of_edges() == held[k].sum()
        for pair in np.flatnonzero(held[k]):
            a, b = first[pair], second[pair]
            data = graph.edges[f"gene{a}", f"gene{b}"]
            assert data["weight"] == result.arrays["partial"][k, a, b]
            assert data["precision"] == result.arrays["precision"][k, a, b]
            assert data["common"] is bool(held[:, pair].all())
            known = [result.clients[k]["name"], f"gene{a}", f"gene{b}"]
            values = [repr(data["weight"]), repr(data["precision"])]
            rows.append([*known, *values, str(data["common"]).lower()])
    with (tmp_path / "graphs" / "partial-correlations.csv").open(newline="") as file:
        header, *found = csv.reader(file)
    assert found == rows
    assert ",".join(header) == ("client,variable a,variable b,partial correlation,precision,common")
    common = networkx.read_graphml(tmp_path / "graphs" / "common.graphml")
    assert common.number_of_edges() == held.all(axis=0).sum()
    weight = common.edges["gene0", "gene1"]["weight"]
    assert weight == pytest.approx(result.arrays["partial"][:, 0, 1].mean())
    assert common.edges["gene2", "gene3"]["mixed"] is True
    assert common.edges["gene0", "gene1"]["mixed"] is False


@pytest.mark.usefixtures("told")
def test_an_edge_whose_signs_cancel_is_still_common(tmp_path):
    result = run(clients=2)
    result.arrays["partial"][:, 0, 1] = [0.25, -0.25]
    export_graphs(result, tmp_path)
    common = networkx.read_graphml(tmp_path / "graphs" / "common.graphml")
    assert common.edges["gene0", "gene1"]["mixed"] is True
    assert abs(common.edges["gene0", "gene1"]["weight"]) == 0.25


@pytest.mark.usefixtures("told")
def test_files_of_a_large_run_stop_at_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "EXPORTED_EDGES", 12)
    written = {path.name for path in export_graphs(run(), tmp_path)}
    assert "site_0.graphml" in written
    assert "site_2.graphml" not in written
