"""``trellis deploy`` of a graph of servers: what it makes of its arguments, what it submits."""

from __future__ import annotations

import re
import threading
import tomllib
from pathlib import Path

import numpy as np
import pytest

from trellis.apps.command import main
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import config_class
from trellis.sim.federation import rehearsal
from trellis.sim.federation.device import Device
from trellis.sim.federation.folder import FederationError
from trellis.sim.federation.graph.folder import ServerGraph
from trellis.sim.flwr_command import FlowerRun
from trellis.sim.processes import FlowerRunError, free_port

CLEAR = ("--set", "method=none", "--set", "rounds=3")


def says(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == code
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "abcdefg":
        rows = rng.normal(size=(20, 3))
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="x,z,y", comments="")
    return folder


@pytest.fixture
def graph(tmp_path):
    folder = tmp_path / "g"
    arguments = ["--servers", "3", "--topology", "path", "--clients", "2", "--open"]
    assert main(["deploy", "init", str(folder), *arguments, "--port", str(free_port())]) == 0
    return ServerGraph.load(folder)


def nodes(graph):
    """Return the node configs of all devices, by name, in the order of servers."""
    return {
        name: Device.load(federation.device(name)).node
        for federation in graph.federations.values()
        for name in federation.names
    }


# --- init ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "edges"),
    [
        ("ring", {(0, 1), (1, 2), (2, 3), (0, 3)}),
        ("path", {(0, 1), (1, 2), (2, 3)}),
        ("star", {(0, 1), (0, 2), (0, 3)}),
        ("complete", {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}),
        ("grid:2,2", {(0, 1), (0, 2), (1, 3), (2, 3)}),
    ],
)
def test_edges_are_those_of_the_run(tmp_path, topology, edges):
    given = ["--servers", "4", "--topology", topology, "--clients", "1"]
    assert main(["deploy", "init", str(tmp_path / "g"), *given]) == 0
    graph = ServerGraph.load(tmp_path / "g")
    assert set(graph.edges) == edges
    assert graph.setting == topology
    links = {(p.parents[1].name, p.name) for p in graph.folder.glob("servers/*/bridges/*")}
    names = graph.names
    both = {(names[a], names[b]) for a, b in edges} | {(names[b], names[a]) for a, b in edges}
    assert links == both


def test_clients_are_numbered_over_all_servers_and_ports_count_up(graph):
    assert list(nodes(graph)) == [f"client-{i}" for i in range(1, 7)]
    places = [(n["partition-id"], n["num-partitions"], n["server"]) for n in nodes(graph).values()]
    assert places == [(i, 6, i // 2) for i in range(6)]
    ports = [federation.port for federation in graph.federations.values()]
    assert ports == [ports[0] + i for i in range(3)]


def test_files_are_dealt_as_a_run_in_one_process_deals_them(tmp_path, data, capsys):
    words = says(
        capsys, "deploy", "init", tmp_path / "g", "--servers", 3, "--data", data, "--tls",
        "--host", "a.example.org,10.0.0.1", "--host", "b.example.org", "--host", "c.example.org",
    )  # fmt: skip
    assert "server-0: a, b, c; neighbours server-1, server-2" in words
    graph = ServerGraph.load(tmp_path / "g")
    assert graph.counts == (3, 2, 2)
    assert [n["server"] for n in nodes(graph).values()] == [i * 3 // 7 for i in range(7)]
    assert all(Path(n["data-path"]).is_file() for n in nodes(graph).values())
    assert graph.addresses == ("a.example.org:8443", "b.example.org:8444", "c.example.org:8445")


def test_a_table_beside_the_data_says_servers_and_clusters(tmp_path, data):
    rows = "".join(f"{name},{i % 2},{i % 3}\n" for i, name in enumerate("abcdefg"))
    (data / "assignment.csv").write_text(f"client,server,cluster\n{rows}")
    given = ["--servers", "2", "--topology", "path", "--data", str(data)]
    assert main(["deploy", "init", str(tmp_path / "g"), *given]) == 0
    found = nodes(ServerGraph.load(tmp_path / "g"))
    for i, name in enumerate("abcdefg"):
        node = found[name]
        assert (node["partition-id"], node["server"], node["cluster"]) == (i, i % 2, i % 3)


def test_servers_may_be_named_by_a_file(tmp_path):
    file = tmp_path / "towns.csv"
    file.write_text("rome,milan\nmilan,turin\n")
    given = ["--topology", str(file), "--clients", "1"]
    assert main(["deploy", "init", str(tmp_path / "g"), *given]) == 0
    graph = ServerGraph.load(tmp_path / "g")
    assert graph.names == ("rome", "milan", "turin")
    assert graph.neighbours("milan") == ("rome", "turin")
    assert graph.setting == str(graph.folder / "towns.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--servers", "1", "--clients", "2"], "a graph needs two at least"),
        (["--servers", "3", "--topology", "rong", "--clients", "2"], "did you mean 'ring'"),
        (["--servers", "3", "--topology", "random:2", "--clients", "2"], "drawn anew with every"),
        (["--servers", "3", "--topology", "erdos-renyi:0.5", "--clients", "2"], "or a file"),
        (["--topology", "ring", "--clients", "2"], "of how many servers? give --servers"),
        (["--servers", "3"], "how many devices?"),
        (["--servers", "3", "--clients", "2", "--port", "65534"], "take 65534 to 65536"),
        (["--servers", "3", "--clients", "2", "--host", "a"], "--host needs --tls"),
        (
            ["--servers", "3", "--clients", "2", "--tls", "--host", "a", "--host", "b"],
            "2 times --host for 3 servers",
        ),
        (["--servers", "9", "--data", "DATA"], "server-4 has no client"),
        (["--servers", "3", "--clients", "3", "--data", "DATA"], "of each server makes 9, but 7"),
        (["--servers", "2", "--names", "a,a"], "'a' is the name of two devices"),
        (["--clients", "2", "--rehome"], "--rehome is for a graph"),
    ],
)
def test_what_init_cannot_make_is_told(tmp_path, data, capsys, arguments, message):
    given = [str(data) if a == "DATA" else a for a in arguments]
    assert message in says(capsys, "deploy", "init", tmp_path / "g", *given, code=1)
    assert not (tmp_path / "g").exists()


def test_one_server_of_what_is_no_graph(tmp_path, capsys):
    assert main(["deploy", "init", str(tmp_path / "f"), "--clients", "2"]) == 0
    for command in ("up", "down"):
        words = says(capsys, "deploy", command, tmp_path / "f", "--only", "server-1", code=1)
        assert "--only is for a graph of servers" in words


# --- run -------------------------------------------------------------------------------------


class FakeFlwr:
    """A SuperLink's command line that runs nothing, and notes what it was asked."""

    def __init__(self, federation, book):
        self.name, self.book, self.home = federation.folder.name, book, "/home"
        self.check_alive = lambda: None

    def submit(self, app, config):
        if self.name in self.book.refused:
            raise FlowerRunError("no room")
        self.book.submitted[self.name] = dict(config)
        return len(self.book.submitted)

    def ask(self, *arguments):
        self.book.asked.append((self.name, *arguments))
        return {}

    def follow(self, run_id, *, timeout, on_log):
        self.book.together.wait(timeout=20)  # all are followed at once
        config = self.book.submitted[self.name]
        study = str(config["study"])
        settings = config_class(study).from_run_config(config).settings()
        good = self.name not in self.book.failing
        status = "completed" if good else "failed"
        result = RunResult(study, int(config["seed"]), "deployment", settings, status=status)
        result.metrics = [{"round": r, "change": 0.5, "links": 1, "oldest": 0} for r in (1, 2)]
        result.notes = [] if good else ["the disk is full"]
        result.save(Path(str(config["out"])))
        on_log("INFO :      round 2: 2 clients answered, 0 failed, change 0.5")
        on_log("WARNING :   a neighbour is late")
        return FlowerRun(run_id, f"finished:{status}", "", "", 1.0)


class Book:
    def __init__(self, servers):
        self.submitted, self.asked = {}, []
        self.refused, self.failing, self.down = set(), set(), set()
        self.together = threading.Barrier(servers)


@pytest.fixture
def book(monkeypatch):
    found = Book(3)

    def commands(federation):
        if federation.folder.name in found.down:
            raise FederationError("nobody answers")
        return FakeFlwr(federation, found)

    monkeypatch.setattr(rehearsal, "commands", commands)
    return found


@pytest.mark.parametrize("study", ["server-graph", "cluster-admm"])
def test_every_server_gets_its_run(graph, book, capsys, study):
    given = CLEAR if study == "server-graph" else ()
    words = says(
        capsys, "deploy", "run", graph.folder, study, *given, "--seed", 4,
        "--max-staleness", 2, "--server-timeout", 7,
    )  # fmt: skip
    folder = graph.folder / "runs" / f"{study}-1"
    assert set(book.submitted) == set(graph.names)
    for number, name in enumerate(graph.names):
        config = book.submitted[name]
        assert config["server"] == number
        assert config["server-folder"] == str(graph.own(name))
        assert config["out"] == str(folder / f"server-{number}")
        assert config["clients-here"] == 2
        assert config["devices"] == f"client-{2 * number + 1},client-{2 * number + 2}"
        assert config["resume"] is False
    common = [
        {k: v for k, v in config.items() if k not in ("server", "server-folder", "out", "devices")}
        for config in book.submitted.values()
    ]
    assert common[0] == common[1] == common[2]
    assert common[0][f"{study}.servers"] == 3
    assert common[0][f"{study}.topology"] == "path"
    assert common[0][f"{study}.clients"] == 6
    assert (common[0]["max-staleness"], common[0]["server-timeout"]) == (2, 7.0)
    assert common[0]["seed"] == 4
    assert re.fullmatch(rf"{study}-\d{{8}}T\d{{6}}Z-[0-9a-f]{{8}}", common[0]["graph-run"])
    for name in graph.names:
        assert f"{name}: WARNING : a neighbour is late" in words
        assert f"{name}: completed after 2 rounds" in words
    assert f"trellis merge {folder}/server-* --out {folder}/merged" in words
    says(capsys, "deploy", "run", graph.folder, study, *given)
    assert book.submitted["server-0"]["graph-run"] != common[0]["graph-run"]


def test_one_server_that_fails_is_no_success_and_may_come_back_alone(graph, book, capsys):
    book.failing = {"server-1"}
    command = ("deploy", "run", graph.folder, "server-graph")
    words = says(capsys, *command, *CLEAR, "--max-staleness", 3, code=1)
    folder = graph.folder / "runs" / "server-graph-1"
    assert "server-0: completed" in words
    assert "server-1: failed after 2 rounds server-1: the disk is full" in words
    assert f"server-graph --resume {folder} --only server-1" in words
    before = book.submitted
    book.failing, book.submitted, book.together = set(), {}, threading.Barrier(1)
    says(capsys, *command, "--resume", folder, "--only", "server-1")
    assert set(book.submitted) == {"server-1"}
    changed = {k for k, v in book.submitted["server-1"].items() if before["server-1"][k] != v}
    assert changed == {"resume"}
    assert book.submitted["server-1"]["resume"] is True


def test_all_are_resumed_with_their_settings(graph, book, capsys):
    command = ("deploy", "run", graph.folder, "server-graph")
    says(capsys, *command, *CLEAR, "--server-timeout", 9, "--seed", 7)
    before = dict(book.submitted)
    # One had not even begun: it is started, the others go on.
    (graph.folder / "runs" / "server-graph-1" / "server-0" / "run.json").unlink()
    says(capsys, *command, "--resume", graph.folder / "runs" / "server-graph-1")
    for name in graph.names:
        resumed = name != "server-0"
        assert book.submitted[name] == {
            **before[name],
            "resume": resumed,
        }
    assert not (graph.folder / "runs" / "server-graph-2").exists()


def test_where_one_refuses_the_others_are_stopped(graph, book, capsys):
    book.refused = {"server-2"}
    words = says(capsys, "deploy", "run", graph.folder, "server-graph", *CLEAR, code=1)
    assert "server-2: no room" in words
    assert {(name, what) for name, what, *_ in book.asked} == {
        ("server-0", "stop"),
        ("server-1", "stop"),
    }


def test_where_one_does_not_answer_nothing_is_submitted(graph, book, capsys):
    book.down = {"server-1"}
    words = says(capsys, "deploy", "run", graph.folder, "server-graph", *CLEAR, code=1)
    assert "server-1: nobody answers" in words
    assert book.submitted == {}
    assert not (graph.folder / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["consensus-graph"], "consensus-graph has one server"),
        (["server-graph", "--set", "servers=4"], "servers=4: this graph was made with 3"),
        (
            ["server-graph", "--set", "topology=ring"],
            "topology=ring: this graph was made with path",
        ),
        (["server-graph", "--set", "clients=4"], "clients=4: this graph was made with 6"),
        (["server-graph"], "a secure sum needs 3"),
        (["server-graph", *CLEAR, "--only", "server-1"], "--only needs --resume"),
        (["server-graph", *CLEAR, "--graph-run", "x"], "for one server's folder"),
        (["server-graph", *CLEAR, "--max-staleness", "-1"], "--max-staleness -1: 0 or more"),
        (["server-graph", *CLEAR, "--server-timeout", "0"], "--server-timeout 0: seconds above 0"),
        (["server-graph", *CLEAR, "--resume", "nowhere"], "is no folder of a run on a graph"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(graph, book, capsys, arguments, message):
    words = says(capsys, "deploy", "run", graph.folder, *arguments, code=1)
    assert message in words
    assert book.submitted == {}
    assert not (graph.folder / "runs").exists()


def test_the_state_of_a_run_is_in_the_table(graph, book, capsys):
    says(capsys, "deploy", "run", graph.folder, "server-graph", *CLEAR)
    book.down = set(graph.names)
    words = says(capsys, "deploy", "status", graph.folder, code=1)
    for name in graph.names:
        assert re.search(rf"{name} │ no answer │ 2 +│ 1 +│ 0 ", words), words
        assert f"{name}: nobody answers at" in words


# --- one server on its own machine -----------------------------------------------------------


def test_a_server_s_own_folder_submits_its_own_run(graph, book, capsys):
    folder = graph.server("server-2")
    command = ("deploy", "run", folder, "server-graph")
    words = says(capsys, *command, *CLEAR, code=1)
    assert "give --graph-run NAME, the same at all 3 servers" in words
    book.together = threading.Barrier(1)
    says(capsys, *command, *CLEAR, "--graph-run", "tuesday", "--max-staleness", 1)
    config = book.submitted["server-2"]
    assert (config["server"], config["graph-run"], config["max-staleness"]) == (2, "tuesday", 1)
    assert config["server-folder"] == str(folder / "graph")
    assert (config["server-graph.servers"], config["server-graph.clients"]) == (3, 6)
    assert config["server-graph.topology"] == "path"
    assert (config["clients-here"], config["devices"]) == (2, "client-5,client-6")
    out = folder / "runs" / "server-graph-1"
    assert config["out"] == str(out)
    assert tomllib.loads((out / "graph-run.toml").read_text())["name"] == "tuesday"
    says(capsys, *command, "--resume", out)
    assert book.submitted["server-2"] == {**config, "resume": True}


def test_options_of_a_graph_are_refused_where_there_is_none(tmp_path, book, capsys):
    assert main(["deploy", "init", str(tmp_path / "f"), "--clients", "3", "--open"]) == 0
    for option, value in (("--graph-run", "x"), ("--max-staleness", "1"), ("--only", "a")):
        given = ("consensus-graph", option, value)
        words = says(capsys, "deploy", "run", tmp_path / "f", *given, code=1)
        assert f"{option} is for a study of several servers" in words
    assert book.submitted == {}
