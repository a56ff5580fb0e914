"""Graphs of a run that has ended, on request: those of any client, or the one that all share.

A run writes those that its report draws. A study whose clients have graphs offers
``write_graphs(result, folder, clients)`` in its report module, with the drawings of its page, and
``kept_at_home(result)``; of others the graphs of `apps.pages.named` are written, and what they
offer as ``write_on_request(result, folder)``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trellis.apps import study_module
from trellis.apps.common.files.run_folder import note_written
from trellis.apps.common.results import RunResult, is_held
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages.clients.chosen import listed
from trellis.apps.pages.clients.once import sharing
from trellis.apps.pages.graphs import file_stems, node_names, write_graph
from trellis.apps.pages.named import NamedGraph, NamedGraphs, client_names
from trellis.apps.pages.plots import save, two_colour_graph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED = -1  # in the place of a client: the graph that all share


def wanted_graphs(
    result: RunResult, names: Sequence[str] = (), *, everyone: bool = False
) -> list[int]:
    """Return the places of the clients whose graphs are wanted; `SHARED` where none is named.

    Raises
    ------
    ConfigError
        Where a name is of no client, or clients have no graphs here; says what there is.
    """
    module = study_module(result.study, "report")
    graphs = module.named_graphs(result)
    if not graphs:
        raise ConfigError(f"this run of {result.study} ({result.status}) has learned no graph")
    known = client_names(result, len(result.clients))
    if not names and not everyone:
        if set(graphs) <= set(known):
            method = result.config.get("method")
            raise ConfigError(
                f"method={method}: clients share no graph; name some with --client, or take --all"
            )
        return [SHARED]
    if not hasattr(module, "write_graphs"):
        there = listed([repr(name) for name in graphs])
        raise ConfigError(
            f"{result.study} learns no graph for each client; without --client and --all this "
            f"writes the graph that there is: {there}"
        )
    if module.kept_at_home(result):
        raise ConfigError(
            f"clients of this run kept their graphs, only the shared one is in {result.folder}: an "
            "owner finds their own on the device, with trellis device result STATE"
        )
    if everyone:
        return list(range(len(known)))
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            there = f"is it {' or '.join(near)}?" if near else f"the clients are {listed(known)}"
            raise ConfigError(f"client={name!r}: no client of this run; {there}")
    return [known.index(name) for name in dict.fromkeys(names)]


def write_wanted(result: RunResult, wanted: Sequence[int], folder: Path) -> Iterator[list[Path]]:
    """Write graphs as GraphML and PNG; yield the files, client by client.

    Raises
    ------
    ConfigError
        Where the run still writes into its folder.
    """
    own = result.folder
    if own is not None and is_held(own):
        raise ConfigError(f"{own}: a run still writes into this folder; wait for its end")
    module = study_module(result.study, "report")
    with sharing():
        for place in wanted:
            clients = [] if place == SHARED else [place]
            if hasattr(module, "write_graphs"):
                written = module.write_graphs(result, folder, clients)
            else:
                written = _write_named(module.named_graphs(result), folder)
            if place == SHARED and hasattr(module, "write_on_request"):
                written += module.write_on_request(result, folder)
            if own is not None:
                note_written(own, written)
            yield written


def _write_named(graphs: NamedGraphs, folder: Path) -> list[Path]:
    written = []
    for stem, made in zip(file_stems(list(graphs)), graphs.values(), strict=True):
        graph = made()
        path = folder / f"{stem}.graphml"
        known = {graph.kind: graph.weights, **graph.edge_data}
        write_graph(path, node_names(graph.nodes), graph.pairs, known, graph.node_data)
        written += [path, save(_drawing(graph), path.with_suffix(".png"))]
    return written


def _drawing(graph: NamedGraph) -> Figure:
    weights = graph.triangle()
    if graph.kind == "distance":  # near is strong
        weights = np.where(weights > 0.0, np.max(weights, initial=0.0) * 1.02 - weights, 0.0)
    legend = (f"{graph.kind}s" if graph.kind != "weight" else "edges", "negative")
    return two_colour_graph(weights, graph.nodes, weights >= 0.0, legend=legend, threshold=0.0)
