"""The figures of what privacy costs, at sizes that take seconds."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from rich.console import Console

from tests.apps.experiments.making import make
from trellis.apps.cluster_admm.paper import hidden


@pytest.fixture
def console():
    return Console(file=io.StringIO())


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_table_has_every_way_and_says_which_wins(tmp_path, console):
    sizes = [[90, "6", 4, "ridge"], [90, "6", 4, "logistic"]]
    (finding,) = make("cluster-admm", "private", tmp_path, console, sizes=sizes, seeds=2)
    rows = rows_of(tmp_path / "private.csv")
    assert [float(row["epsilon"]) for row in rows] == 2 * [0.3, 1.0, 3.0]
    ridge = rows[2]
    assert float(ridge["open"]) < float(ridge["several"]) < float(ridge["alone"])
    assert float(ridge["on the device"]) < float(ridge["alone"])
    assert {row["wins"] for row in rows} <= {"several", "one exchange"}
    wins = sum(row["wins"] == "several" for row in rows if row["loss"] == "ridge")
    assert f"in {wins} of 3 rows" in finding.found


def test_break_even_says_from_how_many_clients_on(tmp_path, console):
    kinds = [["ridge", "4", 4]]
    make("cluster-admm", "break-even", tmp_path, console, kinds=kinds, clients=[10, 200], seeds=2)
    assert (tmp_path / "break-even-ridge.svg").exists()
    told = rows_of(tmp_path / "break-even-clients.csv")
    assert next(row["clients"] for row in told if row["epsilon"] == "3.0") in ("10", "200")


def test_chances_follow_the_losses_and_one_sample_changes_them_by_no_more_than_epsilon():
    losses = np.array([[1.0, 3.0, 9.0]])
    chances = hidden.draw_chances(losses, 0.5)
    assert chances.sum() == pytest.approx(1.0)
    assert chances[0, 0] / chances[0, 2] == pytest.approx(np.exp(0.25 * 8.0))
    rng = np.random.default_rng(0)
    for _ in range(200):
        moved = hidden.draw_chances(losses + rng.choice([-1.0, 1.0], (1, 3)), 0.5)
        assert np.max(np.abs(np.log(moved / chances))) <= 0.5 + 1e-12
