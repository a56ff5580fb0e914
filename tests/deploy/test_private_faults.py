"""Private runs: a spent budget, state folders that cannot be written, a secure sum that breaks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .site import Site, Submitted, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]
STUDY = "consensus-graph"
DP = {"privacy": "dp", "epsilon": 1}
REFUSED = "refused by the owner's policy (E4)"


@pytest.fixture(scope="module")
def spent(four: Site) -> Iterator[Submitted]:
    """A private run that has taken all that the hospital ever gives."""
    with four.policy("hospital", 'max-epsilon = 1.0\ndelta = 1e-5\nprivacy = ["dp"]\n'):
        run = four.submit(STUDY, "spent", **DP)
        run.end()
        yield run


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """Mount something over a folder; where that is not allowed, skip the test."""
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs a mount over {folder.name}: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield


@contextmanager
def full(folder: Path, copy: Path) -> Iterator[None]:
    """Let a folder be on a disk of its own, with nothing free."""
    shutil.copytree(folder, copy)
    with mounted(folder, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        shutil.copytree(copy, folder, dirs_exist_ok=True)
        with pytest.raises(OSError, match="No space left"):
            (folder / "rest").write_bytes(bytes(2**20))
        yield


def test_a_spent_budget_is_refused_and_the_others_go_on(four: Site, spent: Submitted):
    assert [four.releases(name) for name in four.federation.names] == [1, 1, 1, 1]
    assert four.said("hospital", spent) == ["enrolled", "release", "result"]
    assert spent.result.ledger["epsilon"] <= 1.0 + 1e-6
    run = four.submit(STUDY, "after", **DP)
    words = run.end()
    assert f"not enrolled: hospital: {REFUSED}" in words
    assert any(f"A client refused to take part: hospital: {REFUSED}" in n for n in run.result.notes)
    assert [client["name"] for client in run.result.clients] == ["clinic", "lab", "ward"]
    assert [four.releases(name) for name in four.federation.names] == [2, 1, 2, 2]
    (line,) = four.lines("hospital", run)
    assert line["what"] == "refused"
    assert "max-epsilon" in line["reason"]
    assert line["reason"] not in words


def test_a_state_folder_that_cannot_be_written_is_found_before_a_release(
    four: Site, spent: Submitted, tmp_path: Path
):
    lab, ward = (four.device(name) / "state" for name in ("lab", "ward"))
    before = [(folder / "ledger.json").read_bytes() for folder in (lab, ward)]
    with read_only(lab), full(ward, tmp_path / "copy"):
        run = four.submit(STUDY, "disk", **DP)
        words = run.end(code=1)
        assert [(folder / "ledger.json").read_bytes() for folder in (lab, ward)] == before
        # A device's log is in that folder too: what does not fit goes to what its SuperNode says.
        for name, why in (("lab", "Read-only file system"), ("ward", "No space left on device")):
            reasons = [line["reason"] for line in four.lines(name, run)]
            assert why in four.rehearsal.log(name) + " ".join(reasons)
            assert why not in words
    for name in ("hospital", "lab", "ward"):
        assert f"{name}: {REFUSED}" in words
    assert "1 of 1 clients are there; a secure sum needs 3 at least" in words


def test_a_secure_sum_that_loses_one_of_three_ends_and_names_the_least(
    four: Site, spent: Submitted
):
    before, starts = four.releases("ward"), four.starts("ward")
    run = four.submit(STUDY, "lost", **DP)
    run.wait_for("the run goes on with 3 of 4 clients")  # all have said who they are
    four.kill(four.node("ward"))
    words = run.end(code=1)
    assert run.result.status == "failed"
    assert "ward: its SuperNode has stopped answering" in words
    assert "a secure sum needs 3 at least" in " ".join(run.result.notes)
    assert four.said("ward", run) == ["enrolled"]
    assert four.releases("ward") == before
    until(lambda: four.starts("ward") > starts, lambda: four.rehearsal.log("ward"))
