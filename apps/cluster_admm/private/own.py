"""A device's own model, from its raw samples and the clusters' private models [GG].

    w_k = argmin_w  sum_i l(w; x_i, y_i) + pull |w - c w_q|^2

The models w_q were made of noisy sums: they are public, and what is computed from them and from a
client's own samples tells others nothing as long as it stays on the device (the billboard lemma:
joint differential privacy). So no noise is added here and nothing is clipped.

The server says how far it expects w_q to be from the truth, and that gives the pull that is right
if it is: variance of an error / variance of a coefficient (halved for the logistic loss, which is a
log likelihood). The device tries that first, then others, other scales c, and, where its cluster is
not given, other clusters. Samples are left out in turn (ridge: all at once in closed form,
logistic: in five parts) and predicted by the rest. c = 0 is learning alone. Of choices that predict
as well, or not surely better (a paired t-test at 2.5 %), the first is taken: with few samples the
best of many choices is often chance. Where nothing can be left out, the first is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..problem import mean_losses, signed_labels
from ..steps import LEAST_RHO, SureStep

Array = NDArray[np.float64]

SCALES = {"ridge": (1.0, 0.7, 1.4), "logistic": (1.0, 2.0, 4.0)}  # logistic models come too short
FACTORS = (1.0, 100.0, 10.0, 0.1, 0.01)  # of the pull that the server's word gives
PULLS = (1e-9, 1e12)
_PARTS = 5
_SURE = 0.975


@dataclass(frozen=True)
class Own:
    """A client's own model, and what it was made with.

    Attributes
    ----------
    model : (d,)
    cluster : the cluster it leans on
    scale, pull : c and the pull; scale 0 is alone
    loss : mean loss of samples left out, nan where there are too few
    alone, cluster_loss : the same of learning alone, and of the cluster's model as it came
    """

    model: Array
    cluster: int
    scale: float
    pull: float
    loss: float
    alone: float
    cluster_loss: float


def own_model(
    loss: str,
    X: Array,
    y: Array,
    models: Array,
    pulls: Array,
    cluster: int | None,
    ridge: float,
) -> Own:
    """Return the model of a device.

    Parameters
    ----------
    models : (Q, d) the private models
    pulls : (Q,) that go with how sure the server is of them
    cluster : the client's, where it is given; None lets the device choose
    ridge : of learning alone, |w|^2 against the mean loss, as in `steps.alone`
    """
    offered = list(range(len(models))) if cluster is None else [cluster]
    pulls = np.clip(pulls, *PULLS)
    if len(y) < 2:
        fit = mean_losses(loss, models[offered], X, y) if len(y) else np.zeros(len(offered))
        q = offered[int(np.argmin(fit))]
        model = _fitted(loss, X, y, models[q], float(pulls[q])) if len(y) else models[q].copy()
        unknown = float("nan")
        return Own(model, q, 1.0, float(pulls[q]), unknown, unknown, unknown)
    plain = {q: _losses(loss, X, y, models[q]) for q in offered}
    # Clusters that fit as they are come first.
    offered.sort(key=lambda q: float(np.mean(plain[q])))
    tried = [
        (_left_out(loss, X, y, scale * models[q], factor * pulls[q]), q, scale, factor * pulls[q])
        for q in offered
        for scale in SCALES[loss]
        for factor in FACTORS
    ]
    at_home = max(len(y) * ridge, LEAST_RHO)
    lonely = _left_out(loss, X, y, np.zeros(X.shape[1]), at_home)
    tried.append((lonely, offered[0], 0.0, at_home))
    best = min(tried, key=lambda one: float(np.mean(one[0])))[0]

    from scipy.special import stdtrit  # here: no other message of a client needs it

    room = float(stdtrit(len(y) - 1, _SURE)) / len(y) ** 0.5

    def as_good(errors: Array) -> bool:
        gap = errors - best
        return float(np.mean(gap)) <= room * float(np.std(gap, ddof=1)) + 1e-12

    errors, q, scale, pull = next(one for one in tried if as_good(one[0]))
    return Own(
        _fitted(loss, X, y, scale * models[q], float(pull)),
        *(q, scale, float(pull)),
        float(np.mean(errors)),
        float(np.mean(lonely)),
        float(np.mean(plain[q])),
    )


def _losses(loss: str, X: Array, y: Array, model: Array) -> Array:
    """Return the losses (D,) of samples under a model."""
    fitted = X @ model
    if loss == "ridge":
        return np.asarray((y - fitted) ** 2)
    return np.asarray(np.logaddexp(0.0, -signed_labels(y) * fitted))


def _fitted(loss: str, X: Array, y: Array, centre: Array, pull: float) -> Array:
    """Return argmin sum l + pull |w - centre|^2."""
    if loss == "ridge":
        gram = X @ X.T + pull * np.eye(len(y))
        return centre + X.T @ np.linalg.solve(gram, y - X @ centre)
    # A step has the mean of losses, rho / 2 |w|^2 and -<v, w>.
    rho = 2.0 * pull / len(y)
    return SureStep(loss, X, y, 0.0, 0.0, rho).solve(rho * centre)


def _left_out(loss: str, X: Array, y: Array, centre: Array, pull: float) -> Array:
    """Return the losses (D,) of samples under models that were fitted without them."""
    if loss == "ridge":
        inverse = np.linalg.inv(X @ X.T + pull * np.eye(len(y)))
        return ((inverse @ (y - X @ centre)) / np.diag(inverse)) ** 2
    errors, parts = np.empty(len(y)), min(_PARTS, len(y))
    part = np.arange(len(y)) % parts
    for p in range(parts):
        out = part == p
        model = _fitted(loss, X[~out], y[~out], centre, pull)
        errors[out] = _losses(loss, X[out], y[out], model)
    return errors
