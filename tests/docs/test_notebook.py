"""docs/own-data.ipynb runs as it is, and what it shows is what comes out."""

from __future__ import annotations

import ast
import re

import nbformat
import pytest

from tests.docs.notebook import ROOT, execute

PATH = ROOT / "docs" / "own-data.ipynb"
NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?|nan")
# Every command that the page is there to show.
SHOWN = (
    *("run", "load", "compare", "tune", "smooth_graph", "kendall", "gaussian_sigma", "secure_sum"),
    *("gw_distances",),
)


@pytest.fixture(scope="module")
def saved():
    return nbformat.read(PATH, as_version=4)


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


def test_the_notebook_is_valid_and_shows_what_it_should(saved):
    nbformat.validate(saved)
    source = "\n".join(cell.source for cell in code_cells(saved))
    assert [name for name in SHOWN if f"trellis.{name}(" not in source] == []
    assert all(cell.outputs for cell in code_cells(saved))


def test_what_is_saved_is_small_and_names_no_machine(saved):
    outputs = [text for cell in code_cells(saved) for text in texts(cell)]
    assert max(map(len, outputs)) < 2000
    assert not re.search(r"(?<![\w.])/(home|tmp|root|usr|work|Users)/", PATH.read_text())
    assert PATH.stat().st_size < 150_000


def test_it_runs_and_shows_what_is_saved(saved):
    """One test, because one execution is enough."""
    fresh = execute(PATH)
    for before, now in zip(code_cells(saved), code_cells(fresh), strict=True):
        assert kinds(before) == kinds(now), before.source
        assert words(before) == words(now), before.source
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


def test_an_error_in_a_cell_is_told(tmp_path):
    wrong = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(wrong, tmp_path / "wrong.ipynb")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute(tmp_path / "wrong.ipynb")
