"""Both versions of Flower that we support: what we import is there, and a simulation is the same.

The lock installs one of them; the other comes from the registry into a folder of its own.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SUPPORTED = ("1.41.0", "1.42.0")


def names_from_flower() -> dict[str, set[str]]:
    """Return what our code imports from Flower, by module; also in functions and for types."""
    found: dict[str, set[str]] = {}
    for package in ("apps", "strategies", "privacy", "sim"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr"):
                    found.setdefault(str(node.module), set()).update(a.name for a in node.names)
                elif isinstance(node, ast.Import):
                    for alias in node.names:
                        if alias.name.partition(".")[0] == "flwr":
                            found.setdefault(alias.name, set())
    return found


NAMES = names_from_flower()


def test_this_version_is_one_of_those_we_support():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (needed,) = [r for r in map(Requirement, project["dependencies"]) if r.name == "flwr"]
    assert needed.specifier.contains(version("flwr"))
    assert all(needed.specifier.contains(other) for other in SUPPORTED)


def test_the_private_parts_are_among_them():
    assert "TaskIdentity" in NAMES["flwr.supercore.task_identity"]
    assert "ServerApp" in NAMES["flwr.serverapp"]


@pytest.mark.parametrize("module", sorted(NAMES))
def test_every_name_is_there(module):
    there = import_module(module)
    missing = [n for n in NAMES[module] if not hasattr(there, n)]
    # A name may be a module that nobody has imported yet.
    assert [n for n in missing if not import_module(f"{module}.{n}")] == []


@pytest.fixture(scope="module", params=[v for v in SUPPORTED if v != version("flwr")])
def other_version(request, tmp_path_factory) -> dict[str, str]:
    """Return an environment in which another version of Flower is found before the one here."""
    folder = tmp_path_factory.mktemp("flwr")
    named = f"flwr=={request.param}"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(folder)]
    made = subprocess.run([sys.executable, "-m", "pip", "install", *options, named], check=False)
    if made.returncode:
        pytest.skip(f"pip cannot install {named} here")
    return {**os.environ, "PYTHONPATH": str(folder), "EXPECTED": request.param}


@pytest.mark.flower
@pytest.mark.timeout(600)
def test_another_version_has_every_name_and_simulates_to_the_same_bits(other_version, tmp_path):
    code = (
        "import os\n"
        "from importlib.metadata import version\n"
        "from tests.flower.test_versions import NAMES, test_every_name_is_there\n"
        "assert version('flwr') == os.environ['EXPECTED']\n"
        "for module in NAMES:\n"
        "    test_every_name_is_there(module)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=other_version, cwd=ROOT, check=True)
    command = [sys.executable, "-m", "trellis", "run", "consensus-graph"]
    for engine, env in (("flower", other_version), ("local", os.environ)):
        options = [
            "--set",
            "rounds=2",
            "--set",
            "clients=2",
            "--set",
            "nodes=6",
            "--engine",
            engine,
        ]
        options += ["--out", str(tmp_path / engine)]
        subprocess.run([*command, *options], env=env, check=True, timeout=500)
    header = json.loads((tmp_path / "flower" / "run.json").read_text())
    assert header["versions"]["flwr"] == other_version["EXPECTED"]
    there, here = (np.load(tmp_path / name / "result.npz") for name in ("flower", "local"))
    assert sorted(there) == sorted(here)
    for name in here:
        assert there[name].tobytes() == here[name].tobytes(), name
