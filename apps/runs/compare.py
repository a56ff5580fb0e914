"""Runs side by side: their numbers, and the settings in which they differ."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.common.results import RunResult
from apps.common.settings import ConfigError

Cell = float | str | None


@dataclass(frozen=True)
class Comparison:
    """A small table: a column a run.

    Attributes
    ----------
    runs : what the runs are called, no two alike
    numbers : name -> a number a run; None where a run has none
    settings : name -> what it was in every run, of those that differ
    """

    runs: list[str]
    numbers: dict[str, list[Cell]]
    settings: dict[str, list[Cell]]

    def csv(self) -> str:
        """Return the table as text: a row a number or setting, empty cells for none."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["", *self.runs])
        for rows in (self.numbers, self.settings):
            writer.writerows(
                [name, *("" if cell is None else cell for cell in cells)]
                for name, cells in rows.items()
            )
        return buffer.getvalue()


def compare(folders: Sequence[Path]) -> Comparison:
    """Return the runs of two folders or more, side by side.

    Runs of one study have all numbers and settings that any of them has, runs of different studies
    only those that all have.

    Raises
    ------
    ConfigError
        For fewer than two folders, or one that is given twice.
    """
    places = [folder.resolve() for folder in folders]
    if len(places) < 2:
        raise ConfigError("comparing takes two runs or more: name another folder")
    for place in places:
        if places.count(place) > 1:
            raise ConfigError(f"{place} is given twice; name every run once")
    results = [RunResult.load(folder) for folder in folders]
    whole = len({result.study for result in results}) == 1
    numbers = _table([_numbers(result) for result in results], whole)
    settings = _table([_settings(result) for result in results], whole)
    differing = {k: v for k, v in settings.items() if any(value != v[0] for value in v)}
    return Comparison(_names(places), numbers, differing)


def _numbers(result: RunResult) -> dict[str, Cell]:
    spent = result.ledger.get("epsilon", result.headline.get("epsilon"))
    return {
        **{name: float(value) for name, value in result.headline.items()},
        "rounds": float(len(result.metrics)),
        "seconds": float(result.seconds),
        "bytes up": float(result.bytes_up),
        "bytes down": float(result.bytes_down),
        "epsilon": None if spent is None else float(spent),
    }


def _settings(result: RunResult) -> dict[str, Cell]:
    about: dict[str, Any] = {"study": result.study, "status": result.status, "seed": result.seed}
    about |= {"engine": result.engine, "data": result.data}
    about["server"] = result.network.get("name", "all")
    return {name: str(value) for name, value in {**about, **result.config}.items()}


def _table(columns: Sequence[Mapping[str, Cell]], whole: bool) -> dict[str, list[Cell]]:
    names = dict.fromkeys(name for column in columns for name in column)
    return {
        name: [column.get(name) for column in columns]
        for name in names
        if whole or all(name in column for column in columns)
    }


def _names(places: Sequence[Path]) -> list[str]:
    """Return the last parts of the paths, as many as tell all of them apart."""
    for length in range(1, max(len(place.parts) for place in places)):
        names = ["/".join(place.parts[-length:]) for place in places]
        if len(set(names)) == len(names):
            return names
    return [str(place) for place in places]
