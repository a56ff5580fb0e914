"""One small federation of joint-precision: what it should end at, and replies of its clients."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict

from trellis.apps.joint_precision.solver import solve_joint
from trellis.strategies.core import wire
from trellis.strategies.joint_precision.messages import read_screening, read_step
from trellis.strategies.joint_precision.strategy import JointPrecision

STUDY = "joint-precision"
SMALL = {"variables": 12, "blocks": 2, "samples": "60,80,100,80", "clients": 4, "lambda1": 0.15}
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
    """Return the strategy of two nodes, 1 and 2, with ten samples of three variables each."""
    made = JointPrecision(
        *("group", 0.1, 0.05), rounds=10, tolerance=0.0, screening=not screened, dtype=dtype
    )
    made.describe({1: 10, 2: 10}, 3)
    return made


def read(made: JointPrecision, content: RecordDict):
    """Return what the strategy makes of a reply."""
    if made.screened:
        return read_step(content, made.split.blocks, made.dtype)
    return read_screening(content, made.variables, made.dtype)


GOOD = [1.0, 0.1, 0.0, 2.0, -0.3, 1.5]  # (a, a), (a, b), (a, c), (b, b), (b, c), (c, c)


def step(omega=GOOD, **metrics) -> RecordDict:
    content = RecordDict({"arrays": wire.record({"omega": np.asarray(omega)})})
    known = {"loss": 1.0, "log-det": 0.5, "smallest-eigenvalue": 0.1, "num-examples": 10}
    content["metrics"] = MetricRecord({**known, **metrics})
    return content


def screening(pairs=(0, 2), values=(0.5, -0.4), kind=np.int32, **metrics) -> RecordDict:
    arrays = {"pairs": np.asarray(pairs, dtype=kind), "correlations": np.asarray(values)}
    content = RecordDict({"arrays": wire.record(arrays)})
    known = {"smallest-eigenvalue": 0.1, "num-examples": 10, "variables": 3}
    content["metrics"] = MetricRecord({**known, **metrics})
    return content
