"""Everything that we import from Flower, private parts included, is in the version installed here.

To try another version, run this and `test_front_door` with the Python of an environment with it.
"""

from __future__ import annotations

import ast
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


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
    assert all(needed.specifier.contains(other) for other in ("1.41.0", "1.42.0"))


def test_the_private_parts_are_among_them():
    assert "TaskIdentity" in NAMES["flwr.supercore.task_identity"]
    assert "ServerApp" in NAMES["flwr.serverapp"]


@pytest.mark.parametrize("module", sorted(NAMES))
def test_every_name_is_there(module):
    there = import_module(module)
    missing = [n for n in NAMES[module] if not hasattr(there, n)]
    # A name may be a module that nobody has imported yet.
    assert [n for n in missing if not import_module(f"{module}.{n}")] == []
