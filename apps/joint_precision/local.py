"""One client's data and its correlation matrix, as a device keeps it between messages.

A client's S is computed from the data once, at enrolment, and stays in ``context.state``; a device
that lost it computes it again. Of very many variables S is never held: see `large`.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ConfigRecord, Context, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.evaluation import holding
from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError, Table
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.strategies.core import wire
from trellis.strategies.joint_precision.blocks import above_diagonal, mirror

from .config import JointPrecisionConfig
from .correlation import correlation, to_positive_semidefinite
from .data import client_table
from .private.concordance import learning_count

Matrix = NDArray[np.float64]

log = logging.getLogger("trellis.client")

_SINGULAR = 1e-10
_STREAMED, _SUBSAMPLE = "streamed", "subsample"


def settings_of(context: Context) -> JointPrecisionConfig:
    """Return the run's settings."""
    return JointPrecisionConfig.from_run_config(context.run_config)


def samples_of(config: JointPrecisionConfig, context: Context) -> tuple[Table, Table, Matrix]:
    """Return the client's table, the part to learn from, and the samples held out.

    Raises
    ------
    PrivacyRefused
        If the device's owner does not allow the run; before the data is read.
    """
    node, seed = Node.of(context), seed_of(context)
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    if config.sends_data:
        policy.permit("none")
        if not node.simulated:
            raise PrivacyRefused(
                f"{node.name}: method={config.method!r} asks for the raw data, which never leaves "
                "a device; it is a reference for simulations"
            )
    table = client_table(config, seed, node)
    count = len(table.values)
    number = count - learning_count(count, config.held_out)
    return table, *holding.split(table, number, node, seed, config.privacy)


@dataclass(frozen=True)
class Correlation:
    """A client's correlation matrix S (p, p), positive semidefinite, with unit diagonal.

    Attributes
    ----------
    matrix : S
    smallest : the smallest eigenvalue before the projection; negative if one was needed
    count : number of samples
    """

    matrix: Matrix
    smallest: float
    count: int

    def keep(self, state: RecordDict) -> None:
        """Store it in a node's ``context.state``."""
        state["correlation"] = wire.record({"values": above_diagonal(self.matrix)})
        known = {"smallest": self.smallest, "count": self.count}
        state["correlation-facts"] = MetricRecord(dict(known))

    @classmethod
    def from_state(cls, state: RecordDict) -> Correlation:
        """Return what `keep` stored."""
        # Not `array_records` and `metric_records`, which copy all records.
        values = wire.unpack(state["correlation"]["values"])  # type: ignore[arg-type]
        known = state["correlation-facts"]
        return cls(_symmetric(values), float(known["smallest"]), int(known["count"]))  # type: ignore[arg-type]


def correlation_of(config: JointPrecisionConfig, context: Context) -> Correlation:
    """Return S from ``context.state``, or from the data if a restart has emptied that."""
    if "correlation" in context.state:
        return Correlation.from_state(context.state)
    _, learned, _ = samples_of(config, context)
    known = computed(config, learned)
    known.keep(context.state)
    return known


def computed(config: JointPrecisionConfig, table: Table) -> Correlation:
    """Return S of a table, made positive semidefinite as the settings say.

    Raises
    ------
    DataError
        If S is not positive semidefinite and ``indefinite = "refuse"``, or singular and nothing is
        penalised.
    """
    count = len(table.values)
    matrix = correlation(table.values, config.correlation, table.columns)
    projected, smallest = to_positive_semidefinite(matrix)
    # With fewer samples than variables the server says so, of all clients at once.
    if count > len(matrix) and smallest <= _SINGULAR and not config.penalised:
        raise DataError(
            f"{table.source}: the correlation matrix is singular (smallest eigenvalue "
            f"{smallest:.3g}), and lambda1=0 leaves the objective without a minimum; set lambda1 "
            "> 0"
        )
    if projected is matrix:
        return Correlation(matrix, smallest, count)
    if config.indefinite == "refuse":
        raise DataError(
            f"{table.source}: the correlation matrix is not positive semidefinite (smallest "
            f"eigenvalue {smallest:.3g}); use more samples or indefinite='project'"
        )
    log.warning(
        "%s: the correlation matrix is not positive semidefinite (smallest eigenvalue %.3g); it "
        "was projected to the nearest by its eigenvalues",
        *(table.source, smallest),
    )
    return Correlation(projected, smallest, count)


def subsample_of(config: JointPrecisionConfig, context: Context, replicate: int) -> Correlation:
    """Return S of one subsample, kept until another one is asked for."""
    kept = context.state.config_records.get(_SUBSAMPLE)
    if kept is not None and kept["replicate"] == replicate:
        found = wire.arrays(context.state.array_records[f"{_SUBSAMPLE}-matrix"])
        return Correlation(found["matrix"], float(found["smallest"]), int(found["count"]))
    node, seed = Node.of(context), seed_of(context)
    _, learned, _ = samples_of(config, context)
    # By name: a device need not have a partition.
    rng = generator(seed, f"subsample of {node.name}", server_round=replicate)
    known = replace(subsampled(config, learned, rng), count=len(learned.values))
    context.state[_SUBSAMPLE] = ConfigRecord({"replicate": replicate})
    context.state[f"{_SUBSAMPLE}-matrix"] = wire.record(
        {
            "matrix": known.matrix,
            "smallest": np.array(known.smallest),
            "count": np.array(known.count),
        }
    )
    return known


def subsampled(config: JointPrecisionConfig, table: Table, rng: np.random.Generator) -> Correlation:
    """Return S of a random part of the samples, 10 sqrt(n) of them as StARS has it."""
    count = table.values.shape[0]
    size = int(10.0 * np.sqrt(count)) if count > 144 else max(2, int(0.8 * count))
    chosen = np.sort(rng.choice(count, size, replace=False))
    matrix = correlation(table.values[chosen], config.correlation, table.columns)
    return Correlation(*to_positive_semidefinite(matrix), size)


def streamed(config: JointPrecisionConfig, context: Context) -> Table | None:
    """Return the samples if they have so many variables that S is never held, else None."""
    if not config.may_stream or "correlation" in context.state:
        return None
    _, learned, _ = samples_of(config, context)
    if not config.streams(len(learned.columns)):
        return None
    note_streamed(context, learned)
    return learned


def note_streamed(context: Context, learned: Table) -> None:
    """Remember that S is not held, and how much data there is."""
    known = {"variables": len(learned.columns), "count": len(learned.values)}
    context.state[_STREAMED] = ConfigRecord(dict(known))


def streamed_size(context: Context) -> tuple[int, int] | None:
    """Return the numbers of variables and samples if S is known not to be held."""
    known = context.state.config_records.get(_STREAMED)
    return None if known is None else (int(known["variables"]), int(known["count"]))  # type: ignore[arg-type]


def _symmetric(triangle: NDArray[np.float64]) -> Matrix:
    """Return the matrix with this upper triangle and a unit diagonal."""
    p = (1 + math.isqrt(1 + 8 * triangle.size)) // 2
    matrix = np.eye(p)
    start = 0
    for row in range(p - 1):
        matrix[row, row + 1 :] = triangle[start : start + p - 1 - row]
        start += p - 1 - row
    mirror(matrix)
    return matrix
