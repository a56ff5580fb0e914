"""Graphs along a path of lambda1, scored by the area under TPR over FPR, and who is ahead of whom.

TPR is TP / (TP + FN) (see `..curves`; the paper prints another). lambda2 follows lambda1: equal to
it for the group penalty, 0.3 of it for the fused one, for FEDJEM and JGL alike: the ratios of the
independent implementation that ``table-auc`` is held against, not tuned here. FEDJEM is ``method =
group`` or ``fused`` with Kendall's tau; JGL is the same problem with Pearson's correlation and all
data in one place (``pooled``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.experiments.finding import standard_error, surely
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Outcome
from trellis.apps.pages.plots import curves

from ..config import JointPrecisionConfig

Array = NDArray[np.float64]

STUDY = JointPrecisionConfig.study
GRID = np.linspace(0.0, 1.0, 101)
KEPT = ("path_fpr", "path_tpr")
FPR = "false positive rate"
TPR = "true positive rate"


def method_settings(method: str, path: int, tolerance: float, **changes: Any) -> dict[str, Any]:
    """Return the settings of one method along the path; ``jgl-fused`` is pooled and Pearson's."""
    if method.startswith("jgl-"):
        penalty = method.removeprefix("jgl-")
        pooled = {"method": "pooled", "penalty": penalty, "correlation": "pearson"}
        return method_settings(penalty, path, tolerance) | pooled | changes
    last = 0.005
    joint = {"group": {"lambda2": last}, "fused": {"lambda2": 0.3 * last}}.get(method, {})
    common = {"path": path, "tolerance": tolerance, "lambda1": last, **joint}
    return {**common, "blocks": 6, "method": method, **changes}


def along(making: Making, method: str, **changes: Any) -> dict[str, Any]:
    """Return `method_settings` with a figure's own path and tolerance."""
    return method_settings(method, making["path"], making["tolerance"], **changes)


def areas(outcomes: Sequence[Outcome]) -> Array:
    """Return the area of every seed."""
    return np.array([outcome.headline["auc"] for outcome in outcomes])


def deviation(values: Array) -> float:
    """Return the standard deviation over seeds, 0 of one seed."""
    return float(np.std(values, ddof=1)) if values.size > 1 else 0.0


def rocs(outcomes: Sequence[Outcome], grid: Array = GRID) -> Array:
    """Return every run's TPR (runs, points) at every FPR of ``grid``, by straight lines between."""
    lines = []
    for outcome in outcomes:
        x = np.concatenate([[0.0], outcome.arrays["path_fpr"], [1.0]])
        y = np.concatenate([[0.0], outcome.arrays["path_tpr"], [1.0]])
        order = np.lexsort((y, x))
        lines.append(np.interp(grid, x[order], y[order]))
    return np.array(lines)


def band(values: Array) -> tuple[Array, Array]:
    """Return mean minus and plus standard error over the first axis, seeds; no error of one."""
    mean = values.mean(axis=0)
    error = standard_error(values, axis=0)
    return mean - error, mean + error


def draw_rocs(making: Making, lines: Mapping[str, Array], part: str, title: str) -> None:
    """Draw the mean of every method's curves (runs, points), with a band of its standard error."""
    mean = {name: runs.mean(axis=0) for name, runs in lines.items()}
    bands = {name: band(runs) for name, runs in lines.items()}
    making.plot(curves(GRID, mean, x_label=FPR, y_label=TPR, title=title, bands=bands), part)


def standing(ours: Array, theirs: Array) -> int:
    """Return 1 where ours is clearly ahead over the same seeds, -1 where behind, 0 otherwise."""
    return surely(ours - theirs)
