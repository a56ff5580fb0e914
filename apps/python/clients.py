"""The data of all clients, given in Python: one npz file per client for as long as the run lasts.

A run reads files, on every engine, so that data in memory gives the bits that the same data gives
in files. The folder's name is a fingerprint of its content: who goes on with a stopped run must
give the same data again, and other data is refused.
"""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis import apps
from trellis.apps.common.results import is_held, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import IN_MEMORY, ORDER, DataError

from . import tables
from .tables import is_frame

Files = dict[str, bytes]

ASSIGNED = ("server", "cluster")
_LONGEST_NAME = 200  # bytes; a file's name has 255 at most
_DIGEST = 16  # characters


@contextmanager
def data_folder(study: str, data: Any, assignment: Any, out: Path | None) -> Iterator[Path | None]:
    """Yield the folder with the clients' files; one made for data in memory is gone afterwards.

    Parameters
    ----------
    data : None, a folder, a mapping client -> its data, or a sequence of clients' data
    assignment : None, or what a client belongs to, see `assignment_table`
    out : the run's folder, where a run that is stopped finds its data again; None is anywhere

    Raises
    ------
    ConfigError, DataError
        In words, before anything is written.
    """
    if data is None or isinstance(data, str | Path):
        if assignment is not None:
            raise ConfigError(
                "assignment: goes with data given in Python; beside files it is a table "
                "assignment.csv in their folder"
            )
        yield None if data is None else Path(data)
        return
    files = client_files(study, data, assignment)
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
    name = f"{IN_MEMORY}{digest.hexdigest()[:_DIGEST]}"
    if out is None:
        with tempfile.TemporaryDirectory(prefix="trellis-") as parent:
            yield _written(files, Path(parent) / name)
        return
    if is_held(out):
        raise ConfigError(
            f"out={str(out)!r}: another run writes into this folder; wait for its end or choose "
            "another folder"
        )
    there = out.exists()
    try:
        yield _written(files, out / name)
    finally:
        shutil.rmtree(out / name, ignore_errors=True)
        if not there:
            with suppress(OSError):
                out.rmdir()  # where nothing came of the run


def client_files(study: str, data: Any, assignment: Any = None) -> Files:
    """Return names and contents of the files that a run reads, in the order of the clients."""
    module = apps.study_module(study, "data")
    given = named_clients(data)
    if getattr(module, "GRAPH_FOLDERS", False):
        contents = _graph_files(given)
    else:
        contents = _table_files(given, getattr(module, "TARGETS", False))
    files = {f"{name}.npz": content for name, content in contents.items()}
    files[ORDER] = "".join(f"{name}\n" for name in files).encode()
    if assignment is not None:
        if not hasattr(module, "server_of"):
            raise ConfigError(f"assignment: {study} has one server and no clusters; leave it out")
        files["assignment.csv"] = assignment_table(assignment, list(given)).encode()
    return files


def named_clients(data: Any) -> dict[str, Any]:
    """Return clients' data by their names, which must be good for files, in the given order."""
    if is_frame(data) or isinstance(data, np.ndarray):
        raise DataError(
            "data: one table; give a mapping of clients' names to their tables, such as "
            "{'berlin': df1, 'madrid': df2}, or a list of tables"
        )
    if isinstance(data, Mapping):
        named = {str(name): given for name, given in data.items()}
        if len(named) < len(data):
            raise DataError("data: two clients have one name when written; call them differently")
    elif isinstance(data, Sequence):
        if _looks_like_a_pair(data):
            raise DataError(
                "data: (X, y) of one client; give a mapping such as {'berlin': (X, y), ...} or a "
                "list of such pairs"
            )
        named = {f"client-{place + 1}": given for place, given in enumerate(data)}
    else:
        raise DataError(
            f"data: {type(data).__name__}; give a folder, a mapping of clients' names to their "
            "data, or a list of clients' data"
        )
    if not named:
        raise DataError("data: no clients; give a mapping with one entry per client")
    for name in named:
        _check_name(name)
    return named


def assignment_table(assignment: Any, clients: Sequence[str]) -> str:
    """Return ``assignment.csv``: which server, and which cluster, every client belongs to.

    Parameters
    ----------
    assignment : a mapping client -> {"server": 0, "cluster": 1}, or a DataFrame with these columns
        and the clients in a column ``client`` or in its index; numbers count from 0
    """
    rows = _frame_rows(assignment) if is_frame(assignment) else assignment
    if not isinstance(rows, Mapping):
        raise ConfigError(
            "assignment: give a mapping such as {'berlin': {'server': 0, 'cluster': 1}}, or a "
            "DataFrame with the columns client, server and cluster"
        )
    rows = {str(client): row for client, row in rows.items()}
    for what, names in (
        ("not among the clients of data", [name for name in rows if name not in clients]),
        ("missing", [name for name in clients if name not in rows]),
    ):
        if names:
            raise ConfigError(f"assignment: client {names[0]!r} is {what}; name every client once")
    columns: list[str] | None = None
    lines = []
    for client in clients:
        row = rows[client]
        if not isinstance(row, Mapping) or not row or not set(row) <= set(ASSIGNED):
            raise ConfigError(
                f"assignment: client {client!r} has {row!r}; give its {' and '.join(ASSIGNED)}, "
                "such as {'server': 0, 'cluster': 1}"
            )
        columns = columns or [name for name in ASSIGNED if name in row]
        if set(row) != set(columns):
            raise ConfigError(
                f"assignment: client {client!r} has {', '.join(row)}, others have "
                f"{', '.join(columns)}; give all clients the same"
            )
        lines.append([client, *(_place(client, name, row[name]) for name in columns)])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["client", *(columns or [])])
    writer.writerows(lines)
    return text.getvalue()


def _frame_rows(frame: Any) -> dict[str, dict[str, Any]]:
    names = list(frame["client"]) if "client" in frame.columns else list(frame.index)
    if len({str(name) for name in names}) < len(names):
        raise ConfigError("assignment: a client stands there twice; name every client once")
    kept = [str(name) for name in frame.columns if str(name) != "client"]
    columns = {name: list(frame[name]) for name in kept}
    return {
        str(client): {name: column[place] for name, column in columns.items()}
        for place, client in enumerate(names)
    }


def _place(client: str, name: str, value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not number.is_integer() or number < 0:
        raise ConfigError(
            f"assignment: client {client!r} has {name}={value!r}; {name}s are numbered from 0"
        )
    return int(number)


def _table_files(given: Mapping[str, Any], targets: bool) -> Files:
    found = {name: tables.client_table(name, own, targets) for name, own in given.items()}
    tables.agree(found)
    return {name: _npz(table.arrays()) for name, table in found.items()}


def _graph_files(given: Mapping[str, Any]) -> Files:
    from trellis.apps.gromov_wasserstein.files.npz import graph_arrays

    from . import graphs

    found = {name: graphs.client_graphs(name, own) for name, own in given.items()}
    graphs.agree(found)
    return {name: _npz(graph_arrays(own)) for name, own in found.items()}


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _written(files: Files, folder: Path) -> Path:
    for name, content in files.items():
        write_atomically(folder / name, content)
    return folder


def _looks_like_a_pair(data: Sequence[Any]) -> bool:
    """Return whether what should be a list of clients is one client's (X, y)."""
    return (
        isinstance(data, tuple)
        and len(data) in (2, 3)
        and hasattr(data[0], "shape")
        and len(data[0].shape) == 2
        and len(getattr(data[1], "shape", (0, 0))) == 1
    )


def _check_name(name: str) -> None:
    """Refuse a client's name that cannot be a file's."""
    told = f"data: the client's name {name!r} cannot be a file's name"
    if not name or name != name.strip() or name.startswith("."):
        raise DataError(f"{told}: it is empty, or begins with a dot, or has blanks around it")
    if "/" in name or "\\" in name or not name.isprintable():
        raise DataError(f"{told}: it has a slash or an unprintable character; leave those out")
    if name.endswith((".npz", ".csv")):
        raise DataError(f"{told}: leave out the ending {name[-4:]!r}")
    if len(name.encode()) > _LONGEST_NAME:
        raise DataError(f"{told}: it is too long; use {_LONGEST_NAME} characters at most")
