"""The paper's synthetic clients (Sec. V), a client's own file, and whose client it is.

Labels (``logistic``): gamma = -1 or +1 with equal chances, h | gamma ~ N(gamma 1, sigma_{h,k}^2 I).
The paper leaves the sigma_{h,k} open; here they are uniform between 1 - ``spread`` and
1 + ``spread`` (and not below 0.1), one a client. With the default spread 0.5, 10 servers of 50
clients, mu = 0.1, rho = 0.01 and 10 clients a round, a simulation in numpy without noise (1000
iterations, mean of the last half over seeds 1 to 6) has a centroid MSD of -38.4 dB with batches of
10 and -31.2 dB with single samples.

Numbers (``least-squares``): h ~ N(0, sigma_{h,k}^2 I) with the same sigma_{h,k}, y = h'w* + noise
of standard deviation 0.5, w* one standard normal vector for all. With ``spread = 0`` the clients'
Hessians are equal, not only in expectation: features are rotated and scaled so that X'X / N = I
(where N >= M). With ``batch = 0`` and without clipping all clients' gradients then differ by a
constant only, and graph-homomorphic noise leaves the centroid alone, whoever is sampled.

A client's own file: npz with ``X`` (n, d) and ``y`` (n,), or csv with a column ``y``; all other
columns are features. With ``privacy = "dp"`` no single record decides whether a client takes
part: a cell that is no number counts as 0 and labels go by their sign, which the device logs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from trellis.apps.common.assignment import dealt_server, given_number
from trellis.apps.common.node import Node
from trellis.apps.common.own_data.scaling import Scaling
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError, numbered, read_table, read_tolerantly

from .config import ServerGraphConfig
from .losses import Logistic, Loss, labels_by_sign, loss_by_name

if TYPE_CHECKING:
    from trellis.strategies.core.declared import Client

# What is said here stays on the device.
log = logging.getLogger("trellis.device")

Array = NDArray[np.float64]

TARGET = "y"
TARGETS = True  # a client's data has targets beside its columns
_SMALLEST_DEVIATION = 0.1
_TARGET_NOISE = 0.5


@dataclass(frozen=True)
class Samples:
    """What a client learns from.

    Attributes
    ----------
    X : (n, d) finite floats
    y : (n,) targets, as the loss wants them
    columns : d names of features
    source : the file, for error messages
    scaling : by which X and y were standardised; X has a column of ones more then
    zeros : whether label 0 was read as -1
    """

    X: Array
    y: Array
    columns: tuple[str, ...]
    source: str
    scaling: Scaling | None = None
    zeros: bool = False

    def standardised(self, scaling: Scaling, numbers: bool) -> Samples:
        """Return the samples mapped record by record, with an intercept; targets if numbers."""
        y = scaling.apply_target(self.y) if numbers else self.y
        return replace(self, X=scaling.apply(self.X), y=y, scaling=scaling)


def synthetic_table(config: ServerGraphConfig, seed: int, partition: int) -> Samples:
    """Return the samples of one client of the synthetic federation."""
    loss = loss_by_name(config.loss)
    counts = config.sample_counts()
    count, features = counts[partition % len(counts)], config.features
    rng = generator(seed, "samples", partition)
    least = max(1.0 - config.spread, _SMALLEST_DEVIATION)
    deviation = rng.uniform(least, max(1.0 + config.spread, least))
    if getattr(loss, "targets", "labels") == "numbers":
        X = deviation * rng.standard_normal((count, features))
        if config.spread == 0.0 and count >= features:
            X = np.linalg.qr(X)[0] * np.sqrt(count)
        truth = generator(seed, "true model").standard_normal(features)
        y = X @ truth + _TARGET_NOISE * rng.standard_normal(count)
    else:
        y = rng.choice(np.array([-1.0, 1.0]), count)
        X = y[:, None] + deviation * rng.standard_normal((count, features))
    names = numbered("h", features)
    source = f"synthetic client {partition + 1}"
    return Samples(X, loss.check_targets(y, source), names, source)


def client_table(config: ServerGraphConfig, seed: int, node: Node) -> Samples:
    """Return one node's samples: its own file, or in simulation the synthetic ones."""
    if node.data_path is None:
        return synthetic_table(config, seed, node.partition)
    loss = loss_by_name(config.loss)
    return read_samples(node.data_path, loss, tolerant=config.privacy == "dp")


def read_samples(path: Path, loss: Loss, *, tolerant: bool = False) -> Samples:
    """Read a client's file.

    Parameters
    ----------
    tolerant : refuse nothing that one record could bring about: what is no finite number counts as
        0, and of this study's losses ``logistic`` takes labels by their sign. (A loss of one's own
        has its own ``check_targets``, whatever it refuses.)

    Raises
    ------
    DataError
        For what `apps.common.tables.read_table` refuses (`read_tolerantly` where ``tolerant``), for
        a file without targets or without features, and for targets that the loss does not take.
    """
    if path.suffix.lower() == ".npz":
        y = _npz_targets(path, tolerant)
        table = read_tolerantly(path, rows=1, columns=1) if tolerant else read_table(path)
        X, columns = table.values, table.columns
        if y.shape != (len(X),):
            raise DataError(f"{path}: y has shape {y.shape}, X has {len(X)} rows; one y a row")
    else:
        table = read_tolerantly(path, rows=1, columns=1) if tolerant else read_table(path)
        if TARGET not in table.columns:
            raise DataError(
                f"{path}: no column {TARGET!r} among {', '.join(table.columns[:8])}; name the "
                f"target's column {TARGET!r}"
            )
        target = table.columns.index(TARGET)
        y = table.values[:, target].copy()
        X = np.delete(table.values, target, axis=1)
        columns = tuple(name for name in table.columns if name != TARGET)
        if not columns:
            raise DataError(f"{path}: no features; {TARGET!r} is the only column")
    if tolerant and isinstance(loss, Logistic):
        y = labels_by_sign(y, str(path))
    targets = loss.check_targets(y, str(path))
    zeros = getattr(loss, "targets", "labels") == "labels" and bool(np.any(y == 0.0))
    return Samples(X, targets, columns, str(path), zeros=zeros)


def told_classes(clients: Sequence[Client]) -> dict[str, NDArray[np.int64]]:
    """Return the array ``classes`` of a result, where clients told that their labels are 0 and 1.

    Models tell 1 from -1; with it predictions come back as the labels were in the files.
    """
    zeros = any(client.zeros for client in clients)
    return {"classes": np.array([0, 1], dtype=np.int64)} if zeros else {}


def server_of(config: ServerGraphConfig, node: Node, context: Context) -> int:
    """Return which server, from 0 to P - 1, this client belongs to.

    Its node config says so (``server=3``); or ``assignment.csv`` beside its file does, with the
    columns ``client`` (the file's name, with or without ending) and ``server``; or clients are
    dealt in the order of their partitions, the same number to every server, give or take one.

    Raises
    ------
    DataError
        For a server that is not there, and where nothing tells.
    """
    if config.graph_servers == 1:
        return 0
    given = given_number("server", config.servers, node, context)
    return dealt_server(config.clients, config.servers, node) if given is None else given


def _npz_targets(path: Path, tolerant: bool = False) -> Array:
    """Return ``y`` of an npz file; what is wrong with ``X`` but its width is `read_table`'s."""
    try:
        with np.load(path, allow_pickle=False) as file:
            y = file[TARGET] if TARGET in file.files else None
            featureless = "X" in file.files and file["X"].ndim == 2 and file["X"].shape[1] == 0
            names = ", ".join(file.files) or "nothing"
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:
        raise DataError(f"{path}: not a readable npz file ({error})") from None
    if featureless:
        raise DataError(f"{path}: no features; X has no columns")
    if y is None:
        raise DataError(f"{path}: holds {names}; needs the targets {TARGET!r}")
    if tolerant and y.dtype.kind in "US":  # one text among them makes all of them texts
        y = np.array([_number(cell) for cell in y.ravel().tolist()]).reshape(y.shape)
    if y.dtype.kind not in "fiub":
        raise DataError(f"{path}: {TARGET} is {y.dtype}; numbers are needed")
    with np.errstate(over="ignore"):
        values = y.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size and tolerant:
        log.warning("%s: %d targets are no finite numbers and count as 0", path, bad.size)
        values = np.where(np.isfinite(values), values, 0.0)
    elif bad.size:
        raise DataError(
            f"{path}: row {bad[0] + 1}, {TARGET!r} is {values.flat[bad[0]]} ({bad.size} such "
            "rows); fill or drop missing values first"
        )
    return values


def _number(cell: str | bytes) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
