"""Trellis from Python: federated graph learning with differential privacy, on Flower.

    import trellis

    result = trellis.run("consensus-graph", data={"berlin": df1, "madrid": df2}, rho=0.5)
    result.graph("consensus")

The same as the ``trellis`` command, with the result in hand. ``docs/how-to/python.md`` has every
name with an example. The four parts of the project are `trellis.apps` (the studies),
`trellis.strategies`, `trellis.privacy` and `trellis.sim`; in the repository they are the folders
of the same names at its top level. Nothing is imported before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.apps import STUDIES
    from trellis.apps.python.comparison import compare
    from trellis.apps.python.estimators import JointGraphicalLasso, SmoothGraph
    from trellis.apps.python.functions import (
        gaussian_sigma,
        gw_distances,
        joint_graphical_lasso,
        kendall,
        secure_sum,
        smooth_graph,
    )
    from trellis.apps.python.large import sparse_graphical_lasso
    from trellis.apps.python.learned import LearnedGraph
    from trellis.apps.python.near import gw_medoids, gw_neighbours, gw_outliers
    from trellis.apps.python.result import Result, load
    from trellis.apps.python.run import run
    from trellis.apps.python.sample import sample
    from trellis.apps.python.tune import tune

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
    elif name == "STUDIES":
        found = import_module("trellis.apps").STUDIES
    elif name in __all__:
        found = import_module("trellis.apps.python").public(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # the next time it is simply there
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
