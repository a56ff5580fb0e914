"""A device that can write nothing: it refuses before a release, never after."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from trellis import apps
from trellis.apps.common.runner import make_run_config
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.device import log
from trellis.privacy.device.codes import REFUSED
from trellis.privacy.device.state import LEDGER, check_writable
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.sim.grid import LocalGrid

EVENT = PrivacyEvent("e1", "x", 0, 1.0, 1e-5, gaussian_sigma(1.0, 1e-5, 1.0), 1.0)
# Every study in a mode that keeps a ledger.
STUDIES = [
    ("consensus-graph", {"privacy": "dp"}),
    ("consensus-graph", {"privacy": "dp", "method": "fedavg"}),
    ("consensus-graph", {"privacy": "paper", "local-steps": 2}),
    ("joint-precision", {"privacy": "dp"}),
    ("server-graph", {"privacy": "dp", "servers": 1}),
    ("cluster-admm", {"privacy": "dp", "clusters": "1"}),
]


def device(folder, state):
    rng = np.random.default_rng(0)
    np.savez(folder / "site.npz", X=rng.normal(size=(30, 4)), y=np.sign(rng.normal(size=30)))
    return {"data-path": str(folder / "site.npz"), "state-path": str(state), "partition-id": 0}


def enrol(node, study, settings):
    """Return what a device answers to enrolment."""
    config = make_run_config(study, {"clients": 3, **settings})
    with LocalGrid(apps.client_app, [node], config) as grid:
        (number,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(RecordDict(), number, "query.enrol")])
    return reply


@pytest.fixture
def full(monkeypatch):
    """Return a function after whose call nothing can be written durably any more."""

    def fill():
        def no_space(handle):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", no_space)

    return fill


@pytest.mark.parametrize(("study", "settings"), STUDIES, ids=str)
def test_a_folder_that_cannot_be_made_is_a_refusal_at_enrolment(study, settings, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    reply = enrol(device(tmp_path, tmp_path / "file" / "state"), study, settings)
    assert reply.content["client"]["refused"] == REFUSED  # its owner's business, not the server's
    assert "the state folder" in caplog.text  # the log file cannot be written either
    assert "cannot be written (Not a directory)" in caplog.text


@pytest.mark.parametrize(("study", "settings"), STUDIES, ids=str)
def test_a_full_disk_is_a_refusal_at_enrolment_and_nothing_is_entered(
    study, settings, tmp_path, full
):
    state = tmp_path / "state"
    full()
    reply = enrol(device(tmp_path, state), study, settings)
    assert reply.content["client"]["refused"] == REFUSED
    assert "No space left on device" in log.read(state)[-1]["reason"]
    assert [path.name for path in state.iterdir()] == [log.FILE]  # no half of a file is left


def test_without_privacy_nothing_is_kept_so_nothing_is_asked(tmp_path, full):
    full()
    reply = enrol(device(tmp_path, tmp_path / "state"), "consensus-graph", {"privacy": "none"})
    assert "refused" not in reply.content["client"]


def test_a_disk_that_fills_later_is_a_refusal_before_the_release(tmp_path, full):
    ledger = DeviceLedger(tmp_path, Policy(10.0))
    ledger.reserve(EVENT)
    before = (tmp_path / LEDGER).read_bytes()
    full()
    with pytest.raises(PrivacyRefused, match=r"No space left on device.*none is made"):
        ledger.reserve(replace(EVENT, name="e2"))
    assert (tmp_path / LEDGER).read_bytes() == before


def test_a_release_that_was_entered_is_not_refused_for_want_of_space(tmp_path, full):
    ledger = DeviceLedger(tmp_path, Policy(10.0))
    ledger.reserve(EVENT)
    full()
    ledger.commit(EVENT.name)
    (entry,) = ledger.entries()
    assert entry["state"] == "reserved"  # which counts as made
    assert ledger.spent() > 0.0
    assert "stays reserved" in log.read(tmp_path)[-1]["error"]


def test_a_refusal_of_the_budget_is_told_as_such(tmp_path):
    with pytest.raises(PrivacyRefused, match="max-epsilon"):
        DeviceLedger(tmp_path, Policy(0.1)).reserve(EVENT)


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of a few pages, where that is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    state = small_disk / "state"
    ledger = DeviceLedger(state, Policy(10.0))
    ledger.reserve(EVENT)
    check_writable(state)
    rest = small_disk / "rest"
    with pytest.raises(OSError, match="No space left"):
        rest.write_bytes(bytes(1_000_000))
    with pytest.raises(PrivacyRefused, match="No space left on device"):
        ledger.reserve(replace(EVENT, name="e2"))
    assert len(ledger.events()) == 1
    rest.unlink()
    ledger.reserve(replace(EVENT, name="e2"))
    assert len(ledger.events()) == 2


def test_a_disk_that_is_really_read_only(small_disk):
    state = small_disk / "state"
    DeviceLedger(state, Policy(10.0)).reserve(EVENT)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(PrivacyRefused, match="Read-only file system"):
        check_writable(state)
