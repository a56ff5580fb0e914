"""What a client belongs to, by its owner's word: which server, which cluster.

Its node config says so (``server=3``); or ``assignment.csv`` beside its file does, with the columns
``client`` (the file's name, with or without ending) and ``server``. Numbers count from 0.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context

from trellis.apps.common.files.unchanged import unless_changed
from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError

ASSIGNMENT = "assignment.csv"


def given_number(
    column: str, count: int, node: Node, context: Context, required: bool = True
) -> int | None:
    """Return the number from 0 to ``count - 1`` that is given for ``column``, None where none is.

    Parameters
    ----------
    column : ``server`` or ``cluster``: the key in the node config and the column of the table
    required : whether a table without that column is refused, or says nothing

    Raises
    ------
    DataError
        For a number that is not there, and for a table that cannot be read or does not name the
        client once.
    """
    if column in context.node_config:
        return _number(column, count, context.node_config[column], f"node config of {node.name}")
    table = node.data_path.parent / ASSIGNMENT if node.data_path is not None else None
    if table is None or not table.is_file():
        return None
    return assigned_number(column, count, node, table, required)


def dealt_server(clients: int, servers: int, node: Node) -> int:
    """Return the server of a client by its place: contiguous, the same number to each +- 1.

    Raises
    ------
    DataError
        For a client without a place, where there are several servers.
    """
    if servers == 1:
        return 0
    if not 0 <= node.partition < clients:
        raise DataError(
            f"{node.name}: which server is it a client of? partition-id {node.partition} is not "
            f"between 0 and {clients - 1}; set server=0 to {servers - 1} in its "
            "--node-config"
        )
    return node.partition * servers // clients


def read_assignment(table: Path, names: Collection[str]) -> dict[str, int]:
    """Return the ``server`` and the ``cluster`` of a client that is called one of ``names``.

    What is missing or no whole number is left out: the client itself refuses it, and says why.

    Raises
    ------
    DataError
        For a table that cannot be read.
    """
    said = min(unless_changed(_read, table).of(names), default=(0, {}), key=lambda row: row[0])[1]
    found = {key: (said.get(key) or "").strip() for key in ("server", "cluster")}
    return {key: int(value) for key, value in found.items() if value.isdecimal()}


def assigned_number(
    column: str, count: int, node: Node, table: Path, required: bool = True
) -> int | None:
    """Return what a table says of a client, as `given_number`."""
    rows = unless_changed(_read, table)
    if not required and column not in rows.columns:
        return None
    if not {"client", column} <= set(rows.columns):
        raise DataError(f"{table}: needs the columns client and {column}")
    said = rows.of(_names(node))
    if len(said) != 1:
        raise DataError(
            f"{table}: client {node.name!r} stands there {len(said)} times; give it one row"
        )
    number, row = said[0]
    return _number(column, count, row[column], f"{table}: row {number}")


@dataclass(frozen=True)
class _Rows:
    """A table of assignments: its columns, and the rows by client, with their numbers."""

    columns: tuple[str, ...]
    by_client: dict[str, list[tuple[int, dict[str, str]]]]

    def of(self, names: Collection[str]) -> list[tuple[int, dict[str, str]]]:
        """Return the rows of a client that is called one of ``names``."""
        return [row for name in names for row in self.by_client.get(name, ())]


def _read(table: Path) -> _Rows:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            by_client: dict[str, list[tuple[int, dict[str, str]]]] = {}
            for number, row in enumerate(rows, start=1):
                by_client.setdefault((row.get("client") or "").strip(), []).append((number, row))
            return _Rows(tuple(rows.fieldnames or ()), by_client)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{table}: cannot be read ({error})") from None


def _names(node: Node) -> set[str]:
    path = node.data_path
    return {node.name} if path is None else {node.name, path.name, path.stem}


def _number(column: str, count: int, value: object, where: str) -> int:
    text = "" if isinstance(value, bool) else str(value).strip()
    if not (text.isascii() and text.isdigit() and int(text) < count):
        raise DataError(
            f"{where}: {column}={value!r}; the {count} {column}s are numbered from 0 to {count - 1}"
        )
    return int(text)
