"""Devices that go, come back and come late, between rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategies.core.devices import files, run, run_config
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.sim.faults import Away, Drop
from trellis.sim.grid import LocalGrid, node_ids, run_local
from trellis.strategies.core.checkpoint import Checkpoint, CheckpointError
from trellis.strategies.core.enrolment import Client, StudyError
from trellis.strategies.core.nodes import OnlineNode
from trellis.strategies.core.presence import Presence, matched

# Enrolment is the grid's first round, so round r of a study is round r + 1 of the grid.
GONE, BACK = 4, 6


@pytest.fixture(autouse=True)
def _checkpoint_every_round(monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)


def told(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


@pytest.mark.parametrize("new_id", [False, True])
def test_a_device_that_is_killed_and_restarted_takes_part_again(new_id, tmp_path, caplog):
    caplog.set_level("INFO")
    devices = files(tmp_path / "data", 3)
    plain = {"tolerance": 1e-12, "rho": 0.1}
    fault = {1: Away(first=GONE, until=BACK, new_id=new_id)}
    result = run(devices, tmp_path / "out", rounds=60, faults=fault, **plain)
    assert result.status == "completed"
    assert [row["clients"] for row in result.metrics[:6]] == [3, 3, 2, 2, 3, 3]
    assert [row["failed"] for row in result.metrics[:6]] == [0, 0, 1, 1, 0, 0]
    assert len(told(caplog, "client site1 is gone")) == 1
    assert len(told(caplog, "client site1 is back")) == 1
    assert not told(caplog, "left out: its SuperNode")  # not named again in every round
    assert result.clients[1]["failures"] == 2
    # The same optimum: it is convex, and everyone is in it in the end.
    whole = run(devices, tmp_path / "whole", rounds=60, **plain)
    np.testing.assert_allclose(result.arrays["weights"], whole.arrays["weights"], atol=1e-5)


def test_a_restart_that_nobody_saw_is_enrolled_again(tmp_path, caplog):
    caplog.set_level("INFO")
    devices = files(tmp_path / "data", 3)
    settings = {"rounds": 6, "tolerance": 0.0}
    fault = {1: Away(first=GONE, until=GONE)}
    result = run(devices, tmp_path / "out", faults=fault, **settings)
    assert [row["clients"] for row in result.metrics] == [3] * 6
    assert len(told(caplog, "client site1 is back")) == 1
    whole = run(devices, tmp_path / "whole", **settings)
    assert result.arrays["weights"].tobytes() == whole.arrays["weights"].tobytes()


def test_nothing_is_sent_to_a_node_that_is_gone(tmp_path, monkeypatch):
    devices = files(tmp_path / "data", 3)
    sent, push = [], LocalGrid.push_messages

    def counting(self, messages):
        messages = list(messages)
        sent.append([m.metadata.dst_node_id for m in messages])
        return push(self, messages)

    monkeypatch.setattr(LocalGrid, "push_messages", counting)
    fault = {1: Away(first=GONE)}
    run(devices, tmp_path / "out", rounds=5, tolerance=0.0, faults=fault)
    gone = node_ids(3)[1]
    # Enrolment, five rounds, and the last message, which brings the result.
    assert [gone in nodes for nodes in sent] == [True, True, True, False, False, False, False]


@pytest.mark.parametrize(("faults", "looks"), [({}, 1), ({1: Away(first=99)}, 1 + 4 + 1)])
def test_the_grid_is_asked_once_a_round_and_not_where_nodes_stay(
    faults, looks, tmp_path, monkeypatch
):
    asked, get_nodes = [], LocalGrid.get_nodes
    monkeypatch.setattr(LocalGrid, "get_nodes", lambda grid: asked.append(1) or get_nodes(grid))
    devices = files(tmp_path / "data", 3)
    # Once to enrol, once before every round but the first, once at the end.
    run(devices, tmp_path / "out", rounds=5, tolerance=0.0, faults=faults)
    assert len(asked) == looks


def test_a_device_that_comes_back_with_other_data_is_left_out(tmp_path, caplog):
    devices = files(tmp_path / "data", 3)

    class Changing(type(apps.client_app)):
        def __call__(self, message, context):
            if message.metadata.message_type == "query.enrol" and message.metadata.group_id == "":
                calls.append(1)
                if len(calls) == 4:
                    files(tmp_path / "data", 2, rows=9)
            return super().__call__(message, context)

    calls = []
    config = run_config(3, rounds=6, tolerance=0.0, out=str(tmp_path / "out"))
    fault = {1: Away(first=GONE, until=BACK)}
    run_local(apps.server_app, Changing(), devices, config, faults=fault)
    result = RunResult.load(tmp_path / "out")
    assert [row["clients"] for row in result.metrics] == [3, 3, 2, 2, 2, 2]
    assert "client site1 came back with 9 records, not 20" in " ".join(result.notes)
    assert len(told(caplog, "came back with 9 records")) == 1


def test_a_restarted_device_whose_file_is_gone_is_named_and_passed_over(tmp_path):
    devices = files(tmp_path / "data", 3)
    names = ["north", "south", "west"]

    class Losing(type(apps.client_app)):
        def __call__(self, message, context):
            if message.metadata.group_id == "2":  # the file goes in round 2
                (tmp_path / "data" / "site1.csv").unlink(missing_ok=True)
            return super().__call__(message, context)

    config = run_config(3, rounds=6, tolerance=0.0, out=str(tmp_path / "out"))
    fault = {1: Away(first=GONE, until=GONE)}
    run_local(apps.server_app, Losing(), devices, config, faults=fault, names=names)
    result = RunResult.load(tmp_path / "out")
    assert [row["clients"] for row in result.metrics] == [3, 3, 2, 2, 2, 2]
    [note] = [note for note in result.notes if "A client was left out" in note]
    assert "south: the data cannot be read or used (device error E2)" in note


# Coming late

LATE = [
    ("consensus-graph", {}),
    ("consensus-graph", {"method": "igl", "local-steps": 3}),
    ("consensus-graph", {"method": "fedavg"}),
    ("server-graph", {"servers": 1, "secure-aggregation": "off", "method": "none"}),
    ("cluster-admm", {"servers": 1, "clusters": "1", "method": "pgfl"}),
]


def with_labels(folder, count):
    devices = files(folder, count, columns="abcy")
    for device in devices:
        table = np.loadtxt(device["data-path"], delimiter=",", skiprows=1)
        table[:, 3] = np.sign(table[:, 3])
        np.savetxt(device["data-path"], table, delimiter=",", header="a,b,c,y", comments="")
        device["server"] = device["cluster"] = 0
    return devices


def late_run(study, settings, out, folder, **more):
    make = files if study == "consensus-graph" else with_labels
    devices = make(folder, 3)
    fault = {1: Away(first=1, until=GONE)}
    keys = {"rounds": 8, "tolerance": 0.0, "clients_least": 2, "enrol_timeout": 0.2}
    return run(devices, out, study=study, faults=fault, **{**keys, **settings, **more})


@pytest.mark.parametrize(("study", "settings"), LATE, ids=str)
def test_a_late_device_is_taken_in_between_rounds(study, settings, tmp_path, caplog):
    caplog.set_level("INFO")
    result = late_run(study, settings, tmp_path / "out", tmp_path / "data")
    assert result.status == "completed"
    assert [client["name"] for client in result.clients] == ["site0", "site2", "site1"]
    counts = [row["clients"] for row in result.metrics]
    assert counts[0] == 2
    assert counts[-1] == 3
    assert sorted(counts) == counts
    [note] = [note for note in result.notes if "came late" in note]
    assert "Client site1" in note
    assert len(told(caplog, "client site1 joins")) == 1


def test_a_late_device_learns_with_the_others_and_releases_its_graphs(tmp_path):
    settings = {"graphs": 6, "local-epochs": 1, "rounds": 6, "tolerance": 0.0}
    settings |= {"clients-least": 2, "enrol-timeout": 0.2}
    config = run_config(3, study="gromov-wasserstein", out=str(tmp_path), **settings)
    nodes = [{"partition-id": i, "num-partitions": 3, "simulation": True} for i in range(3)]
    fault = {1: Away(first=1, until=GONE)}
    run_local(apps.server_app, apps.client_app, nodes, config, faults=fault)
    result = RunResult.load(tmp_path)
    assert [client["name"] for client in result.clients] == ["client-1", "client-3", "client-2"]
    assert [row["clients"] for row in result.metrics] == [2, 2, 3, 3, 3, 3]
    assert set(result.arrays["owner"].tolist()) == {0, 1, 2}


def test_a_late_device_is_in_the_same_optimum(tmp_path):
    settings = {"rounds": 60, "tolerance": 1e-12, "rho": 0.1}
    late = late_run("consensus-graph", settings, tmp_path / "out", tmp_path / "data")
    whole = run(files(tmp_path / "data", 3), tmp_path / "whole", **settings)
    np.testing.assert_allclose(
        late.arrays["weights"][[0, 2, 1]], whole.arrays["weights"], atol=1e-6
    )


def test_a_study_that_cannot_take_it_in_says_the_next_run(tmp_path):
    settings = {"rounds": 12, "lambda1": 0.1}
    result = late_run("joint-precision", settings, tmp_path / "out", tmp_path / "data")
    assert [client["name"] for client in result.clients] == ["site0", "site2"]
    [note] = [note for note in result.notes if "left out" in note]
    assert "client site1 has come late and takes part in the next run: nobody is taken in" in note


def test_no_more_than_clients_take_part(tmp_path):
    devices = files(tmp_path / "data", 3)
    fault = {1: Away(first=1, until=GONE)}
    settings = {"rounds": 8, "tolerance": 0.0}
    result = run(devices, tmp_path / "out", 2, faults=fault, **settings)
    assert [client["name"] for client in result.clients] == ["site0", "site2"]
    assert "site1 has come late and takes part in the next run: all 2 clients" in " ".join(
        result.notes
    )


# Resuming


class Killed(BaseException):
    """Ends the server, as a kill would."""


def start_and_kill(devices, out, in_round, faults, **settings):
    class Dying(type(apps.client_app)):
        def __call__(self, message, context):
            if message.metadata.group_id == str(in_round):
                raise Killed
            return super().__call__(message, context)

    config = run_config(3, out=str(out), **settings)
    with pytest.raises(Killed):
        run_local(apps.server_app, Dying(), devices, config, faults=faults)


@pytest.mark.parametrize("killed_in", [2, 7])
def test_a_run_resumes_where_the_late_device_is_there_from_the_start(killed_in, tmp_path):
    devices = files(tmp_path / "data", 3)
    settings = {"rounds": 60, "tolerance": 1e-12, "rho": 0.1}
    settings |= {"clients_least": 2, "enrol_timeout": 0.2}
    fault = {1: Away(first=1, until=GONE)}
    start_and_kill(devices, tmp_path / "out", killed_in, fault, **settings)
    resumed = run(devices, tmp_path / "out", resume=True, faults={0: Away(first=99)}, **settings)
    assert resumed.status == "completed"
    assert [client["name"] for client in resumed.clients] == ["site0", "site2", "site1"]
    whole = run(devices, tmp_path / "whole", **settings)
    np.testing.assert_allclose(
        resumed.arrays["weights"][[0, 2, 1]], whole.arrays["weights"], atol=1e-6
    )


def test_a_run_resumes_without_a_device_and_takes_it_back(tmp_path):
    devices = files(tmp_path / "data", 3)
    settings = {"rounds": 8, "tolerance": 0.0, "clients_least": 2, "enrol_timeout": 0.2}
    start_and_kill(devices, tmp_path / "out", 4, {}, **settings)
    resumed = run(
        devices, tmp_path / "out", resume=True, faults={1: Away(first=1, until=4)}, **settings
    )
    assert [client["name"] for client in resumed.clients] == ["site0", "site1", "site2"]
    assert [row["clients"] for row in resumed.metrics] == [3, 3, 3, 2, 2, 3, 3, 3]


def test_clients_are_matched_by_name_and_count_in_the_checkpoint_s_order():
    def client(name, count=5, node=1):
        return Client(name, -1, count, ["x"], node)

    before = [client("c"), client("a"), client("b")]
    kept, more = matched(before, [client("a", node=7), client("b"), client("c"), client("d")], 0)
    assert [c.name for c in kept] == ["c", "a", "b"]
    assert kept[1].node_id == 7
    assert [c.name for c in more] == ["d"]
    with pytest.raises(CheckpointError, match=r"of clients \['c', 'a', 'b'\], now there are \['a'"):
        matched(before, [client("a"), client("b")], 0)
    kept, _ = matched(before, [client("a"), client("b")], 2)
    assert [c.node_id for c in kept] == [0, 1, 1]
    with pytest.raises(CheckpointError, match="or their number of records changed"):
        matched(before, [client("a"), client("b"), client("c", count=6)], 0)


# Names


def known(name, node, *, registered=False, count=5):
    return Client(name, -1, count, ["x"], node, own=name, registered=registered)


def presence(*clients, most=3, admit=lambda client: True):
    nodes = {c.node_id: OnlineNode(c.node_id) for c in clients if c.node_id}
    return Presence(list(clients), most, 5.0, nodes, admit)


def test_a_claimed_name_waits_while_its_client_is_online(caplog):
    here = presence(known("a", 1), known("b", 2))
    claim = known("a", 9)
    here.place(claim, 3)
    assert [c.node_id for c in here.clients] == [1, 2]
    assert "node 9 calls itself a, who is online as another; it has to wait" in caplog.text
    here.clients[0].node_id = 0  # now the first is gone
    here.place(claim, 4)
    assert [c.node_id for c in here.clients] == [9, 2]


def test_nobody_else_can_be_a_registered_device():
    here = presence(known("a", 0, registered=True), known("b", 2, registered=True))
    here.place(known("a", 9), 3)
    assert here.clients[0].node_id == 0
    assert "node 9: it calls itself a, the name that another device is regi" in here.left_out[0]
    here.place(known("a", 10, registered=True), 4)  # the operator gave the name to another key
    assert here.clients[0].node_id == 10


def test_of_two_with_one_name_the_missing_one_is_back():
    first, second = known("data-1", 1, count=7), known("data-2", 0, count=5)
    here = presence(first, second)
    here.place(known("data", 9), 3)
    assert [c.node_id for c in here.clients] == [1, 9]


def test_a_client_that_was_left_out_for_good_stays_out():
    out = known("a", 0)
    out.left_out = 2
    here = presence(out, known("b", 2))
    here.place(known("a", 9), 3)
    assert out.node_id == 0


# Secure sums

SECURE = {"method": "fedavg", "secure_aggregation": True, "rounds": 8, "tolerance": 0.0}


@pytest.mark.parametrize("new_id", [False, True])
def test_a_restarted_device_gets_new_keys_and_is_in_the_sum_again(new_id, tmp_path):
    devices = files(tmp_path / "data", 4)
    # Keys and directory take two rounds of the grid, a sum three.
    fault = {1: Away(first=11, until=14, new_id=new_id)}
    result = run(devices, tmp_path / "out", faults=fault, **SECURE)
    assert [row["clients"] for row in result.metrics] == [4, 4, 4, 3, 4, 4, 4, 4]
    whole = run(devices, tmp_path / "whole", **SECURE)
    gap = np.abs(result.arrays["consensus"] - whole.arrays["consensus"]).max()
    assert gap < 1e-6


@pytest.mark.parametrize(
    ("first", "what", "why"),
    [
        (2, "sent keys", "has stopped answering"),
        (3, "sent a masked vector", "has stopped answering"),
        (5, "helped to unmask", "has stopped answering"),
        (6, "are there", "its SuperNode is not online"),  # before the second round
    ],
)
def test_one_of_three_lost_is_a_clear_end_that_names_the_least_number(first, what, why, tmp_path):
    devices = files(tmp_path / "data", 3)
    with pytest.raises(StudyError) as error:
        run(devices, tmp_path / "out", faults={1: Away(first=first)}, **SECURE)
    text = str(error.value)
    assert f"2 of 3 clients {what}; a secure sum needs 3 at least" in text
    assert "site1: " in text
    assert why in text
    assert "threshold" not in text
    assert RunResult.load(tmp_path / "out").status == "failed"


def test_a_sum_is_tried_again_without_the_lost_one_where_enough_are_left(tmp_path):
    devices = files(tmp_path / "data", 4)
    result = run(devices, tmp_path / "out", faults={1: Away(first=6)}, **SECURE)
    assert [row["clients"] for row in result.metrics] == [4] + [3] * 7


def test_a_node_that_goes_in_the_middle_of_a_round_is_passed_over_in_the_next(tmp_path, caplog):
    devices = files(tmp_path / "data", 3)
    fault = {1: Drop(category="train", since=3), 2: Away(first=99)}
    result = run(devices, tmp_path / "out", rounds=5, tolerance=0.0, faults=fault)
    assert [row["clients"] for row in result.metrics] == [3, 3, 2, 2, 2]
    assert len(told(caplog, "left out: its SuperNode has stopped answering")) == 1
    assert len(told(caplog, "client site1 is gone")) == 1


def test_a_device_that_is_gone_at_the_end_does_not_get_its_result_and_is_named(tmp_path):
    devices = files(tmp_path / "data", 3)
    # Enrolment, three rounds, and it is gone before the message that brings the result.
    result = run(devices, tmp_path / "out", rounds=3, tolerance=0.0, faults={1: Away(first=5)})
    assert result.status == "completed"
    assert result.clients[1]["failures"] == 0
    [note] = [note for note in result.notes if "did not get its result" in note]
    assert "site1: its SuperNode is not online" in note
