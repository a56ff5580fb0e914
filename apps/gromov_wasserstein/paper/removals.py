"""How far a molecule moves when one edge or one node is removed: Fig. 12 of the paper.

GW on shortest paths between a graph and its neighbours in the sense of differential privacy, all
of them. Nodes without a path are one step further apart than the longest path, see `graphs`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.sparse import csgraph

from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.figure import PALETTE, plain, style
from strategies.gromov_wasserstein.pair import gromov_wasserstein
from strategies.gromov_wasserstein.pairwise import pairwise

from ..downstream.baselines import topology_matrices
from ..graphs import Graph, induced, shortest_paths
from .model import collection
from .scores import Array

MOLECULES = 0  # of MUTAG, 0 is all
_ZERO = 1e-12


def figure_12(out: Path, console: Console) -> None:
    """Draw how far a molecule moves, by GW on shortest paths, when an edge or a node is removed."""
    graphs = collection("MUTAG", MOLECULES)
    found = on_all_cores(removal_job, graphs, console, "fig12")
    kinds = {
        "one edge": np.concatenate([edge for edge, _, _ in found]),
        "one node": np.concatenate([node for _, node, _ in found]),
    }
    between_graphs = pairwise(topology_matrices(graphs[:: max(1, len(graphs) // 60)]), workers=1)
    apart = between_graphs[np.triu_indices(len(between_graphs), 1)]
    kinds["two molecules"] = apart
    lines = [
        {"removed": name, "cases": len(values), "mean": float(values.mean())}
        | {"deviation": float(values.std(ddof=1)), "median": float(np.median(values))}
        | {"95 %": float(np.quantile(values, 0.95)), "largest": float(values.max())}
        for name, values in kinds.items()
    ]
    split = np.concatenate([cut for _, _, cut in found])
    console.print(
        f"{split.mean():.0%} of the edges are bridges: without one, a molecule falls apart"
    )
    show_rows(lines, f"GW to itself less one edge or node, {len(graphs)} of MUTAG", console)
    write_rows(out / "fig12.csv", lines, console)
    save_plot(histograms(kinds, "GW on shortest paths"), out / "fig12")


def removal_job(graph: Graph) -> tuple[Array, Array, Array]:
    """Return GW after removing every edge, every node, and whether an edge is a bridge."""
    whole = shortest_paths(graph)
    edges, bridges, nodes = [], [], []
    for place in range(len(graph.edges)):
        without = replace(graph, edges=np.delete(graph.edges, place, axis=0))
        cut = shortest_paths(without)
        edges.append(gromov_wasserstein(whole, cut).value)
        bridges.append(_components(without) > _components(graph))
    if graph.nodes > 1:
        for node in range(graph.nodes):
            rest = induced(graph, np.delete(np.arange(graph.nodes), node), graph.label)
            nodes.append(gromov_wasserstein(whole, shortest_paths(rest)).value)
    return np.array(edges), np.array(nodes), np.array(bridges, dtype=np.float64)


def _components(graph: Graph) -> int:
    return int(csgraph.connected_components(graph.adjacency, directed=False)[0])


@style()
def histograms(values: dict[str, Array], label: str) -> Any:
    """Draw distributions of positive values on a logarithmic scale; the legend counts zeros."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 3.1))
    axes = figure.add_subplot()
    kept = {name: np.log10(found[found > _ZERO]) for name, found in values.items()}
    every = np.concatenate(list(kept.values()))
    bins = np.linspace(every.min(), every.max() + 1e-9, 41).tolist()
    for (name, found), colour in zip(kept.items(), PALETTE, strict=False):
        zeros = values[name].size - found.size
        text = f"{name} ({zeros} zeros)" if zeros else name
        share = np.full(found.size, 1.0 / values[name].size)
        axes.hist(found, bins, weights=share, histtype="step", color=colour, label=plain(text))
    axes.set_xlabel(plain(f"log10 of {label}"))
    axes.set_ylabel("share")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)
    return figure
