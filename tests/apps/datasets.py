"""Tests that need a data set are skipped, with the reason, where it is absent."""

from __future__ import annotations

import pytest

from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset


def needs(name: str):
    """Return a mark for tests of the data set ``name``."""
    try:
        dataset(name)
    except DataError as error:
        return pytest.mark.skip(reason=str(error))
    return lambda test: test
