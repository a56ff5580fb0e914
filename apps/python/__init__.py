"""Trellis from Python, what ``import trellis`` shows: not in the Flower bundle.

Start with `run` (a study on data in memory or in files, and its `result`). `clients`, `tables` and
`graphs` turn what a person has in hand (DataFrames, arrays, networkx graphs) into one file per
client; `learned` is a learned graph as a networkx graph; `functions` the mathematics without a
federation, `near` that of graphs that are alike, `estimators` the same in scikit-learn's way;
`sample` example data as files; `tune` chooses settings. Nothing is imported before it is needed:
the names below come from their modules when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# What is public, and where it is.
PUBLIC = {
    "run": "run",
    "load": "result",
    "Result": "result",
    "LearnedGraph": "learned",
    "compare": "comparison",
    "sample": "sample",
    "tune": "tune",
    "smooth_graph": "functions",
    "joint_graphical_lasso": "functions",
    "sparse_graphical_lasso": "large",
    "gw_distances": "functions",
    "gw_neighbours": "near",
    "gw_outliers": "near",
    "gw_medoids": "near",
    "kendall": "functions",
    "gaussian_sigma": "functions",
    "secure_sum": "functions",
    "SmoothGraph": "estimators",
    "JointGraphicalLasso": "estimators",
}


def public(name: str) -> Any:
    """Return something of `PUBLIC`, its module imported now."""
    return getattr(import_module(f"trellis.apps.python.{PUBLIC[name]}"), name)
