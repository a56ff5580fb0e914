"""``trellis run all``: every study open and private, and what privacy cost."""

from __future__ import annotations

import pytest

from trellis.apps.command.showcase import Showcase, cost_rows
from trellis.apps.common.results import RunResult
from trellis.apps.pages.report import write_index
from trellis.apps.pages.wording import Wording

WORDS = {"consensus-graph": Wording(measure="mcc"), "joint-precision": Wording()}


def run(privacy, status="completed", study="consensus-graph", **headline):
    result = RunResult(study, 1, "local", {"privacy": privacy})
    result.headline, result.status = headline, status
    if privacy == "dp":
        result.ledger = {"mode": "dp", "epsilon": 0.97}
    return result


def test_both_runs_have_the_same_data():
    runs = Showcase({"clients": 9}, {"epsilon": 2.0}).runs
    assert runs[""] == {"clients": 9, "privacy": "none"}
    assert runs["-dp"] == {"clients": 9, "privacy": "dp", "epsilon": 2.0}


@pytest.mark.parametrize(
    ("lower", "before", "after", "said"),
    [
        (False, 0.9, 0.8, "0.1 worse"),
        (False, 0.8, 0.9, "none: 0.1 better"),
        (True, -20.0, -18.0, "2 worse"),
        (True, -18.0, -20.0, "none: 2 better"),
        (False, 0.9, 0.9001, "nothing"),
    ],
)
def test_the_cost_is_told_in_the_measures_own_direction(lower, before, after, said):
    words = {"consensus-graph": Wording(measure="mcc", lower_is_better=lower)}
    (row,) = cost_rows([run("none", mcc=before), run("dp", mcc=after)], words)
    assert row[-1] == said
    assert row[4] == "0.97"


def test_alone_stands_beside_where_it_is_known():
    rows = cost_rows([run("none", mcc=0.7), run("dp", mcc=0.6, **{"alone-mcc": 0.5})], WORDS)
    assert rows[0][5] == "0.5"
    assert cost_rows([run("none", mcc=0.7), run("dp", mcc=0.6)], WORDS)[0][5] == "-"


@pytest.mark.parametrize(
    "results",
    [
        [run("none", mcc=0.7)],
        [run("none", mcc=0.7), run("dp", "failed", mcc=0.6)],
        [run("none"), run("dp", mcc=0.6)],
        [run("none", study="joint-precision"), run("dp", study="joint-precision")],
    ],
)
def test_without_both_there_is_no_row(results):
    assert cost_rows(results, WORDS) == []


def test_the_index_has_the_costs(tmp_path):
    results = [run("none", mcc=0.7), run("dp", mcc=0.6)]
    rows = cost_rows(results, WORDS)
    page = write_index(results, tmp_path / "index.html", WORDS, (("study",) * 7, rows)).read_text()
    assert "What privacy cost" in page
    assert "0.1 worse" in page
