"""What a run gives in Python: its numbers, its graphs, its tables, and itself in a notebook."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis import apps
from trellis.apps.common.results import RunResult

if TYPE_CHECKING:
    from trellis.apps.common.private.using import Predictions
    from trellis.apps.pages.named import NamedGraphs
    from trellis.apps.pages.page import Block

    from .learned import LearnedGraph

TABLES = ("metrics", "clients", "headline")
_SHOWN_CLIENTS = 10  # rows in a notebook


class Result(RunResult):
    """The result of a run: what was learned, how it got there and what that cost.

    Has ``arrays``, ``metrics``, ``clients``, ``variables``, ``headline``, ``ledger``, ``notes`` and
    more, as written in ``run.json`` and ``result.npz``, and what follows here.
    """

    @classmethod
    def of(cls, found: RunResult) -> Result:
        """Return any run's result as one of these; nothing is copied."""
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    @property
    def graphs(self) -> list[str]:
        """The names that `graph` takes, the main one first."""
        return list(self._graphs())

    def graph(self, name: str | None = None) -> LearnedGraph:
        """Return a learned graph, which is a networkx graph and more.

        Parameters
        ----------
        name : str, optional
            ``consensus`` or a client's name in consensus-graph; a client's name, ``common`` (the
            edges that all share) or, where there is one, ``consensus`` in joint-precision;
            ``servers`` in server-graph and cluster-admm; ``neighbours`` (graphs that are near each
            other) in gromov-wasserstein. None is the first of `graphs`.

        Raises
        ------
        KeyError
            For a name that is not there; lists those that are.
        """
        from .learned import LearnedGraph

        found = self._graphs()
        wanted = next(iter(found), "") if name is None else name
        if wanted not in found:
            told = ", ".join(repr(known) for known in found) or "none"
            raise KeyError(f"{wanted!r}: no such graph in this run; there are: {told}")
        return LearnedGraph.of(found[wanted](), wanted)

    def to_frame(self) -> Any:
        """Return the main result as a DataFrame.

        The weights of the consensus; all clients' precision matrices, rows by client and variable;
        a model per server or per client, a column a feature; or the distances between all graphs.
        """
        from trellis.apps.pages.named import pandas_for

        pandas = pandas_for("tables")
        table = _report(self, "main_table")
        if table is None:
            raise ValueError(f"this run has nothing to show: it is {self.status}")
        rows = pandas.Index(list(table.rows), name=table.index)
        return pandas.DataFrame(table.values, index=rows, columns=list(table.columns))

    def frame(self, what: str = "metrics") -> Any:
        """Return one of the run's lists as a DataFrame.

        Parameters
        ----------
        what : {"metrics", "clients", "headline"}
            A row per round, per client, or per number.
        """
        from trellis.apps.pages.named import pandas_for

        pandas = pandas_for("tables")
        if what == "metrics":
            frame = pandas.DataFrame(list(self.metrics))
            return frame.set_index("round") if "round" in frame.columns else frame
        if what == "clients":
            frame = pandas.DataFrame(self.clients)
            return frame.set_index("name") if "name" in frame.columns else frame
        if what == "headline":
            return pandas.DataFrame({"value": self.headline})
        raise ValueError(f"what={what!r}: use one of {', '.join(TABLES)}")

    def predict(self, data: Any, *, client: str | None = None) -> Any:
        """Return what the learned model makes of new data: one number per record.

        Predicted labels (-1 and 1) or values in server-graph and cluster-admm, classes from 0 in
        gromov-wasserstein; in the graph studies, which predict nothing, the log likelihood of every
        record.

        Parameters
        ----------
        data : DataFrame, array, path of a csv or npz file, or list of graphs
            With the columns that were learned from, in any order where they have names. Records are
            in the units of the clients' own files.
        client : str, optional
            Whose model or graph, where every client has its own (cluster-admm must be told).

        Returns
        -------
        found : numpy.ndarray
            One number per record; see `predictions` for all that is known of each.
        """
        import numpy as np

        found = self._used(data, client)
        # The class of a node comes after its graph and its place.
        return np.array([row[-1 if found.columns[-1] == "class" else 0] for row in found.rows])

    def predictions(self, data: Any, *, client: str | None = None) -> Any:
        """Return the same as a DataFrame, with probabilities and whatever else there is."""
        from trellis.apps.pages.named import pandas_for

        found = self._used(data, client)
        return pandas_for("tables").DataFrame(list(found.rows), columns=list(found.columns))

    def score(self, data: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return how good the learned model or graph is on new data.

        The share of right labels, R squared, or the mean log likelihood of a record.

        Parameters
        ----------
        data : as in `predict`
        y : array, optional
            The targets, where ``data`` has no column ``y``; graphs of a table have none.
        client : as in `predict`

        Raises
        ------
        ValueError
            For a model without targets to compare with.
        """
        found = self._used(data if y is None else (data, y), client)
        if found.score is None:
            raise ValueError("no targets: give y, or data with a column y")
        return found.score

    def _used(self, data: Any, client: str | None) -> Predictions:
        from trellis.apps.runs.using import predict

        if self.study == "gromov-wasserstein" and not isinstance(data, str | Path):
            from .graphs import client_graphs

            data = client_graphs("the new graphs", data)
        return predict(self, data, client)

    def __repr__(self) -> str:
        """Return the summary: what a person at a prompt wants to see."""
        return self.summary()

    def _graphs(self) -> NamedGraphs:
        found: NamedGraphs = _report(self, "named_graphs") or {}
        return found

    def _repr_html_(self) -> str:
        """Return what a notebook shows, all that comes from data escaped."""
        from trellis.apps.common.recording import wording
        from trellis.apps.pages.page import Badge, Heading, Notice, Table
        from trellis.apps.pages.wording import duration, size

        words = wording(self.study)
        kind = {"completed": "good", "failed": "bad"}.get(self.status, "")
        numbers: list[list[object]] = [["status", Badge(self.status, kind)]]
        numbers += [[words.label(name), float(value)] for name, value in self.headline.items()]
        numbers += [
            ["clients", len(self.clients)],
            ["time", duration(self.seconds)],
            ["sent up, down", f"{size(self.bytes_up)}, {size(self.bytes_down)}"],
        ]
        blocks: list[Block] = [Heading(self.study), Table(["", ""], numbers)]
        blocks += [Notice(note) for note in self.notes]
        blocks += score_blocks(getattr(self, "scores", None))
        shown = [block.html() for block in blocks]
        names = self.graphs
        if names:
            shown.append(self.graph(names[0])._repr_html_())
        return "\n".join(shown)


def load(folder: str | Path) -> Result:
    """Return the result of a run that was kept in a folder.

    Raises
    ------
    FileNotFoundError
        Where the folder holds no run.

    Examples
    --------
    >>> import tempfile, trellis
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ran = trellis.run("consensus-graph", nodes=6, rounds=3, out=folder, report=False)
    ...     again = trellis.load(folder)
    >>> bool((ran.arrays["consensus"] == again.arrays["consensus"]).all())
    True
    """
    found = Result.load(Path(folder))
    assert isinstance(found, Result)
    return found


def score_blocks(scores: Any) -> list[Block]:
    """Return held-out scores as a table: what clients have beside what they had alone.

    Parameters
    ----------
    scores : None, or ``{"measures": [...], "main": name, "clients": [{"name", "count", "rows":
        {row: [numbers]}}], "mean": {row: [numbers]}}``
    """
    from trellis.apps.pages.page import Table

    if not isinstance(scores, dict) or not scores.get("measures"):
        return []
    measures = [str(name) for name in scores["measures"]]
    rows = [["mean of clients", str(row), *values] for row, values in scores["mean"].items()]
    for client in scores.get("clients", ())[:_SHOWN_CLIENTS]:
        name = f"{client.get('name')} ({client.get('count')} records)"
        rows += [[name, str(row), *values] for row, values in client["rows"].items()]
    more = len(scores.get("clients", ())) - _SHOWN_CLIENTS
    caption = "On records that were left out of learning."
    caption += f" {more:,} more clients are not shown." if more > 0 else ""
    return [Table(["", "by", *measures], rows, caption)]


def _report(result: RunResult, part: str) -> Any:
    """Return a part of what the study shows of a run; None where it has no such part."""
    make = getattr(apps.study_module(result.study, "report"), part, None)
    return None if make is None else make(result)
