"""FedAvg by secure aggregation: the same graph, and nothing of one client."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.common.settings import ConfigError
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.sim.faults import Drop, Raise
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"
FEDAVG = {"method": "fedavg", "nodes": 8, "clients": 6, "signals": "10,20,30,20,10,40"}
SECURE = {**FEDAVG, "secure-aggregation": True}


def test_the_masked_run_gives_the_graph_of_the_open_one():
    open_run, masked = run(STUDY, FEDAVG), run(STUDY, SECURE)
    np.testing.assert_allclose(masked.arrays["consensus"], open_run.arrays["consensus"], atol=1e-6)
    assert masked.metrics[-1]["objective"] == pytest.approx(open_run.metrics[-1]["objective"])
    assert masked.bytes_up > open_run.bytes_up


def test_masks_are_random_but_the_result_is_not():
    first, second = run(STUDY, SECURE), run(STUDY, SECURE)
    assert first.arrays["consensus"].tobytes() == second.arrays["consensus"].tobytes()


@pytest.mark.parametrize(
    "fault", [Drop(category="train", since=2), Raise(category="query", since=3)]
)
def test_clients_that_drop_out_are_left_out_of_an_exact_sum(fault):
    result = run(STUDY, {**SECURE, "rounds": 3, "tolerance": 0.0}, faults={1: fault})
    assert result.status == "completed"
    assert np.all(np.isfinite(result.arrays["consensus"]))
    # One that failed after its masked vector had come is in the sum all the same.
    assert result.clients[1]["failures"] > 0 or isinstance(fault, Raise)


def test_too_few_clients_stop_the_run_with_a_reason():
    lost = {i: Drop(category="train", since=2) for i in range(4)}
    with pytest.raises(StudyError, match="no secure sum"):
        run(STUDY, {**SECURE, "tolerance": 0.0}, faults=lost)


def test_a_server_that_asks_in_the_clear_is_refused(monkeypatch):
    # The run config promises masks; the strategy asks for plain replies all the same.
    monkeypatch.setattr("trellis.strategies.secure_grid.SecureGrid", lambda grid: grid)
    with pytest.raises(StudyError, match="this reply would be in the clear"):
        run(STUDY, SECURE)


@pytest.mark.parametrize("method", ["fedgl", "igl", "one-shot"])
def test_a_rule_that_is_no_sum_is_refused(method):
    with pytest.raises(ConfigError, match=r"secure-aggregation has no effect.*method=fedavg"):
        ConsensusGraphConfig.from_settings({"method": method, "secure-aggregation": True})


def test_two_clients_are_too_few():
    with pytest.raises(ConfigError, match="at least three clients"):
        ConsensusGraphConfig.from_settings({**SECURE, "clients": 2, "signals": "10"})


def test_the_report_says_what_masks_cover(tmp_path):
    run(STUDY, {**SECURE, "rounds": 2}, out=tmp_path)
    assert "Clients&#39; replies were masked" in (tmp_path / "report.html").read_text()
