"""Correlation matrices of the synthetic federation, for tests."""

from __future__ import annotations

import numpy as np

from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.correlation import correlation, to_positive_semidefinite
from trellis.apps.joint_precision.data import synthetic_table


def correlations(variables=54, blocks=6, samples="150", clients=3, seed=1, kind="kendall"):
    """Return S (K, p, p), positive semidefinite."""
    config = JointPrecisionConfig(
        variables=variables, blocks=blocks, samples=samples, clients=clients
    )
    tables = [synthetic_table(config, seed, client) for client in range(clients)]
    raw = [correlation(table.values, kind) for table in tables]
    return np.array([to_positive_semidefinite(matrix)[0] for matrix in raw])
