"""What cannot be used is refused in words that name the client and say what to do."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import trellis
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError

GOOD = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)), columns=["a", "b", "c"])
WITH_Y = GOOD.rename(columns={"c": "y"})


def refused(study: str, data: object, **options: object) -> str:
    with pytest.raises((DataError, ConfigError)) as caught:
        trellis.run(study, data=data, **options)
    return str(caught.value)


def changed(**columns: object) -> pd.DataFrame:
    return GOOD.assign(**columns)


def with_gap() -> pd.DataFrame:
    frame = GOOD.copy()
    frame.loc[3, "b"] = np.nan
    return frame


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (with_gap(), ["client 'oslo'", "row 4, column 'b' is nan", "fill or drop"]),
        (changed(b=np.inf), ["client 'oslo'", "row 1, column 'b' is inf"]),
        (changed(b="mild"), ["client 'oslo'", "column 'b' holds text ('mild')", "to_numeric"]),
        (changed(b=pd.Timestamp("2020-01-01")), ["column 'b' holds datetime64"]),
        (changed(b=[None] * 12), ["column 'b' is nan"]),
        (changed(b=[[1]] * 12), ["column 'b' does not hold numbers"]),
        (GOOD.rename(columns={"b": "d"}), ["client 'oslo'", "client 'rome'", "lacks 'b'", "'d'"]),
        (GOOD[["b", "a", "c"]], ["client 'oslo'", "the same names in another order"]),
        (GOOD[["a", "b"]], ["client 'oslo'", "lacks 'c'"]),
        (GOOD.set_axis(["a", "b", "a"], axis=1), ["column name 'a' stands more than once"]),
        (GOOD.to_numpy(), ["client 'oslo'", "3 columns without names"]),
        (GOOD["a"].to_numpy(), ["client 'oslo'", "shape (12,)", "reshape(-1, 1)"]),
        (GOOD.head(0), ["client 'oslo'", "0 rows of 3 columns"]),
        (np.zeros((0, 3)), ["client 'oslo'", "0 rows of 3 columns"]),
        (np.zeros((2, 3, 4)), ["client 'oslo'", "(2, 3, 4)"]),
        (np.array([["x", "y"]]), ["client 'oslo'", "holds text"]),
        (None, ["client 'oslo'", "NoneType is no table"]),
        ((GOOD, GOOD["a"]), ["client 'oslo'", "this study has no targets"]),
        (nx.path_graph(3), ["client 'oslo'", "Graph is no table"]),
        ([[1.0, 2.0], [3.0]], ["client 'oslo'", "cannot be made an array"]),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used(bad, words):
    told = refused("consensus-graph", {"rome": GOOD, "oslo": bad})
    for word in words:
        assert word in told, told


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD, ["client 'oslo'", "no column 'y' among 'a', 'b', 'c'"]),
        (WITH_Y[["y"]], ["client 'oslo'", "'y' is the only column"]),
        (GOOD.to_numpy(), ["client 'oslo'", "an array without targets; give (X, y)"]),
        ((GOOD.to_numpy(), np.ones(3)), ["y has shape (3,), X has 12 rows"]),
        ((GOOD, np.full(12, np.nan)), ["column 'y' is nan"]),
        ((GOOD, ["sick"] * 12), ["column 'y' holds text ('sick')"]),
        ((GOOD, np.ones(12), ["a"]), ["1 column names for 3 columns"]),
        ((GOOD,), ["a tuple of 1; give (X, y)"]),
    ],
)
def test_targets_that_cannot_be_used(bad, words):
    told = refused("server-graph", {"oslo": bad, "rome": WITH_Y})
    for word in words:
        assert word in told, told


def labelled(**graph: object) -> nx.Graph:
    made = nx.path_graph(3)
    made.graph.update(graph)
    return made


def half_featured() -> nx.Graph:
    made = nx.path_graph(3)
    made.nodes[0]["x"] = [1.0]
    return made


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD, ["client 'oslo'"]),
        (3, ["client 'oslo'", "int is no list of graphs"]),
        ([], ["client 'oslo': no graphs"]),
        ([nx.path_graph(3), "ring"], ["client 'oslo', graph 2", "str is no graph"]),
        ([nx.DiGraph([(0, 1)])], ["client 'oslo', graph 1", "G.to_undirected()"]),
        ([nx.Graph()], ["client 'oslo', graph 1", "no nodes"]),
        ([labelled(y="toxic")], ["client 'oslo', graph 1", "'toxic'", "LabelEncoder"]),
        ([labelled(label=1.5)], ["a label is 1.5"]),
        ([half_featured()], ["node 2 has no attribute 'x'"]),
    ],
)
def test_graphs_that_cannot_be_used(bad, words):
    told = refused("gromov-wasserstein", {"oslo": bad, "rome": [nx.path_graph(3)]})
    for word in words:
        assert word in told, told


def test_graphs_with_other_features():
    featured = nx.path_graph(3)
    nx.set_node_attributes(featured, {k: [1.0, 2.0] for k in range(3)}, "x")
    told = refused("gromov-wasserstein", {"rome": [nx.path_graph(3)], "oslo": [featured]})
    assert "client 'oslo', graph 1: 2 features a node" in told


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "no clients"),
        ([], "no clients"),
        (GOOD, "one table; give a mapping"),
        (GOOD.to_numpy(), "one table; give a mapping"),
        ((GOOD, GOOD["a"]), "(X, y) of one client"),
        (7, "int; give a folder, a mapping"),
        ({"a/b": GOOD}, "slash"),
        ({"..": GOOD}, "begins with a dot"),
        ({"": GOOD}, "empty"),
        ({" a": GOOD}, "blanks"),
        ({"a\nb": GOOD}, "unprintable"),
        ({"a.csv": GOOD}, "leave out the ending '.csv'"),
        ({"a" * 300: GOOD}, "too long"),
        ({1: GOOD, "1": GOOD}, "one name when written"),
    ],
)
def test_clients_that_cannot_be_told_apart_or_named(data, words):
    assert words in refused("consensus-graph", data)


TOLD = {"oslo": {"server": 0}, "rome": {"server": 0}}


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ({"oslo": {"server": 0}}, "client 'rome' is missing"),
        ({**TOLD, "bonn": {"server": 0}}, "client 'bonn' is not among the clients"),
        ({**TOLD, "rome": 1}, "client 'rome' has 1"),
        ({**TOLD, "rome": {"sever": 1}}, "client 'rome' has {'sever': 1}"),
        ({**TOLD, "rome": {"server": -1}}, "server=-1; servers are numbered from 0"),
        ({**TOLD, "rome": {"server": "north"}}, "server='north'"),
        ({**TOLD, "rome": {"server": 0, "cluster": 0}}, "give all clients the same"),
        ([0, 1], "give a mapping"),
    ],
)
def test_an_assignment_that_does_not_fit(assignment, words):
    data = {"oslo": WITH_Y, "rome": WITH_Y}
    assert words in refused("server-graph", data, assignment=assignment)


def test_an_assignment_where_it_has_no_place(tmp_path):
    assert "has one server" in refused("consensus-graph", {"a": GOOD}, assignment=TOLD)
    assert "assignment.csv in their folder" in refused("server-graph", tmp_path, assignment=TOLD)
    assert "assignment.csv" in refused("server-graph", None, assignment=TOLD)


@pytest.mark.parametrize(
    ("keyword", "words"),
    [
        ("roh", "did you mean 'rho'?"),
        ("local_step", "did you mean 'local_steps'?"),
        ("lamda", "did you mean 'lambda_'?"),
        ("enginee", "did you mean 'engine'?"),
        ("qqqq", "known: alpha, beta,"),
    ],
)
def test_an_unknown_keyword_is_told_the_nearest(keyword, words):
    with pytest.raises(ConfigError) as caught:
        trellis.run("consensus-graph", **{keyword: 1})
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{keyword}: unknown setting or option of consensus-graph")


def test_settings_and_keywords_are_the_same_settings():
    one = trellis.run("consensus-graph", {"lambda": 0.2, "clients": 3}, nodes=5, rounds=2)
    other = trellis.run(
        "consensus-graph", lambda_=0.2, clients=np.int64(3), nodes=5, rounds=2, signals=[50] * 3
    )
    assert one.config["lambda"] == other.config["lambda"] == 0.2
    assert other.config["signals"] == "50,50,50"
    assert np.array_equal(one.arrays["weights"], other.arrays["weights"])
    with pytest.raises(ConfigError, match="lambda_: given twice"):
        trellis.run("consensus-graph", {"lambda": 0.2}, lambda_=0.2)
    with pytest.raises(ConfigError, match="use one of"):
        trellis.run("no-study")


def test_resume_needs_a_folder_with_that_study(tmp_path):
    with pytest.raises(ConfigError, match="needs out"):
        trellis.run("consensus-graph", resume=True)
    with pytest.raises(FileNotFoundError, match="holds no run"):
        trellis.run("consensus-graph", out=tmp_path, resume=True)
    trellis.run("consensus-graph", nodes=5, rounds=1, out=tmp_path / "x", report=False)
    with pytest.raises(ConfigError, match="holds a run of consensus-graph"):
        trellis.run("server-graph", out=tmp_path / "x", resume=True)
