"""Who takes part: bad files, missing devices, names."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, RecordDict

from tests.strategies.core.devices import files, grid_of, run
from trellis.sim.faults import Away
from trellis.strategies.core import enrolment
from trellis.strategies.core.enrolment import Client, Heard, StudyError, enrol, judged
from trellis.strategies.core.nodes import OnlineNode, online

BAD_FILES = {
    "missing": None,
    "empty": "",
    "text": "a,b,c,d\n1,2,many,4\n1,2,3,4\n",
    "other columns": "a,b,c,e\n1,2,3,4\n4,3,2,1\n",
    "re-ordered": "b,a,c,d\n1,2,3,4\n4,3,2,1\n",
}
TOLD = {
    "other columns": "client north has other variables than site0: it lacks 'd' and adds 'e'",
    "re-ordered": "client north has other variables than site0: the same names in another order",
}
WORDS = "north: the data cannot be read or used (device error E2); its owner finds the details"


def spoil(config, content):
    path = Path(config["data-path"])
    path.unlink() if content is None else path.write_text(content)


@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_device_with_a_bad_file_is_named_and_the_others_go_on(bad, tmp_path):
    devices = files(tmp_path / "data", 4)
    spoil(devices[1], BAD_FILES[bad])
    names = ["", "north", "", ""]
    result = run(devices, tmp_path / "out", clients_least=3, names=names, enrol_timeout=5)
    assert result.status == "completed"
    assert [client["name"] for client in result.clients] == ["site0", "site2", "site3"]
    [told] = [note for note in result.notes if "left out" in note]
    assert TOLD.get(bad, WORDS) in told
    # What was learned is what the others learn by themselves.
    alone = run([devices[i] for i in (0, 2, 3)], tmp_path / "alone")
    assert result.arrays["weights"].tobytes() == alone.arrays["weights"].tobytes()


@pytest.mark.parametrize("bad", BAD_FILES)
@pytest.mark.parametrize("least", [0, 4])
def test_too_few_are_a_clear_end_without_waiting(bad, least, tmp_path):
    devices = files(tmp_path / "data", 4)
    spoil(devices[1], BAD_FILES[bad])
    began = time.monotonic()
    with pytest.raises(StudyError, match="3 of 4 clients could be enrolled") as error:
        run(devices, tmp_path / "out", clients_least=least, names=["", "north"])
    assert TOLD.get(bad, WORDS) in str(error.value)
    assert time.monotonic() - began < 30  # enrol-timeout is 120


def test_it_ends_at_once_where_even_those_to_come_would_be_too_few(tmp_path):
    devices = files(tmp_path, 2)
    spoil(devices[0], "")
    with grid_of(devices, 3) as grid:
        with pytest.raises(StudyError, match=r"1 of 3 clients could be enrolled. node \d+: the da"):
            enrol(grid, 3, 60.0, 600.0)
        # One of three may be missing, and one is still to come: that is worth waiting for.
        with pytest.raises(StudyError, match=r"(?s)least=2 must be.*waiting for 1 more device"):
            enrol(grid, 3, 60.0, 0.2, least=2)


def test_columns_are_judged_by_what_most_clients_have():
    def client(name, variables):
        return Client(name, -1, 5, list(variables), 1)

    heard = Heard([client("a", "xyz"), client("b", "xy"), client("c", "xy")])
    found = judged(heard)
    assert [c.name for c in found.clients] == ["b", "c"]
    assert "client a has other variables than b: it adds 'z'" in found.reasons[0]
    tie = judged(Heard(heard.clients[:2]))
    assert [c.name for c in tie.clients] == ["a"]


def test_of_very_many_bad_files_ten_are_told(tmp_path):
    devices = files(tmp_path, 12)
    for device in devices:
        spoil(device, "")
    names = [f"ward{i}" for i in range(12)]
    with pytest.raises(StudyError, match=r"(?s)0 of 12 .*and 2 more") as error:
        run(devices, tmp_path / "out", names=names)
    assert str(error.value).count("ward") == 10


def test_a_client_whose_introduction_is_no_good_is_named():
    record = {"name": "north", "partition": 0, "count": 0, "variables": ["a"]}
    answers = enrolment.Answers()
    answers.content[7] = RecordDict({"client": ConfigRecord(record)})
    heard = enrolment.hear(answers, {7: OnlineNode(7, "", "")})
    assert heard.reasons[0].startswith("north: cannot be enrolled")


def test_a_refusal_by_policy_counts_as_there_unless_a_least_number_is_set(tmp_path):
    devices = files(tmp_path, 3)
    devices[2]["require-privacy"] = True
    with grid_of(devices) as grid:
        enrolled = enrol(grid, 3, 5.0, 5.0)
        assert [c.name for c in enrolled.clients] == ["site0", "site1"]
        assert "site2: refused by the owner's policy" in enrolled.refusals[0]
        assert len(enrol(grid, 3, 5.0, 5.0, least=2).clients) == 2
        with pytest.raises(StudyError, match=r"2 of 3 clients could be enrolled.*site2: refused"):
            enrol(grid, 3, 5.0, 5.0, least=3)


# Waiting


def test_the_run_waits_for_devices_and_says_for_whom(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(enrolment, "TELL_EVERY", 0.05)
    caplog.set_level("INFO")
    devices = files(tmp_path, 2)
    with grid_of(devices, 4, names=["north", "south"]) as grid:
        with pytest.raises(StudyError, match="2 of 4 clients could be enrolled"):
            enrol(grid, 4, 60.0, 0.4, devices=("north", "south", "east", "west"))
        assert "waiting for east, west, not online yet; 2 of 4 devices are online" in caplog.text
        with pytest.raises(StudyError, match="waiting for 2 more devices; 2 of 4 devices are"):
            enrol(grid, 4, 60.0, 0.4)
        enrolled = enrol(grid, 4, 60.0, 0.4, least=2)
    assert [c.name for c in enrolled.clients] == ["north", "south"]
    assert "the run goes on with 2 of 4 clients" in caplog.text


def test_a_device_that_comes_while_others_are_enrolled_is_asked_once(tmp_path):
    devices = files(tmp_path, 3)
    # Round 1 asks the two that are there, round 2 the one that has come meanwhile.
    with grid_of(devices, faults={1: Away(first=1, until=2)}) as grid:
        asked = []
        push = grid.push_messages
        grid.push_messages = lambda messages: asked.append(len(messages)) or push(messages)
        enrolled = enrol(grid, 3, 60.0, 60.0)
    assert [c.name for c in enrolled.clients] == ["site0", "site1", "site2"]
    assert asked == [2, 1]


def test_a_device_that_never_answers_does_not_hold_up_those_that_are_enough(tmp_path):
    devices = files(tmp_path, 3)
    with grid_of(devices) as grid:
        slow, pull = threading.Event(), grid.pull_messages
        silent = next(n for n in grid._nodes.values() if n.node_config["partition-id"] == 2).id

        def all_but_one(ids):
            ids = [i for i in ids if grid._sent[i].metadata.dst_node_id != silent]
            slow.set()
            return pull(ids)

        grid.pull_messages = all_but_one
        enrolled = enrol(grid, 3, 600.0, 0.3, least=2)
        assert slow.is_set()
    assert [c.name for c in enrolled.clients] == ["site0", "site1"]
    assert enrolled.left_out == [f"node {silent}: no answer yet"]
    assert silent not in enrolled.nodes  # it is asked again later


# Names


def test_a_registered_name_stands_and_the_own_name_is_kept_for_keys(tmp_path, caplog):
    caplog.set_level("INFO")
    devices = files(tmp_path, 2)
    with grid_of(devices, names=["north", "site1"]) as grid:
        assert [node.name for node in online(grid).values()] in (
            ["north", "site1"],
            ["site1", "north"],
        )
        clients = enrol(grid, 2, 5.0, 5.0).clients
    assert [(c.name, c.own, c.registered) for c in clients] == [
        ("north", "site0", True),
        ("site1", "site1", True),
    ]
    assert caplog.text.count("registered as north calls itself site0") == 1
    assert "registered as site1" not in caplog.text


def test_the_name_of_another_registered_node_is_refused(tmp_path):
    devices = files(tmp_path, 3)
    devices[2]["name"] = "north"
    with grid_of(devices, names=["north", "south", ""]) as grid:
        with pytest.raises(StudyError, match="it calls itself north, the name that another dev"):
            enrol(grid, 3, 5.0, 5.0)
        assert [c.name for c in enrol(grid, 3, 5.0, 5.0, least=2).clients] == ["north", "south"]


def test_two_devices_with_the_same_file_name_are_told_apart(tmp_path):
    devices = files(tmp_path, 3)
    devices[0]["name"] = devices[1]["name"] = "data"
    with grid_of(devices) as grid:
        clients = enrol(grid, 3, 5.0, 5.0).clients
    assert [(c.name, c.own) for c in clients] == [
        ("data-1", "data-1"),
        ("data-2", "data-2"),
        ("site2", "site2"),
    ]
