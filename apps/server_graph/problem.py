"""One model over a graph of servers: what is minimised, and a client's part of it.

    w^o = argmin_w  1/P sum_p 1/K_p sum_k P_{p,k}(w) + (rho / 2) |w|^2          [RS] (1)
    P_{p,k}(w) = 1/N_{p,k} sum_n Q(w; x_{p,k,n})                                [RS] (2)

Every server counts the same, within it every client, within it every sample. A client goes from
its server's model w_{p,i-1} by one or several mini-batch steps

    w <- w - mu ( 1/b sum_{x in batch} clip_B(grad Q(w; x)) + rho w )           [RS] (3), (6)

clip_B(g) = g min(1, B / |g|) enforces (14), which the paper takes for granted. The ridge is no
data: it is not clipped.

    P servers, K_p clients of server p, N_{p,k} samples of client k, M parameters
    X : (n, d)   y : (n,)   w : (M,)   G : (n, M) gradients, one sample a row

A client's part is written for a batch of clients as well, a leading axis of all of these: a device
calls it for itself, `simulate` for everybody at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.mechanisms.clipping import clip_rows

from .losses import Loss, start

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

_log = logging.getLogger("trellis.server_graph")

_PRECISION = 1e-10
_NEWTON_STEPS = 100
_CHUNK = 8192  # rows whose gradients are held at a time


def gradient(
    loss: Loss,
    w: Array,
    X: Array,
    y: Array,
    ridge: float,
    clip: float,
    taken: NDArray[np.bool_] | None = None,
) -> Array:
    """Return the mean of the samples' clipped gradients, and the ridge's: (..., M).

    ``taken`` (..., n) says which samples count, where clients have different numbers of them.
    """
    if clip:
        # A sample of 1e300 overflows: clipping makes that 0, and nothing may tell of it.
        with np.errstate(over="ignore", invalid="ignore"):
            G = clip_rows(loss.gradients(w, X, y), clip)
    else:
        G = loss.gradients(w, X, y)
    if taken is None:
        # what mean does, without its overhead, which counts for a small batch
        return np.add.reduce(G, axis=-2) / G.shape[-2] + ridge * w
    G = G * taken[..., None]
    return np.add.reduce(G, axis=-2) / np.count_nonzero(taken, axis=-1)[..., None] + ridge * w


def takes_all(n: int, batch: int) -> bool:
    """Return whether a batch is all ``n`` rows, so that nothing has to be drawn."""
    return batch == 0 or batch >= n


def draw_batches(n: int, batch: int, steps: int, rng: np.random.Generator | None) -> Rows:
    """Return the rows (steps, b) of ``steps`` mini-batches, none twice within a batch.

    ``batch = 0``, or more than there are, takes all ``n`` rows every time, and needs no ``rng``.
    """
    if rng is None or takes_all(n, batch):
        return np.tile(np.arange(n, dtype=np.int64), (steps, 1))
    # The places of the b smallest of n random numbers: every subset of size b is as likely.
    rows: Rows = rng.random((steps, n)).argpartition(batch - 1, axis=1)[:, :batch]
    return rows


def local_steps(
    loss: Loss,
    w: Array,
    X: Array,
    y: Array,
    step: float,
    ridge: float,
    clip: float,
    batches: Iterable[Rows],
    clients: NDArray[np.intp] | None = None,
) -> Array:
    """Return the model after one gradient step a batch, (6): of one client, or of a batch of them.

    Parameters
    ----------
    w : (M,) where the client begins
    X, y : its samples
    batches : the rows (b,) of each step
    clients : (C,) where there are several: which of X (K, n, d) and y (K, n) begin at w (C, M) and
        take the rows (C, b); -1 fills up for those with fewer than b
    """
    for rows in batches:
        place = rows if clients is None else (clients[:, None], rows)
        # A mask that leaves nothing out is not worth its products.
        taken = None if clients is None or rows.min() >= 0 else rows >= 0
        w = w - step * gradient(loss, w, X[place], y[place], ridge, clip, taken)
    return w


def minimiser(loss: Loss, tables: Sequence[Sequence[tuple[Array, Array]]], ridge: float) -> Array:
    """Return w^o of (1), of unclipped gradients, to 1e-10.

    Parameters
    ----------
    loss : by Newton's method where it has a ``hessian`` (least squares: one step), else by L-BFGS
        from its start, which for a loss that is not convex finds a local minimum
    tables : X and y of every client of every server; a server without clients does not count
    ridge : rho

    Raises
    ------
    ValueError
        Where there is no minimiser, as for the logistic loss of labels that a hyperplane separates
        with ``ridge = 0``, or more than one.
    """
    X, y, weights = _stacked(tables)
    w = start(loss, X.shape[1])

    def objective(w: Array) -> float:
        return float(weights @ loss.loss(w, X, y)) + 0.5 * ridge * float(w @ w)

    def slope(w: Array) -> Array:
        total = ridge * w
        for first in range(0, len(y), _CHUNK):
            part = slice(first, first + _CHUNK)
            total = total + weights[part] @ loss.gradients(w, X[part], y[part])
        return total

    hessian: Callable[..., Array] | None = getattr(loss, "hessian", None)
    if hessian is None:
        return _by_lbfgs(objective, slope, w)
    return _by_newton(
        objective, slope, lambda w: hessian(w, X, y, weights) + ridge * np.eye(w.size), w
    )


def msd(models: Array, w_o: Array) -> float:
    """Return the mean of |w - w^o|^2 over ``models`` (..., M) in dB; of one model, its own.

    The paper's curves are of the centroid: ``msd(models.mean(axis=0), w_o)``, (15).
    """
    mean = float(np.mean(np.sum((models - w_o) ** 2, axis=-1)))
    return 10.0 * math.log10(mean) if mean > 0.0 else -math.inf


def _stacked(tables: Sequence[Sequence[tuple[Array, Array]]]) -> tuple[Array, Array, Array]:
    """Return all samples, and what each counts in (1)."""
    servers = [clients for clients in tables if clients]
    if not servers:
        raise ValueError("no server has a client; there is nothing to minimise")
    everyone = [table for clients in servers for table in clients]
    weights = [
        np.full(len(y), 1.0 / (len(servers) * len(clients) * len(y)))
        for clients in servers
        for _, y in clients
    ]
    X = np.concatenate([X for X, _ in everyone])
    y = np.concatenate([y for _, y in everyone])
    return X, y, np.concatenate(weights)


def _by_newton(
    objective: Callable[[Array], float],
    slope: Callable[[Array], Array],
    hessian: Callable[[Array], Array],
    w: Array,
) -> Array:
    for _ in range(_NEWTON_STEPS):
        g, H = slope(w), hessian(w)
        curvatures = np.linalg.eigvalsh(H)
        if curvatures[0] <= 1e-13 * curvatures[-1]:
            raise ValueError(
                f"no unique minimiser: the Hessian's eigenvalues go from {curvatures[0]:.3g} to "
                f"{curvatures[-1]:.3g}; set ridge > 0, or drop features that others determine"
            )
        move = np.linalg.solve(H, -g)
        length = float(np.linalg.norm(move))
        # Converging quadratically, what is left after this step is far below the step.
        if length <= _PRECISION * (1.0 + float(np.linalg.norm(w))):
            return w + move
        here, fall, share = objective(w), float(g @ move), 1.0
        # The last bits of the objective are rounding: a step may not be judged by them.
        slack = 1e-14 * (1.0 + abs(here))
        while objective(w + share * move) > here + 1e-4 * share * fall + slack:
            share *= 0.5
        w = w + share * move
    raise ValueError(
        f"no minimiser after {_NEWTON_STEPS} Newton steps (|w| = {np.linalg.norm(w):.3g}, last "
        f"step {length:.3g}); labels that a hyperplane separates need ridge > 0"
    )


def _by_lbfgs(
    objective: Callable[[Array], float], slope: Callable[[Array], Array], w: Array
) -> Array:
    from scipy.optimize import minimize

    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}
    found = minimize(objective, w, jac=slope, method="L-BFGS-B", options=options)
    best: Array = np.asarray(found.x, dtype=np.float64)
    left = float(np.linalg.norm(slope(best)))
    if left > 1e-6:
        _log.warning(
            "L-BFGS stopped where the gradient's norm is %.3g (%s); distances to this minimiser "
            "are not exact",
            left,
            found.message,
        )
    return best
