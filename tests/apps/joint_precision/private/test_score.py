"""The held-out score."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.joint_precision.private.score import SENSITIVITY, right_signs


def test_a_pair_counts_the_signs_that_the_consensus_predicts():
    # Variables 1 and 2 go together, 3 stands alone: half of it counts.
    precision = np.array([[1.2, -0.5, 0.0], [-0.5, 1.2, 0.0], [0.0, 0.0, 1.0]])
    together = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 5.0]])
    apart = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 5.0]])
    assert right_signs(together, precision) == pytest.approx(2.5 / 3)
    assert right_signs(apart, precision) == pytest.approx(0.5 / 3)
    assert right_signs(np.vstack([together, apart]), precision) == pytest.approx(1.0)
    assert right_signs(together[:1], precision) == 0.0


def test_one_sample_moves_the_score_by_one_at_most():
    rng = np.random.default_rng(0)
    moved = []
    for _ in range(300):
        precision = rng.normal(size=(5, 5))
        values = rng.normal(size=(7, 5))
        other = values.copy()
        other[rng.integers(7)] = rng.normal(size=5) * 100.0
        moved.append(abs(right_signs(values, precision) - right_signs(other, precision)))
    assert 0.5 < max(moved) <= SENSITIVITY
