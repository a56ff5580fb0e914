"""Rows of many rounds: as a list of dictionaries, in a fraction of the room."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from trellis.strategies.core.history.file import RowFile
from trellis.strategies.core.history.rows import Rows

ROUNDS = [
    {"round": 1.0, "change": 0.1 + 0.2, "gap": math.nan},
    {"round": 2.0, "change": math.inf},
    {"change": -0.0, "round": 3.0},  # in another order
    {},
    {"round": 5.0, "change": 5e-324, "gap": 1.0},
]


def test_rows_are_a_list_of_dictionaries():
    rows = Rows(ROUNDS)
    assert len(rows) == 5
    assert repr(rows) == repr(ROUNDS)  # order of names, nan and the sign of zero
    assert rows[-1] == ROUNDS[-1]
    assert rows[1:3] == ROUNDS[1:3]
    assert rows[1:] == Rows(ROUNDS[1:]) == ROUNDS[1:]
    assert rows[1:] != ROUNDS[:4]
    assert not Rows()
    with pytest.raises(IndexError):
        rows[5]


def test_only_the_last_row_changes():
    rows = Rows(ROUNDS)
    rows[-1]["gap"] = 7.0  # a dictionary of its own
    assert rows[-1]["gap"] == 1.0
    rows[-1] |= {"gap": 2.0, "score": 3.0}
    rows[4] = {**rows[4], "more": 4.0}
    assert rows[-1] == {**ROUNDS[-1], "gap": 2.0, "score": 3.0, "more": 4.0}
    assert repr(rows[:4]) == repr(ROUNDS[:4])
    for place in (0, 3, -2, 5):
        with pytest.raises(IndexError, match="only the last"):
            rows[place] = {}
    with pytest.raises(IndexError, match="only the last"):
        Rows()[-1] = {}


def test_rows_come_back_from_bytes():
    rows = Rows(ROUNDS)
    content = rows.content(0, 2) + rows.content(2, 2) + rows.content(2, 5)
    assert repr(Rows.read(rows.kinds, content)) == repr(ROUNDS)
    assert repr(Rows.read(rows.kinds, rows.content(0, 3))) == repr(ROUNDS[:3])
    for bad in (content[:-8], content[16:]):
        with pytest.raises(ValueError, match=r"no kind of row|not whole"):
            Rows.read(rows.kinds, bad)


@pytest.mark.parametrize("width", [1, 7, 4094, 4095, 5000])
def test_rows_come_back_across_blocks(width):
    rows = Rows()
    for number in range(40 if width > 4000 else 9000):
        rows.append({f"measure {i}": float(number + i) for i in range(width)})
        rows[-1] = dict(rows[-1])
    whole = rows.content(0, len(rows))
    assert len(whole) == 8 * (width + 1) * len(rows)
    assert Rows.read(rows.kinds, whole) == rows
    for first, last in ((0, 1), (0, 0), (3, 30), (17, len(rows)), (len(rows), len(rows))):
        size = 8 * (width + 1)
        assert rows.content(first, last) == whole[first * size : last * size]


def test_a_number_takes_little_more_than_eight_bytes():
    names = [f"measure {i}" for i in range(14)]
    tracemalloc.start()
    try:
        rows = Rows()
        for number in range(10_000):
            rows.append(dict.fromkeys(names, number + 0.5))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 1.2 * 8 * 16 * 10_000


# The file


def test_a_file_takes_rows_at_its_end(tmp_path):
    rows, path = Rows(ROUNDS), tmp_path / "rows.f8"
    file = RowFile(path)
    first = file.add(rows, 2)
    before = path.read_bytes()
    assert file.add(rows, 2) == first
    second = file.add(rows, 4)
    assert path.read_bytes().startswith(before)
    assert repr(RowFile(path).read(second)) == repr(ROUNDS[:4])
    # Of a process that was killed after it had added, and before anybody knew.
    again = RowFile(path)
    assert repr(again.read(first)) == repr(ROUNDS[:2])
    others = Rows([*ROUNDS[:2], {"round": 30.0}])
    third = again.add(others, 3)
    assert path.stat().st_size == third["bytes"]
    assert repr(RowFile(path).read(third)) == repr(list(others))
    with pytest.raises(ValueError, match="3 rows are kept, and 2 are left"):
        again.add(rows, 2)


@pytest.mark.parametrize("torn", [1, 8, 20])
def test_half_a_row_at_the_end_is_cut_off(torn, tmp_path):
    rows, path = Rows(ROUNDS), tmp_path / "rows.f8"
    known = RowFile(path).add(rows, 2)
    path.write_bytes(path.read_bytes() + b"x" * torn)
    file = RowFile(path)
    assert len(file.read(known)) == 2
    assert repr(RowFile(path).read(file.add(rows, 5))) == repr(ROUNDS)


def test_a_file_that_was_changed_is_told(tmp_path):
    path = tmp_path / "rows.f8"
    known = RowFile(path).add(Rows(ROUNDS), 5)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=f"{len(content) - 1} bytes, where there were"):
        RowFile(path).read(known)
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    with pytest.raises(ValueError, match="other bytes"):
        RowFile(path).read(known)
    path.unlink()
    with pytest.raises(ValueError, match="0 bytes"):
        RowFile(path).read(known)
