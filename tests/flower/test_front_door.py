"""``flwr run .`` and ``flwr run apps/<study>``, with Flower's own defaults: two SuperNodes.

Through the command line as a user types it, on one SuperLink for all. A run is followed by
``flwr log``, whose last line says why a failed one failed.
"""

from __future__ import annotations

import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.sim.flower import FlowerRun, FlowerSession
from trellis.sim.flwr_command import CONNECTION
from trellis.sim.processes import executable

from .bits import assert_same_bits

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]
SMALL = {
    "cluster-admm": "rounds=2 features=5",
    "consensus-graph": "rounds=2 nodes=6",
    "gromov-wasserstein": "rounds=1 task='graph' graphs=6 downstream='knn'",
    "joint-precision": "rounds=2 variables=8 blocks=2 samples='30' lambda1=0.2",
    "server-graph": "rounds=2 samples='20'",
}


def folder_of(study: str) -> Path:
    return ROOT / "apps" / apps.STUDIES[study].rpartition(".")[2]


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Iterator[FlowerSession]:
    """A SuperLink of its own, whose runs are kept in a folder of its own."""
    with FlowerSession() as session, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(tmp_path_factory.mktemp("kept")))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        session.start_superlink("--simulation")
        yield session


def start(session: FlowerSession, app: Path, *options: str) -> FlowerRun:
    """Type ``flwr run`` and wait for the run's end."""
    run_id = int(session.flwr("run", str(app), CONNECTION, *options)["run-id"])
    return session._command.follow(run_id, timeout=550)


def kept(run: FlowerRun) -> RunResult:
    """Return the result that the log names the folder of."""
    (line,) = [line for line in run.log.splitlines() if "the result goes to " in line]
    return RunResult.load(Path(line.partition("the result goes to ")[2]))


@pytest.mark.parametrize("study", SMALL)
def test_two_supernodes_are_two_clients_with_the_bits_of_the_in_process_engine(study, session):
    run = start(session, folder_of(study), "--run-config", SMALL[study]).check()
    there = assert_kept(run, study)
    given = dict(word.split("=") for word in SMALL[study].split())
    assert all(str(there.config[key]) == value.strip("'") for key, value in given.items())
    assert_same_bits(apps.run(study, there.config), there)


def test_the_repository_is_an_app_too_with_settings_by_study(session):
    settings = "consensus-graph.rounds=2 consensus-graph.nodes=6"
    run = start(session, ROOT, "--run-config", settings).check()
    there = assert_kept(run, "consensus-graph")
    assert (there.config["rounds"], there.config["nodes"]) == (2, 6)


def assert_kept(run: FlowerRun, study: str) -> RunResult:
    """Return the result of a run with two clients, which the log names the folder of."""
    assert f"2 SuperNodes are online; {study} runs with 2 clients (its built-in" in run.log
    there = kept(run)
    assert (there.status, there.engine, len(there.clients)) == ("completed", "flower", 2)
    assert there.folder is not None
    assert there.folder.name.startswith(f"{study}-")
    assert there.folder.name.endswith(f"-{run.run_id}")
    assert (there.folder / "report.html").is_file()
    return there


def test_a_failed_run_ends_with_one_line_that_says_why(session):
    run = start(session, ROOT, "--run-config", "study='joint-precison'")
    assert not run.ok
    last = [line for line in run.log.splitlines() if line.strip()][-1]
    assert last.startswith(
        "the run failed: study='joint-precison': did you mean 'joint-precision'?"
    )
    assert "Traceback" not in run.log


def test_a_misspelt_setting_is_refused_by_flower_before_anything_runs(session):
    command = [executable("flwr"), "run", str(folder_of("joint-precision")), CONNECTION]
    done = subprocess.run(
        [*command, "--run-config", "lambda_1=0.1"],
        env=session.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "Invalid run configuration" in done.stdout + done.stderr


@pytest.mark.parametrize("study", apps.STUDIES)
def test_a_study_s_bundle_has_settings_and_no_code(study, tmp_path):
    # `flwr build` wants the folder to have a project's name, which has no underscore.
    app = tmp_path / study
    app.mkdir()
    for path in folder_of(study).iterdir():
        if path.is_file():
            (app / path.name).write_bytes(path.read_bytes())
    command = [executable("flwr"), "build", "--app", str(app)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (fab,) = tmp_path.glob("*.fab")
    bundle = zipfile.ZipFile(fab)
    assert set(bundle.namelist()) == {"pyproject.toml", ".info/CONTENT"}
    assert fab.stat().st_size < 5_000
    project = tomllib.loads(bundle.read("pyproject.toml").decode())
    assert project["tool"]["flwr"]["app"]["config"]["study"] == study
