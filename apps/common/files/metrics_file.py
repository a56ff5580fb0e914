"""``metrics.csv`` while a run is under way: a line is added when a round has ended.

Nothing is ever read from it to go on with a run: the checkpoint has its own rows. A run that is
resumed writes the file anew with the rounds of its checkpoint, and adds to it from there.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from trellis.apps.common.results import Row, metrics_csv, write_atomically

NAME = "metrics.csv"


class MetricsFile:
    """The file of one run; another program can follow it, and sees whole lines.

    Parameters
    ----------
    folder : of the run
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file: TextIO | None = None
        self._writer: csv.DictWriter[str]

    def add(self, rows: Sequence[Row]) -> None:
        """Write the last of a run's rows.

        All of them, into a new file, where this is the first that is added, or the last one has a
        column that no other had.
        """
        row = rows[-1]
        if self._file is None or not row.keys() <= set(self._writer.fieldnames):
            self._begin(rows)
            return
        self._writer.writerow(row)
        self._file.flush()

    def _begin(self, rows: Sequence[Row]) -> None:
        self.close()
        text = metrics_csv(rows)
        write_atomically(self.path, text.encode())
        self._file = open(self.path, "a", newline="", encoding="utf-8")  # noqa: SIM115
        columns = text.partition("\n")[0].split(",")
        self._writer = csv.DictWriter(self._file, columns, lineterminator="\n")

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
