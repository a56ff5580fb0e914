"""Verdicts follow from numbers."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.consensus_graph.paper.convergence import settled_from
from trellis.apps.consensus_graph.paper.judging import holds, ordered, outcome
from trellis.apps.consensus_graph.paper.weights import rank_correlations, related_graphs

NOISE = np.array([-0.1, 0.1, -0.1, 0.1])


def test_a_difference_counts_beyond_two_standard_errors():
    zero = np.zeros(4)
    assert holds(NOISE + 1.0, zero) == 1
    assert holds(NOISE - 1.0, zero) == -1
    assert holds(NOISE + 0.05, zero) == 0
    assert holds([0.3], [0.2]) == 1  # of one value the sign decides
    assert holds([0.2, 0.2], [0.2, 0.2]) == 0


@pytest.mark.parametrize(
    ("sides", "verdict"),
    [
        ({"a": 1, "b": 1}, "reproduced"),
        ({"a": 1, "b": 0}, "partly"),
        ({"a": 1, "b": -1}, "partly"),
        ({"a": 0, "b": 0}, "refuted"),
        ({"a": -1}, "refuted"),
    ],
)
def test_the_verdict_goes_by_how_many_points_hold(sides, verdict):
    found, why = outcome(sides, "because")
    assert found == verdict
    assert bool(why) == (verdict != "reproduced")
    if verdict != "reproduced":
        assert "because" in why


def test_nothing_to_judge_by_is_an_error():
    with pytest.raises(ValueError, match="without a point"):
        outcome({})


def test_errors_are_shown_without_their_sign():
    finding = ordered("c", "RE", {"at 10": (-NOISE - 0.5, -NOISE - 0.9)}, seeds=4)
    assert finding.verdict == "reproduced"
    assert "0.5 against 0.9" in finding.found
    assert finding.seeds == 4


def test_many_points_are_counted_and_not_listed():
    points = {f"at {n}": (NOISE + n, NOISE) for n in range(10)}
    finding = ordered("c", "MCC", points)
    assert finding.verdict == "partly"
    assert "better at 9 of 10 points" in finding.found
    assert "at 5" not in finding.found


def test_rounds_settle_where_they_stay():
    errors = np.array([2.0, 1.0, 1.5, 1.02, 1.0, 1.0])
    assert settled_from(errors, 0.05) == 3
    assert settled_from(np.ones(4), 0.05) == 0


def test_ranks_are_compared_row_by_row():
    gamma = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]])
    assert rank_correlations([20, 40, 60], gamma) == pytest.approx([1.0, -1.0])


def test_related_graphs_share_as_many_edges_as_they_should():
    shares = (1.0, 0.8, 0.2)
    graphs = related_graphs(shares, 20, 3)
    edges = graphs != 0.0
    total = edges[0].sum()
    assert [int(e.sum()) for e in edges] == [total] * 3
    for share, graph in zip(shares, graphs, strict=True):
        kept = np.count_nonzero((graph == graphs[0]) & edges[0])
        # Edges of one's own may fall on those of the first graph, with another weight.
        assert kept == pytest.approx(share * total, abs=0.06 * total)
