"""The Flower app bundle holds what runs, nothing else, and runs without this repository."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from sim.processes import executable

ROOT = Path(__file__).parents[2]
PACKAGES = ("apps", "strategies", "privacy")
# Of these packages, what neither a client nor a server needs while a run goes on.
LEFT_OUT = (
    "apps/*/paper/*", "apps/*/paper/*/*", "apps/*/audit.py",
    "apps/command/*", "apps/command/*/*", "apps/command/*/*/*",
    "apps/__main__.py", "apps/gromov_wasserstein/collection.py", "privacy/device/meanings.py",
    "apps/experiments/*", "apps/runs/*", "apps/common/runner.py", "privacy/audit*.py",
    "apps/*/owner/predict.py", "apps/common/private/using.py", "apps/python/*",
    "apps/tuning/*", "apps/cases/*", "apps/cases/*/*",
)  # fmt: skip
# Flower refuses bundles above 10 MB; every device gets this one for every run.
MOST_BYTES = 2_550_000
# What a fresh clone does not have.
MADE_HERE = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "*.fab",
    *("build", "dist", "results"),
)  # fmt: skip
# What a worked-in tree has, and no device needs.
STRAY = (
    ".venv/lib/site.py",
    "benchmarks/stray.py",
    "build/lib/apps/__init__.py",
    "docs/guide.md",
    "examples/stray.py",
    "papers/notes.md",
    "results/run.json",
    "studies/notes.md",
    "tests/stray.py",
    "stray.py",
)

# Runs with the unpacked bundle first on the path and without the repository's editable install,
# which would otherwise quietly provide any module that the bundle lacks.
IMPORT_APPS = """
import importlib, json, pkgutil, sys
folder, root = sys.argv[1:]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
sys.path[:] = [folder] + [entry for entry in sys.path if entry != root]
import apps
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
assert isinstance(apps.server_app, ServerApp), apps.server_app
assert isinstance(apps.client_app, ClientApp), apps.client_app
for module in pkgutil.walk_packages(apps.__path__, "apps."):
    if module.name.endswith(("client_app", "server_app")):
        importlib.import_module(module.name)
ours = {name: module.__file__ for name, module in sys.modules.items()
        if name.partition(".")[0] in ("apps", "strategies", "privacy", "sim")}
print(json.dumps(ours))
"""


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
    shutil.copytree(ROOT, tree, ignore=MADE_HERE)
    return tree


@pytest.fixture(scope="module")
def fab(clone) -> Path:
    return build(clone)


@pytest.fixture(scope="module")
def names(fab) -> set[str]:
    return set(zipfile.ZipFile(fab).namelist()) - {".info/CONTENT"}


def wanted(clone: Path) -> set[str]:
    """The modules of the packages but for those that are left out."""
    found = (
        path.relative_to(clone) for package in PACKAGES for path in (clone / package).rglob("*")
    )
    kept = (path for path in found if not any(map(path.match, LEFT_OUT)))
    return {path.as_posix() for path in kept if path.suffix in (".py", ".toml")}


def test_it_holds_every_module_that_a_run_needs(clone, names):
    assert {"apps/dispatch.py", "apps/common/results.py", "strategies/__init__.py"} <= names
    missing = wanted(clone) - names
    assert missing == set(), "Flower drops test_*.py and *_test.py, and what .gitignore has"
    assert "pyproject.toml" in names


def test_it_holds_nothing_else(names):
    allowed = {"pyproject.toml", "LICENSE"}
    assert {name for name in names - allowed if name.partition("/")[0] not in PACKAGES} == set()
    assert {name for name in names if "README" in name} == set()
    assert {name for name in names if any(map(Path(name).match, LEFT_OUT))} == set()


def test_it_is_small(clone, fab):
    source = sum((clone / name).stat().st_size for name in wanted(clone))
    assert fab.stat().st_size < 1.1 * source  # Flower does not compress it
    assert fab.stat().st_size < MOST_BYTES


def test_a_tree_that_was_worked_in_gives_the_same_bundle(clone, names, tmp_path):
    tree = tmp_path / "trellis"
    shutil.copytree(clone, tree)
    for stray in STRAY:
        (tree / stray).parent.mkdir(parents=True, exist_ok=True)
        (tree / stray).write_text("{}\n")
    assert set(zipfile.ZipFile(build(tree)).namelist()) - {".info/CONTENT"} == names


def test_it_names_the_apps_that_it_holds(fab):
    project = tomllib.loads(zipfile.ZipFile(fab).read("pyproject.toml").decode())
    components = project["tool"]["flwr"]["app"]["components"]
    assert components == {
        "serverapp": "apps.dispatch:server_app",
        "clientapp": "apps.dispatch:client_app",
    }


def test_it_imports_on_its_own(fab, tmp_path):
    folder = tmp_path / "unpacked"
    zipfile.ZipFile(fab).extractall(folder)
    command = [sys.executable, "-I", "-c", IMPORT_APPS, str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "apps" in found
    elsewhere = {name: file for name, file in found.items() if not file.startswith(str(folder))}
    assert elsewhere == {}
