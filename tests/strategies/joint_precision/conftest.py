"""What the tests of this folder share: the small federation solved once, one BLAS thread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.joint_precision.federations import correlations
from tests.strategies.joint_precision.federations import PENALTIES, SMALL, STUDY, TIGHT
from trellis.apps import run
from trellis.apps.common.threads import one_blas_thread


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():
        yield


@pytest.fixture(scope="session")
def matrices() -> np.ndarray:
    return correlations(12, 2, "60,80,100,80", clients=4)


@pytest.fixture(scope="session")
def healthy():
    return {penalty: run(STUDY, {**SMALL, **TIGHT, "method": penalty}) for penalty in PENALTIES}
