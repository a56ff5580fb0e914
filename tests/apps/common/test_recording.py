"""What a run's folder says: its end in words, one run at a time, nothing lost by a bad resume."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trellis import apps
from trellis.apps.common.recording import _end, _names, kept_folder
from trellis.apps.common.results import LOCK, FolderLock, RunResult, is_held
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError, config_class
from trellis.apps.pages.report import write_index
from trellis.sim.grid import run_local
from trellis.strategies.core.checkpoint import Checkpoint, CheckpointError
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"
SMALL = {"nodes": 6, "clients": 3, "signals": "20", "rounds": 5, "tolerance": 0.0}


@pytest.fixture(autouse=True)
def _checkpoint_every_round(monkeypatch):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)


def start(out, *, error=None, in_round=3, resume=False, force=False, **settings):
    """Run the study; with ``error`` raise it in the middle of a round."""

    class Ending(type(apps.client_app)):
        def __call__(self, message, context):
            if error is not None and message.metadata.group_id == str(in_round):
                raise error
            return super().__call__(message, context)

    more = {key.replace("_", "-"): value for key, value in settings.items()}
    config = make_run_config(STUDY, {**SMALL, **more}, resume=resume, force=force)
    config["out"] = str(out)
    nodes = [
        {"partition-id": i, "num-partitions": 3, "simulation": True}
        for i in range(int(config[f"{STUDY}.clients"]))
    ]
    run_local(apps.server_app, Ending(), nodes, config)
    return RunResult.load(out)


def content(folder):
    """Return every file with its bytes and time of change."""
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (SystemExit(0), "stopped", "stopped before its end, by flwr stop or a signal"),
        (SystemExit(), "stopped", "stopped before its end, by flwr stop or a signal"),
        (KeyboardInterrupt(), "interrupted", "The run was interrupted; it can be resumed"),
    ],
)
def test_a_run_that_is_stopped_says_so_and_can_be_resumed(error, status, words, tmp_path):
    with pytest.raises(type(error)):
        start(tmp_path / "out", error=error)
    stopped = RunResult.load(tmp_path / "out")
    assert stopped.status == status
    assert words in stopped.notes[-1]
    assert "can be resumed from its last checkpoint" in stopped.notes[-1]
    assert len(stopped.metrics) == 2
    resumed, whole = start(tmp_path / "out", resume=True), start(tmp_path / "whole")
    assert resumed.status == "completed"
    assert not any("stopped" in note for note in resumed.notes)
    assert resumed.arrays["weights"].tobytes() == whole.arrays["weights"].tobytes()


def test_no_note_is_empty():
    assert _end(StudyError("too few"), resumable=True) == ("failed", "The run stopped: too few")
    assert _end(ValueError(), resumable=True) == ("failed", "The run stopped: ValueError")
    assert _end(KeyboardInterrupt(), resumable=False)[1] == "The run was interrupted."


def test_the_index_counts_runs_that_were_stopped(tmp_path):
    with pytest.raises(SystemExit):
        start(tmp_path / "one", error=SystemExit(0))
    results = [RunResult.load(tmp_path / "one"), start(tmp_path / "two")]
    page = write_index(results, tmp_path / "index.html").read_text()
    assert "2 of 2 runs without failure, 1 stopped before the end" in page
    assert "flwr stop" in page


# One run at a time


def test_the_second_of_two_runs_into_one_folder_is_refused_and_changes_nothing(tmp_path):
    start(tmp_path)
    assert not is_held(tmp_path)
    held = FolderLock(tmp_path)
    before = content(tmp_path)
    assert is_held(tmp_path)
    for resume in (False, True):
        with pytest.raises(
            ConfigError, match=f"another run writes into this folder .process {os.getpid()}"
        ):
            start(tmp_path, resume=resume, rho=2.0)
        assert content(tmp_path) == before
    held.release()
    assert not is_held(tmp_path)
    start(tmp_path, rho=2.0, force=True)


def test_two_runs_at_once_in_one_process(tmp_path):
    began, go_on, refused = threading.Event(), threading.Event(), []

    class Waiting(type(apps.client_app)):
        def __call__(self, message, context):
            began.set()
            assert go_on.wait(60)
            return super().__call__(message, context)

    config = make_run_config(STUDY, SMALL) | {"out": str(tmp_path)}
    nodes = [{"partition-id": i, "num-partitions": 3, "simulation": True} for i in range(3)]
    first = threading.Thread(
        target=lambda: run_local(apps.server_app, Waiting(), nodes, config), daemon=True
    )
    first.start()
    assert began.wait(60)
    try:
        start(tmp_path, rho=9.0)
    except ConfigError as error:
        refused.append(str(error))
    go_on.set()
    first.join(60)
    assert refused
    result = RunResult.load(tmp_path)
    assert result.status == "completed"
    assert result.config["rho"] == config_class(STUDY)().rho


def test_a_run_that_failed_leaves_the_folder_free_while_its_error_is_held(tmp_path):
    with pytest.raises(SystemExit) as held:
        start(tmp_path, error=SystemExit(0))
    assert start(tmp_path, force=True).status == "completed"
    assert held.value is not None


def test_a_lock_of_a_process_that_was_killed_does_not_block(tmp_path):
    code = (
        "import os, signal; from pathlib import Path\n"
        "from trellis.apps.common.results import FolderLock\n"
        f"lock = FolderLock(Path({str(tmp_path)!r})); print('held', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout == "held\n", done.stderr
    assert (tmp_path / LOCK).is_file()
    FolderLock(tmp_path).release()


def test_a_lock_of_another_process_holds_until_that_ends(tmp_path):
    code = (
        "from pathlib import Path; from trellis.apps.common.results import FolderLock\n"
        f"lock = FolderLock(Path({str(tmp_path)!r})); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"process {other.pid}"):
            FolderLock(tmp_path)
        other.communicate("\n")
    FolderLock(tmp_path).release()


# Resuming


def test_a_resume_with_other_settings_changes_nothing(tmp_path):
    with pytest.raises(SystemExit):
        start(tmp_path, error=SystemExit(0))
    before = content(tmp_path)
    with pytest.raises(CheckpointError, match=r"made with rho=.*this run has rho=9"):
        start(tmp_path, resume=True, rho=9.0)
    after = content(tmp_path)
    assert {**after, tmp_path / LOCK: before[tmp_path / LOCK]} == before


def test_a_resume_without_its_clients_changes_nothing(tmp_path):
    with pytest.raises(SystemExit):
        start(tmp_path, error=SystemExit(0))
    result = tmp_path / "run.json"
    before = result.read_bytes(), (tmp_path / "metrics.csv").read_bytes()
    config = make_run_config(STUDY, {**SMALL, "enrol-timeout": 0.2}, resume=True)
    nodes = [{"partition-id": i, "num-partitions": 3, "simulation": True} for i in range(2)]
    with pytest.raises(StudyError, match="2 of 3 clients could be enrolled"):
        run_local(apps.server_app, apps.client_app, nodes, config | {"out": str(tmp_path)})
    assert (result.read_bytes(), (tmp_path / "metrics.csv").read_bytes()) == before
    assert start(tmp_path, resume=True).status == "completed"


def test_how_many_are_needed_and_how_long_to_wait_may_differ_on_resume(tmp_path):
    with pytest.raises(SystemExit):
        start(tmp_path, error=SystemExit(0))
    assert start(tmp_path, resume=True, clients_least=2, enrol_timeout=7).status == "completed"


# Settings and words


@pytest.mark.parametrize(
    ("study", "settings", "message"),
    [
        (STUDY, {"clients-least": -1}, "clients-least=-1: must be >= 0"),
        (STUDY, {"clients-least": 6}, "clients-least=6: more than clients=5"),
        (STUDY, {"enrol-timeout": 0}, "enrol-timeout=0.0: must be > 0"),
        (STUDY, {"clients-least": 2, "privacy": "dp"}, "secure sums must have 3 clients"),
        (
            STUDY,
            {"clients-least": 2, "method": "fedavg", "secure-aggregation": True},
            "secure sums must have 3 clients",
        ),
        (STUDY, {"clients-least": 2, "robust": "median"}, "robust='median' must have 3 clients"),
        ("server-graph", {"clients-least": 2}, "secure sums must have 3 clients"),
        ("gromov-wasserstein", {"clients-least": 1, "secure-aggregation": True}, "secure sums"),
    ],
)
def test_a_least_number_of_clients_that_cannot_be_is_refused(study, settings, message):
    with pytest.raises(ConfigError) as error:
        config_class(study).from_settings(settings)
    assert message in str(error.value)


def test_a_least_number_that_can_be_is_taken():
    assert config_class(STUDY).from_settings({"clients-least": 3, "privacy": "dp"})
    assert config_class(STUDY).from_settings({"clients-least": 1})
    assert config_class("server-graph").from_settings(
        {"clients-least": 2, "secure-aggregation": "off", "method": "none"}
    )


def test_names_of_devices_are_a_list_with_commas():
    assert _names(" north, south ,,west") == ("north", "south", "west")
    assert _names("") == ()


def test_a_run_of_flower_without_a_folder_is_kept_in_the_user_s_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.delenv("TRELLIS_HOME", raising=False)
    folder = kept_folder(STUDY, 42)
    assert folder.parent == tmp_path / "me" / ".trellis" / "runs"
    assert re.fullmatch(rf"{STUDY}-\d{{8}}-\d{{6}}-42", folder.name)
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "elsewhere"))
    assert kept_folder(STUDY, 42).parent == tmp_path / "elsewhere" / "runs"
    monkeypatch.setenv("TRELLIS_HOME", "here")
    with pytest.raises(ConfigError, match="TRELLIS_HOME='here': must be an absolute path"):
        kept_folder(STUDY, 42)
