"""What a client with very many variables does: it screens, and knows S on blocks only."""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.tables import DataError, Table
from trellis.strategies.core import wire
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.messages import entries_reply
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.screening import joint_blocks
from trellis.strategies.joint_precision.splitting import Splitting

from ..config import JointPrecisionConfig
from ..problem import LocalProblem
from ..solver import iterate
from .solve import BlockTooLarge, block_correlations, flat
from .stream import TooManyEntries, large_entries

Vector = NDArray[np.float64]

log = logging.getLogger("trellis.client")

_NAME = "blocks-correlation"
_ROUNDING = 1e-9


def screened_table(config: JointPrecisionConfig, table: Table, cut: float) -> RecordDict:
    """Return the reply to a screening: the entries of S above the cut.

    The smallest eigenvalue is not known yet; 1 - max |S_jk|, which it cannot exceed, stands for it.
    """
    pairs, values = _entries(config, table, cut)
    smallest = 1.0 - float(np.max(np.abs(values), initial=0.0))
    size = len(table.values)
    return entries_reply(pairs, values, len(table.columns), smallest, size, config.wire)


def table_blocks(
    config: JointPrecisionConfig, table: Table, blocks: Blocks
) -> tuple[Vector, float]:
    """Return S (m,) on the blocks of the problem and its smallest eigenvalue before projection."""
    try:
        packed, smallest = block_correlations(table.values, config.correlation, blocks)
    except BlockTooLarge as error:
        raise DataError(f"{table.source}: {error}") from None
    if smallest < -_ROUNDING:
        if config.indefinite == "refuse":
            raise DataError(
                f"{table.source}: the correlations of a block of variables are not positive "
                f"semidefinite (smallest eigenvalue {smallest:.3g}); use more samples or "
                "indefinite='project'"
            )
        log.warning(
            "%s: the correlations of a block of variables are not positive semidefinite (smallest "
            "eigenvalue %.3g); every such block was projected to the nearest by its eigenvalues",
            *(table.source, smallest),
        )
    return packed, smallest


def keep_blocks(
    state: RecordDict, blocks: Blocks, packed: Vector, smallest: float
) -> tuple[Vector, float]:
    """Store S (m,) on these blocks in a node's ``context.state``, and return it."""
    state[_NAME] = wire.record({"labels": blocks.labels, "packed": packed})
    state[f"{_NAME}-smallest"] = MetricRecord({"eigenvalue": smallest})
    return packed, smallest


def kept_blocks(state: RecordDict, blocks: Blocks) -> tuple[Vector, float] | None:
    """Return what `keep_blocks` stored, where it was of the same blocks."""
    if _NAME not in state:
        return None
    arrays = wire.arrays(state.array_records[_NAME])
    if not np.array_equal(arrays["labels"], blocks.labels):
        return None
    smallest = state.metric_records[f"{_NAME}-smallest"]["eigenvalue"]
    return arrays["packed"], float(smallest)  # type: ignore[arg-type]


def solve_alone_streamed(
    config: JointPrecisionConfig, table: Table, lambdas: Vector
) -> dict[str, NDArray[np.generic]]:
    """Solve one client's graphical lasso at every lambda1, as arrays: on blocks, with their labels.

    As `solver.glasso_alone`, for variables too many for a matrix.
    """
    rule, one = PENALTIES["group"], np.ones(1)
    least = float(np.min(lambdas))
    told = _entries(config, table, least)
    blocks, _ = joint_blocks(len(table.columns), [told], one, rule, least, 0.0)
    packed, smallest = table_blocks(config, table, blocks)
    split, problem = Splitting(blocks, one, rule, config.rho), LocalProblem.packed(packed, blocks)
    found = []
    for lambda_ in lambdas.tolist():
        split.penalise(lambda_, 0.0)
        found.append(iterate(split, [problem], config.tolerance, config.rounds))
    return {
        "labels": blocks.labels,
        "psi": np.array([point.psi[0] for point in found]),
        "omega": np.array([point.omega[0] for point in found]),
        "losses": np.array([point.losses[0] for point in found]),
        "gaps": np.array([point.gap for point in found]),
        "smallest": np.array(smallest),
    }


def _entries(
    config: JointPrecisionConfig, table: Table, cut: float
) -> tuple[NDArray[np.int64], Vector]:
    try:
        found = large_entries(table.values, config.correlation, cut, columns=table.columns)
    except TooManyEntries as error:
        raise DataError(f"{table.source}: {error}") from None
    return flat(found, len(table.columns))
