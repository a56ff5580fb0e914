"""Precision matrices of very many variables, sparse in memory as in meaning."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .functions import check_penalty

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def sparse_graphical_lasso(
    tables: Sequence[Any],
    lambda1: float,
    lambda2: float = 0.0,
    penalty: str = "group",
    *,
    correlation: str = "kendall",
    tolerance: float = 1e-6,
    rounds: int = 1000,
) -> list[csr_array]:
    """Return sparse precision matrices of several groups, from their samples of many variables.

    The problem of `joint_graphical_lasso`, weighted by the groups' numbers of samples. Correlations
    go by in tiles and screening keeps those above lambda1, so that no p x p matrix is ever held;
    what hangs together is solved in blocks of up to 5,000 variables.

    Parameters
    ----------
    tables : K arrays or DataFrames (n_k, p)
        Rows are samples, columns the same variables in the same order.
    lambda1, lambda2 : float
        > 0 and >= 0: sparsity of each, likeness between groups; on the scale of correlations.
    penalty : {"group", "fused"}
        Groups share which edges there are; or also how strong they are.
    correlation : {"kendall", "spearman", "pearson"}
        Rank correlations are projected block by block where they are not positive semidefinite.
    tolerance : float
        Certified distance from the smallest objective.
    rounds : int
        Most steps.

    Returns
    -------
    list of K scipy.sparse.csr_array (p, p)

    Examples
    --------
    >>> import numpy as np, trellis
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 100))
    >>> samples = np.repeat(x, 3, axis=1) + 0.5 * rng.normal(size=(200, 300))  # in threes
    >>> precision = trellis.sparse_graphical_lasso([samples], 0.4)[0]
    >>> precision.shape, precision.nnz  # the diagonal, and three edges (twice) in each of 100
    ((300, 300), 900)
    """
    from scipy.sparse import csr_array

    from trellis.apps.joint_precision.large.solve import solve_tables

    check_penalty(penalty, lambda1, lambda2)
    arrays = [np.asarray(table) for table in tables]
    shapes = [array.shape for array in arrays]
    if not arrays or any(len(s) != 2 or s[1] != shapes[0][-1] for s in shapes):
        raise ValueError(f"tables: shapes {shapes}; K tables (n, p) of the same p are needed")
    found = solve_tables(
        *(arrays, lambda1, lambda2, penalty),
        kind=correlation,
        tolerance=tolerance,
        rounds=rounds,
    )
    if not found.gap <= tolerance:
        warnings.warn(
            f"stopped after rounds={rounds} with a gap of {found.gap:.2g}, above "
            f"tolerance={tolerance:g}; raise rounds",
            stacklevel=2,
        )
    blocks, p = found.blocks, found.blocks.variables
    rows, columns = blocks.ends
    made = []
    for psi in found.psi:
        some = np.flatnonzero(psi)
        off = some[rows[some] != columns[some]]
        i = np.concatenate([rows[some], columns[off], blocks.alone])
        j = np.concatenate([columns[some], rows[off], blocks.alone])
        values = np.concatenate([psi[some], psi[off], np.ones(blocks.alone.size)])
        made.append(csr_array((values, (i, j)), shape=(p, p)))
    return made
