"""Reading one client's own table: csv with a header row, or npz with the array ``X``.

Cells of a csv file are separated by commas, semicolons or tabs, decimals have a point or, where
cells are not separated by commas, a comma (`trellis.apps.common.files.dialect`).

Every error names the file, and where it can the row and the column, and says what to do.

With ``privacy = "dp"`` a table is read by `read_tolerantly`: whether a device answers must not
depend on one record, so only what every record shares (the header, the number of rows, the type of
the array) can be refused.
"""

from __future__ import annotations

import csv
import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.files.dialect import (
    Ambiguous,
    is_blank,
    not_a_number,
    other_separator,
    separator_of,
    two_signs,
    with_points,
    without,
)
from trellis.apps.common.files.unchanged import unless_changed

# What is said here stays on the device.
log = logging.getLogger("trellis.device")

SUFFIXES = (".csv", ".npz")
# The order of the clients of a folder, a file's name a line; without it files are sorted.
ORDER = "order.txt"
# How a folder is called that was written for data given in Python: it is gone after its run.
IN_MEMORY = "in-memory-"
# What tells a data set of graphs, in the formats of TUDataset and Planetoid.
GRAPH_FILES = ("*_A.txt", "ind.*.graph")
# Sums of squares of numbers up to here can be told and computed with.
_LARGEST = 1e60


class DataError(ValueError):
    """A client's file that cannot be used."""


@dataclass(frozen=True)
class Table:
    """Rows are observations, columns are variables.

    Attributes
    ----------
    values : (n, d) finite floats
    columns : d names
    source : the file, for error messages
    """

    values: NDArray[np.float64]
    columns: tuple[str, ...]
    source: str

    def digest(self) -> bytes:
        """Return a fingerprint of the content; equal tables have equal fingerprints."""
        head = "\x1f".join(self.columns).encode()
        body = np.ascontiguousarray(self.values).tobytes()
        return hashlib.sha256(len(head).to_bytes(8, "big") + head + body).digest()


@lru_cache(maxsize=8)
def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Return the names of synthetic variables, as x01 to x60; one tuple for all clients."""
    width = len(str(count))
    return tuple(f"{letter}{i + 1:0{width}d}" for i in range(count))


def client_files(folder: Path) -> list[Path]:
    """Return a folder's data files, one per client: sorted, or in the order of ``order.txt``."""
    if not folder.is_dir():
        if given_in_memory(folder):
            raise DataError(
                f"{folder}: the data of this run was given in Python and is not kept; go on with "
                "trellis.run(..., data=..., resume=True), the same data given again"
            )
        raise DataError(f"{folder}: no such folder; --data takes a folder with one file per client")
    files = _data_files(folder)
    if not files:
        raise DataError(f"{folder}: no {' or '.join(SUFFIXES)} file; put one file per client there")
    return list(files)


def graph_folder(folder: Path) -> Path | None:
    """Return where a data set of graphs lies, ``folder`` or its ``raw``; None where it is none."""
    for place in (folder, folder / "raw"):
        if any(next(place.glob(pattern), None) for pattern in GRAPH_FILES):
            return place
    return None


def shared_dataset(folder: Path) -> bool:
    """Return whether a folder is one data set of graphs, to be dealt to all clients."""
    return folder.is_dir() and not _data_files(folder) and graph_folder(folder) is not None


def client_sources(folder: Path) -> list[Path]:
    """Return `client_files`, or sub-folders with a data set of graphs each where there are none."""
    if folder.is_dir() and not _data_files(folder):
        folders = sorted(f for f in folder.iterdir() if f.is_dir() and graph_folder(f) is not None)
        if folders:
            return folders
    return client_files(folder)


def given_in_memory(data: str | Path) -> bool:
    """Return whether a run's data was given in Python, and not as a folder."""
    return Path(data).name.startswith(IN_MEMORY)


def _data_files(folder: Path) -> list[Path]:
    """Return a folder's data files in order."""
    return unless_changed(_listed, folder, folder / ORDER)


def _listed(folder: Path) -> list[Path]:
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and f.is_file())
    # What begins with a dot is some program's own, such as ._ward.csv of a Mac.
    files = [f for f in files if f.name != "assignment.csv" and not f.name.startswith(".")]
    order = folder / ORDER
    return _ordered(files, order) if order.is_file() else files


def _ordered(files: list[Path], order: Path) -> list[Path]:
    """Return the files in the order of a list of their names, which must have each of them once."""
    try:
        names = [line for line in order.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{order}: cannot be read ({error})") from None
    known = {file.name: file for file in files}
    if len(names) != len(known) or set(names) != set(known):
        wrong = [f"{name!r} is no file beside it" for name in names if name not in known]
        wrong += [f"{name!r} stands there twice" for name in names if names.count(name) > 1]
        wrong += [f"{name!r} is missing" for name in known if name not in names]
        raise DataError(f"{order}: {wrong[0]}; name every client's file once")
    return [known[name] for name in names]


def read_table(path: Path, only: Collection[str] | None = None) -> Table:
    """Read a client's file.

    Parameters
    ----------
    only : the columns that are needed; what a csv file has in others is not looked at, and 0

    Raises
    ------
    DataError
        For a missing, unreadable, empty or malformed file, a missing, infinite or excessive value,
        text in a cell, a column without a name or with that of another.
    """
    values, columns = _read(path, tolerant=False, only=only)
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        row, column = bad[0]
        raise DataError(
            f"{path}: row {row + 1}, column {columns[column]!r} is {values[row, column]} "
            f"({len(bad)} such cells); fill or drop missing values first"
        )
    large = np.argwhere(np.abs(values) > _LARGEST)
    if large.size:
        row, column = large[0]
        raise DataError(
            f"{path}: row {row + 1}, column {columns[column]!r} is {values[row, column]:g}, too "
            "large to be computed with; correct it, or drop the row"
        )
    return Table(values, columns, str(path))


def read_with_gaps(path: Path) -> Table:
    """Read a file in which cells may be missing: they, and what is no finite number, are nan.

    Raises
    ------
    DataError
        For a file that cannot be read at all, see `read_tolerantly`.
    """
    values, columns = _read(path, tolerant=True)
    values[~np.isfinite(values)] = np.nan
    return Table(values, columns, str(path))


def read_tolerantly(path: Path, *, rows: int = 2, columns: int = 2) -> Table:
    """Read a client's file so that no record decides whether it can be read.

    A cell that is no finite number counts as 0, a row of a csv file that is too short is filled up
    with 0 and one that is too long is cut, each line by itself; how many cells that were is logged
    on the device and told to nobody else. A file that `read_table` takes gives the same table.

    Parameters
    ----------
    rows, columns : how many are needed at least

    Raises
    ------
    DataError
        For a missing or unreadable file, a header that cannot be used, an array that holds neither
        numbers nor text, too few rows or columns: none of it is one record's doing.
    """
    values, names = _read(path, tolerant=True)
    if values.shape[0] < rows or values.shape[1] < columns:
        raise DataError(
            f"{path}: {values.shape[0]} rows of {values.shape[1]} columns; at least {rows} rows "
            f"and {columns} columns are needed"
        )
    bad = ~np.isfinite(values)
    if bad.any():
        log.warning("%s: %d cells are no finite numbers and count as 0", path, np.sum(bad))
        values[bad] = 0.0
    return Table(values, names, str(path))


def _read(
    path: Path, tolerant: bool, only: Collection[str] | None = None
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    try:
        if path.suffix.lower() == ".npz":
            values, columns = _read_npz(path, tolerant)
        elif path.suffix.lower() == ".csv":
            values, columns = _read_csv(path, tolerant, only)
        else:
            raise DataError(f"{path}: unknown kind of file; use {' or '.join(SUFFIXES)}")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if values.shape[0] == 0 or values.shape[1] == 0:
        raise DataError(f"{path}: no rows of data")
    return values, columns


def require_variation(table: Table, *, rows: int = 2) -> None:
    """Refuse a table with fewer than ``rows`` rows or with a constant column."""
    if table.values.shape[0] < rows:
        raise DataError(
            f"{table.source}: {table.values.shape[0]} row of data; at least {rows} are needed"
        )
    constant = np.flatnonzero(np.ptp(table.values, axis=0) == 0.0)
    if constant.size:
        names = ", ".join(repr(table.columns[c]) for c in constant[:5])
        raise DataError(
            f"{table.source}: column {names} is constant and carries no information; drop it from "
            "every client's file"
        )


def _read_npz(path: Path, tolerant: bool) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if "X" not in file.files:
                raise DataError(f"{path}: holds {', '.join(file.files) or 'nothing'}; needs 'X'")
            values = file["X"]
            names = file["columns"] if "columns" in file.files else None
    except DataError:
        raise
    except OSError:
        raise
    except Exception as error:
        raise DataError(f"{path}: not a readable npz file ({error})") from None
    if tolerant and values.ndim == 2 and values.dtype.kind in "US":
        numbers = [_number(cell) for cell in values.ravel().tolist()]
        values = np.array(numbers, dtype=np.float64).reshape(values.shape)
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise DataError(f"{path}: X is {values.dtype} {values.shape}; a table of numbers is needed")
    if names is None:
        width = len(str(values.shape[1]))
        names = [f"v{i + 1:0{width}d}" for i in range(values.shape[1])]
    columns = tuple(str(name) for name in names)
    if len(columns) != values.shape[1]:
        raise DataError(f"{path}: {len(columns)} column names for {values.shape[1]} columns")
    _refuse_repeats(path, columns)
    with np.errstate(over="ignore"):
        return values.astype(np.float64), columns


def _read_csv(
    path: Path, tolerant: bool, only: Collection[str] | None
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    try:
        errors = "replace" if tolerant else "strict"
        with path.open(newline="", encoding="utf-8-sig", errors=errors) as file:
            separator = separator_of(file.readline())
            file.seek(0)
            header = next(csv.reader(file, delimiter=separator), None)
            if header is None or not any(cell.strip() for cell in header):
                raise DataError(f"{path}: empty; needs a header row with the variables' names")
            columns = tuple(cell.strip() for cell in header)
            _refuse_nameless(path, columns)
            _refuse_repeats(path, columns)
            if all(_is_number(cell) for cell in columns):
                raise DataError(f"{path}: the first row is all numbers; it must name the variables")
            lines = [line for line in file if not is_blank(line, separator)]
            if not lines:
                raise DataError(f"{path}: no rows of data")
            unused = [] if only is None else [i for i, c in enumerate(columns) if c not in only]
            if unused:
                lines = [without(line, unused, len(columns), separator) for line in lines]
            if not tolerant and (rows := two_signs(lines, separator)):
                raise DataError(
                    f"{path}: row {rows[0]} has a decimal comma, row {rows[1]} a decimal point; "
                    "use one of them everywhere, and no sign between thousands"
                )
            lines = [with_points(line, separator) for line in lines]
            try:
                values = np.loadtxt(
                    lines,
                    delimiter=separator,
                    ndmin=2,
                    comments=None,
                    quotechar='"',
                    dtype=np.float64,
                )
            except ValueError:
                if tolerant:
                    return _line_by_line(lines, len(columns), separator), columns
                raise DataError(_first_bad_cell(path, columns, separator, only)) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: not a text file in UTF-8; save it anew, a spreadsheet calls this CSV UTF-8"
        ) from None
    except Ambiguous as error:
        raise DataError(f"{path}: {error}") from None
    # A quoted cell may span lines, and would take the records there with it.
    if tolerant and values.shape != (len(lines), len(columns)):
        return _line_by_line(lines, len(columns), separator), columns
    if values.size and values.shape[1] != len(columns):
        raise DataError(_first_bad_cell(path, columns, separator, only))
    return values.reshape(-1, len(columns)), columns


def _line_by_line(lines: list[str], width: int, separator: str) -> NDArray[np.float64]:
    """Return ``width`` numbers for each line, whatever the others are; nan where there is none."""
    values = np.full((len(lines), width), np.nan)
    for row, line in enumerate(lines):
        try:
            cells = next(csv.reader([line], delimiter=separator), [])[:width]
        except csv.Error:  # a cell of more than 128 KiB, a null byte
            continue
        values[row, : len(cells)] = [_number(cell) for cell in cells]
    return values


def _first_bad_cell(
    path: Path, columns: tuple[str, ...], separator: str, only: Collection[str] | None
) -> str:
    """Return the error message for the first row that is not ``len(columns)`` numbers."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, delimiter=separator)
        next(rows)
        for number, row in enumerate(rows, start=1):
            if not row:
                continue
            if len(row) != len(columns):
                return (
                    f"{path}: row {number} has {len(row)} cells, the header {len(columns)}; "
                    "every row needs one value per column"
                    f"{other_separator(separator.join(row), len(columns), separator)}"
                )
            for name, cell in zip(columns, row, strict=True):
                if only is not None and name not in only:
                    continue
                if not cell.strip():
                    return (
                        f"{path}: row {number}, column {name!r} is missing; fill or drop missing "
                        "values first"
                    )
                if not _is_number(with_points(cell, separator)):
                    return (
                        f"{path}: row {number}, column {name!r} is {cell!r}, {not_a_number(cell)}"
                    )
    return f"{path}: not a table of numbers"


def _number(cell: str | bytes) -> float:
    return float(cell.strip()) if _is_number(cell) else float("nan")


def _is_number(cell: str | bytes) -> bool:
    try:
        float(cell.strip())  # by itself it takes less for space than numpy does
    except ValueError:
        return False
    return True


def _refuse_nameless(path: Path, columns: tuple[str, ...]) -> None:
    if "" in columns:
        raise DataError(
            f"{path}: column {columns.index('') + 1} of {len(columns)} has no name; name it, or "
            "drop it (pandas writes row numbers so, but for to_csv(..., index=False))"
        )


def _refuse_repeats(path: Path, columns: tuple[str, ...]) -> None:
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: the column name {repeated[0]!r} stands more than once")
