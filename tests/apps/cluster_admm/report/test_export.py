"""The graph, the models and the clients as files beside the report."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tests.apps.cluster_admm.report.reading import CLUSTERS, changed, table
from trellis.apps.cluster_admm.report import page as report


def test_the_graph_the_models_and_the_clients_are_files(pgfl, tmp_path):
    graph, models, clients = report.export_graphs(pgfl, tmp_path)
    assert graph == tmp_path / "graphs" / "servers.graphml"
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ET.parse(graph).getroot()
    assert len(root.findall(f".//{space}edge")) == 3
    names = {key.get("id"): key.get("attr.name") for key in root.findall(f"{space}key")}
    for s, node in enumerate(root.findall(f".//{space}node")):
        held = {names[data.get("key")]: float(data.text) for data in node.findall(f"{space}data")}
        assert held["clients"] == 3
        assert sum(held[f"clients_{q}"] for q in range(3)) == 3
        for q in range(3):
            norm = np.linalg.norm(pgfl.arrays["models"][s, q])
            assert held[f"norm_{q}"] == pytest.approx(norm)
    with models.open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["server", "cluster", "clients", "x1", "x2", "x3", "x4", "x5"]
    found = np.array([row[3:] for row in rows[1:]], dtype=float).reshape(4, 3, 5)
    np.testing.assert_array_equal(found, pgfl.arrays["models"])
    assert [row[:2] for row in rows[1:4]] == [["server-0", str(q)] for q in range(3)]
    with clients.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == [client["name"] for client in pgfl.clients]
    assert [int(row["cluster"]) for row in rows] == pgfl.arrays["clusters"].tolist()
    assert [int(row["true_cluster"]) for row in rows] == pgfl.arrays["true_clusters"].tolist()
    assert [row["server"] for row in rows] == [f"server-{s}" for s in pgfl.arrays["homes"]]


def test_servers_have_the_names_of_their_file_where_the_run_kept_them(pgfl, tmp_path):
    names = np.array(["oslo", "rome", "bern", "kyiv"])
    result = changed(pgfl, server_names=names)
    assert list(table(result, CLUSTERS, "server")) == names.tolist()
    twice = changed(pgfl, server_names=np.array(["a", "a", "b", "c"]))
    assert next(iter(table(twice, CLUSTERS, "server"))) == "server-0"
    odd = changed(pgfl, server_names=np.array(["a\x01", "a\x02", "b", "c"]))
    ET.parse(report.export_graphs(odd, tmp_path)[0])
