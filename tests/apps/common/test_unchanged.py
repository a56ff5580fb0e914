"""Folders and tables that every client looks into are read once, and anew when they change."""

from __future__ import annotations

import os
import time

import pytest

from trellis.apps.common.assignment import assigned_number, read_assignment
from trellis.apps.common.files import unchanged
from trellis.apps.common.files.unchanged import unless_changed
from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError, client_files

HOUR = 3600 * 10**9


def aged(path, nanoseconds=HOUR + 12_345):
    """Let a file or folder have changed some time ago, at no full second."""
    then = time.time_ns() - nanoseconds
    os.utime(path, ns=(then, then))


@pytest.fixture(autouse=True)
def nothing_kept():
    unchanged._kept.clear()


def counting(calls):
    def read(path):
        calls.append(path)
        return path.read_text()

    return read


def test_what_has_not_changed_is_read_once(tmp_path):
    file, calls = tmp_path / "a.txt", []
    file.write_text("one")
    aged(file)
    read = counting(calls)
    assert [unless_changed(read, file) for _ in range(5)] == ["one"] * 5
    assert len(calls) == 1
    file.write_text("two")
    assert unless_changed(read, file) == "two"


def test_what_has_just_changed_is_read_again_until_a_change_would_show(tmp_path):
    file, calls = tmp_path / "a.txt", []
    read = counting(calls)
    file.write_text("one")
    stamp = os.stat(file).st_mtime_ns
    assert unless_changed(read, file) == "one"
    # A change within the same tick of the file system's clock.
    file.write_text("two")
    os.utime(file, ns=(stamp, stamp))
    assert unless_changed(read, file) == "two"


def test_a_file_system_that_counts_seconds_is_given_time(tmp_path):
    file, calls = tmp_path / "a.txt", []
    read = counting(calls)
    file.write_text("one")
    second = (time.time_ns() // 10**9 - 1) * 10**9
    os.utime(file, ns=(second, second))
    unless_changed(read, file), unless_changed(read, file)
    assert len(calls) == 2


def test_few_readings_are_kept(tmp_path):
    read = counting([])
    for number in range(50):
        file = tmp_path / f"{number}.txt"
        file.write_text("x")
        unless_changed(read, file)
    assert len(unchanged._kept) <= 8


def test_an_error_is_not_kept(tmp_path):
    read = counting([])
    with pytest.raises(FileNotFoundError):
        unless_changed(read, tmp_path / "none.txt")
    (tmp_path / "none.txt").write_text("here")
    assert unless_changed(read, tmp_path / "none.txt") == "here"


def test_a_folder_is_listed_once_for_all_clients_and_again_with_a_file_more(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    aged(tmp_path)
    listed = []
    monkeypatch.setattr(
        "trellis.apps.common.tables._listed",
        lambda folder: listed.append(folder) or sorted(folder.glob("*.csv")),
    )
    for _ in range(10):
        found = client_files(tmp_path)
        found.clear()  # the caller's own
    assert [path.name for path in client_files(tmp_path)] == ["a.csv", "b.csv", "c.csv"]
    assert len(listed) == 1
    (tmp_path / "d.csv").write_text("x\n1\n")
    assert len(client_files(tmp_path)) == 4


def test_the_list_of_the_order_counts_too(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    (tmp_path / "order.txt").write_text("a.csv\nb.csv\n")
    aged(tmp_path), aged(tmp_path / "order.txt")
    assert [path.stem for path in client_files(tmp_path)] == ["a", "b"]
    (tmp_path / "order.txt").write_text("b.csv\na.csv\n")
    assert [path.stem for path in client_files(tmp_path)] == ["b", "a"]


def test_an_assignment_is_read_once_for_all_clients(tmp_path, monkeypatch):
    table = tmp_path / "assignment.csv"
    table.write_text("client,server\n" + "".join(f"c{i},{i % 3}\n" for i in range(30)))
    aged(table)
    opened, open_ = [], type(table).open
    monkeypatch.setattr(
        type(table), "open", lambda self, *a, **k: opened.append(self) or open_(self, *a, **k)
    )
    nodes = [Node(f"c{i}", i, tmp_path / f"c{i}.csv", None, True) for i in range(30)]
    found = [assigned_number("server", 3, node, table) for node in nodes]
    assert found == [i % 3 for i in range(30)]
    assert read_assignment(table, {"c4", "c4.csv"}) == {"server": 1}
    assert read_assignment(table, {"nobody"}) == {}
    assert len(opened) == 1


def test_a_client_with_two_rows_is_refused_whatever_it_is_called_there(tmp_path):
    table = tmp_path / "assignment.csv"
    table.write_text("client,server\nnorth,0\nnorth.csv,1\nsouth,1\n")
    node = Node("north", 0, tmp_path / "north.csv", None, True)
    with pytest.raises(DataError, match="stands there 2 times"):
        assigned_number("server", 2, node, table)
