"""A study that ``trellis new`` has made, in a copy of the checkout: lint, tests, contract, run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # each test is many, in a process of its own

ROOT = Path(__file__).parents[3]
# Sorts before all folders of ours, and is as long as a name may be: imports and lines move.
NAME = "a-trial-with-the-longest-of-name"
FOLDER = NAME.replace("-", "_")
MADE_HERE = shutil.ignore_patterns(
    ".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "*.fab",
    *("build", "dist", "results"),
)  # fmt: skip
# The tests of all studies, as far as they are about this one.
ABOUT_ALL = (
    "tests/strategies/core/test_contract.py",
    "tests/apps/common/test_settings.py",
    "tests/apps/test_client_imports.py",
    "tests/apps/test_held_out.py",
    "tests/apps/test_epsilon.py",
    "tests/apps/python",
    "tests/apps/runs/test_using.py",
    "tests/apps/command/test_fitting.py",
    "tests/apps/experiments/test_every_figure.py",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """Return a copy of the checkout with the new study in it."""
    root = tmp_path_factory.mktemp("copy") / "trellis"
    root.mkdir()
    parts = ("apps", "strategies", "privacy", "sim", "trellis")
    for name in (*parts, "benchmarks", "examples", "tests", "docs", ".github"):
        shutil.copytree(ROOT / name, root / name, ignore=MADE_HERE, symlinks=True)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, root / path.name)
    told = act(root, "-m", "trellis", "new", NAME)
    assert f"made {NAME}" in told
    return root


def act(root: Path, *arguments: str) -> str:
    """Run Python in the copy; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_it_is_clean(copy):
    act(copy, "-m", "ruff", "check", "--no-cache", "apps", "strategies", "tests")
    act(copy, "-m", "ruff", "format", "--no-cache", "--check", "apps", "strategies", "tests")
    packages = ("-p", f"trellis.apps.{FOLDER}", "-p", f"trellis.strategies.{FOLDER}")
    act(copy, "-m", "mypy", "--follow-imports=silent", "--no-incremental", *packages)


def test_its_own_tests_pass_and_those_of_the_house(copy):
    own = (f"tests/apps/{FOLDER}", f"tests/strategies/{FOLDER}")
    house = ("tests/test_architecture.py", "tests/test_project_files.py")
    told = act(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *own, *house)
    assert " passed" in told or "100%" in told


def test_the_tests_of_all_studies_know_it_and_pass(copy):
    told = act(copy, "-m", "pytest", "-vv", "-p", "no:cacheprovider", *ABOUT_ALL, "-k", NAME)
    for test in (
        "test_a_run_stopped_in_any_round_and_resumed_ends_with_the_same_bits",
        "test_a_run_on_own_data_tells_held_out_scores_beside_alone",
        "test_no_run_spends_more_than_its_epsilon",
        "test_a_message_loads_what_it_needs_and_no_more",
        "test_the_printed_command_runs_on_the_files",
        "test_an_app_leaves_open_how_many_clients_and_servers_there_are",
        "test_it_is_made_with_a_verdict_on_every_claim",
        "test_every_run_says_what_it_has_learned",
    ):
        assert f"{test}[" in told, test


def test_it_runs_and_is_listed(copy):
    told = act(copy, "-m", "trellis", "run", NAME, "--set", "privacy=dp", "--out", "out")
    assert "completed" in told
    assert "What was learned" in (copy / "out" / "report.html").read_text()
    assert f"{NAME}  a linear model" in act(copy, "-m", "trellis", "list")
