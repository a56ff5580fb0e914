"""One client's table, from what a person has in hand: a DataFrame, an array, (X, y).

Errors name the client, and where they can the row and the column, and say what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.tables import DataError

TARGET = "y"
_NAMED = 8  # columns that an error lists


@dataclass(frozen=True)
class ClientTable:
    """A client's table, checked.

    Attributes
    ----------
    X : (n, d) finite floats, row by row in memory as files are read
    columns : d names; None where nobody gave any
    y : (n,) targets, where the study learns from targets
    """

    X: NDArray[np.float64]
    columns: tuple[str, ...] | None
    y: NDArray[np.float64] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what the client's npz file holds."""
        kept: dict[str, NDArray[Any]] = {"X": self.X}
        if self.columns is not None:
            kept["columns"] = np.array(self.columns, dtype=np.str_)
        if self.y is not None:
            kept["y"] = self.y
        return kept

    def names(self) -> tuple[str, ...]:
        """Return what the columns are called, or how many there are."""
        return self.columns or (f"{self.X.shape[1]} columns without names",)


def client_table(client: str, given: Any, targets: bool) -> ClientTable:
    """Return a client's table from what was given for it.

    Parameters
    ----------
    client : its name, for errors
    given : a DataFrame, an (n, d) array, or a tuple (X, y) or (X, y, columns)
    targets : whether the study learns from targets: the column ``y`` of a DataFrame, or ``y``

    Raises
    ------
    DataError
        Names the client and says what to do.
    """
    where = f"client {client!r}"
    if isinstance(given, tuple):
        return _pair(where, given, targets)
    if is_frame(given):
        X, columns = _frame(where, given)
        if not targets:
            return ClientTable(X, columns)
        if TARGET not in columns:
            raise DataError(
                f"{where}: no column {TARGET!r} among {_listed(columns)}; name the target's column "
                f"{TARGET!r}, df.rename(columns={{...: 'y'}}), or give (X, y)"
            )
        place = columns.index(TARGET)
        rest = tuple(name for name in columns if name != TARGET)
        if not rest:
            raise DataError(f"{where}: {TARGET!r} is the only column; features are needed, too")
        return ClientTable(_rows(np.delete(X, place, axis=1)), rest, _rows(X[:, place]))
    X = _array(where, given)
    if targets:
        raise DataError(
            f"{where}: an array without targets; give (X, y), or a DataFrame with a column "
            f"{TARGET!r}"
        )
    return ClientTable(X, None)


def is_frame(given: Any) -> bool:
    """Return whether something is a DataFrame, of pandas or of polars; neither is imported."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def agree(tables: dict[str, ClientTable]) -> None:
    """Refuse clients whose columns are not those of the first, in the same order."""
    names = iter(tables)
    first = next(names)
    wanted = tables[first].names()
    for other in names:
        found = tables[other].names()
        if found == wanted:
            continue
        missing = [name for name in wanted if name not in found]
        more = [name for name in found if name not in wanted]
        told = f"client {other!r}: other columns than client {first!r}"
        if not missing and not more:
            raise DataError(
                f"{told}: the same names in another order; take df[list(other.columns)]"
            )
        what = [f"lacks {_listed(missing)}"] if missing else []
        what += [f"has {_listed(more)}"] if more else []
        raise DataError(
            f"{told}: {' and '.join(what)}; all clients need the same columns in the same order"
        )


def _pair(where: str, given: tuple[Any, ...], targets: bool) -> ClientTable:
    if not targets:
        raise DataError(
            f"{where}: a tuple of {len(given)}; this study has no targets, give the table X itself"
        )
    if len(given) not in (2, 3):
        raise DataError(f"{where}: a tuple of {len(given)}; give (X, y) or (X, y, columns)")
    columns: tuple[str, ...] | None = None
    if is_frame(given[0]):
        X, columns = _frame(where, given[0])
    else:
        X = _array(where, given[0])
    if len(given) == 3:
        columns = tuple(str(name) for name in given[2])
        if len(columns) != X.shape[1]:
            raise DataError(f"{where}: {len(columns)} column names for {X.shape[1]} columns")
        _refuse_repeats(where, columns)
    y = _plain(where, given[1])
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (len(X),):
        raise DataError(f"{where}: y has shape {y.shape}, X has {len(X)} rows; give one y a row")
    return ClientTable(X, columns, _finite(where, _numbers(where, y, TARGET), (TARGET,)))


def _frame(where: str, frame: Any) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    columns = tuple(str(name) for name in frame.columns)
    _refuse_repeats(where, columns)
    if not columns or not len(frame):
        raise DataError(f"{where}: {len(frame)} rows of {len(columns)} columns; data is needed")
    parts = [
        _numbers(where, np.asarray(frame[name]), shown)
        for name, shown in zip(frame.columns, columns, strict=True)
    ]
    return _finite(where, np.column_stack(parts), columns), columns


def _array(where: str, given: Any) -> NDArray[np.float64]:
    tabular = isinstance(given, list) or hasattr(given, "__array__")
    X = _plain(where, given) if tabular else np.zeros(0, dtype=object)
    if X.dtype.kind not in "fiub" and X.ndim != 2:
        raise DataError(
            f"{where}: {type(given).__name__} is no table; give a DataFrame or an array of numbers "
            "(rows, columns)"
        )
    if X.ndim != 2:
        hint = "; X.reshape(-1, 1) makes a column of it" if X.ndim == 1 else ""
        raise DataError(
            f"{where}: an array of shape {X.shape}; a table (rows, columns) is needed{hint}"
        )
    if not X.size:
        raise DataError(f"{where}: {X.shape[0]} rows of {X.shape[1]} columns; data is needed")
    names = [str(number + 1) for number in range(X.shape[1])]
    return _finite(where, _numbers(where, X, ""), names)


def _plain(where: str, given: Any) -> NDArray[Any]:
    """Return a list, an array or a tensor as an array."""
    if hasattr(given, "detach"):  # of torch, perhaps on a GPU or with gradients
        given = given.detach().cpu()
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{where}: cannot be made an array of numbers ({error})") from None


def _numbers(where: str, values: NDArray[Any], column: str) -> NDArray[np.float64]:
    """Return values as floats; text, dates and the like are refused by their column's name."""
    what = f"column {column!r}" if column else "the array"
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    text = next((v for v in values.ravel().tolist() if isinstance(v, str | bytes)), None)
    if text is not None and column == TARGET:
        raise DataError(
            f"{where}: {what} holds text ({text!r}); make labels 0 and 1, such as "
            f"(y == {text!r}).astype(int), the same way for all clients"
        )
    if text is not None:
        raise DataError(
            f"{where}: {what} holds text ({text!r}); drop it, or turn it into numbers "
            "(pandas.to_numeric, pandas.get_dummies)"
        )
    if values.dtype.kind != "O":
        raise DataError(f"{where}: {what} holds {values.dtype}; numbers are needed")
    try:
        return np.array(
            [np.nan if _missing(v) else float(v) for v in values.ravel().tolist()]
        ).reshape(values.shape)
    except (TypeError, ValueError):
        raise DataError(f"{where}: {what} does not hold numbers; drop or convert it") from None


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _finite(where: str, values: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.float64]:
    """Return the values row by row in memory, or refuse the first that is no finite number."""
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        row = int(bad[0][0])
        column = names[int(bad[0][1])] if values.ndim == 2 else names[0]
        raise DataError(
            f"{where}: row {row + 1}, column {column!r} is {values[tuple(bad[0])]} ({len(bad)} "
            "such cells); fill or drop missing values first (df.fillna, df.dropna)"
        )
    return _rows(values)


def _rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # A file's rows stand one after the other; another order in memory gives other last bits.
    return np.ascontiguousarray(values, dtype=np.float64)


def _refuse_repeats(where: str, columns: Sequence[str]) -> None:
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise DataError(f"{where}: the column name {repeated[0]!r} stands more than once")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(repr(name) for name in names[:_NAMED]) + more
