"""Peaks of memory, each in a process of its own, in matrices of p^2 doubles."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_MEASURED = """
import json, resource, sys
import numpy as np
from trellis.apps.joint_precision.large.stream import large_entries
from trellis.apps.joint_precision.problem import LocalProblem
from trellis.strategies.joint_precision.blocks import Blocks

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def step(p, certify):
    blocks = Blocks.whole(p)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, p))
    x /= np.linalg.norm(x, axis=0)
    S = x.T @ x
    S *= 0.9
    np.fill_diagonal(S, 1.0)
    psi = np.zeros(blocks.size)
    psi[blocks.diagonal] = 1.0
    found = LocalProblem(S, blocks).step(psi, psi.copy(), 1.0, certify)
    assert np.isfinite(found.omega.sum())

def screen(p):
    X = np.random.default_rng(0).normal(size=(60, p))
    return large_entries(X, "kendall", 0.75, block_bytes=16 << 20)

what, p = sys.argv[1], int(sys.argv[2])
work = screen if what == "screen" else (lambda n: step(n, what == "certify"))
work(300)  # imports, and the buffers of BLAS
floor = peak()
work(p)
print(json.dumps((peak() - floor) / (8 * p * p)))
"""


def peak(what: str, variables: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, what, str(variables)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout))


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
@pytest.mark.parametrize("what", ["certify", "plain"])
def test_a_step_takes_about_five_matrices(what):
    # 5 by count; allocators and BLAS keep some. It was 11 with copies and indices.
    assert peak(what, 1500) < 7.0


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
def test_screening_never_holds_a_matrix():
    assert peak("screen", 3500) < 0.7
