"""A server's letters as files: whole or not at all, waited for, and nowhere but in the spool."""

from __future__ import annotations

import os
import stat
import threading
import time

import pytest

from trellis.strategies.network.spool import KEPT, NEWEST, NO_LETTER, Found, Spool, digest


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool", "a run")


def test_a_letter_is_found_by_its_receiver_and_by_nobody_else(spool):
    spool.put(2, 5, b"for 2")
    spool.put_pulse(2, b"alive")
    assert spool.take(2, 5, "", 0.0) == Found(b"for 2", b"", b"alive")
    assert spool.take(1, 5, "", 0.0) == Found()


def test_the_first_letter_of_a_round_or_later_is_found(spool):
    for number in (3, 4, 6):
        spool.put(0, number, b"%d" % number)
    wanted = {0: b"3", 3: b"3", 4: b"4", 5: b"6", 6: b"6", 7: b"", NEWEST: b"6", NO_LETTER: b""}
    assert {number: spool.take(0, number, "", 0.0).letter for number in wanted} == wanted


def test_numbers_are_ordered_as_numbers(spool):
    for number in (9, 10, 11):
        spool.put(0, number, b"%d" % number)
    assert spool.take(0, NEWEST, "", 0.0).letter == b"11"
    assert spool.take(0, 0, "", 0.0).letter == b"9"


def test_the_last_letters_stay_and_older_ones_go(spool):
    for number in range(1, 11):
        spool.put(0, number, b"%d" % number)
    assert spool.take(0, 0, "", 0.0).letter == b"%d" % (11 - KEPT)
    assert len(list(spool.folder.rglob("*.letter"))) == KEPT


def test_a_letter_of_the_same_round_takes_the_place_of_the_first(spool):
    spool.put(0, 1, b"first")
    spool.put(0, 1, b"second")
    assert spool.take(0, 1, "", 0.0).letter == b"second"


def test_the_board_comes_only_where_it_has_changed(spool):
    spool.put_board(b"greetings")
    assert spool.take(0, NO_LETTER, "", 0.0).board == b"greetings"
    assert spool.take(0, NO_LETTER, digest(b"greetings"), 0.0).board == b""
    assert spool.take(0, NO_LETTER, digest(b"others"), 0.0).board == b"greetings"


def test_letters_are_forgotten_to_one_server_or_to_all(spool):
    for receiver in (0, 1):
        spool.put(receiver, 1, b"letter")
    spool.put_board(b"greetings")
    spool.clear(0)
    assert [spool.take(p, NEWEST, "", 0.0).letter for p in (0, 1)] == [b"", b"letter"]
    spool.clear()
    assert spool.take(1, NEWEST, "", 0.0) == Found(b"", b"greetings", b"")


# --- waiting -------------------------------------------------------------------------------------


def later(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


@pytest.mark.parametrize("what", ["letter", "board"])
def test_a_bridge_is_woken_by_a_letter_and_by_a_new_board(spool, what):
    spool.put(0, 1, b"old")
    spool.put_board(b"old")
    put = {"letter": lambda: spool.put(0, 2, b"new"), "board": lambda: spool.put_board(b"new")}
    began = time.monotonic()
    timer = later(0.2, put[what])
    found = spool.take(0, 2, digest(b"old"), 30.0)
    timer.join()
    assert getattr(found, what) == b"new"
    assert 0.15 < time.monotonic() - began < 20.0


def test_a_bridge_that_waits_in_vain_brings_the_last_sign_of_life(spool):
    spool.put(0, 1, b"old")
    timer = later(0.1, lambda: spool.put_pulse(0, b"alive"))
    began = time.monotonic()
    assert spool.take(0, 2, "", 0.4) == Found(b"", b"", b"alive")
    timer.join()
    assert time.monotonic() - began >= 0.4


# --- files ---------------------------------------------------------------------------------------


def test_a_reader_never_sees_half_a_letter(spool):
    """One writes letters of two kinds over each other, one reads: there is nothing in between."""
    kinds = {b"a" * 300_000, b"b" * 200_000}
    ended = threading.Event()

    def write():
        while not ended.is_set():
            for kind in kinds:
                spool.put(0, 1, kind)
                spool.put_pulse(0, kind)

    spool.put(0, 1, b"a" * 300_000)
    spool.put_pulse(0, b"a" * 300_000)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(150):
            found = spool.take(0, 1, "", 0.0)
            assert {found.letter, found.pulse} <= kinds
    finally:
        ended.set()
        writer.join()


def test_where_writing_fails_the_letter_before_stays_and_nothing_else(spool, monkeypatch):
    spool.put(0, 1, b"before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        spool.put(0, 1, b"after")
    assert spool.take(0, 1, "", 0.0).letter == b"before"
    assert os.listdir(spool.folder / "0") == ["1.letter"]


def test_what_is_no_letter_is_passed_over(spool):
    spool.put(0, 1, b"letter")
    for name in ("notes.txt", "x.letter", "-3.letter", "tmpabc"):
        (spool.folder / "0" / name).write_text("no letter")
    assert spool.take(0, NEWEST, "", 0.0).letter == b"letter"


@pytest.mark.parametrize("run", ["../../x", "/etc", "..", "", "a/b\0c", "x" * 5000])
def test_whatever_the_run_is_called_its_folder_is_in_the_spool(tmp_path, run):
    spool = Spool(tmp_path / "spool", run)
    spool.clear()
    spool.put(0, 1, b"letter")
    assert spool.folder.resolve().parent == (tmp_path / "spool").resolve()
    assert {path.name for path in tmp_path.iterdir()} == {"spool"}


def test_runs_do_not_share_letters(tmp_path):
    one, other = (Spool(tmp_path, run) for run in ("one", "other"))
    one.put(0, 1, b"letter")
    assert other.take(0, NEWEST, "", 0.0) == Found()


@pytest.mark.parametrize("first", ["clear", "put", "put_board"])
def test_every_folder_and_file_is_the_owners_alone(tmp_path, first):
    before = os.umask(0o022)
    try:
        spool = Spool(tmp_path / "not yet" / "spool", "a run")
        {
            "clear": spool.clear,
            "put": lambda: spool.put(0, 1, b"letter"),
            "put_board": lambda: spool.put_board(b"greetings"),
        }[first]()
        spool.put(0, 1, b"letter")
        spool.put_pulse(0, b"alive")
    finally:
        os.umask(before)
    for path in (tmp_path / "not yet").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_round_is_noted_before_it_is_told_and_a_start_is_later_than_the_one_before(
    tmp_path, monkeypatch
):
    spool = Spool(tmp_path, "run")
    assert spool.told == 0
    spool.about_to_tell(7)
    first = spool.new_epoch()
    spool.clear()
    again = Spool(tmp_path, "run")
    assert again.told == 7
    monkeypatch.setattr(
        "trellis.strategies.network.spool.time.time_ns", lambda: 5
    )  # the clock set back
    assert again.new_epoch() == first + 1
    assert Spool(tmp_path, "another run").told == 0
