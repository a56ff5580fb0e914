"""Using a result on new data: what every study's ``predict`` shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.common.tables import DataError, read_table, read_with_gaps

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """One row a record of the new data: names of the columns, the rows, and what else to say."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class NewTable:
    """New records (n, d) in the result's order of variables, and their targets, if any."""

    values: Array
    targets: Array | None = None
    notes: list[str] = field(default_factory=list)


def new_table(
    path: Path, variables: Sequence[str], targets: str | None = None, *, gaps: bool = False
) -> NewTable:
    """Read a csv or npz with the columns that a result was learned from, in any order.

    Parameters
    ----------
    targets : the column (in npz the array) with targets, which need not be there
    gaps : whether cells may be missing; they are nan

    Raises
    ------
    DataError
        For a file that cannot be read, and one that lacks a variable; names them.
    """
    table = read_with_gaps(path) if gaps else read_table(path)
    places = {name: place for place, name in enumerate(table.columns)}
    if missing := [name for name in variables if name not in places]:
        raise DataError(
            f"{path}: lacks {_some(missing)} of the {len(variables)} columns that the result was "
            f"learned from; it has {_some(list(table.columns))}"
        )
    notes = []
    if extra := [name for name in table.columns if name not in {*variables, targets}]:
        notes.append(f"not used, the result does not know them: {_some(extra)}")
    values = table.values[:, [places[name] for name in variables]]
    y = None
    if targets is not None and targets in places and targets not in variables:
        y = table.values[:, places[targets]]
    elif targets is not None and path.suffix == ".npz":
        y = _array(path, targets, len(values))
    return NewTable(values, y, notes)


def _array(path: Path, name: str, rows: int) -> Array | None:
    with np.load(path, allow_pickle=False) as file:
        found = file[name] if name in file.files else None
    if found is None:
        return None
    if found.shape != (rows,) or found.dtype.kind not in "fiub":
        raise DataError(f"{path}: {name} is {found.dtype} {found.shape}; {rows} numbers are needed")
    return found.astype(np.float64)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
