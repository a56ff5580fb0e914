"""Jobs side by side: whose value is whose, who decides how many, and that nothing stays behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import joblib
import pytest
from joblib.externals.loky import reusable_executor

from trellis.sim.processes import HAS_PROC, marked
from trellis.strategies.core.jobs import how_many_at_once, side_by_side

ROOT = Path(__file__).parents[3]
BACKENDS = ["loky", "threading"]


def square(k):
    return k * k


def first_waits(folder, k):
    """Let the first one wait for the third, whose worker has then sent the second one's value."""
    third = Path(folder) / "third"
    if k == 2:
        third.touch()
    while k == 0 and not third.exists():
        time.sleep(0.01)
    return k * k


def many_inside(_):
    return how_many_at_once(10), how_many_at_once(10, workers=3)


def fail_at(bad, k):
    if k == bad:
        raise ValueError(f"job {k} does not like it")
    return k


def die(*_):
    os._exit(3)


def die_at(bad, k):
    return die() if k == bad else os.getpid()


def die_in_begin():
    return side_by_side(process, range(4), 2, begin=die)


def die_at_first():
    return side_by_side(partial(die_at, 0), range(40), 2)


def die_at_last():
    return side_by_side(partial(die_at, 39), range(40), 2, batch=1)


def die_while_items_are_taken():
    def items():
        yield from range(2)  # joblib takes an item per worker before it submits the first one
        while reusable_executor._executor._flags.broken is None:
            time.sleep(0.01)
        yield from range(2, 40)

    return side_by_side(die, items(), 2, batch=1)


def die_between_two_values():
    found = side_by_side(process, range(1000), 2, batch=1)
    for k, (place, value) in enumerate(found):
        if k == 5:
            os.kill(value[0], signal.SIGKILL)
        yield place, value


class Unreadable:
    def __reduce__(self):
        return fail_at, (0, 0)


def unreadable(_):
    return Unreadable()


def note(folder):
    (Path(folder) / str(os.getpid())).write_text("begun")


def process(_):
    time.sleep(0.02)
    return os.getpid(), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_come_with_their_place_as_they_are_finished(backend, tmp_path):
    with joblib.parallel_config(backend=backend):
        found = list(side_by_side(partial(first_waits, str(tmp_path)), range(12), 2, batch=1))
    assert sorted(found) == [(k, k * k) for k in range(12)]
    assert found[0] != (0, 0)


def test_one_at_once_stays_in_this_process():
    assert dict(side_by_side(process, range(3), 1)) == dict.fromkeys(range(3), (os.getpid(), False))


def test_what_joblib_is_told_goes_before_what_the_caller_wants():
    cores = joblib.cpu_count()
    assert how_many_at_once(100, workers=3) == 3
    assert how_many_at_once(100) == min(100, cores)
    assert how_many_at_once(2, workers=3) == 2
    assert how_many_at_once(1) == how_many_at_once(0) == 1
    with joblib.parallel_config(n_jobs=4):
        assert how_many_at_once(100, workers=3) == how_many_at_once(100) == 4
        assert how_many_at_once(100, workers=1) == 1
    with joblib.parallel_config(backend="threading"):
        assert how_many_at_once(100, workers=3) == 3
        assert how_many_at_once(100) == min(100, cores)
    with joblib.parallel_config(backend="sequential"):
        assert how_many_at_once(100, workers=3) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_starts_no_processes_of_its_own(backend):
    with joblib.parallel_config(backend=backend):
        assert dict(side_by_side(many_inside, range(2), 2)) == {0: (1, 1), 1: (1, 1)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_s_error_is_the_caller_s(backend):
    with (
        joblib.parallel_config(backend=backend),
        pytest.raises(ValueError, match="job 5 does not like it"),
    ):
        list(side_by_side(partial(fail_at, 5), range(40), 2))
    # And the next ones find everything in order.
    assert len(list(side_by_side(square, range(4), 2))) == 4


@pytest.mark.parametrize(
    "dying",
    [
        die_in_begin,
        die_at_first,
        die_at_last,
        die_while_items_are_taken,
        die_between_two_values,
    ],
)
def test_the_error_of_a_process_that_dies_names_a_remedy(dying):
    with pytest.raises(RuntimeError, match=r"a worker process died.*n_jobs=.*1 computes without"):
        list(dying())
    # And the next ones find everything in order.
    assert len(list(side_by_side(square, range(4), 2))) == 4


def test_closing_after_a_process_has_died_is_no_error():
    with closing(side_by_side(process, range(1000), 2, batch=1)) as found:
        _, (pid, _) = next(found)
        os.kill(pid, signal.SIGKILL)
    assert len(list(side_by_side(square, range(4), 2))) == 4


def test_a_value_that_cannot_be_unpickled_does_not_pass_for_a_death():
    with pytest.raises(RuntimeError, match="result has failed to un-serialize"):
        list(side_by_side(unreadable, range(4), 2))


def test_every_process_begins_once_and_leaves_ctrl_c_to_its_parent(tmp_path):
    found = dict(side_by_side(process, range(30), 2, begin=partial(note, str(tmp_path)), batch=1))
    pids = {pid for pid, _ in found.values()}
    assert pids <= {int(file.name) for file in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) <= 2
    assert os.getpid() not in pids
    assert all(ignores for _, ignores in found.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_stops_half_way_gets_no_more(backend, recwarn):
    taken = []

    def items():
        for k in itertools.count():
            taken.append(k)
            yield k

    with (
        joblib.parallel_config(backend=backend),
        closing(side_by_side(square, items(), 2, batch=1)) as found,
    ):
        next(found)
    until_closed = len(taken)
    time.sleep(0.2)
    assert len(taken) == until_closed
    assert not [str(w.message) for w in recwarn if "tasks" in str(w.message)]


def test_without_joblib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert how_many_at_once(9, workers=1) == 1
    with pytest.raises(ImportError, match=r"needs joblib: pip install '\.\[laptop\]'"):
        how_many_at_once(9)


_SCRIPT = """
import sys, time
from trellis.strategies.core.jobs import side_by_side

def work(seconds):
    time.sleep(seconds)

if __name__ == "__main__":
    found = side_by_side(work, [0.0] + 7 * [float(sys.argv[1])], 2, batch=1)
    next(found)
    if sys.argv[1] == "0":
        list(found)
    print("now", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not HAS_PROC, reason="looks for orphans in /proc")
@pytest.mark.parametrize("seconds", ["0", "120"], ids=["idle", "at work"])
def test_processes_end_with_a_parent_that_is_killed(tmp_path, seconds):
    # Left to themselves they finish their job, and wait five minutes for another.
    (tmp_path / "script.py").write_text(_SCRIPT)
    name, value = "TRELLIS_TEST_MARK", f"{os.getpid()}-jobs-{seconds}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), name: value}
    command = [sys.executable, str(tmp_path / "script.py"), seconds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "now\n"
        assert len(marked(f"{name}={value}")) >= 3
        process.kill()
    deadline = time.monotonic() + 30.0
    while (left := marked(f"{name}={value}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
