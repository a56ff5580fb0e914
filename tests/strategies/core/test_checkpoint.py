"""Checkpoints: how often, how large, and which of two a kill leaves."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from trellis.strategies.core.checkpoint import Checkpoint, CheckpointError, Snapshot
from trellis.strategies.core.history.rows import Rows


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def snapshot(rounds, **facts):
    """Return a snapshot after some rounds."""
    rows = Rows({"round": float(n), "change": 1.0 / n} for n in range(1, rounds + 1))
    return Snapshot(rounds, {"model": np.full(3, float(rounds))}, {"progress": {}, **facts}, rows)


def slow(clock, monkeypatch):
    """Have every replacement of a file take as long as the list says; the last again and again."""
    costs, replace = [0.002], os.replace

    def replacing(*paths):
        clock.now += costs.pop(0) if len(costs) > 1 else costs[0]
        replace(*paths)

    monkeypatch.setattr(os, "replace", replacing)
    return costs


def spent(rounds, seconds, costs, tmp_path, monkeypatch):
    """Return how many checkpoints so many rounds have, and their share of the time."""
    clock = Clock()
    made = slow(clock, monkeypatch)
    made[:] = costs
    checkpoint, count, saving = Checkpoint(tmp_path, clock=clock), 0, 0.0
    for _ in range(rounds):
        clock.now += seconds
        if checkpoint.due():
            before = clock.now
            checkpoint.save(snapshot(1))
            count, saving = count + 1, saving + clock.now - before
    return count, saving / (clock.now - 1000.0)


@pytest.mark.parametrize(
    ("seconds", "costs", "least"),
    [
        (0.001, [0.002], 8),  # 10 s of rounds: one every second
        (0.01, [0.5], 7),  # 100 s on a slow disk: one every 12.5 s
        (0.01, [0.002, 0.002, 1.0, 0.002], 50),  # a disk that is slow once
        (5.0, [0.002], 10_000),  # on devices: after every round
    ],
)
def test_checkpoints_take_little_of_the_time(seconds, costs, least, tmp_path, monkeypatch):
    count, share = spent(10_000, seconds, costs, tmp_path, monkeypatch)
    assert least <= count
    assert share < 0.045


def test_the_first_round_is_a_checkpoint_and_so_is_the_first_after_a_resume(tmp_path):
    clock = Clock()
    first = Checkpoint(tmp_path, clock=clock)
    assert first.due()
    first.save(snapshot(1))
    assert not first.due()
    clock.now += 0.99
    assert not first.due()
    clock.now += 0.01
    assert first.due()
    again = Checkpoint(tmp_path, clock=clock)
    again.load()
    assert again.due()


def test_a_checkpoint_does_not_grow_with_the_rounds(tmp_path):
    checkpoint, rows = Checkpoint(tmp_path), Rows()
    sizes = []
    for number in range(1, 3001):
        rows.append({"round": float(number), "change": 0.5, "loss": 0.25})
        if number % 1000 == 0:
            checkpoint.save(Snapshot(number, {"model": np.zeros(3)}, {"progress": {}}, rows))
            sizes.append((tmp_path / "state.npz").stat().st_size)
            assert len(Checkpoint(tmp_path).load().rows) == number
    assert max(sizes) - min(sizes) < 64
    assert (tmp_path / "rows.f8").stat().st_size == 2999 * 4 * 8


def test_the_last_row_may_change_after_a_checkpoint(tmp_path):
    checkpoint, kept = Checkpoint(tmp_path), snapshot(5)
    checkpoint.save(kept)
    kept.rows[-1] |= {"score": 0.75}
    checkpoint.save(kept)
    found = Checkpoint(tmp_path).load()
    assert found.rows == kept.rows
    assert found.rows[-1]["score"] == 0.75
    assert "score" not in found.rows[-2]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_checkpoint_that_fails_half_way_leaves_the_one_before(step, call, tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(snapshot(3))
    whole, calls = getattr(os, step), []

    def failing(*given):
        calls.append(given)
        if len(calls) == call:
            raise OSError("no space left on device")
        return whole(*given)

    monkeypatch.setattr(os, step, failing)
    for rounds in (7, 8) if step == "replace" else (7,):
        try:
            checkpoint.save(snapshot(rounds))
        except OSError:
            break
    monkeypatch.undo()
    expected = 7 if (step, call) == ("replace", 2) else 3
    found = Checkpoint(tmp_path)
    assert found.load().server_round == expected
    assert found.load().rows == snapshot(expected).rows
    # And the run goes on from it, in this process or in another.
    for other in (found, checkpoint):
        other.save(snapshot(9))
        assert Checkpoint(tmp_path).load().rows == snapshot(9).rows


def test_what_a_killed_process_left_half_written_is_written_over(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(snapshot(3))
    (tmp_path / ".state.npz.partial").write_bytes(b"half a file")
    assert checkpoint.load().server_round == 3
    checkpoint.save(snapshot(4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.f8", "state.npz"]


def test_rows_that_are_gone_are_named(tmp_path):
    Checkpoint(tmp_path).save(snapshot(3))
    (tmp_path / "rows.f8").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"rows\.f8: does not hold .*4 bytes, where there"):
        Checkpoint(tmp_path).load()


def test_a_checkpoint_of_the_version_before_is_read_and_gone_on_with(tmp_path):
    rows = [{"round": 1.0, "change": 0.5}, {"round": 2.0, "change": float("nan")}]
    header = {
        "version": 1,
        "round": 2,
        "settings": {"rho": 1.0},
        "facts": {"progress": {"rows": rows, "bytes_up": 7}, "clients": []},
    }
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(tmp_path / "state.npz", model=np.ones(3), header=text)
    checkpoint = Checkpoint(tmp_path, {"rho": 1.0})
    found = checkpoint.load()
    assert repr(found.rows) == repr(rows)
    assert found.facts["progress"] == {"bytes_up": 7}
    found.rows.append({"round": 3.0, "change": 0.25})
    checkpoint.save(Snapshot(3, found.arrays, found.facts, found.rows))
    assert repr(Checkpoint(tmp_path).load().rows) == repr(list(found.rows))


def test_a_later_version_is_refused(tmp_path):
    text = np.frombuffer(json.dumps({"version": 3}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "state.npz", header=text)
    with pytest.raises(CheckpointError, match="another version of Trellis; start anew"):
        Checkpoint(tmp_path).load()
