"""How far floats can be from the exact solution of (4), by what the server chose and D alone [GG].

The sensitivity that `release` proves is of real numbers; a client computes with floats, and under
``privacy = "sound"`` the server picks every scale: the clips, rho, the ridge and v. At scales where
rounding is as large as the sensitivity, rounding tells data that the noise does not hide. So a
client bounds its own rounding beforehand, by numbers that do not depend on its data (but for D,
which is public), and refuses where it is not far below the sensitivity. What is left of it is
counted: `SLACK` of the sensitivity is set aside for it.

Notation: u = 2^-53; D samples of d features, n = min(d, D); c = 2 share ridge + rho; |x| <= B,
|y| <= Y. Then |U|_F^2 <= 2 B^2 for U = sqrt(2 / D) X, and every Cholesky factor in `steps` is of a
matrix with smallest eigenvalue >= c and trace <= n c + 2 B^2.

``ridge``   (c I + U'U) w = g, |g| <= G = 2 B Y + |v|, |w| <= G / c. Factor and triangular solves
    solve a system that is off by (3 n + 1) u times the trace (Higham 2002, Theorems 10.3, 10.4 and
    8.5); forming U'U is off by (D + 3) u 2 B^2, forming g by (D + 3) u G. Where D < d, w = (g -
    V'V g) / c with |V| <= 1, |V|_F^2 <= n: V'V is off by (D + 1) u trace / c for its factor, by
    2 D u sqrt(n trace / c) for the solves, and by (d + D) u n for the products. Both are below

        E = 2 u (G / c) [ (4 n + d + 8) (n + 2 B^2 / c) + (D + 8) (1 + 2 B^2 / c) ],

    the 2 being for terms of higher order, as long as u [...] < 1/100, which the check implies.
``logistic``  F is c-strongly convex, so a point with gradient e is off by |e| / c at most. Newton's
    method ends where the computed gradient is at most 1e-10 + 1e-15 T, T = 2 (|v| + B) + B^2 R / 4
    with R = (|v| + B) / c, and computing it is off by (d + D + 16) u T. Where it does not end,
    gradient descent does (`steps.SureStep`): its steps of 1 / L, L = c + B^2 / 4, contract by
    1 - c / L, so that the rounding of all of them adds up to that of one times L / (L c).

        E = (1e-10 + (1e-14 + (d + D + 16) u) 2 T) / c.

Projecting on |w| <= W does not expand, and is off by (d + 8) u W itself. Two points of the ball are
never more than 2 W apart: where that is the sensitivity, any w will do, right or wrong.
"""

from __future__ import annotations

import math

from trellis.privacy.accounting.budget import PrivacyRefused

from .config import ClusterAdmmConfig
from .steps import GRADIENT_TOLERANCE, MOST_DESCENT_STEPS, descent_steps

SLACK = 2.0**-9
_UNIT = 2.0**-53
# What a device takes under ``privacy = "sound"``: far from where floats end, on either side.
RANGES = {
    "clip_features": (1e-6, 1e6),
    "clip_target": (1e-6, 1e6),
    "clip_model": (1e-6, 1e6),
    "ridge": (0.0, 1e9),
}
_PHIS = (1e-12, 1e12)
_MOST_RHO = 1e12  # zCDP of one round: zeta may make it anything


def permit_scales(config: ClusterAdmmConfig) -> None:
    """Refuse settings of ``sound`` at which floats are not what the proof is about.

    Raises
    ------
    PrivacyRefused
        Naming the setting. No data is looked at.
    """
    if config.privacy != "sound":
        return
    for name, (low, high) in RANGES.items():
        value = getattr(config, name)
        if not low <= value <= high:
            key = name.replace("_", "-")
            raise PrivacyRefused(f"privacy='sound' takes {key} from {low:g} to {high:g}: {value:g}")
    if config.sums:  # whose noise goes by epsilon
        return
    if not _PHIS[0] <= config.phi_start <= _PHIS[1]:
        raise PrivacyRefused(
            f"privacy='sound' takes phi0 from {_PHIS[0]:g} to {_PHIS[1]:g}: {config.phi_start:g}"
            + ("; raise epsilon or zeta, or lower rounds" if config.is_auto("phi0") else "")
        )
    # phi_n = phi0 / zeta^n, largest in the last round
    growth = -config.rounds * math.log(config.zeta)
    if math.log(config.phi_start) + growth > math.log(_MOST_RHO):
        raise PrivacyRefused(
            f"privacy='sound' takes no round of more than {_MOST_RHO:g}-zCDP: with zeta="
            f"{config.zeta:g} round {config.rounds} is beyond; raise zeta or lower rounds"
        )


def largest_error(
    config: ClusterAdmmConfig, count: int, size: int, rho: float, share: float, length: float
) -> float:
    """Return E and the projection's rounding, for D = ``count``, d = ``size``, |v| = ``length``."""
    c = rho + 2.0 * share * config.ridge
    B = config.clip_features
    projection = (size + 8) * _UNIT * config.clip_model
    if config.loss == "logistic":
        total = 2.0 * (length + B) + 0.25 * B**2 * (length + B) / c
        rounding = (1e-14 + (size + count + 16) * _UNIT) * 2.0 * total
        return (GRADIENT_TOLERANCE + rounding) / c + projection
    n, condition = min(count, size), 2.0 * B**2 / c
    inside = (4 * n + size + 8) * (n + condition) + (count + 8) * (1.0 + condition)
    longest = (2.0 * B * config.clip_target + length) / c
    return 2.0 * _UNIT * longest * inside + projection


def permit_step(
    config: ClusterAdmmConfig,
    count: int,
    size: int,
    rho: float,
    share: float,
    length: float,
    sensitivity: float,
) -> None:
    """Refuse a step whose rounding is not far below the ``sensitivity`` of what it gives.

    Parameters
    ----------
    count, size : D and d
    length : of the v that the server sent

    Raises
    ------
    PrivacyRefused
        Naming what the server chose. No data is looked at.
    """
    if config.privacy != "sound" or sensitivity >= 2.0 * config.clip_model:
        return
    error = largest_error(config, count, size, rho, share, length)
    if not 2.0 * error <= 0.5 * SLACK * sensitivity:
        raise PrivacyRefused(
            f"at these scales (rho={rho:g}, |v|={length:.3g}, clip-features="
            f"{config.clip_features:g}) floats may be off by {error:.2g}, which is not far below "
            f"the sensitivity {sensitivity:.2g}: they would tell what noise does not hide. Raise "
            "rho, or choose clips nearer to the size of the data"
        )
    c = rho + 2.0 * share * config.ridge
    if config.loss == "logistic" and descent_steps(config.clip_features, c) > MOST_DESCENT_STEPS:
        raise PrivacyRefused(
            f"clip-features={config.clip_features:g} with rho={rho:g}: the logistic step cannot be "
            "promised to converge; lower clip-features or raise rho"
        )
