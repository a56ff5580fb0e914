"""Verdicts on claims of the form "this is better than that", from paired values over seeds.

A difference counts where its mean is more than two standard errors from zero; of one value, or
where nothing is drawn, its sign decides. All points for the claim: reproduced. Some: partly. None:
refuted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict, standard_error, surely

from ..problem import Vector

_SHOWN = 6  # more points than this are counted, not listed


def mean_and_error(values: Any) -> tuple[float, float]:
    """Return the mean over seeds and its standard error; 0 where there is one value."""
    return float(np.mean(values)), float(standard_error(values))


def number(value: float, digits: int = 3) -> str:
    """Return a number as it stands in a sentence."""
    return f"{value:.{digits}g}"


def holds(better: Any, worse: Any) -> int:
    """Return 1 where the first is larger beyond doubt, -1 where the second is, 0 otherwise."""
    return surely(np.asarray(better) - np.asarray(worse))


def ordered(
    claim: str,
    what: str,
    points: Mapping[str, tuple[Vector, Vector]],
    reason: str = "",
    seeds: int = 0,
) -> Finding:
    """Judge a claim that the first of two values is the larger at every point.

    Parameters
    ----------
    what : what the numbers are: "MCC of FedGL against learning alone"
    points : where -> (should be larger, should be smaller), a value per seed each. For errors,
        which should be smaller, pass them negated; they are shown without their sign
    reason : why it fails, where it does; which points fail is added
    """
    sides = {where: holds(*pair) for where, pair in points.items()}
    chosen = list(points)
    if len(points) > _SHOWN:
        gains = {where: float(np.mean(a) - np.mean(b)) for where, (a, b) in points.items()}
        chosen = [min(gains, key=lambda w: gains[w]), max(gains, key=lambda w: gains[w])]
        won = sum(side > 0 for side in sides.values())
        what = f"{what}, better at {won} of {len(points)} points; least and most"
    shown = [f"{_pair(*points[where])} {where}".rstrip() for where in chosen]
    verdict, why = outcome(sides, reason)
    return Finding(claim, f"{what}: {', '.join(shown)}", verdict, why, seeds)


def outcome(
    sides: Mapping[str, int], reason: str = "", lost: str = "the other way round"
) -> tuple[Verdict, str]:
    """Return the verdict, and the reason where it is not plainly reproduced.

    ``sides`` are as `holds` says: 1 for the claim, -1 against it, 0 not to be told apart.
    """
    if not sides:
        raise ValueError("a claim without a point to judge it by")
    against = [where for where, side in sides.items() if side < 0]
    equal = [where for where, side in sides.items() if side == 0]
    if not against and not equal:
        return "reproduced", ""
    told = []
    if against:
        told.append(f"{lost} {_list(against)}")
    if equal:
        told.append(f"no difference beyond two standard errors {_list(equal)}")
    why = "; ".join([*told, *([reason] if reason else [])])
    return ("partly" if any(side > 0 for side in sides.values()) else "refuted"), why


def _pair(one: Any, other: Any) -> str:
    first, second = abs(float(np.mean(one))), abs(float(np.mean(other)))
    _, error = mean_and_error(np.asarray(one) - np.asarray(other))
    doubt = f" (difference ± {error:.2g})" if error else ""
    return f"{number(first)} against {number(second)}{doubt}"


def _list(words: Sequence[str]) -> str:
    if len(words) > _SHOWN:
        return f"at {len(words)} points, the first {words[0]}, the last {words[-1]}"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
