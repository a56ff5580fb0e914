"""The rules of the house: who imports whom, what an edge client loads, that names agree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "apps": {"apps", "strategies", "privacy", "sim"},
    "strategies": {"strategies", "privacy"},
    "privacy": {"privacy"},
    "sim": {"sim"},
}
MODULES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_imports_through_the_back_door(path):
    package = path.relative_to(ROOT).parts[0]
    ours = imported(path) & set(ALLOWED)
    assert ours <= ALLOWED[package] | {package}


@pytest.mark.parametrize("module", ["problem", "solver"])
def test_the_mathematics_imports_no_framework(module):
    path = ROOT / "apps" / "consensus_graph" / f"{module}.py"
    assert not imported(path) & {"flwr", "torch", "ray", "sim", "strategies", "privacy"}


def test_a_client_loads_no_heavy_package():
    code = (
        "import sys, apps\n"
        "from apps.consensus_graph import client_app\n"
        "heavy = {'torch', 'ray', 'matplotlib', 'networkx', 'cvxpy', 'sklearn', 'dp_accounting'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"
