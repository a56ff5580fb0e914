"""Screening: the joint problem cut into blocks first, next to the same solver on the whole.

p = 2000 variables (in the quick set 500) in unconnected subnetworks of 50, K = 3, n = 10,000
samples (Pearson), lambda = (0.1, 0.05), one BLAS thread, both to a certified gap of 1e-6. The time
with screening includes finding the blocks. The unscreened run is timed once.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from trellis.apps.common.threads import one_blas_thread
from trellis.apps.joint_precision.solver import JointSolution, screened_blocks, solve_joint
from trellis.strategies.joint_precision.prox import PENALTIES

from .joint_precision import CLIENTS, GAP, LAMBDA1, LAMBDA2, Matrix, synthetic_correlations
from .timing import entry, median_time


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return one row; in full with p = 2000, else with 500."""
    variables, subnetworks = (2000, 40) if full else (500, 10)
    with one_blas_thread():
        matrices = synthetic_correlations(variables, subnetworks, 10_000, "pearson")
        ours, found = median_time(3, lambda: _solve(matrices, screening=True))
        began = time.perf_counter()
        whole = _solve(matrices, screening=False)
        peer = time.perf_counter() - began
    blocks = screened_blocks(matrices, np.ones(CLIENTS), PENALTIES["group"], [(LAMBDA1, LAMBDA2)])
    return [
        entry(
            "screening",
            [ours],
            [peer],
            peer_version="the same solver, unscreened",
            unit="s",
            setting=f"K = 3, p = {variables} in {subnetworks} subnetworks, gap {GAP:g}",
            ours_cores=1,
            peer_cores=1,
            blocks=len(blocks.members),
            largest_block=max(group.size for group in blocks.members),
            alone=int(blocks.alone.size),
            largest_difference=float(np.max(np.abs(found.sparse - whole.sparse))),
        )
    ]


def _solve(matrices: Matrix, screening: bool) -> JointSolution:
    return solve_joint(matrices, LAMBDA1, LAMBDA2, tolerance=GAP, screening=screening)
