"""``import trellis`` is quick, shows what is public, and its pages are true."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import trellis
from trellis.apps.python import PUBLIC

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "python.md"
HEAVY = {
    "flwr", "torch", "torch_geometric", "matplotlib", "pandas", "sklearn", "scipy", "networkx",
    "numpy", "ray", "ot", "rich", "jinja2", "trellis.sim",
}  # fmt: skip


def loaded(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('loaded', *sorted({HEAVY!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_nothing_heavy_is_imported_before_it_is_needed():
    assert loaded("import trellis\ntrellis.STUDIES, trellis.__version__, dir(trellis)") == set()
    assert loaded("import trellis\ntrellis.gaussian_sigma(1, 1e-5, 1)") <= {"numpy", "scipy"}
    graphs = loaded("import trellis\nimport numpy as np\ntrellis.smooth_graph(np.eye(4))")
    assert graphs <= {"numpy", "scipy", "networkx", "flwr"}
    ran = loaded("import trellis\ntrellis.run('consensus-graph', nodes=5, rounds=1)")
    assert not ran & {"torch", "pandas", "sklearn", "matplotlib", "ray", "networkx", "jinja2"}


def test_all_that_is_public_is_there_and_says_what_it_is():
    assert set(trellis.__all__) == {*PUBLIC, "STUDIES", "__version__"}
    assert dir(trellis) == sorted(trellis.__all__)
    for name in PUBLIC:
        found = getattr(trellis, name)
        assert found.__name__ == name
        assert len(found.__doc__.splitlines()) > 3, f"{name} says nothing"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        trellis.nothing  # noqa: B018


@pytest.mark.parametrize("module", sorted(set(PUBLIC.values())))
def test_examples_in_docstrings(module):
    failed, tried = doctest.testmod(import_module(f"trellis.apps.python.{module}"))
    assert tried > 0
    assert failed == 0


def test_the_page_names_everything_that_is_public():
    text = PAGE.read_text()
    assert [name for name in PUBLIC if f"trellis.{name}" not in text] == []
