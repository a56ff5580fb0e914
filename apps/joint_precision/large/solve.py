"""The joint problem (9) of many variables, from the samples, without a p x p matrix.

1. Every client's correlations go by in tiles, and those above a cut are kept (`stream`).
2. The exact joint rule makes blocks of variables from them (`screening` of the strategy).
3. S of every block is computed anew from its columns and projected **block by block**; the joint
   problem is solved on the blocks, to a certified gap.

Screening holds for any symmetric S for which the problem has a minimum, so with Pearson's
correlation, which needs no projection, this is the solution of the whole problem. Rank correlations
of fewer samples than variables are not positive semidefinite; a dense run projects all of S before
it screens. Here the solution is that of the S whose blocks are projected and whose entries between
blocks, all too small to matter, are as they were.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.path import pair_index
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.screening import cut_of, joint_blocks
from trellis.strategies.joint_precision.splitting import Splitting

from ..correlation import correlation, to_positive_semidefinite
from ..problem import LocalProblem
from ..solver import PackedSolution, iterate
from .stream import STREAM_BYTES, Entries, large_entries

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

log = logging.getLogger("trellis.client")

# Doubles of a step with one block of b variables, in b^2: see `problem`.
STEP_MATRICES = 6
LARGEST_BLOCK = 5000


class BlockTooLarge(ValueError):
    """Variables hang together in a block that is too large to be solved."""


def flat(entries: Entries, variables: int) -> tuple[NDArray[np.int64], Vector]:
    """Return the entries by their place in ``numpy.triu_indices(variables, 1)``."""
    rows, columns = entries.rows.astype(np.int64), entries.columns.astype(np.int64)
    return pair_index(rows, columns, variables), entries.values


def block_correlations(X: ArrayLike, kind: str, blocks: Blocks) -> tuple[Vector, float]:
    """Return S (m,) of the columns of ``X`` in every block, packed, each block projected.

    Also the smallest eigenvalue of any block before that; 1 where no two variables hang together.

    Raises
    ------
    BlockTooLarge
        Where a block has more variables than can be solved.
    """
    refuse_too_large(blocks)
    table = np.asarray(X)
    packed, smallest = np.empty(blocks.size), 1.0
    for number, group in enumerate(blocks.members):
        found, least = to_positive_semidefinite(correlation(table[:, group], kind))
        start, stop = blocks.starts[number : number + 2]
        packed[start:stop] = blocks.upper(found, number)
        smallest = min(smallest, least)
    return packed, smallest


def refuse_too_large(blocks: Blocks, largest: int = LARGEST_BLOCK) -> None:
    """Refuse a block that does not fit, with the memory it would take."""
    size = max((group.size for group in blocks.members), default=1)
    if size > largest:
        need = STEP_MATRICES * 8 * size**2 / 1e9
        raise BlockTooLarge(
            f"{size:,} of {blocks.variables:,} variables hang together; a step with them needs "
            f"{need:.1f} GB and its time grows with their cube. At most {largest:,} are solved: "
            "raise lambda1 (or lambda2) until screening leaves smaller blocks"
        )


def solve_tables(
    tables: Sequence[ArrayLike],
    lambda1: float,
    lambda2: float = 0.0,
    penalty: str = "group",
    *,
    kind: str = "kendall",
    weights: Vector | None = None,
    rho: float = 1.0,
    tolerance: float = 1e-6,
    rounds: int = 1000,
    block_bytes: int = STREAM_BYTES,
    progress: Callable[[float], None] | None = None,
) -> PackedSolution:
    """Minimise (9) over K precision matrices, from the samples (n_i, p) of every client.

    Parameters
    ----------
    lambda1 : > 0
    kind : ``kendall``, ``spearman`` or ``pearson``
    weights : (K,) w_i; n_i over their mean by default
    tolerance : stop at this duality gap
    block_bytes : memory to use at most while correlations go by
    progress : told the share of the clients' correlations that have gone by
    """
    if not lambda1 > 0.0:
        raise ValueError(f"lambda1={lambda1}: must be > 0, or nothing can be left out")
    counts = np.array([np.shape(table)[0] for table in tables], dtype=np.float64)
    w = counts / np.mean(counts) if weights is None else np.asarray(weights, dtype=np.float64)
    variables = np.shape(tables[0])[1]
    cut = cut_of(penalty, lambda1)
    told = []
    for client, (table, weight) in enumerate(zip(tables, w, strict=True)):
        shown = None if progress is None else _part(progress, client, len(tables))
        entries = large_entries(table, kind, cut / weight, block_bytes=block_bytes, progress=shown)
        told.append(flat(entries, variables))
    rule = PENALTIES[penalty]
    blocks, _ = joint_blocks(variables, told, w, rule, lambda1, lambda2, cut)
    parts = [block_correlations(table, kind, blocks)[0] for table in tables]
    split = Splitting(blocks, w, rule, rho)
    split.penalise(lambda1, lambda2)
    problems = [LocalProblem.packed(part, blocks) for part in parts]
    return iterate(split, problems, tolerance, rounds)


def _part(progress: Callable[[float], None], client: int, clients: int) -> Callable[[float], None]:
    return lambda share: progress((client + share) / clients)
