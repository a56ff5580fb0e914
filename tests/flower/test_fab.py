"""The Flower app bundle names installed components and carries settings, and no code."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from trellis.sim.processes import executable

ROOT = Path(__file__).parents[2]
# Every device gets the bundle for every run.
MOST_BYTES = 25_000
# What a fresh clone does not have.
MADE_HERE = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "*.fab",
    *("build", "dist", "results"),
)  # fmt: skip
# What a worked-in tree has, and no device needs.
STRAY = (
    ".venv/lib/site.py",
    "build/lib/trellis/__init__.py",
    "docs/guide.md",
    "examples/stray.py",
    "results/run.json",
    "stray.py",
)


def build(tree: Path) -> Path:
    """Build the bundle of ``tree`` in its parent folder."""
    command = [executable("flwr"), "build", "--app", str(tree)]
    done = subprocess.run(command, cwd=tree.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (fab,) = tree.parent.glob("*.fab")
    return fab


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A tree as a fresh clone has it; Flower wants the folder's name to be a project's name."""
    tree = tmp_path_factory.mktemp("clone") / "trellis"
    shutil.copytree(ROOT, tree, ignore=MADE_HERE, symlinks=True)
    return tree


@pytest.fixture(scope="module")
def fab(clone) -> Path:
    return build(clone)


def test_it_holds_settings_and_the_licence_only(fab):
    assert set(zipfile.ZipFile(fab).namelist()) == {"pyproject.toml", "LICENSE", ".info/CONTENT"}
    assert fab.stat().st_size < MOST_BYTES


def test_a_tree_that_was_worked_in_gives_the_same_bundle(clone, fab, tmp_path):
    tree = tmp_path / "trellis"
    shutil.copytree(clone, tree, symlinks=True)
    for stray in STRAY:
        (tree / stray).parent.mkdir(parents=True, exist_ok=True)
        (tree / stray).write_text("{}\n")
    assert zipfile.ZipFile(build(tree)).namelist() == zipfile.ZipFile(fab).namelist()


def test_it_names_components_that_are_installed(fab):
    project = tomllib.loads(zipfile.ZipFile(fab).read("pyproject.toml").decode())
    assert project["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "trellis.apps.dispatch:server_app",
        "clientapp": "trellis.apps.dispatch:client_app",
    }
