"""Trellis from Python: federated graph learning under privacy, on Flower.

    import trellis

    result = trellis.run("consensus-graph", data={"berlin": df1, "madrid": df2}, rho=0.5)
    result.graph("consensus")

The same as the ``trellis`` command, with the result in hand. ``docs/how-to/python.md`` has every
name with an example. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apps import STUDIES
from apps.python import PUBLIC, public

if TYPE_CHECKING:
    from apps.python.comparison import compare
    from apps.python.estimators import JointGraphicalLasso, SmoothGraph
    from apps.python.functions import (
        gaussian_sigma,
        gw_distances,
        joint_graphical_lasso,
        kendall,
        secure_sum,
        smooth_graph,
    )
    from apps.python.large import sparse_graphical_lasso
    from apps.python.learned import LearnedGraph
    from apps.python.near import gw_medoids, gw_neighbours, gw_outliers
    from apps.python.result import Result, load
    from apps.python.run import run
    from apps.python.sample import sample
    from apps.python.tune import tune

    __version__: str

__all__ = [
    "STUDIES",
    "JointGraphicalLasso",
    "LearnedGraph",
    "Result",
    "SmoothGraph",
    "__version__",
    "compare",
    "gaussian_sigma",
    "gw_distances",
    "gw_medoids",
    "gw_neighbours",
    "gw_outliers",
    "joint_graphical_lasso",
    "kendall",
    "load",
    "run",
    "sample",
    "secure_sum",
    "smooth_graph",
    "sparse_graphical_lasso",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Return a public name, its module imported now."""
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("trellis")
    elif name in PUBLIC:
        found = public(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # the next time it is simply there
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
