"""What a device keeps: ledger, secret and log; whose they are, and what happens if one is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.device import log, work
from trellis.privacy.device.state import LEDGER, SECRET, state_folder
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.privacy.mechanisms.noise import device_secret


def event(name: str, epsilon: float = 1.0) -> PrivacyEvent:
    return PrivacyEvent(name, "x", 0, epsilon, 1e-5, gaussian_sigma(epsilon, 1e-5, 1.0), 1.0)


def mode(path) -> int:
    return path.stat().st_mode & 0o777


def test_all_that_is_kept_is_the_owner_s_alone(tmp_path):
    state = tmp_path / "new" / "state"
    before = os.umask(0)
    try:
        device_secret(state)
        ledger = DeviceLedger(state)
        ledger.reserve(event("a"))
        ledger.commit("a")
    finally:
        os.umask(before)
    assert mode(state) == 0o700
    assert {p.name for p in state.iterdir()} == {LEDGER, SECRET, log.FILE, ".lock"}
    assert {mode(path) for path in state.iterdir()} == {0o600}


@pytest.mark.parametrize("first", ["secret", "ledger"])
def test_a_deleted_ledger_beside_a_kept_secret_is_refused(first, tmp_path):
    """Also where no noise was ever drawn from the secret."""
    if first == "secret":
        device_secret(tmp_path)
    ledger = DeviceLedger(tmp_path, Policy(2.0))
    ledger.reserve(event("a"))
    (tmp_path / LEDGER).unlink()
    for act in (lambda: ledger.reserve(event("b")), ledger.events, lambda: device_secret(tmp_path)):
        with pytest.raises(PrivacyRefused, match=r"ledger\.json is gone, and secret beside it"):
            act()
    assert not (tmp_path / LEDGER).exists()


def test_an_entry_says_when_and_for_whom(tmp_path):
    with log.working_on(log.Occasion("17", "consensus-graph", "query.enrol", "m-1")):
        DeviceLedger(tmp_path).reserve(event("a"))
        DeviceLedger(tmp_path).commit("a")
    (entry,) = DeviceLedger(tmp_path).entries()
    told = {key: entry[key] for key in ("run", "study", "kind", "message", "state")}
    assert told == {"run": "17", "study": "consensus-graph", "kind": "query.enrol",
                    "message": "m-1", "state": "released"}  # fmt: skip
    assert entry["time"].startswith("20")
    (line,) = log.read(tmp_path)
    assert (line["what"], line["run"], line["epsilon"]) == ("release", "17", 1.0)


def test_one_run_adds_no_more_than_its_part(tmp_path):
    ledger = DeviceLedger(tmp_path, Policy(10.0, run_epsilon=1.2))
    with log.working_on(log.Occasion("1", "s", "train", "m")):
        ledger.reserve(event("a"))
        with pytest.raises(PrivacyRefused, match=r"bring run 1 to epsilon .* run-epsilon 1\.2"):
            ledger.reserve(event("b"))
        ledger.reserve(event("a"))  # the same again is no more
    with log.working_on(log.Occasion("2", "s", "train", "m")):
        ledger.reserve(event("b"))
    assert len(ledger.events()) == 2


BAD = ["", "{}", "[]", "null", '{"version":1,"entries":[]}', '{"version":1,"entries":{"a":{}}}',
       '{"version":2,"entries":{}}']  # fmt: skip


@pytest.mark.parametrize("text", [*BAD, "cut", "sgma", "nan"])
def test_no_corrupted_ledger_is_added_to(text, tmp_path):
    ledger = DeviceLedger(tmp_path, Policy(5.0, 1e-5, True))
    ledger.reserve(event("a"))
    good = (tmp_path / LEDGER).read_text()
    changed = {"cut": good[:-20], "sgma": good.replace('"sigma"', '"sgma"'),
               "nan": good.replace("1e-05", "NaN")}  # fmt: skip
    bad = changed.get(text, text)
    (tmp_path / LEDGER).write_text(bad)
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError, PrivacyRefused)):
        ledger.reserve(event("b"))
    assert (tmp_path / LEDGER).read_text() == bad


# --- whose folder it is --------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text("a,b\n1,2\n")
    return path


def test_a_renamed_file_keeps_its_folder(data):
    first = state_folder(data)
    assert state_folder(data) == first
    for name in ("clinic.csv", "other.npz", "ward.csv"):
        data = data.rename(data.parent / name)
        assert state_folder(data) == first
    # Written anew under its new name, as editors do.
    data = data.rename(data.parent / "clinic.csv")
    assert state_folder(data) == first
    (data.parent / "tmp").write_text("a,b\n3,4\n")
    (data.parent / "tmp").replace(data)
    assert state_folder(data) == first


def test_two_files_in_one_folder_have_a_ledger_each(data):
    other = data.parent / "clinic.csv"
    other.write_text("a,b\n1,2\n")
    assert state_folder(data) != state_folder(other)
    same_stem = data.parent / "ward.npz"
    same_stem.write_text("x")
    with pytest.raises(PrivacyRefused, match="set state-path"):
        state_folder(same_stem)


def test_a_copy_in_the_place_of_a_lost_file_is_not_taken_for_new_data(data):
    first = state_folder(data)
    copy = data.parent / "copy.csv"
    copy.write_text(data.read_text())
    data.unlink()
    with pytest.raises(PrivacyRefused, match=f"set state-path='{first}'"):
        state_folder(copy)
    assert not (data.parent / ".copy-trellis").exists()


def test_two_ledgers_that_may_be_a_file_s_are_refused(data):
    other = data.parent / "clinic.csv"
    other.write_text("a,b\n1,2\n")
    for path in (data, other):
        DeviceLedger(state_folder(path)).reserve(event("a"))
    other.unlink()
    with pytest.raises(PrivacyRefused, match="name one with state-path"):
        state_folder(data.rename(other))


# --- the log and the watch -----------------------------------------------------------------------


def test_the_log_is_turned_over(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LARGEST", 2000)
    for number in range(60):
        log.note(tmp_path, "error", error=f"number {number}")
    assert (tmp_path / log.FILE).stat().st_size <= 2000
    assert (tmp_path / f"{log.FILE}.1").stat().st_size <= 2000
    assert log.read(tmp_path)[-1]["error"] == "number 59"


def test_a_log_that_cannot_be_written_is_told_at_the_device_only(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    log.note(tmp_path / "file" / "state", "error", error="boom")
    log.note(None, "error", error="bang")
    assert "boom" in caplog.text
    assert "bang" in caplog.text


def test_a_line_stays_a_line_whatever_a_server_writes(tmp_path):
    log.note(tmp_path, "error", error='x\n{"what": "release"}', trace="t" * 100_000)
    (tmp_path / log.FILE).open("a").write('{"half')
    (line,) = log.read(tmp_path)
    assert line["what"] == "error"
    assert len(line["trace"]) < 30_000
    assert json.dumps(line)


def test_a_line_of_which_only_a_part_fits_is_not_lost_in_silence(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(os, "write", lambda handle, data: len(data) // 2)
    log.note(tmp_path, "refused", reason="boom")
    assert "No space left on device" in caplog.text
    assert "boom" in caplog.text


@pytest.mark.parametrize("threaded", [False, True])
def test_time_is_up_in_the_thread_that_works_and_nowhere_else(threaded):
    ended = []

    def busy():
        try:
            with work.time_limit(0.05):
                while True:
                    try:
                        sum(range(100))
                    except Exception:  # what handles errors must not stop it
                        continue
        except work.TimeIsUp:
            ended.append(True)

    if threaded:
        worker = threading.Thread(target=busy)
        worker.start()
        worker.join(10.0)
    else:
        busy()
    assert ended == [True]
    for _ in range(200):  # in time, or nearly: nothing strikes afterwards
        try:
            with work.time_limit(0.0005):
                time.sleep(0.0004)
        except work.TimeIsUp:
            pass
    assert sum(range(1000)) == 499500


def test_a_time_limit_leaves_nothing_behind_in_the_interpreter():
    """An exception that is withdrawn stays noted for all threads: under a profile Python hangs."""
    code = (
        "import sys, time\n"
        "from trellis.privacy.device.work import TimeIsUp, time_limit\n"
        "for pause in (0.0, 0.0004, 0.0005, 0.0006, 0.001):\n"
        "    try:\n"
        "        with time_limit(0.0005):\n"
        "            time.sleep(pause)\n"
        "    except TimeIsUp:\n"
        "        pass\n"
        "sys.setprofile(lambda *event: None)\n"
        "sorted([2, 1], key=lambda number: number)\n"
        "sys.setprofile(None)\n"
        "print('done')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout == "done\n"
