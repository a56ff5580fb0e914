"""The messages of joint-precision, both ends of each: what is sent, and what is accepted.

    train.screen   sent      the threshold
                   returned  the entries of S above it, and how much data there is
    train          sent      Psi - U, Psi (its zeros as bits), the blocks' labels
                   returned  Omega, and this client's terms of the certificate

Matrices travel as packed upper triangles (see `Blocks`), in float64 or float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.wire import BadReply

from .blocks import Blocks, above_diagonal

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

_LARGEST_CORRELATION = 1.0 + 1e-6
_MOST_VARIABLES = 10**6
_ROUNDING = 1e-3  # float32 may push an entry past what its diagonal allows


@dataclass(frozen=True)
class Screened:
    """A client's correlations (q,) that may matter, and which pairs (q,) they belong to.

    ``smallest`` is the smallest eigenvalue of S, ``examples`` the number of samples and
    ``variables`` that of variables.
    """

    pairs: NDArray[np.integer]
    correlations: Vector
    smallest: float
    examples: float
    variables: int


@dataclass(frozen=True)
class Stepped:
    """A client's Omega (m,), its terms of the certificate, and how long it took."""

    omega: Vector
    loss: float
    log_det: float
    smallest: float
    seconds: float


@dataclass(frozen=True)
class StepOrder:
    """What a client is asked: a step from ``point`` with certificate at ``psi``."""

    blocks: Blocks
    psi: Vector
    point: Vector
    ratio: float
    replicate: int
    certify: bool


# --- sent ------------------------------------------------------------------------------------


def step_arrays(
    psi: Vector, point: Vector, labels: NDArray[np.int32] | None, dtype: str
) -> ArrayRecord:
    """Return what a client's step needs; ``labels`` if there is more than one block."""
    nonzero = psi != 0.0
    arrays = {
        "point": point.astype(dtype),
        "support": np.packbits(nonzero),
        "nonzero": psi[nonzero].astype(dtype),
    }
    if labels is not None:
        arrays["labels"] = labels
    return wire.record(arrays)


def sent_psi(content: RecordDict) -> Vector:
    """Return the Psi (m,) that a message to a client has; nothing of one without."""
    arrays = content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or "point" not in arrays:
        return np.zeros(0)
    found = wire.arrays(arrays)
    psi = np.zeros(found["point"].size)
    psi[np.unpackbits(found["support"], count=psi.size).astype(bool)] = found["nonzero"]
    return psi


def read_step_order(content: RecordDict, variables: int, dtype: str = "float64") -> StepOrder:
    """Return what a client is asked in ``train``, checked."""
    arrays, config = content.get("arrays"), content.get("config")
    blocks = Blocks.whole(variables)
    if arrays is not None and "labels" in arrays:
        blocks = Blocks.of(wire.received(arrays, "labels", (variables,), "int32"))
    point = wire.received(arrays, "point", (blocks.size,), dtype)
    bits = wire.received(arrays, "support", (-(-blocks.size // 8),), "uint8")
    support = np.unpackbits(bits, count=blocks.size).astype(bool)
    psi = np.zeros(blocks.size)
    psi[support] = wire.received(arrays, "nonzero", (int(np.count_nonzero(support)),), dtype)
    return StepOrder(
        blocks,
        psi,
        point.astype(np.float64, copy=False),
        ratio=wire.number(config, "ratio", 0.0),
        replicate=int(wire.number(config, "replicate", 0.0)),
        certify=isinstance(config, ConfigRecord) and bool(config.get("certify", True)),
    )


# --- returned --------------------------------------------------------------------------------


def screening_reply(
    correlation: Matrix, cut: float, smallest: float, examples: int, dtype: str
) -> RecordDict:
    """Return the entries of a client's S whose size is above ``cut``."""
    values = above_diagonal(correlation)
    pairs = np.flatnonzero(np.abs(values) > cut)
    return entries_reply(pairs, values[pairs], len(correlation), smallest, examples, dtype)


def entries_reply(
    pairs: NDArray[np.integer],
    values: Vector,
    variables: int,
    smallest: float,
    examples: int,
    dtype: str,
) -> RecordDict:
    """Return some entries of a client's S, by their places in the upper triangle."""
    kind = np.int32 if variables * (variables - 1) // 2 < 2**31 else np.int64
    arrays = {"pairs": pairs.astype(kind), "correlations": values.astype(dtype)}
    metrics = {
        "num-examples": examples,
        "variables": variables,
        "smallest-eigenvalue": smallest,
    }
    return RecordDict({"arrays": wire.record(arrays), "metrics": MetricRecord(dict(metrics))})


def read_screening(content: RecordDict, variables: int, dtype: str) -> Screened:
    """Return a client's correlations, checked; ``variables`` is 0 if nobody knows their number."""
    arrays, metrics = _content(content)
    examples, own = metrics["num-examples"], metrics["variables"]
    if not 0.0 < examples < 2.0**53 or not own.is_integer() or not 2 <= own <= _MOST_VARIABLES:
        raise BadReply(f"num-examples is {examples:g} and variables is {own:g}")
    if variables and own != variables:
        raise BadReply(f"variables is {own:g}, not {variables}")
    variables = int(own)
    most = variables * (variables - 1) // 2
    pairs = _named(arrays, "pairs")
    if pairs.ndim != 1 or pairs.dtype.kind != "i" or pairs.size > most:
        raise BadReply(f"pairs is {pairs.dtype} of shape {pairs.shape}")
    inside = not pairs.size or (np.min(pairs) >= 0 and np.max(pairs) < most)
    if not inside or np.any(np.diff(pairs) <= 0):
        raise BadReply(f"pairs must rise from 0 or more to {most - 1} or less")
    values = _reals(arrays, "correlations", pairs.size, dtype)
    if np.max(np.abs(values), initial=0.0) > _LARGEST_CORRELATION:
        raise BadReply(f"a correlation of {np.max(np.abs(values)):g}")
    return Screened(pairs, values, metrics["smallest-eigenvalue"], examples, variables)


def step_reply(step: Stepped, examples: int, dtype: str) -> RecordDict:
    """Return a client's step; ``examples`` is its number of samples."""
    metrics = MetricRecord(
        {
            "num-examples": examples,
            "loss": step.loss,
            "log-det": step.log_det,
            "smallest-eigenvalue": step.smallest,
            "seconds": step.seconds,
        }
    )
    arrays = wire.record({"omega": step.omega.astype(dtype)})
    return RecordDict({"arrays": arrays, "metrics": metrics})


def read_step(content: RecordDict, blocks: Blocks, dtype: str) -> Stepped:
    """Return a client's step, checked: a plausible matrix of the right size, possible terms."""
    arrays, metrics = _content(content)
    omega = _reals(arrays, "omega", blocks.size, dtype)
    _refuse_indefinite(omega, blocks)
    loss, log_det = metrics["loss"], metrics["log-det"]
    # A Psi that is not positive definite has an infinite loss; the other infinity is impossible.
    if not (loss > -np.inf and log_det < np.inf):
        raise BadReply(f"terms of the certificate are {loss} and {log_det}")
    return Stepped(
        omega, loss, log_det, metrics["smallest-eigenvalue"], metrics.get("seconds", 0.0)
    )


def _content(content: RecordDict) -> tuple[Arrays, dict[str, float]]:
    metrics = {k: float(v) for k, v in content.metric_records["metrics"].items()}  # type: ignore[arg-type]
    if not np.isfinite(metrics["smallest-eigenvalue"]):
        raise BadReply("smallest-eigenvalue is not finite")
    return wire.arrays(content["arrays"]), metrics


def _named(arrays: Arrays, name: str) -> NDArray[Any]:
    if name not in arrays:
        raise BadReply(f"{name} is missing")
    return arrays[name]


def _reals(arrays: Arrays, name: str, size: int, dtype: str) -> Vector:
    array = _named(arrays, name)
    if array.dtype == np.dtype(dtype):
        array = array.astype(np.float64)
    wire.check_reals(array, name, (size,))
    return array


def _refuse_indefinite(omega: Vector, blocks: Blocks) -> None:
    """Refuse what cannot be positive definite, as far as single entries tell."""
    rows, columns = blocks.ends
    diagonal = np.ones(blocks.variables)
    diagonal[rows[blocks.diagonal]] = omega[blocks.diagonal]
    if np.min(diagonal) <= 0.0:
        raise BadReply(f"omega has {np.min(diagonal):g} on its diagonal")
    off = blocks.off_diagonal
    largest = np.sqrt(diagonal[rows[off]] * diagonal[columns[off]])
    if np.any(np.abs(omega[off]) > (1.0 + _ROUNDING) * largest):
        raise BadReply("omega has an entry larger than a positive definite matrix can have")
