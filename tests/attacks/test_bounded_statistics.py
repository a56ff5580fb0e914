"""One record of any floats, a message of any numbers that are accepted: what noise is sized for.

Each statistic that a device noises, before noise: replacing one record moves it by no more than the
sensitivity that is counted, and it is finite. `tests/apps/consensus_graph/test_problem.py` has the
same for consensus-graph, `test_private_graphs.py` for graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trellis.apps.cluster_admm.private import moments, scales
from trellis.apps.cluster_admm.private import score as cluster_score
from trellis.apps.common.own_data import units
from trellis.apps.joint_precision.private import concordance
from trellis.apps.joint_precision.private import score as joint_score
from trellis.apps.server_graph import private as server_graph
from trellis.apps.server_graph.losses import LeastSquares, Logistic
from trellis.strategies.core import wire

D = 3
ANY_FLOAT = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
RECORDS = st.lists(ANY_FLOAT, min_size=D + 1, max_size=D + 1)
NUMBERS = st.lists(st.floats(-wire.LARGEST, wire.LARGEST), min_size=16, max_size=16)
SCALES = st.floats(1e-12, 1e12)

Statistic = Callable[[np.ndarray, np.ndarray, float], Any]


def _moments(loss: str) -> Statistic:
    def found(records: np.ndarray, numbers: np.ndarray, scale: float) -> Any:
        asked = moments.Question(numbers[None, :D], scale, 1.0 / scale, 0.6, True)
        return list(moments.moments(loss, records[:, :D], records[:, D], 0, asked).values())

    return found


def _steps(loss: Any) -> Statistic:
    def found(records: np.ndarray, numbers: np.ndarray, scale: float) -> Any:
        X, y = records[:, :D], _targets(loss, records)
        taken = np.ones(len(y), dtype=bool)
        # In units of the clip.
        return [server_graph.clipped_mean(loss, numbers[:D], X, y, scale, taken, 1.0) / scale]

    return found


def _scores(loss: Any) -> Statistic:
    def found(records: np.ndarray, numbers: np.ndarray, scale: float) -> Any:
        X, y = records[:, :D], _targets(loss, records)
        return [server_graph.score_terms(loss, numbers[:D], X, y).sum()]

    return found


def _targets(loss: Any, records: np.ndarray) -> np.ndarray:
    y = records[:, D]
    return y if isinstance(loss, LeastSquares) else np.where(y > 0.0, 1.0, -1.0)


def _cluster_scores(loss: str) -> Statistic:
    def found(records: np.ndarray, numbers: np.ndarray, scale: float) -> Any:
        X, y = records[:, :D], records[:, D]
        return [cluster_score.score_terms(loss, X, y, numbers[:D], scale)]

    return found


STATISTICS: dict[str, tuple[Statistic, float]] = {
    "moments, ridge": (_moments("ridge"), moments.SENSITIVITY),
    "moments, logistic": (_moments("logistic"), moments.SENSITIVITY),
    "score, ridge": (_cluster_scores("ridge"), cluster_score.SENSITIVITY["ridge"]),
    "score, logistic": (_cluster_scores("logistic"), cluster_score.SENSITIVITY["logistic"]),
    "lengths": (
        lambda records, *_: [scales.scale_counts("ridge", records[:, :D], records[:, D])],
        scales.SENSITIVITY["ridge"],
    ),
    "sizes of features": (
        lambda records, *_: [units.sign_counts(records)],
        units.sensitivity_of_counts(D + 1),
    ),
    "gradients, least squares": (_steps(LeastSquares()), 2.0),
    "gradients, logistic": (_steps(Logistic()), 2.0),
    "right labels": (_scores(Logistic()), 1.0),
    "right numbers": (_scores(LeastSquares()), 1.0),
    "concordances": (
        lambda records, *_: list(concordance.summands(records).values()),
        concordance.sensitivity(D + 1),
    ),
    "right signs": (
        lambda records, numbers, _: [joint_score.right_signs(records, numbers.reshape(4, 4))],
        joint_score.SENSITIVITY,
    ),
}


@pytest.mark.parametrize("name", STATISTICS)
@settings(max_examples=150, deadline=None)
@given(
    st.lists(RECORDS, min_size=3, max_size=3), RECORDS, st.integers(0, 3), NUMBERS, SCALES
)  # fmt: skip
@example([[1e308, -1e308, 1e308, 1.0]] * 3, [-1e308, 1e308, 1e308, -1e308], 1, [1e100] * 16, 1e-12)
@example([[5e-324, 0.0, 0.0, 0.0]] * 3, [1e-300, 1e-300, 5e-324, 1.0], 0, [-1e100] * 16, 1e12)
@example([[1.0, 1.0, 1.0, 1.0]] * 3, [2.0, 2.0, 2.0, 2.0], 3, [1e100, -1e100] * 8, 1.0)
def test_one_record_moves_it_by_no_more_than_is_counted(name, others, own, place, numbers, scale):
    find, sensitivity = STATISTICS[name]
    rows = [*others[:place], own, *others[place:]]
    neighbour = [*others[:place], [0.0, 1.0, -1.0, 0.5], *others[place:]]
    with np.errstate(over="ignore", invalid="ignore"):
        found = [
            np.concatenate(
                [np.ravel(part) for part in find(np.array(data), np.array(numbers), scale)]
            )
            for data in (rows, neighbour)
        ]
    assert np.all(np.isfinite(found))
    assert np.linalg.norm(found[0] - found[1]) <= sensitivity * (1.0 + 1e-9)
