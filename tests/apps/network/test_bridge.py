"""The ClientApp of a bridge: what it answers, and that it is no client."""

from __future__ import annotations

import time

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from tests.strategies.core.devices import files, run_config
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.network import bridge
from trellis.sim.faults import Away
from trellis.sim.grid import LocalGrid, node_ids, run_local
from trellis.strategies.core.enrolment import StudyError, enrol, hear
from trellis.strategies.core.exchange import Answers
from trellis.strategies.core.nodes import OnlineNode
from trellis.strategies.core.presence import Presence
from trellis.strategies.network.spool import Spool, digest

RUN = "a run"


@pytest.fixture
def spool(tmp_path):
    folder = tmp_path / "spool"
    made = Spool(folder, RUN)
    made.put(3, 5, b"letter")
    made.put_board(b"board")
    made.put_pulse(3, b"pulse")
    return folder


def order(**changes):
    asked = {"run": RUN, "receiver": 3, "round": 5, "board": "", "wait": 0.0, **changes}
    return RecordDict({"order": ConfigRecord(asked)})


def ask(folder, kind="query.letter", content=None, **config):
    """Return what a bridge answers, on a grid, as it would be asked."""
    node = {"bridge": 1, "spool": str(folder), **config}
    with LocalGrid(apps.client_app, [node], {}) as grid:
        message = Message(order() if content is None else content, node_ids(1)[0], kind)
        [reply] = grid.send_and_receive([message])
    return reply


def found(reply):
    return dict(reply.content["found"])


def test_it_brings_letter_board_and_sign_of_life(spool):
    assert found(ask(spool)) == {"letter": b"letter", "board": b"board", "pulse": b"pulse"}
    assert found(ask(spool, content=order(receiver=4)))["letter"] == b""
    assert found(ask(spool, content=order(run="another run"))) == {
        "letter": b"", "board": b"", "pulse": b"",
    }  # fmt: skip


def test_it_says_whose_bridge_it_is(spool):
    reply = ask(spool, "query.enrol", RecordDict())
    assert dict(reply.content["client"]) == {"name": "bridge-of-server-1", "bridge": 1}


@pytest.mark.parametrize("kind", ["train", "evaluate", "query.personal", "train.secagg_masked"])
def test_it_answers_nothing_else(spool, kind):
    reply = ask(spool, kind)
    assert reply.has_error()
    assert f"a bridge between servers answers no '{kind}'" in reply.error.reason


CONFIGS = {
    "data-path: a bridge has bridge and spool": {"data-path": "/data/site.csv"},
    "partition-id: a bridge has bridge and spool": {"partition-id": 3},
    "spool='relative/spool': the absolute path": {"spool": "relative/spool"},
    "spool='.': the absolute path": {"spool": ""},
    "bridge=-1: the number of the server": {"bridge": -1},
    "bridge='1': the number of the server": {"bridge": "1"},
    "bridge=True: the number of the server": {"bridge": True},
    "bridge=1.0: the number of the server": {"bridge": 1.0},
}


@pytest.mark.parametrize("words", CONFIGS)
def test_a_node_config_that_cannot_be_used_is_named(spool, words):
    reply = ask(spool, **CONFIGS[words])
    assert reply.has_error()
    assert "BridgeError" in reply.error.reason
    assert words in reply.error.reason


@pytest.mark.parametrize(
    "changes",
    [
        *({"receiver": -1}, {"receiver": "3"}, {"receiver": 3.0}, {"receiver": "../3"}),
        *({"round": "5"}, {"round": True}, {"run": 4}, {"run": b"a run"}, {"board": 1}),
        *({"wait": "long"}, {"wait": [1.0]}),
    ],
)
def test_a_question_that_cannot_be_read_is_refused(spool, changes):
    assert ask(spool, content=order(**changes)).has_error()


@pytest.mark.parametrize("wait", [1e9, float("inf"), -5.0, float("nan")])
def test_how_long_it_waits_is_capped(spool, monkeypatch, wait):
    monkeypatch.setattr(bridge, "_LONGEST_WAIT", 0.2)
    began = time.monotonic()
    reply = ask(spool, content=order(round=99, wait=wait, board=digest(b"board")))
    assert found(reply)["letter"] == b""
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("run", ["..", "../..", "/", "../outside", "outside"])
def test_it_cannot_be_made_to_read_outside_the_spool(spool, run):
    outside = spool.parent / "outside"
    for folder in (spool.parent, outside, spool):
        (folder / "3").mkdir(parents=True, exist_ok=True)
        (folder / "3" / "5.letter").write_bytes(b"secret")
        (folder / "3" / "pulse").write_bytes(b"secret")
        (folder / "board").write_bytes(b"secret")
    reply = found(ask(spool, content=order(run=run)))
    assert reply == {"letter": b"", "board": b"", "pulse": b""}


# --- it is no client -----------------------------------------------------------------------------


def node(tmp_path, server=1):
    return {"bridge": server, "spool": str(tmp_path / "spool")}


def test_clients_are_complete_without_bridges_and_only_without(tmp_path):
    devices = files(tmp_path / "data", 3)
    nodes = [node(tmp_path), *devices, node(tmp_path, 2)]
    with LocalGrid(apps.client_app, nodes, run_config(3)) as grid:
        enrolled = enrol(grid, 3, 30.0, 30.0)
        assert [c.name for c in enrolled.clients] == ["site0", "site1", "site2"]
        places = node_ids(5)
        assert sorted(enrolled.bridges) == [(1, places[0]), (2, places[4])]
        assert enrolled.left_out == []
        # Two bridges do not stand for a client that is missing.
        began = time.monotonic()
        with pytest.raises(StudyError, match=r"waiting for 1 more device; 3 of 4 devices are onl"):
            enrol(grid, 4, 30.0, 0.5)
        assert time.monotonic() - began >= 0.5
        assert len(enrol(grid, 4, 30.0, 0.2, least=3).clients) == 3
        with pytest.raises(StudyError, match="3 of 5 clients could be enrolled"):
            enrol(grid, 5, 30.0, 0.2, least=4)


def test_nobody_waits_for_a_bridge_that_is_not_there(tmp_path):
    nodes = [*files(tmp_path / "data", 2), node(tmp_path)]
    config = run_config(2)
    with LocalGrid(apps.client_app, nodes, config, faults={2: Away(first=1)}) as grid:
        began = time.monotonic()
        enrolled = enrol(grid, 2, 30.0, 60.0)
        assert time.monotonic() - began < 20.0
    assert enrolled.bridges == []


def presence(clients, nodes, came):
    return Presence(
        clients,
        len(clients),
        30.0,
        nodes,
        lambda client: False,
        on_bridge=lambda server, number: came.append((server, number)),
    )


def test_a_late_bridge_is_found_between_rounds_and_is_no_late_client(tmp_path):
    devices = files(tmp_path / "data", 2)
    config = run_config(2)
    fault = {2: Away(first=1, until=3)}
    came = []
    with LocalGrid(apps.client_app, [*devices, node(tmp_path)], config, faults=fault) as grid:
        enrolled = enrol(grid, 2, 30.0, 30.0)
        present = presence(enrolled.clients, enrolled.nodes, came)
        for server_round in range(1, 5):
            present.look(grid, server_round)
            list(grid.pull_messages(grid.push_messages([])))
            grid._round += 1
    assert came == [(1, node_ids(3)[2])]
    assert present.left_out == []
    assert len(present.clients) == 2


class Grid:
    """A grid whose nodes come and go without being restarted, as where a network is cut."""

    def __init__(self, grid):
        self.grid, self.hidden = grid, set()

    def get_nodes(self):
        return [info for info in self.grid.get_nodes() if info.node_id not in self.hidden]

    def __getattr__(self, name):
        return getattr(self.grid, name)


def test_a_bridge_that_was_cut_off_is_found_again(tmp_path):
    """Who asks forgets a bridge that is not online, so it must be told of it anew."""
    devices = files(tmp_path / "data", 1)
    came = []
    nodes = [*devices, node(tmp_path)]
    with LocalGrid(apps.client_app, nodes, run_config(1)) as inner:
        grid = Grid(inner)
        enrolled = enrol(grid, 1, 30.0, 30.0)
        present = presence(enrolled.clients, enrolled.nodes, came)
        present.bridges |= {number for _, number in enrolled.bridges}
        present.look(grid, 1)
        assert came == []
        grid.hidden = {node_ids(2)[1]}
        present.look(grid, 2)
        grid.hidden = set()
        present.look(grid, 3)
        present.look(grid, 4)
    assert came == [(1, node_ids(2)[1])]


def test_who_says_to_be_a_bridge_of_nonsense_is_no_bridge(tmp_path):
    answers = Answers()
    for number, said in enumerate([True, "1", 1.5]):
        record = ConfigRecord({"name": "x", "bridge": said})
        answers.content[number] = RecordDict({"client": record})
    heard = hear(answers, {number: OnlineNode(number) for number in range(3)})
    assert heard.bridges == []
    assert heard.clients == []
    assert len(heard.reasons) == 3


def test_a_bridge_in_a_run_without_a_graph_is_only_warned_about(tmp_path, caplog):
    settings = {"servers": 1, "clients": 2, "rounds": 3, "method": "none", "topology": "path"}
    settings["secure-aggregation"] = "off"
    config = make_run_config("server-graph", settings) | {"out": str(tmp_path / "out")}
    nodes = [{"partition-id": k, "num-partitions": 2, "simulation": True} for k in range(2)]
    alone = run_local(
        apps.server_app, apps.client_app, nodes, {**config, "out": str(tmp_path / "a")}
    )
    assert alone is not None
    run_local(apps.server_app, apps.client_app, [*nodes, node(tmp_path)], config)
    result = RunResult.load(tmp_path / "out")
    assert result.status == "completed"
    assert result.network == {}
    assert "is a bridge of server 1; this run has no other servers" in caplog.text
    assert len(result.clients) == 2
    expected = RunResult.load(tmp_path / "a").arrays["models"]
    assert result.arrays["models"].tobytes() == expected.tobytes()
