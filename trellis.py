"""Trellis from Python: federated graph learning under privacy, on Flower.

    import trellis

    result = trellis.run("joint-precision", {"lambda1": 0.1}, data="hospitals", seed=7)
    result.arrays["sparse"]

The same as the ``trellis`` command, with the result in hand; see `apps.common.runner.run` for the
options.
"""

from __future__ import annotations

from importlib.metadata import version

from apps import STUDIES, run
from apps.tuning.tuner import tune

__all__ = ["STUDIES", "__version__", "run", "tune"]

__version__ = version("trellis")
