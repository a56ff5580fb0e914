"""Example data: a study's synthetic clients as files, or in hand."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis import apps
from trellis.apps.common.results import write_atomically
from trellis.apps.common.settings import ConfigError, StudyConfig, config_class
from trellis.strategies.core.rules import FEWEST

from .run import merged_settings

if TYPE_CHECKING:
    from trellis.apps.common.node import Node

_NAME = "ward"


class Sample(dict[str, Any]):
    """Clients' names -> their data, ready for ``trellis.run(study, data=...)``.

    Attributes
    ----------
    assignment : which server, and cluster, every client belongs to; None where the study has none
    settings : those that the data was made with and that differ from the study's own
    """

    assignment: dict[str, dict[str, int]] | None = None
    settings: dict[str, Any]


def sample(
    study: str,
    folder: str | Path | None = None,
    *,
    clients: int | None = None,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Sample | Path:
    """Return a study's synthetic clients, as files or in hand; the same as ``trellis sample``.

    Parameters
    ----------
    study : str
        A key of ``trellis.STUDIES``.
    folder : folder, optional
        Write one file per client here (csv, or npz for graphs), and ``assignment.csv`` where the
        study has servers; it must be new or empty. None returns the data itself.
    clients : int, optional
        How many; as many as the study has by default.
    seed : int
        The same seed gives the same data, which is the study's own with that seed.
    settings, **keywords
        Settings of the study that its data depends on, such as ``nodes=12``.

    Returns
    -------
    Sample or Path
        Names -> DataFrames (lists of networkx graphs in gromov-wasserstein), with ``assignment``
        beside them; or the folder.

    Examples
    --------
    >>> import trellis
    >>> wards = trellis.sample("cluster-admm", clients=4, servers=2, clusters=2, features=3)
    >>> list(wards), wards.assignment["ward-4"]
    (['ward-1', 'ward-2', 'ward-3', 'ward-4'], {'server': 1, 'cluster': 0})
    >>> list(wards["ward-1"].columns)
    ['x1', 'x2', 'x3', 'y']
    """
    config = sample_config(study, clients, merged_settings(study, settings, keywords))
    if folder is None:
        return _in_hand(study, config, seed)
    return write_sample(study, config, seed, Path(folder))


def sample_config(study: str, clients: int | None, settings: Mapping[str, Any]) -> StudyConfig:
    """Return the settings that data is made with; with few clients there are fewer servers."""
    wanted, kind = dict(settings), config_class(study)
    if clients is not None:
        wanted["clients"] = clients
    servers = getattr(kind.from_settings({}), "servers", None)
    if servers is not None and "servers" not in wanted:
        # A server's sum over fewer clients would tell one of them the others' models.
        most = int(wanted.get("clients", kind.clients)) // FEWEST
        if most < servers:
            wanted = {"topology": "ring", **wanted, "servers": max(1, most)}
    return kind.from_settings(wanted)


def write_sample(study: str, config: StudyConfig, seed: int, folder: Path) -> Path:
    """Write one file per client, and who belongs to which server; return the folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: is not an empty folder; name a new one")
    module = apps.study_module(study, "data")
    graphs = getattr(module, "GRAPH_FOLDERS", False)
    for place, name in enumerate(client_names(config.clients)):
        if graphs:
            from trellis.apps.gromov_wasserstein.files.npz import write_graphs

            own = module.client_graphs(config, seed, _node(name, place))
            write_graphs(folder / f"{name}.npz", own)
        else:
            columns, values = _table(module.synthetic_table(config, seed, place))
            write_atomically(folder / f"{name}.csv", _csv(columns, values.tolist()).encode())
    told = assignment_of(study, config, seed)
    if told is not None:
        columns = ["client", *next(iter(told.values()))]
        rows = [[name, *row.values()] for name, row in told.items()]
        write_atomically(folder / "assignment.csv", _csv(columns, rows).encode())
    return folder


def run_command(study: str, config: StudyConfig, folder: Path) -> str:
    """Return the command that runs the study on a sample, settings that differ included."""
    words = ["trellis", "run", study, "--data", str(folder)]
    for name, value in changed_settings(config).items():
        if name != "clients":  # as many as there are files
            words += ["--set", f"{name}={str(value).lower() if value is True else value}"]
    return " ".join(shlex.quote(word) for word in words)


def changed_settings(config: StudyConfig) -> dict[str, Any]:
    """Return the settings that are not the study's defaults."""
    usual = type(config).from_settings({}).settings()
    return {name: value for name, value in config.settings().items() if value != usual[name]}


def client_names(count: int) -> list[str]:
    """Return names whose sorted order is that of the numbers."""
    width = len(str(count))
    return [f"{_NAME}-{place + 1:0{width}d}" for place in range(count)]


def assignment_of(study: str, config: StudyConfig, seed: int) -> dict[str, dict[str, int]] | None:
    """Return which server, and which cluster, every client belongs to; None without servers."""
    from trellis.apps.common.assignment import dealt_server

    module = apps.study_module(study, "data")
    if not hasattr(module, "server_of"):
        return None
    servers = int(getattr(config, "servers", 1))
    clusters = None
    if hasattr(module, "cluster_of") and not getattr(config, "finds_clusters", False):
        clusters = module.synthetic_truth(config, seed).clusters.tolist()
    found = {}
    for place, name in enumerate(client_names(config.clients)):
        found[name] = {"server": dealt_server(config.clients, servers, _node(name, place))}
        if clusters is not None:
            found[name]["cluster"] = int(clusters[place])
    return found


def _in_hand(study: str, config: StudyConfig, seed: int) -> Sample:
    module = apps.study_module(study, "data")
    found = Sample()
    for place, name in enumerate(client_names(config.clients)):
        if getattr(module, "GRAPH_FOLDERS", False):
            own = module.client_graphs(config, seed, _node(name, place))
            found[name] = [_networkx(graph) for graph in own]
        else:
            from trellis.apps.pages.named import pandas_for

            columns, values = _table(module.synthetic_table(config, seed, place))
            found[name] = pandas_for("tables").DataFrame(values, columns=columns)
    found.assignment = assignment_of(study, config, seed)
    found.settings = changed_settings(config)
    return found


def _table(own: Any) -> tuple[list[str], Any]:
    """Return columns and values of a client's synthetic data, targets last."""
    if hasattr(own, "y"):
        return [*own.columns, "y"], np.column_stack([own.X, own.y])
    return list(own.columns), own.values


def _networkx(graph: Any) -> Any:
    from trellis.apps.pages.graphs import networkx_for

    made = networkx_for("graphs").Graph(y=graph.label)
    for node, (label, row) in enumerate(zip(graph.node_labels, graph.features, strict=True)):
        made.add_node(node, y=int(label), x=row.tolist())
    made.add_edges_from(graph.edges.tolist())
    return made


def _node(name: str, place: int) -> Node:
    from trellis.apps.common.node import Node

    return Node(name, place, None, None, True)


def _csv(columns: list[str], rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
