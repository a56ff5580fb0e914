"""Every figure of every paper, in a reduced size, at all seeds that it is made with."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from trellis.apps import STUDIES
from trellis.apps.experiments.driver import make_figure
from trellis.apps.experiments.figures import figures

EVERY = [figure for study in STUDIES for figure in figures(study).values()]


@pytest.mark.parametrize("figure", EVERY, ids=lambda figure: f"{figure.study}-{figure.name}")
def test_it_is_made_with_a_verdict_on_every_claim(figure, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    made = make_figure(figure, tmp_path, console, "test")
    if made.ended == "skipped":
        pytest.skip(made.reason)
    assert made.ended == "made", f"{made.reason}\n{console.file.getvalue()}"
    tables = list(tmp_path.glob("*.csv"))
    assert tables
    for path in tables:
        _check_numbers(path)


def test_seeds_are_those_of_the_full_size():
    for figure in EVERY:
        full, small = figure.numbers("full"), figure.numbers("test")
        for key in ("seeds", "first-seed"):
            assert full.get(key) == small.get(key), f"{figure.study} {figure.name}: {key}"


def _check_numbers(path):
    """A column that begins with a number has nothing but numbers, or nothing."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert rows, path
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] != ""]
        numbers = [value for value in values if _is_number(value)]
        assert len(numbers) in (0, len(values)), f"{path.name}: {name} has {values[:5]}"


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
