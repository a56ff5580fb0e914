"""Looking ahead: what a graph tells, the same end as plain rounds, and the way back to them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.consensus_graph.problem import recover_statistic
from trellis.apps.consensus_graph.solver import solve
from trellis.sim.faults import Drop, Nonsense
from trellis.strategies.consensus_graph import foresight
from trellis.strategies.core import wire

STUDY = "consensus-graph"
SMALL = {"nodes": 12, "clients": 4, "signals": "40", "rounds": 400}
PLAIN = {"acceleration": "off", "tolerance": 1e-9}


def away(result, other, name="weights"):
    exact = other.arrays[name]
    return float(np.linalg.norm(result.arrays[name] - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("pull", [0.0, 0.5, 20.0])
def test_a_graph_tells_the_statistic_on_its_edges_and_a_bound_elsewhere(pull):
    rng = np.random.default_rng(0)
    z, consensus = 5.0 * rng.random(45), rng.random(45) * (rng.random(45) < 0.3)
    w = solve(z, 2.0, 0.05, pull, consensus).w
    told = recover_statistic(w, pull, consensus, 2.0, 0.05)
    edges = w > 0.0
    assert 5 < np.count_nonzero(edges) < 45
    np.testing.assert_allclose(told[edges], z[edges], atol=1e-5)
    assert np.all(told[~edges] <= z[~edges] + 1e-5)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"rho": 0.3}, {"rho": 3.0}, {"lambda": 2.0}])
def test_a_run_ends_within_the_tolerance_of_where_plain_rounds_lead(changes, seed):
    found = run(STUDY, {**SMALL, **changes}, seed=seed)
    expected = run(STUDY, {**SMALL, **changes, **PLAIN}, seed=seed)
    assert len(found.metrics) <= 6 < len(expected.metrics)
    assert away(found, expected) <= 5e-4
    difference = found.headline["objective"] - expected.headline["objective"]
    assert abs(difference) <= 1e-6 * abs(expected.headline["objective"])


def test_where_all_coincide_it_comes_closer_than_plain_rounds_do():
    settings = {**SMALL, "rho": 6.0}
    found = run(STUDY, settings)
    plain = run(STUDY, {**settings, "acceleration": "off"})
    exact = run(STUDY, {**settings, **PLAIN})
    assert found.headline["objective"] <= plain.headline["objective"]
    assert away(found, exact) <= away(plain, exact)


def test_the_objective_falls_from_round_to_round():
    rows = run(STUDY, SMALL).metrics
    values = [row["objective"] for row in rows]
    assert all(after <= before + 1e-9 for before, after in pairwise(values))


def test_a_look_that_ends_elsewhere_is_made_up_for_by_plain_rounds(monkeypatch):
    """A server that always foresees nonsense takes longer, and is not wrong."""
    look = foresight.ForeseenConsensus._look_ahead

    def wrong(self, clients):
        look(self, clients)
        self.ahead_consensus = np.random.default_rng(0).random(self.consensus.size) * 50.0

    monkeypatch.setattr(foresight.ForeseenConsensus, "_look_ahead", wrong)
    found = run(STUDY, SMALL)
    expected = run(STUDY, {**SMALL, **PLAIN})
    assert len(found.metrics) > 6
    assert away(found, expected) <= 1e-3


def test_a_client_that_misses_a_round_is_waited_for_and_the_result_is_the_same():
    found = run(STUDY, SMALL, faults={1: Drop(category="train", at=frozenset({2}))})
    expected = run(STUDY, {**SMALL, **PLAIN})
    assert found.clients[1]["failures"] == 1
    assert away(found, expected) <= 5e-4


def test_a_graph_that_is_nobodys_solution_ends_no_run():
    def any_graph(message):
        graph = 1e6 * np.random.default_rng(3).random(66)
        message.content["arrays"] = wire.record({"weights": graph})
        return message

    fault = {1: Nonsense(change=any_graph, category="train")}
    result = run(STUDY, {**SMALL, "rounds": 20}, faults=fault)
    assert result.status == "completed"
    assert np.isfinite(result.arrays["weights"]).all()


@pytest.mark.parametrize("stopped", [1, 2, 3])
def test_a_run_that_is_resumed_ends_with_the_same_bits(stopped, tmp_path):
    whole = run(STUDY, SMALL)
    run(STUDY, {**SMALL, "rounds": stopped}, out=tmp_path)
    resumed = run(STUDY, SMALL, out=tmp_path, resume=True)
    for name, array in whole.arrays.items():
        assert resumed.arrays[name].tobytes() == array.tobytes(), name
    assert len(resumed.metrics) == len(whole.metrics)
