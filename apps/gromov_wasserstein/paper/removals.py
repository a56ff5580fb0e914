"""How far a molecule moves when one edge or one node is removed: Fig. 12 of the paper.

GW on shortest paths between a graph and its neighbours in the sense of differential privacy, all
of them. Nodes without a path are one step further apart than the longest path, see `graphs`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csgraph

from trellis.apps.experiments.finding import Finding, Verdict
from trellis.apps.experiments.making import Making
from trellis.apps.pages.figure import PALETTE, plain, style
from trellis.strategies.gromov_wasserstein.pair import gromov_wasserstein
from trellis.strategies.gromov_wasserstein.pairwise import pairwise

from ..downstream.baselines import topology_matrices
from ..graphs import Graph, induced, shortest_paths
from .model import collection
from .scores import Array

_ZERO = 1e-12


def figure_12(making: Making) -> list[Finding]:
    """Draw how far a molecule moves, by GW on shortest paths, when an edge or a node is removed."""
    graphs = collection("MUTAG", making["graphs"])
    found = making.on_all_cores(removal_job, graphs, "fig12")
    kinds = {
        "one edge": np.concatenate([edge for edge, _, _ in found]),
        "one node": np.concatenate([node for _, node, _ in found]),
    }
    some = graphs[:: max(1, len(graphs) // 60)]
    apart = pairwise(topology_matrices(some), workers=1)[np.triu_indices(len(some), 1)]
    kinds["two molecules"] = apart
    lines = [
        {"removed": name, "cases": len(values), "mean": float(values.mean())}
        | {"deviation": float(values.std(ddof=1)), "median": float(np.median(values))}
        | {"95 %": float(np.quantile(values, 0.95)), "largest": float(values.max())}
        for name, values in kinds.items()
    ]
    split = np.concatenate([cut for _, _, cut in found])
    making.console.print(
        f"{split.mean():.0%} of the edges are bridges: without one, a molecule falls apart"
    )
    making.table(lines, show=f"GW to itself less one edge or node, {len(graphs)} of MUTAG")
    making.plot(histograms(kinds, "GW on shortest paths"))
    return _verdicts(kinds, float(split.mean()), len(graphs))


def _verdicts(kinds: dict[str, Array], bridges: float, graphs: int) -> list[Finding]:
    edge, node, apart = kinds["one edge"], kinds["one node"], kinds["two molecules"]
    wide = [values.std(ddof=1) / values.mean() for values in (edge, node)]
    text = (
        f"{graphs} molecules: one edge {edge.mean():.2f}, deviation {edge.std(ddof=1):.2f}; one "
        f"node {node.mean():.2f}, deviation {node.std(ddof=1):.2f}; two molecules "
        f"{apart.mean():.2f} apart"
    )
    diverse = min(wide) > 0.5
    why = "the deviations are less than half of the means"
    found = [
        Finding(
            "fig12-diverse", text, "reproduced" if diverse else "refuted", "" if diverse else why
        )
    ]
    # "Especially": a tenth more at least.
    larger, wider = node.mean() > 1.1 * edge.mean(), node.std(ddof=1) > 1.1 * edge.std(ddof=1)
    counts = f"node over edge: mean {node.mean() / edge.mean():.2f}, deviation "
    counts += f"{node.std(ddof=1) / edge.std(ddof=1):.2f}; {bridges:.0%} of the edges are bridges"
    why = "removing a node does not move a molecule more than removing one edge does"
    if larger or wider:
        which = "mean" if larger else "deviation"
        why = f"of mean and deviation only the {which} is larger where a node is removed"
    both: Verdict = "reproduced" if larger and wider else "partly" if larger or wider else "refuted"
    found.append(Finding("fig12-node", counts, both, "" if both == "reproduced" else why))
    return found


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
    axes.set_ylabel("share of cases")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)
    return figure
