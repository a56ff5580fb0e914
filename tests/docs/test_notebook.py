"""The notebooks run as they are, and what they show is what comes out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

from tests.docs.notebook import ROOT, execute

PATH = ROOT / "docs" / "own-data.ipynb"
TOUR = ROOT / "docs" / "tour.ipynb"
BOTH = pytest.mark.parametrize("path", [PATH, TOUR], ids=lambda path: path.stem)
# The studies of the five papers; whoever adds one of their own need not tour it.
PAPERS = {
    *("cluster-admm", "consensus-graph", "gromov-wasserstein", "joint-precision", "server-graph"),
}
NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?|nan")
# Every command that the page is there to show.
SHOWN = (
    *("run", "load", "compare", "tune", "smooth_graph", "kendall", "gaussian_sigma", "secure_sum"),
    *("gw_distances",),
)


def saved(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def source(notebook) -> str:
    return "\n".join(cell.source for cell in code_cells(notebook))


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell) -> list[str]:
    """Return what a cell shows, as text."""
    return [
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for output in cell.outputs
    ]


def kinds(cell) -> list[list[str]]:
    """Return what sorts of things a cell shows: text, tables, pictures."""
    return [sorted(output.get("data", ())) for output in cell.outputs]


def words(cell) -> list[list[str]]:
    """Return what a cell shows but numbers, whose last digits differ from machine to machine."""
    return [NUMBER.sub("#", text).split() for text in texts(cell)]


def shown_by(notebook, ending: str) -> str:
    """Return what the cell shows whose last line ends so."""
    (cell,) = (cell for cell in code_cells(notebook) if cell.source.endswith(ending))
    return texts(cell)[-1]


def executed_as_saved(path: Path) -> nbformat.NotebookNode:
    """Return a notebook that was executed now, which shows what is saved but for numbers."""
    fresh = execute(path)
    for before, now in zip(code_cells(saved(path)), code_cells(fresh), strict=True):
        assert kinds(before) == kinds(now), before.source
        assert words(before) == words(now), before.source
    return fresh


@BOTH
def test_a_notebook_is_valid_and_every_cell_shows_something(path):
    notebook = saved(path)
    nbformat.validate(notebook)
    assert all(cell.outputs or "def " in cell.source for cell in code_cells(notebook))


def test_the_notebooks_show_what_they_are_there_for():
    shown = source(saved(PATH))
    assert [name for name in SHOWN if f"trellis.{name}(" not in shown] == []
    assert set(re.findall(r'trellis\.run\(\s*"([\w-]+)"', source(saved(TOUR)))) == PAPERS


@BOTH
def test_what_is_saved_is_small_and_names_no_machine(path):
    outputs = [text for cell in code_cells(saved(path)) for text in texts(cell)]
    assert max(map(len, outputs)) < 2000
    assert not re.search(r"(?<![\w.])/(home|tmp|root|usr|work|Users)/", path.read_text())
    assert path.stat().st_size < 150_000


@BOTH
def test_links_of_a_notebook_lead_somewhere(path):
    text = "\n".join(cell.source for cell in saved(path).cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_own_data_runs_and_shows_what_is_saved():
    """One test, because one execution is enough."""
    fresh = executed_as_saved(PATH)
    accuracy = ast.literal_eval(shown_by(fresh, '("", "alone-", "trivial-")}'))
    assert accuracy[""] > accuracy["trivial-"] + 0.1
    scores = shown_by(fresh, 'private {private.score(new):.3f}")')
    shared, private = map(float, re.findall(r"\d\.\d+", scores))
    assert min(shared, private) > accuracy["trivial-"] + 0.1
    assert shown_by(fresh, "(again.predict(new) == shared.predict(new)).all())") == "True"
    (spent,) = re.findall(r"epsilon (\S+),", shown_by(fresh, "{private.ledger['delta']}\")"))
    assert 0.0 < float(spent) <= 3.0
    table = shown_by(fresh, "runs.items()\n    }\n).round(2)")
    rows = [tuple(map(float, pair)) for pair in re.findall(r"(\d\.\d+) +(\d\.\d+)", table)]
    assert len(rows) == 5
    assert all(tuned > before for before, tuned in rows)


def test_the_tour_runs_and_shows_what_is_saved():
    fresh = executed_as_saved(TOUR)
    for measure in ("likelihood", "accuracy", "r2"):
        cells = [c for c in code_cells(fresh) if c.source.endswith(f', "{measure}")')]
        assert cells
        for cell in cells:
            score = ast.literal_eval(texts(cell)[-1])
            assert score["together"] >= score["alone"] > score["knowing nothing"]
    spent = shown_by(fresh, 'in both {len(opened & hidden)}")')
    epsilon, _, _, private, common = re.findall(r"(?<![\w.])\d[\d.e-]*", spent)
    assert 0.0 < float(epsilon) <= 3.0
    assert int(common) >= int(private) - 2


def test_an_error_in_a_cell_is_told(tmp_path):
    wrong = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(wrong, tmp_path / "wrong.ipynb")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute(tmp_path / "wrong.ipynb")
