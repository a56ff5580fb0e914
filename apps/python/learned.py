"""A learned graph: a networkx graph that also is a table, a matrix, a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.pages.graphs import networkx_for
from trellis.apps.pages.named import DISTANCE, NamedGraph, pandas_for
from trellis.install import pip_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_networkx = networkx_for("learned graphs")
_SHOWN_ROWS = 8  # edges in a notebook


class LearnedGraph(_networkx.Graph):  # type: ignore[misc,name-defined]
    """A graph of variables, clients' graphs or servers, with weights on its edges.

    All that networkx does with a ``Graph`` works, and copies and subgraphs are learned graphs, too.
    Nodes are names; an edge has the attribute ``weight`` and what else is known of it.

    Examples
    --------
    >>> import numpy as np, trellis
    >>> rng = np.random.default_rng(0)
    >>> graph = trellis.smooth_graph(rng.normal(size=(50, 4)), names=["a", "b", "c", "d"])
    >>> graph.number_of_nodes(), sorted(graph.nodes)
    (4, ['a', 'b', 'c', 'd'])
    >>> list(graph.to_frame().columns)
    ['from', 'to', 'weight']
    >>> graph.to_sparse().shape
    (4, 4)
    """

    @classmethod
    def of(cls, named: NamedGraph, title: str = "") -> LearnedGraph:
        """Return the graph of names, pairs and weights."""
        graph = cls()
        graph.graph |= {"name": title, "kind": named.kind}
        graph.add_nodes_from(named.nodes)
        for key, values in named.node_data.items():
            for node, value in zip(named.nodes, values, strict=True):
                graph.nodes[node][key] = value
        more = {key: column.tolist() for key, column in named.edge_data.items()}
        for place, (u, v) in enumerate(named.pairs.tolist()):
            known = {key: column[place] for key, column in more.items()}
            weight = float(named.weights[place])
            graph.add_edge(named.nodes[u], named.nodes[v], weight=weight, **known)
        return graph

    def to_networkx(self) -> Any:
        """Return a plain ``networkx.Graph`` with the same nodes, edges and attributes."""
        plain = _networkx.Graph(**self.graph)
        plain.add_nodes_from(self.nodes(data=True))
        plain.add_edges_from(self.edges(data=True))
        return plain

    def to_frame(self) -> Any:
        """Return the edges as a DataFrame: from, to, weight and what else is known of them.

        The strongest first; where weights are distances, the nearest first.
        """
        pandas = pandas_for("tables")
        rows = [{"from": u, "to": v, **known} for u, v, known in self.edges(data=True)]
        frame = pandas.DataFrame(rows, columns=None if rows else ["from", "to", "weight"])
        if not rows:
            return frame
        size = frame["weight"].abs()
        near = self.graph.get("kind") == DISTANCE
        order = np.argsort(size if near else -size, kind="stable")
        return frame.iloc[order].reset_index(drop=True)

    def to_sparse(self) -> Any:
        """Return the weights as a symmetric ``scipy.sparse.csr_array``, nodes in their order."""
        return _networkx.to_scipy_sparse_array(self, weight="weight", format="csr", dtype=float)

    def to_pyg(self) -> Any:
        """Return a ``torch_geometric.data.Data``: every edge in both directions, and its weight.

        ``edge_index`` (2, 2 E), ``edge_weight`` (2 E,) and ``names``, the nodes' names in order.
        """
        try:
            import torch
            from torch_geometric.data import Data
        except ImportError as error:
            raise ImportError(f"to_pyg needs torch-geometric: {pip_install('gnn')}") from error
        place = {node: number for number, node in enumerate(self.nodes)}
        pairs = np.array([[place[u], place[v]] for u, v in self.edges()], dtype=np.int64)
        pairs = pairs.reshape(-1, 2)
        weights = np.array([float(w) for *_, w in self.edges(data="weight", default=1.0)])
        both = np.concatenate([pairs, pairs[:, ::-1]]).T
        return Data(
            edge_index=torch.from_numpy(np.ascontiguousarray(both)),
            edge_weight=torch.from_numpy(np.concatenate([weights, weights])),
            num_nodes=len(place),
            names=[str(node) for node in place],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph, wider lines for larger weights; return matplotlib's axes.

        Parameters
        ----------
        ax : Axes, optional
            Draw here; None makes a new figure.
        """
        from trellis.apps.pages.figure import plain, short
        from trellis.apps.pages.plots import draw_graph

        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.figure(figsize=(4.8, 4.8)).add_subplot()
        weights, positive = self._drawn()
        names = [str(node) for node in self.nodes]
        draw_graph(ax, weights, names, positive)
        # The first name stands upright on top of the circle, a letter about 5 points wide.
        upright = 5.0 * len(short(names[0])) if names else 0.0
        ax.set_title(plain(str(self.name)), pad=max(18.0, 8.0 + upright))
        return ax

    def _drawn(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the weights (p,) of all pairs as lines are wide, and which are not negative."""
        matrix = self.to_sparse().toarray()
        weights = matrix[np.triu_indices(len(matrix), 1)]
        if self.graph.get("kind") == DISTANCE:
            far = np.max(weights, initial=1e-300)
            linked = _networkx.to_numpy_array(self, weight=None)[np.triu_indices(len(matrix), 1)]
            weights = linked * (1.0 - 0.8 * weights / far)
        return weights, weights >= 0.0

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how large it is, a picture, the strongest edges."""
        from trellis.apps.pages.page import FigureBlock, Paragraph, Table
        from trellis.apps.pages.plots import svg, two_colour_graph

        edges, nodes = self.number_of_edges(), self.number_of_nodes()
        told = f"{self.name or 'graph'}: {nodes:,} nodes, {edges:,} edges"
        blocks = [Paragraph(told).html()]
        if edges:
            weights, positive = self._drawn()
            signs = None if positive.all() else positive
            legend = ("edges", "") if signs is None else ("positive", "negative")
            names = [str(node) for node in self.nodes]
            figure = two_colour_graph(weights, names, signs, legend=legend, threshold=0.0)
            blocks.append(FigureBlock("", svg(figure, told)).html())
            near = self.graph.get("kind") == DISTANCE
            rows = sorted(
                ((str(u), str(v), float(w)) for u, v, w in self.edges(data="weight", default=1.0)),
                key=lambda row: abs(row[2]) if near else -abs(row[2]),
            )
            caption = "" if edges <= _SHOWN_ROWS else f"The first {_SHOWN_ROWS} of {edges:,} edges."
            head = ["from", "to", "distance" if near else "weight"]
            blocks.append(Table(head, rows[:_SHOWN_ROWS], caption).html())
        return "\n".join(blocks)
