"""Steps that the server takes by itself: what tells it S, who certifies, and who is missing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategies.joint_precision.federations import BOTH, FEW, STUDY, without
from trellis.apps import run
from trellis.apps.joint_precision.problem import LocalProblem, step_of
from trellis.sim.faults import Drop
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.rehearsal import Rehearsal
from trellis.strategies.joint_precision.splitting import Splitting


def test_one_step_tells_the_correlation_matrix():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(40, 6))
    correlation = np.corrcoef(data.T)
    blocks = Blocks(np.array([0, 0, 1, 1, 1, 2]))
    split = Splitting(blocks, np.ones(2), PENALTIES["group"], 1.3)
    split.penalise(0.1, 0.05)
    problem = LocalProblem(correlation, blocks)
    rehearsal = Rehearsal(step_of)
    omega = problem.step(split.psi[0], split.point(0), split.ratio(0)).omega
    rehearsal.hear_step(0, omega, split)
    np.testing.assert_allclose(rehearsal.told[0], blocks.pack(correlation), atol=1e-12)
    assert not rehearsal.knows([0, 1])


@BOTH
def test_the_certificate_is_the_clients_own(penalty, matrices):
    """What the server thinks to know is false, and the result is right all the same."""
    hear = Rehearsal.hear_step, Rehearsal.hear_screening

    def falsified(method):
        def hears(self, *args):
            method(self, *args)
            for told in self.told.values():
                told *= 0.9

        return hears

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rehearsal, "hear_step", falsified(hear[0]))
        patch.setattr(Rehearsal, "hear_screening", falsified(hear[1]))
        found = run(STUDY, {**FEW, "method": penalty})
    expected = run(STUDY, {**FEW, "method": penalty, "tolerance": 1e-10})
    assert found.headline["gap"] <= 1e-6
    assert found.metrics[-1]["objective"] - expected.metrics[-1]["objective"] <= 1e-6
    assert len(found.metrics) > 4


@BOTH
def test_the_objective_is_within_the_tolerance_of_that_of_plain_rounds(penalty):
    found = run(STUDY, {**FEW, "method": penalty})
    expected = run(STUDY, {**FEW, "method": penalty, "tolerance": 1e-10})
    assert len(found.metrics) <= 3
    difference = found.metrics[-1]["objective"] - expected.metrics[-1]["objective"]
    assert -1e-9 <= difference <= 1e-6


@BOTH
@pytest.mark.parametrize("since", [1, 2])
def test_who_is_lost_after_the_screening_is_left_out_of_the_problem(penalty, since, matrices):
    lost = {1: Drop(category="train", since=since)}
    # Of a fused pair the first step is the certificate already.
    if penalty == "fused" and since == 2:
        pytest.skip("nothing is asked after that")
    result = run(STUDY, {**FEW, "method": penalty}, faults=lost)
    kept, expected = without(matrices, 1, penalty)
    assert 0.0 <= result.headline["gap"] <= 1e-6
    assert result.metrics[-1]["objective"] - expected.objective <= 1e-6
    np.testing.assert_allclose(result.arrays["sparse"][kept], expected.sparse, atol=2e-3)


def test_a_client_much_heavier_than_the_others_is_screened_by_itself():
    settings = {**FEW, "samples": "20,20,20,400"}
    found = run(STUDY, settings)
    expected = run(STUDY, {**settings})
    np.testing.assert_allclose(found.arrays["sparse"], expected.arrays["sparse"], atol=2e-3)
    assert found.metrics[0]["bytes-down"] > 0.0  # it was asked


@pytest.mark.parametrize("stopped", [1, 2])
def test_a_run_that_is_resumed_ends_with_the_same_bits(stopped, tmp_path, monkeypatch):
    from trellis.strategies.core.checkpoint import Checkpoint

    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    whole = run(STUDY, {**FEW, "path": 3})
    saved = []
    save = Checkpoint.save

    def saving(self, snapshot):
        if len(saved) < stopped:
            save(self, snapshot)
        saved.append(snapshot)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", saving)
        run(STUDY, {**FEW, "path": 3}, out=tmp_path)
    resumed = run(STUDY, {**FEW, "path": 3}, out=tmp_path, resume=True)
    for name, array in whole.arrays.items():
        assert resumed.arrays[name].tobytes() == array.tobytes(), name
