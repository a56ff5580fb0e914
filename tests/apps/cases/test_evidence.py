"""From scores of several splits to numbers with their errors, on tables written by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from trellis.apps.cases import evidence
from trellis.apps.cases.evidence import BETTER, CHANCE, UNKNOWN, WORSE, Edge, Estimate
from trellis.apps.common.evaluation.measures import ACCURACY, ALONE, LOSS, MOST_FREQUENT, THIS
from trellis.apps.common.results import RunResult
from trellis.apps.pages.named import NamedGraph


def run(ours, alone, *, seed=1, epsilon=None, counts=(10, 10)):
    """Return a run of clients a and b: (loss, share of right labels) of each."""
    rows = [{THIS: list(o), ALONE: list(s)} for o, s in zip(ours, alone, strict=True)]
    mean = {
        name: np.average([row[name] for row in rows], axis=0, weights=counts).tolist()
        for name in (THIS, ALONE)
    }
    scores = {
        "measures": [LOSS, ACCURACY],
        "lower": [LOSS],
        "main": ACCURACY,
        "judge": LOSS,
        "clients": [
            {"name": name, "count": count, "rows": row}
            for name, count, row in zip("ab", counts, rows, strict=True)
        ],
        "mean": {**mean, MOST_FREQUENT: [None, 0.6]},
    }
    ledger = {} if epsilon is None else {"mode": "dp", "clients": [{"epsilon": epsilon}]}
    return RunResult("toy", seed, "local", {"held-out": 0.2}, scores=scores, ledger=ledger)


def two_splits():
    first = run([(0.1, 0.9), (0.3, 0.7)], [(0.2, 0.8), (0.2, 0.8)])
    second = run([(0.1, 1.0), (0.3, 0.8)], [(0.2, 0.8), (0.2, 0.8)], seed=2)
    return [first, second]


def test_the_error_knows_that_splits_overlap():
    values = [0.8, 0.9, 1.0, 0.9, 0.85]
    plain = evidence.estimate(values, 0.0)
    assert plain.error == pytest.approx(stats.sem(values))
    shared = evidence.estimate(values, 0.2)
    spread = np.std(values, ddof=1)
    assert shared.error == pytest.approx(spread * math.sqrt(1 / 5 + 0.2 / 0.8))
    assert shared.mean == plain.mean == pytest.approx(0.89)


def test_an_interval_is_that_of_student():
    found = evidence.estimate([0.8, 0.9, 1.0], 0.0)
    low, high = stats.t.interval(0.95, 2, loc=found.mean, scale=found.error)
    assert found.reach == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (Estimate(0.5, 0.1, 5), BETTER),
        (Estimate(-0.5, 0.1, 5), WORSE),
        (Estimate(0.5, 0.4, 5), CHANCE),
        # Twice its error: enough for many splits, not for three.
        (Estimate(0.25, 0.1, 3), CHANCE),
        (Estimate(0.25, 0.1, 50), BETTER),
        (Estimate(0.5, math.nan, 1), UNKNOWN),
        (Estimate(0.0, 0.0, 5), CHANCE),
        (Estimate(0.1, 0.0, 5), BETTER),
    ],
)
def test_what_is_said_of_a_gain(one, verdict):
    assert one.verdict == verdict


def test_no_split_is_refused_and_one_has_no_error():
    with pytest.raises(ValueError, match="one split"):
        evidence.estimate([], 0.2)
    assert math.isnan(evidence.estimate([0.3], 0.2).error)


def test_scores_over_splits():
    runs = two_splits()
    assert evidence.score(runs).mean == pytest.approx(0.85)
    assert evidence.score(runs, ALONE).mean == pytest.approx(0.8)
    assert evidence.score(runs, "something else") is None
    assert evidence.knowing_nothing(runs).mean == pytest.approx(0.6)
    assert evidence.knowing_nothing(runs, LOSS) is None


def test_a_gain_is_taken_split_by_split_and_less_loss_is_more():
    runs = two_splits()
    found = evidence.gain(runs)
    assert found.mean == pytest.approx(0.05)
    assert found.error == pytest.approx(np.std([0.0, 0.1], ddof=1) * math.sqrt(0.5 + 0.25))
    worse = [run([(0.5, 0.5), (0.5, 0.5)], [(0.4, 0.9), (0.4, 0.9)], seed=k) for k in (1, 2)]
    assert evidence.gain(worse, measure=LOSS).mean == pytest.approx(-0.1)
    # Alone is that of the other runs, or the other runs' result.
    assert evidence.gain(worse, runs).mean == pytest.approx(0.5 - 0.8)
    assert evidence.gain(worse, runs, THIS).mean == pytest.approx(0.5 - 0.85)
    with pytest.raises(ValueError, match="zip"):
        evidence.gain(worse, runs[:1])


def test_clients_gain_and_lose():
    gains = evidence.client_gains(two_splits())
    assert gains["a"].mean == pytest.approx(0.15)
    assert gains["b"].mean == pytest.approx(-0.05)
    assert evidence.wins(gains) == (1, 0, 1)
    assert evidence.wins({"c": Estimate(0.0, 0.1, 2)}) == (0, 1, 0)


def test_a_client_that_a_split_does_not_know_is_left_out():
    runs = two_splits()
    runs[1].scores["clients"].pop()
    assert set(evidence.client_gains(runs)) == {"a"}


def test_mean_scores_are_scores():
    found = evidence.mean_scores(two_splits())
    assert found["main"] == ACCURACY
    assert found["clients"][0]["rows"][THIS] == pytest.approx([0.1, 0.95])
    assert found["clients"][0]["count"] == 20
    assert found["mean"][THIS] == pytest.approx([0.2, 0.85])
    assert found["mean"][MOST_FREQUENT][0] is None


def test_edges_that_come_back_most_often_come_first():
    nodes = ["x", "y", "z"]
    pairs = [np.array([[0, 1], [1, 2]]), np.array([[0, 1]]), np.array([[0, 1], [0, 2]])]
    weights = [np.array([0.1, 0.9]), np.array([0.2]), np.array([0.3, -0.95])]
    graphs = [NamedGraph(nodes, p, w) for p, w in zip(pairs, weights, strict=True)]
    # The same edge, whatever order a graph has its nodes in.
    graphs.append(NamedGraph(["y", "x", "z"], np.array([[0, 1]]), np.array([0.4])))
    found = evidence.stability(graphs)
    assert found[0] == Edge(("x", "y"), 4, pytest.approx(0.25))
    assert [edge.ends for edge in found[1:]] == [("x", "z"), ("y", "z")]
    assert evidence.stability([]) == []


def test_epsilon_is_the_most_that_a_ledger_has():
    same = [(0.1, 0.9), (0.1, 0.9)]
    assert evidence.epsilon_spent([run(same, same, epsilon=e) for e in (0.9, 1.1)]) == 1.1
    assert evidence.epsilon_spent([run(same, same)]) is None
