"""Graphs as files: what is written is what networkx reads back."""

from __future__ import annotations

import sys
import warnings

import networkx
import numpy as np
import pytest

from trellis.apps.common.metrics import edges
from trellis.apps.pages.graphs import (
    file_stems,
    networkx_for,
    node_names,
    write_graph,
    write_graphml,
)
from trellis.apps.pages.plots import spring, svg, two_colour_graph

NAMES = ["age", "BMI", "a & b <c>", "höhe"]


def test_a_graph_comes_back_as_it_was_written(tmp_path):
    weights = np.array([0.5, 0.0, 1e-6, 2.0, 0.25, 0.0])
    shared = np.array([True, False, True, False, True, False])
    assert write_graphml(tmp_path / "g.graphml", weights, NAMES, {"shared": shared}) == 3

    graph = networkx.read_graphml(tmp_path / "g.graphml")
    assert list(graph.nodes) == NAMES
    assert not graph.is_directed()
    first, second = np.triu_indices(4, 1)
    expected = {
        frozenset((NAMES[first[k]], NAMES[second[k]])): (weights[k], shared[k])
        for k in np.flatnonzero(edges(weights, 1e-4))
    }
    found = {
        frozenset((a, b)): (data["weight"], data["shared"]) for a, b, data in graph.edges(data=True)
    }
    assert found == expected
    assert all(type(flag) is bool for _, flag in found.values())
    assert [path.name for path in tmp_path.iterdir()] == ["g.graphml"]


# As it has been written from the start; other programs' scripts read these keys and types.
KNOWN = """<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d3" for="edge" attr.name="clients" attr.type="long" />
  <key id="d2" for="edge" attr.name="shared" attr.type="boolean" />
  <key id="d1" for="edge" attr.name="weight" attr.type="double" />
  <key id="d0" for="graph" attr.name="threshold" attr.type="double" />
  <graph edgedefault="undirected">
    <node id="a &amp; b &lt;c&gt;" />
    <node id="say &quot;x&quot;" />
    <node id="bell\ufffd" />
    <node id="h\u00f6he" />
    <edge source="a &amp; b &lt;c&gt;" target="say &quot;x&quot;">
      <data key="d1">0.5</data>
      <data key="d2">True</data>
      <data key="d3">0</data>
    </edge>
    <edge source="say &quot;x&quot;" target="bell\ufffd">
      <data key="d1">2.0</data>
      <data key="d2">False</data>
      <data key="d3">3</data>
    </edge>
    <edge source="say &quot;x&quot;" target="h\u00f6he">
      <data key="d1">0.25</data>
      <data key="d2">True</data>
      <data key="d3">4</data>
    </edge>
    <data key="d0">0.0001</data>
  </graph>
</graphml>
"""


def with_types(data):
    return {name: (type(value), value) for name, value in data.items()}


def test_the_same_nodes_edges_attributes_and_types_as_ever(tmp_path):
    names = ["a & b <c>", 'say "x"', "bell\x07", "höhe"]
    weights = np.array([0.5, 0.0, 1e-6, 2.0, 0.25, 0.0])
    shared = np.array([True, False, True, False, True, False])
    more = {"shared": shared, "clients": np.arange(6)}
    assert write_graphml(tmp_path / "now.graphml", weights, names, more) == 3
    (tmp_path / "known.graphml").write_text(KNOWN, encoding="utf-8")
    known, now = (networkx.read_graphml(tmp_path / f"{x}.graphml") for x in ("known", "now"))
    assert type(now) is type(known) is networkx.Graph
    assert with_types(now.graph) == with_types(known.graph)
    assert list(now.nodes(data=True)) == list(known.nodes(data=True))
    assert [(a, b, with_types(data)) for a, b, data in now.edges(data=True)] == [
        (a, b, with_types(data)) for a, b, data in known.edges(data=True)
    ]


def test_nodes_can_have_attributes(tmp_path):
    first, second = node_names(["a & b <c>", "bell\x07"])
    known = {"clients": [3, None], "norm_0": [0.5, None]}
    write_graph(tmp_path / "g.graphml", [first, second], np.array([[0, 1]]), node_data=known)
    found = networkx.read_graphml(tmp_path / "g.graphml")
    assert dict(found.nodes(data=True)) == {first: {"clients": 3, "norm_0": 0.5}, "bell\ufffd": {}}
    assert list(found.edges) == [(first, second)]


def test_what_needs_networkx_says_how_to_get_it_and_files_need_none(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"graphs need networkx: pip install '\.\[laptop\]'"):
        networkx_for("graphs")
    assert write_graphml(tmp_path / "g.graphml", np.ones(1), ["a", "b"]) == 1
    assert np.isfinite(spring(np.ones(1), 2)).all()


def test_springs_put_the_strongly_joined_side_by_side():
    # Two full graphs of eight nodes, joined by one weak edge.
    a, b = np.triu_indices(16, 1)
    weights = np.where((a < 8) == (b < 8), 1.0, 0.0)
    weights[(a == 0) & (b == 15)] = 0.3
    place = spring(weights, 16)
    apart = np.linalg.norm(place[a] - place[b], axis=1)
    inside = weights == 1.0
    assert apart[inside].max() < apart[~inside].min() * 1.5
    assert apart[inside].mean() < 0.5 * apart[~inside].mean()


def test_the_threshold_is_relative_to_the_largest_weight(tmp_path):
    weights = 1e-8 * np.array([1.0, 0.19, 0.21, 0.0, 0.0, 0.0])
    assert write_graphml(tmp_path / "g.graphml", weights, NAMES, threshold=0.2) == 2


def test_an_empty_graph_keeps_its_nodes(tmp_path):
    assert write_graphml(tmp_path / "g.graphml", np.zeros(6), NAMES) == 0
    assert list(networkx.read_graphml(tmp_path / "g.graphml").nodes) == NAMES


def test_the_same_graph_gives_the_same_bytes(tmp_path):
    weights = np.random.default_rng(0).random(6)
    write_graphml(tmp_path / "a", weights, NAMES)
    write_graphml(tmp_path / "b", weights, NAMES)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_control_characters_do_not_break_the_file(tmp_path):
    write_graphml(tmp_path / "g.graphml", np.ones(1), ["bell\x07", "plain"])
    assert list(networkx.read_graphml(tmp_path / "g.graphml").nodes) == ["bell\ufffd", "plain"]


@pytest.mark.parametrize(
    ("weights", "names", "message"),
    [
        (np.ones(1), ["a", "a"], "'a' occurs twice"),
        (np.ones(4), ["a", "b", "c"], r"shape \(4,\); 3 nodes have 3 pairs"),
    ],
)
def test_what_is_no_graph_is_refused(tmp_path, weights, names, message):
    with pytest.raises(ValueError, match=message):
        write_graphml(tmp_path / "g.graphml", weights, names)
    assert not list(tmp_path.iterdir())


def test_file_names_are_safe_and_distinct():
    names = ["../etc/passwd", "Ward 3", "ward_3", "consensus", "", "ward/3", "x" * 300]
    stems = file_stems(names, reserved=("consensus",))
    assert stems[:6] == ["etc_passwd", "Ward_3", "ward_3-2", "consensus-2", "client", "ward_3-3"]
    assert len(stems[6]) == 80
    assert len({stem.casefold() for stem in stems}) == len(names)


def test_a_graph_of_one_node_is_drawn_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        drawn = svg(two_colour_graph(np.zeros(0), ["the only server"]))
    assert "the only server" in drawn
