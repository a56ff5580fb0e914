"""Runs side by side: their numbers, the settings in which they differ, and their edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellis import apps
from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import given_in_memory
from trellis.apps.pages.named import NamedGraph, pandas_for

Cell = float | str | None


@dataclass(frozen=True)
class EdgeDifference:
    """An edge that one run has and another has not.

    Attributes
    ----------
    graph : its name, the same in all runs
    ends : the two nodes
    weights : a number a run; None where the run has no such edge
    """

    graph: str
    ends: tuple[str, str]
    weights: list[float | None]


@dataclass(frozen=True)
class Comparison:
    """A small table: a column a run.

    Attributes
    ----------
    runs : what the runs are called, no two alike
    numbers : name -> a number a run; None where a run has none
    settings : name -> what it was in every run, of those that differ
    results : the runs themselves
    """

    runs: list[str]
    numbers: dict[str, list[Cell]]
    settings: dict[str, list[Cell]]
    results: list[RunResult] = field(default_factory=list, repr=False, compare=False)

    def csv(self) -> str:
        """Return the table as text: a row a number or setting, empty cells for none."""
        rows = [*self.numbers.items(), *self.settings.items()]
        lines = [[name, *("" if cell is None else cell for cell in cells)] for name, cells in rows]
        return csv_text([["", *self.runs], *lines])

    def to_frame(self) -> Any:
        """Return numbers and differing settings as a DataFrame: a column a run."""
        pandas = pandas_for("tables")
        rows = {**self.numbers, **self.settings}
        return pandas.DataFrame.from_dict(rows, orient="index", columns=self.runs, dtype=object)

    def graphs(self) -> list[str]:
        """Return the names of the graphs that all runs have, the main one first."""
        known = [named_graphs(result) for result in self.results]
        return [name for name in known[0] if all(name in other for other in known)]

    def differences(self, graph: str | None = None) -> list[EdgeDifference]:
        """Return edges that a run has and another has not, graph by graph.

        Parameters
        ----------
        graph : of which graph only; None is all that the runs have in common

        Raises
        ------
        ConfigError
            For a graph that not all runs have.
        """
        names = self.graphs()
        if graph is not None and graph not in names:
            told = ", ".join(repr(name) for name in names) or "none"
            raise ConfigError(f"{graph!r}: not a graph of all these runs; they share: {told}")
        found: list[EdgeDifference] = []
        known = [named_graphs(result) for result in self.results]
        for name in names if graph is None else [graph]:
            tables = [_edges(graphs[name]()) for graphs in known]
            for ends in dict.fromkeys(pair for table in tables for pair in table):
                weights = [table.get(ends) for table in tables]
                if None in weights:
                    found.append(EdgeDifference(name, ends, weights))
        return found

    def edges(self, graph: str | None = None) -> Any:
        """Return `differences` as a DataFrame: graph, from, to and a weight a run, nan for none."""
        rows = [
            [one.graph, *one.ends, *(_nan if w is None else w for w in one.weights)]
            for one in self.differences(graph)
        ]
        return pandas_for("tables").DataFrame(rows, columns=["graph", "from", "to", *self.runs])

    def html(self) -> str:
        """Return a page with all of it, which loads nothing from the network."""
        from trellis.apps.runs.page import page

        return page(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows, all that comes from data escaped."""
        from trellis.apps.runs.page import tables

        return "\n".join(block.html() for block in tables(self))


_nan = float("nan")


def compare(
    runs: Sequence[Path | str | RunResult], names: Sequence[str] | None = None
) -> Comparison:
    """Return two runs or more, of folders or in hand, side by side.

    Runs of one study have all numbers and settings that any of them has, runs of different studies
    only those that all have.

    Raises
    ------
    ConfigError
        For fewer than two runs, one that is given twice, or names that are not one a run.
    """
    if len(runs) < 2:
        raise ConfigError("comparing takes two runs or more: name another folder")
    _refuse_twice(runs)
    results = [run if isinstance(run, RunResult) else RunResult.load(Path(run)) for run in runs]
    whole = len({result.study for result in results}) == 1
    numbers = _table([_numbers(result) for result in results], whole)
    settings = _table([_settings(result) for result in results], whole)
    differing = {k: v for k, v in settings.items() if any(value != v[0] for value in v)}
    return Comparison(_called(runs, results, names), numbers, differing, results)


def named_graphs(result: RunResult) -> Mapping[str, Any]:
    """Return a run's graphs by name, each made when it is called; none where it has none."""
    make = getattr(apps.study_module(result.study, "report"), "named_graphs", None)
    return {} if make is None else make(result)


def _edges(graph: NamedGraph) -> dict[tuple[str, str], float]:
    """Return the weights by the edges' ends, which are sorted: runs may order nodes otherwise."""
    found = {}
    for (u, v), weight in zip(graph.pairs.tolist(), graph.weights.tolist(), strict=True):
        first, second = sorted((graph.nodes[u], graph.nodes[v]))
        found[first, second] = weight
    return found


def _refuse_twice(runs: Sequence[Path | str | RunResult]) -> None:
    places = [run if isinstance(run, RunResult) else Path(run).resolve() for run in runs]
    for number, place in enumerate(places):
        if any(place is other or _same(place, other) for other in places[:number]):
            told = "a run" if isinstance(place, RunResult) else str(place)
            raise ConfigError(f"{told} is given twice; name every run once")


def _same(one: Path | RunResult, other: Path | RunResult) -> bool:
    return isinstance(one, Path) and isinstance(other, Path) and one == other


def _called(
    runs: Sequence[Path | str | RunResult], results: Sequence[RunResult], names: Any
) -> list[str]:
    if names is not None:
        given = [str(name) for name in names]
        if len(given) != len(runs) or len(set(given)) < len(given):
            raise ConfigError(f"names={given!r}: give {len(runs)} different names, one a run")
        return given
    folders = [result.folder for result in results]
    if any(folder is None for folder in folders) or len(set(folders)) < len(folders):
        return [f"run {number + 1}" for number in range(len(runs))]
    return _names([Path(folder).resolve() for folder in folders if folder is not None])


def _numbers(result: RunResult) -> dict[str, Cell]:
    spent = result.ledger.get("epsilon", result.headline.get("epsilon"))
    return {
        **{n: float(value) for n, value in result.headline.items() if n != "epsilon"},
        "rounds": float(len(result.metrics)),
        "seconds": float(result.seconds),
        "bytes up": float(result.bytes_up),
        "bytes down": float(result.bytes_down),
        "epsilon spent": None if spent is None else float(spent),
    }


def _settings(result: RunResult) -> dict[str, Cell]:
    # Data given in Python has a fingerprint for a name, wherever its files were.
    data = Path(result.data).name if given_in_memory(result.data) else result.data
    about: dict[str, Any] = {"study": result.study, "status": result.status, "seed": result.seed}
    about |= {"engine": result.engine, "data": data}
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
