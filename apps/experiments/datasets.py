"""Where real data sets lie: the folder named by TRELLIS_DATA, by default ``../shared/data``."""

from __future__ import annotations

import os
from pathlib import Path

from trellis.apps.common.tables import DataError

VARIABLE = "TRELLIS_DATA"


class DataSetMissing(DataError):
    """A data set that is not on this machine."""


def dataset(name: str) -> Path:
    """Return the folder of one data set.

    Raises
    ------
    DataSetMissing
        Where it is not there; the error says which variable to set.
    """
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get(VARIABLE) or default) / name
    if not folder.is_dir():
        raise DataSetMissing(
            f"{folder}: no such data set; set {VARIABLE} to the folder that holds {name}"
        )
    return folder
