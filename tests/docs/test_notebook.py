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
SHOWN = ("run", "load", "compare", "smooth_graph", "kendall", "gaussian_sigma", "secure_sum")


@pytest.fixture(scope="module")
def saved():
    return nbformat.read(PATH, as_version=4)


@pytest.fixture(scope="module")
def fresh():
    return execute(PATH)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell) -> list[str]:
    """Return what a cell shows, as text."""
    return [
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for output in cell.outputs
    ]


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
    assert [text for text in outputs if "/" in text and str(ROOT.anchor + "tmp") in text] == []
    assert not re.search(r"(?<![\w.])/(home|tmp|root|usr|work|Users)/", PATH.read_text())
    assert PATH.stat().st_size < 150_000


def test_what_is_saved_is_what_comes_out(saved, fresh):
    """Word by word; numbers may differ in their last digits on other machines."""
    for before, now in zip(code_cells(saved), code_cells(fresh), strict=True):
        assert [sorted(o.get("data", ())) for o in before.outputs] == [
            sorted(o.get("data", ())) for o in now.outputs
        ], before.source
        assert [words(text) for text in texts(before)] == [words(text) for text in texts(now)]


def words(text: str) -> list[str]:
    """Return a text's words, any number as a #."""
    return NUMBER.sub("#", text).split()


def test_learning_together_beats_guessing_in_private_too(fresh):
    headline = ast.literal_eval(shown_by(fresh, '("", "alone-", "trivial-")}'))
    assert headline[""] > headline["trivial-"] + 0.1
    scores = shown_by(fresh, 'private {private.score(new):.3f}")')
    shared, private = map(float, re.findall(r"\d\.\d+", scores))
    assert min(shared, private) > headline["trivial-"] + 0.1


def test_a_run_that_was_kept_predicts_the_same(fresh):
    assert shown_by(fresh, "(again.predict(new) == shared.predict(new)).all())") == "True"


def test_the_private_run_spends_no_more_than_it_may(fresh):
    (spent,) = re.findall(r"epsilon (\S+),", shown_by(fresh, "{private.ledger['delta']}\")"))
    assert 0.0 < float(spent) <= 3.0


def test_an_error_in_a_cell_is_told(tmp_path):
    wrong = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    nbformat.write(wrong, tmp_path / "wrong.ipynb")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        execute(tmp_path / "wrong.ipynb")
