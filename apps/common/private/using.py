"""Using a result on new data: what every study's ``predict`` shares.

New data is a file (csv or npz, with the columns that the result was learned from, in any order), or
in memory: a DataFrame, an array (n, d) with the columns in the result's order, or (X, y) of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.tables import DataError, Table, read_table, read_with_gaps

Array = NDArray[np.float64]


class Usable(Protocol):
    """A result that can be used: on a device (`kept.Kept`), or of a run (`apps.runs.using`)."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What it is; ``about["model"]`` says how it is used."""

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All arrays by name."""

    @property
    def variables(self) -> Sequence[str]:
        """The names of variables or features, in order."""


@dataclass(frozen=True)
class Predictions:
    """One row a record of the new data.

    Attributes
    ----------
    columns, rows : names, and the values of every record under these
    notes : what else to say
    score : how good they are where the new data tells; None where it does not
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    notes: Sequence[str] = ()
    score: float | None = None


@dataclass(frozen=True)
class NewTable:
    """New records (n, d) in the result's order of variables, and their targets, if any."""

    values: Array
    targets: Array | None = None
    notes: list[str] = field(default_factory=list)
    source: str = "the new data"


def new_table(
    data: Any, variables: Sequence[str], targets: str | None = None, *, gaps: bool = False
) -> NewTable:
    """Return new data with the columns that a result was learned from.

    Parameters
    ----------
    data : a file's path, a DataFrame, an array, or (X, y)
    targets : the column (in npz the array) with targets, which need not be there
    gaps : whether cells may be missing; they are nan

    Raises
    ------
    DataError
        For data that cannot be read, and data that lacks a variable; names them.
    """
    y = None
    if isinstance(data, tuple) and len(data) == 2:
        data, y = data
    if isinstance(data, str | Path):
        path = Path(data)
        wanted = {*variables, *([] if targets is None else [targets])}
        table = read_with_gaps(path) if gaps else read_table(path, wanted)
        if y is None and targets is not None and path.suffix.lower() == ".npz":
            y = _array(path, targets, len(table.values))
    else:
        table = _in_memory(data, variables, [] if targets is None else [targets], gaps)
    places = {name: place for place, name in enumerate(table.columns)}
    if missing := [name for name in variables if name not in places]:
        raise DataError(
            f"{table.source}: lacks {_some(missing)} of the {len(variables)} columns that the "
            f"result was learned from; it has {_some(list(table.columns))}"
        )
    notes = []
    if extra := [name for name in table.columns if name not in {*variables, targets}]:
        notes.append(f"not used, the result does not know them: {_some(extra)}")
    values = table.values[:, [places[name] for name in variables]]
    if y is None and targets is not None and targets in places and targets not in variables:
        y = table.values[:, places[targets]]
    return NewTable(values, None if y is None else _targets(y, len(values)), notes, table.source)


def _in_memory(data: Any, variables: Sequence[str], others: Sequence[str], gaps: bool) -> Table:
    """Return a DataFrame or an array as a table; columns that are not needed are 0."""
    source = "the new data"
    names = getattr(data, "columns", None)
    try:
        values = _frame(data, {*variables, *others}, source)
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: not a table of numbers ({error})") from None
    if values.ndim == 1:
        values = values[None]  # one record
    if values.ndim != 2:
        raise DataError(f"{source} has shape {values.shape}; rows are records, columns variables")
    if names is None:
        if values.shape[1] != len(variables):
            raise DataError(
                f"{source} has {values.shape[1]} columns, the result was learned from "
                f"{len(variables)}: {_some(list(variables))}; give a DataFrame to name them"
            )
        names = variables
    columns = tuple(str(name) for name in names)
    if not gaps and not np.all(np.isfinite(values[:, [c in set(variables) for c in columns]])):
        raise DataError(f"{source}: has missing or infinite values; fill or drop them first")
    return Table(values, columns, source)


def _frame(data: Any, wanted: set[str], source: str) -> Array:
    """Return the columns of a DataFrame that are wanted, 0 for the others; an array whole."""
    names = getattr(data, "columns", None)
    if names is None or not hasattr(data, "to_numpy"):
        return np.asarray(data, dtype=np.float64)
    shown = [str(name) for name in names]
    if repeated := [name for name in shown if shown.count(name) > 1]:
        raise DataError(f"{source}: the column name {repeated[0]!r} stands more than once")
    values = np.zeros((len(data), len(shown)))
    for place, name in enumerate(names):
        if shown[place] in wanted:
            try:
                values[:, place] = np.asarray(data[name], dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(f"{source}: column {shown[place]!r} ({error})") from None
    return values


def _array(path: Path, name: str, rows: int) -> Array | None:
    with np.load(path, allow_pickle=False) as file:
        found = file[name] if name in file.files else None
    if found is None:
        return None
    if found.shape != (rows,) or found.dtype.kind not in "fiub":
        raise DataError(f"{path}: {name} is {found.dtype} {found.shape}; {rows} numbers are needed")
    return found.astype(np.float64)


def _targets(y: Any, rows: int) -> Array:
    try:
        found = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"the targets are no numbers ({error})") from None
    if found.shape != (rows,):
        raise DataError(f"the targets have shape {found.shape}; there are {rows} records")
    return found


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
