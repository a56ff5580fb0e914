"""One small federation of joint-precision: what it should end at, and replies of its clients."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict

from trellis.apps.joint_precision.solver import solve_joint
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, RoundPlan
from trellis.strategies.joint_precision.strategy import JointPrecision, PrecisionTask

STUDY = "joint-precision"
FEW = {"variables": 12, "blocks": 2, "samples": "60,80,100,80", "clients": 4, "lambda1": 0.15}
SMALL = {**FEW}  # every step by itself: what happens between is looked at
COUNTS = np.array([60.0, 80.0, 100.0, 80.0])
TIGHT = {"tolerance": 0.0, "rounds": 60}
BOTH = pytest.mark.parametrize("penalty", ["group", "fused"])


PENALTIES = ("group", "fused")


def without(matrices, client: int, penalty: str = "group", screening: bool = True):
    """Return the solution of the others' problem, their weights as in the whole."""
    kept = [i for i in range(4) if i != client]
    return kept, solve_joint(
        matrices[kept],
        0.15,
        0.05,
        penalty,
        weights=(COUNTS / COUNTS.mean())[kept],
        tolerance=0.0,
        rounds=300,
        screening=screening,
    )


def assert_close(one, other, atol=1e-8):
    for name in ("precision", "sparse"):
        np.testing.assert_allclose(
            one.arrays[name], other.arrays[name], rtol=0, atol=atol, err_msg=name
        )


def strategy(screened: bool = True, dtype: str = "float64") -> JointPrecision:
    task = PrecisionTask("group", 0.1, 0.05, 1.0, 10, screening=not screened, dtype=dtype)
    made = JointPrecision(RoundPlan(13, 0.0, 2), task=task)
    made.clients = [Client(n, i, 10, ["a", "b", "c"], i) for i, n in enumerate("xy")]
    made.begin(made.clients)
    return made


GOOD = [1.0, 0.1, 0.0, 2.0, -0.3, 1.5]  # (a, a), (a, b), (a, c), (b, b), (b, c), (c, c)


def step(omega=GOOD, **metrics) -> RecordDict:
    content = RecordDict({"arrays": wire.record({"omega": np.asarray(omega)})})
    known = {"loss": 1.0, "log-det": 0.5, "smallest-eigenvalue": 0.1, "seconds": 0.0}
    content["metrics"] = MetricRecord({**known, **metrics})
    return content


def screening(pairs=(0, 2), values=(0.5, -0.4), kind=np.int32, **metrics) -> RecordDict:
    arrays = {"pairs": np.asarray(pairs, dtype=kind), "correlations": np.asarray(values)}
    content = RecordDict({"arrays": wire.record(arrays)})
    content["metrics"] = MetricRecord({"smallest-eigenvalue": 0.1, **metrics})
    return content
