"""Small federations of server-graph, for tests."""

from __future__ import annotations

import numpy as np

from trellis.apps import run
from trellis.apps.server_graph.methods import METHODS

STUDY = "server-graph"
SMALL = {"servers": 4, "topology": "ring", "clients": 12, "samples": "20", "rounds": 20}
OPEN = {**SMALL, "secure-aggregation": "off"}
# All clients have one Hessian: noise that sums to zero leaves the centroid alone exactly.
QUADRATIC = {"loss": "least-squares", "spread": 0.0, "batch": 0, "features": 3}


def study(settings=None, **options):
    options.setdefault("report", False)
    return run(STUDY, settings, **options)


def of_method(settings, method, privacy="none"):
    """Return the settings that have an effect in a method."""
    row = METHODS.row(method, privacy)
    kept = {key: value for key, value in settings.items() if row.has(key)}
    return {**kept, "method": method, "privacy": privacy}


def far(one, other):
    return float(np.abs(one - other).max())
