"""The rules of the house: who imports whom, and what an edge client loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from trellis import apps

ROOT = Path(__file__).parents[1]
# What every part may import: how to install what is missing.
SHARED = {"install"}
# Who may import whom, by the second part of the name: trellis.apps, trellis.strategies, ...
ALLOWED = {
    "apps": {"apps", "strategies", "privacy", "sim"},
    "strategies": {"strategies", "privacy"},
    "privacy": {"privacy"},
    "sim": {"sim"},
}
MODULES = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]
FOLDERS = sorted({path.parent for path in MODULES})
STUDIES = list(apps.STUDIES.values())
# What a device runs, and what a server runs.
ENTRIES = [
    "trellis.apps.dispatch",
    *(f"{s}.{part}_app" for s in STUDIES for part in ("client", "server")),
]


def name_of(path: Path) -> str:
    parts = ("trellis", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(name: str) -> str:
    """Return which of the four parts a module is in; nothing if it is none of ours."""
    head, _, rest = name.partition(".")
    return rest.partition(".")[0] if head == "trellis" else ""


NAMES = {name_of(path): path for path in MODULES}


def parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


@cache
def imports(name: str, lazy: bool = True) -> frozenset[str]:
    """Return what a module imports; without what stands in functions or is for types, if asked."""
    path = NAMES[name] if name in NAMES else ROOT / name
    found: set[str] = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in NAMES else base)
        for child in ast.iter_child_nodes(node):
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            if not typing and (lazy or not inside):
                visit(child)

    visit(ast.parse(path.read_text()))
    return frozenset(found)


def reached(start: list[str], lazy: bool, stop: str = "") -> set[str]:
    """Return all modules of ours that these import, directly or not, and the packages they are in.

    ``stop`` is not looked into.
    """
    seen: set[str] = set()
    open_ = [*start]
    while open_:
        name = open_.pop()
        if name in NAMES and name not in seen and name != stop:
            seen.add(name)
            open_ += [*imports(name, lazy), *parents(name)]
    return seen


@pytest.mark.parametrize("name", list(NAMES))
def test_no_module_imports_through_the_back_door(name):
    ours = {part_of(other) for other in imports(name)} - {"", *SHARED}
    assert ours <= ALLOWED[part_of(name)]


@pytest.mark.parametrize("name", list(NAMES))
def test_only_one_name_is_imported(name):
    """A wheel installs `trellis` alone: `import apps` would find somebody else's folder."""
    assert not {other.partition(".")[0] for other in imports(name)} & set(ALLOWED)


def test_no_module_imports_itself_by_a_detour():
    sorter = TopologicalSorter(
        {name: [o for o in imports(name, lazy=False) if o in NAMES] for name in NAMES}
    )
    sorter.prepare()  # raises CycleError, which names the cycle


def test_nothing_that_flower_runs_comes_from_sim():
    """Not even in a function: the bundle for devices and servers has no sim."""
    needed = reached(
        ENTRIES, lazy=True, stop="trellis.apps.common.runner"
    )  # a door for Python, not Flower
    assert {name for name in needed if part_of(name) == "sim"} == set()
    assert len(needed) > 100


@pytest.mark.parametrize("study", STUDIES)
def test_a_client_s_code_draws_no_pages(study):
    needed = reached(["trellis.apps.dispatch", f"{study}.client_app"], lazy=False)
    assert not {
        name
        for name in needed
        if name.startswith(("trellis.apps.pages", "trellis.apps.experiments"))
    }
    assert not {name for name in needed if ".paper" in name or ".report" in name}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_folder_says_what_is_in_it(folder):
    first = folder / "__init__.py"
    assert ast.get_docstring(ast.parse(first.read_text())), f"{first} says nothing"


@pytest.mark.parametrize(
    "module",
    [
        "trellis.apps.consensus_graph.problem",
        "trellis.apps.consensus_graph.solver",
        "trellis.apps.joint_precision.kendall",
        "trellis.apps.joint_precision.clime",
        "trellis.apps.server_graph.problem",
        "trellis.apps.cluster_admm.problem",
        "trellis.strategies.cluster_admm.mixing",
        "trellis.strategies.joint_precision.prox",
        "trellis.strategies.gromov_wasserstein.pair",
    ],
)
def test_the_mathematics_imports_no_framework(module):
    needed = reached([module], lazy=False)
    outside = {other.partition(".")[0] for name in needed for other in imports(name, lazy=False)}
    assert not outside & {"flwr", "torch", "ray", "matplotlib"}
    assert not {name for name in needed if part_of(name) == "sim"}


def loaded(statement: str, packages: set[str]) -> list[str]:
    """Return which of the packages are there after a statement."""
    code = f"import sys\n{statement}\nprint('loaded', *sorted({packages!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("study", [s for s in STUDIES if "wasserstein" not in s])
def test_a_client_loads_no_heavy_package(study):
    heavy = {"torch", "ray", "matplotlib", "networkx", "cvxpy", "sklearn", "dp_accounting"}
    heavy |= {"jinja2", "joblib", "pandas", "trellis.sim"}
    assert loaded(f"from trellis.apps import dispatch\nfrom {study} import client_app", heavy) == []


@pytest.mark.parametrize("study", STUDIES)
def test_a_client_s_code_never_asks_for_networkx(study):
    """Not even in a function: it is the server's and the laptop's."""
    needed = reached(["trellis.apps.dispatch", f"{study}.client_app"], lazy=False)
    assert not {name for name in needed for other in imports(name) if "networkx" in other}


def test_a_client_that_trains_loads_neither_solvers_nor_clusters():
    statement = (
        "from trellis.apps import dispatch\nfrom trellis.apps.gromov_wasserstein import client_app"
    )
    assert loaded(statement, {"joblib", "ray", "ot", "sklearn", "matplotlib", "trellis.sim"}) == []


def test_a_worker_that_solves_pairs_loads_one_extension_module_of_pot():
    statement = "from trellis.strategies.gromov_wasserstein import pool\npool.load_light()"
    heavy = {"ot", "torch", "sklearn", "scipy", "flwr", "ray", "rich", "trellis.sim"}
    assert loaded(statement, heavy) == []


def test_help_comes_at_once():
    """Without Flower, numpy or rich: the studies' names are all it needs."""
    statement = (
        "from trellis.apps.command import main\ntry: main(['--help'])\nexcept SystemExit: print()"
    )
    assert loaded(statement, {"flwr", "numpy", "rich", "torch", "matplotlib"}) == []


def test_the_list_loads_no_runtime_and_no_figure():
    heavy = {"flwr", "torch", "ray", "matplotlib", "scipy", "networkx", "sklearn", "ot"}
    assert loaded("from trellis.apps.command import main\nassert main(['list']) == 0", heavy) == []
