"""Molecules drawn: three of different companies, and below each the one most like it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.gromov_wasserstein.graphs import Graph
from trellis.apps.pages.figure import INK, QUIET, style, svg
from trellis.apps.pages.graphs import networkx_for
from trellis.apps.pages.page import FigureBlock

from .owners import ATOMS, formula

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"C": INK, "N": "#0072b2", "O": "#d55e00"}
_OTHER = "#009e73"
_EFFECT = {0: "harmless", 1: "mutagenic"}
_SHOWN = 3

Pair = tuple[tuple[str, Graph], tuple[str, Graph]]


def most_alike(run: RunResult, owned: dict[str, list[Graph]]) -> list[Pair]:
    """Return of some companies the most typical molecule, and its nearest at another company.

    The most typical has the least mean distance to the others of its company.
    """
    names = [str(client["name"]) for client in run.clients]
    flat = [(name, molecule) for name in names for molecule in owned[name]]
    distances, owner = run.arrays["distances"], run.arrays["owner"]
    found = []
    for company in range(min(_SHOWN, len(names))):
        mine = np.flatnonzero(owner == company)
        typical = int(mine[distances[np.ix_(mine, mine)].mean(axis=1).argmin()])
        near = int(np.where(owner == company, np.inf, distances[typical]).argmin())
        found.append((flat[typical], flat[near]))
    return found


def drawn(pairs: Sequence[Pair]) -> FigureBlock:
    """Return the pairs side by side."""
    words = "; ".join(f"{a[0]}: {formula(a[1])}, like {b[0]}: {formula(b[1])}" for a, b in pairs)
    text = (
        "Above a typical molecule of a company, below the one most like it at another. Dots are "
        "atoms: carbon dark, nitrogen blue, oxygen orange, others green; hydrogen is left out."
    )
    return FigureBlock("Molecules that are alike", svg(_figure(pairs), f"{words}. {text}"), text)


@style()
def _figure(pairs: Sequence[Pair]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.5 * len(pairs), 4.8))
    grid = figure.subplots(2, len(pairs), squeeze=False)
    for column, pair in enumerate(pairs):
        for row, (name, molecule) in enumerate(pair):
            _molecule(grid[row, column], molecule)
            effect = _EFFECT.get(molecule.label, "effect unknown")
            grid[row, column].set_title(f"{name}: {effect}", fontsize=8.5, loc="center")
    return figure


def _molecule(axes: Axes, molecule: Graph) -> None:
    networkx = networkx_for("drawings of molecules")
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(molecule.node_labels)))
    graph.add_edges_from(molecule.edges.tolist())
    place = networkx.kamada_kawai_layout(graph)
    for u, v in graph.edges:
        axes.plot(*zip(place[u], place[v], strict=True), color=QUIET, linewidth=1.2, zorder=1)
    atoms = [ATOMS[label] for label in molecule.node_labels]
    x, y = np.array([place[k] for k in graph.nodes]).T
    axes.scatter(x, y, s=34, color=[_COLOURS.get(atom, _OTHER) for atom in atoms], zorder=2)
    axes.set_aspect("equal")
    axes.margins(0.12)
    axes.set(xticks=[], yticks=[])
    axes.set_axis_off()
