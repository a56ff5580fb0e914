"""The local problem (13) of consensus-graph: our dual Newton method next to CVXPY with Clarabel.

Same data, same problem, one process, one BLAS thread. Both must reach a relative objective of 1e-6;
the time is to a solution at least that good, CVXPY's with its canonicalisation, as a user waits for
it. Memory is the peak of ``statistic`` above its input, at two numbers of signals.
"""

from __future__ import annotations

import tracemalloc
from importlib import import_module, metadata
from typing import Any

import numpy as np
import scipy.sparse as sp

from trellis.apps.common.threads import one_blas_thread
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.data import synthetic_table
from trellis.apps.consensus_graph.problem import (
    Vector,
    edge_ends,
    local_objective,
    node_count,
    statistic,
)
from trellis.apps.consensus_graph.solver import solve

from .timing import entry, in_turns, timed

ALPHA, BETA, PULL = 2.0, 0.05, 0.5
REPEATS = 20


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return one entry a size, and one for memory."""
    runs = 5 if full else 3
    with one_blas_thread():
        return [_compare(nodes, runs) for nodes in (20, 100, 300)] + [_memory()]


def _compare(nodes: int, runs: int) -> dict[str, Any]:
    config = ConsensusGraphConfig(nodes=nodes, signals="100")
    z = statistic(synthetic_table(config, 1, 0).values)
    consensus = solve(statistic(synthetic_table(config, 1, 1).values), ALPHA, BETA).w

    found = solve(z, ALPHA, BETA, PULL, consensus, tolerance=1e-7)
    theirs = _cvxpy(z, consensus)

    def ours() -> float:
        # A fraction of a millisecond each: the clock is read around several.
        seconds, _ = timed(
            lambda: [solve(z, ALPHA, BETA, PULL, consensus, tolerance=1e-7) for _ in range(REPEATS)]
        )
        return seconds / REPEATS

    spent = in_turns(runs, ours, lambda: timed(lambda: _cvxpy(z, consensus))[0])

    exact = solve(z, ALPHA, BETA, PULL, consensus)
    best = local_objective(exact.w, z, ALPHA, BETA, PULL, consensus) - exact.gap
    errors = {
        name: (local_objective(w, z, ALPHA, BETA, PULL, consensus) - best) / abs(best)
        for name, w in (("ours", found.w), ("peer", theirs))
    }
    if not (errors["ours"] <= 1e-6 and errors["peer"] <= 1e-6):
        raise RuntimeError(f"d = {nodes}: a relative objective of 1e-6 was not reached: {errors}")
    return entry(
        "smooth-graph",
        *spent,
        peer_version=f"cvxpy {metadata.version('cvxpy')} (Clarabel)",
        unit="s",
        setting=f"(13), d = {nodes}, relative objective 1e-6",
        ours_cores=1,
        peer_cores=1,
        relative_error_ours=errors["ours"],
        relative_error_peer=errors["peer"],
        newton_steps=found.iterations,
    )


def _cvxpy(z: Vector, consensus: Vector) -> Vector:
    cp: Any = import_module("cvxpy")  # it makes its functions in ways that type checkers miss
    d = node_count(z.size)
    a, b = edge_ends(d)
    rows, columns = np.concatenate([a, b]), np.tile(np.arange(z.size), 2)
    incidence = sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(d, z.size))
    w = cp.Variable(z.size, nonneg=True)
    value = 2 * z @ w - ALPHA * cp.sum(cp.log(incidence @ w)) + 2 * BETA * cp.sum_squares(w)
    value += PULL / 2 * cp.sum_squares(w - consensus)
    cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    return np.maximum(np.asarray(w.value), 0.0)


def _memory() -> dict[str, Any]:
    """Peak memory of the statistic at d = 200, for 20,000 and 60,000 signals: it must not grow."""
    peaks = []
    for count in (20_000, 60_000):
        signals = np.random.default_rng(0).normal(size=(count, 200))
        tracemalloc.start()
        statistic(signals, 25.0)
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    naive = 60_000 * 199 * 100 * 8 / 1e6
    return entry(
        "smooth-graph",
        [peaks[1]],
        [naive],
        peer_version="all squared differences in memory (size, not run)",
        unit="MB",
        setting="statistic, d = 200, N = 60,000, above its input",
        ours_cores=1,
        peer_cores=1,
        peak_at_20000_signals=peaks[0],
    )
