"""The graph of servers: who talks to whom, and with which weights.

P servers combine their models by  w_p = sum_m a_mp psi_m  ([RS]_ (8)). Assumption 1 of [RS] asks of
A, with 1 the vector of ones,

    A = A',   A 1 = 1,   lambda = rho(A - 11'/P) < 1,      [RS] (9), (10)

and the noise (24) divides by a_pp, which must be positive. Then lambda < 1 says no more than that
the graph is connected. 1 - lambda is the spectral gap: the servers' disagreement shrinks by lambda
a round. `strategies.topology.weights` has the rules that give such an A on any connected graph.

.. [RS] E. Rizk, A. H. Sayed, A graph federated architecture with privacy preserving learning.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.mechanisms.homomorphic import check_combination_matrix

from .files import SUFFIXES, read_graph
from .named import Adjacency, components, graph
from .rules import check_rule
from .weights import combination, laplacian, without_rounding

Matrix = NDArray[np.float64]
Server = str | int
Kind = TypeVar("Kind", bound=np.generic)

_log = logging.getLogger("trellis.topology")


@dataclass(frozen=True, eq=False)
class Topology:
    """P servers, the edges between them and the combination matrix; nothing in it changes.

    Attributes
    ----------
    names : P different names
    weights : A (P, P), a_mp the weight of server m's model at server p; its entries off the
        diagonal are the edges
    rule : how A follows from the graph: ``metropolis``, ``laplacian``, ``laplacian:EPS``, ``own``
    graph : the setting or the file it was made from, for reports
    may_be_apart : let the servers be in several components, as after a failure (`without`)
    """

    names: tuple[str, ...]
    weights: Matrix
    rule: str = "own"
    graph: str = "own"
    may_be_apart: bool = False

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if not self.may_be_apart:
            check_combination_matrix(weights)
        else:
            for part in components(weights > 0.0):
                check_combination_matrix(weights[np.ix_(part, part)])
        object.__setattr__(self, "weights", _frozen(weights))
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.names) != len(weights):
            raise ValueError(f"{len(self.names)} names for {len(weights)} servers")
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"server name {twice!r} occurs twice; servers need different names")

    @property
    def servers(self) -> int:
        """P."""
        return len(self.names)

    @cached_property
    def adjacency(self) -> Adjacency:
        """(P, P), True where two servers talk; False on the diagonal."""
        return _frozen((self.weights > 0.0) & ~np.eye(self.servers, dtype=bool))

    @cached_property
    def edges(self) -> NDArray[np.intp]:
        """(E, 2), every pair of neighbours once, the smaller index first."""
        return _frozen(np.argwhere(np.triu(self.adjacency)))

    @cached_property
    def degree(self) -> NDArray[np.intp]:
        """(P,), every server's number of neighbours."""
        return _frozen(self.adjacency.sum(axis=1))

    @cached_property
    def laplacian(self) -> Matrix:
        """(P, P), the degrees on the diagonal minus the adjacency."""
        return _frozen(laplacian(self.adjacency))

    @cached_property
    def spectral_radius(self) -> float:
        """Lambda = rho(A - 11'/P), (10): by how much a round shrinks the disagreement."""
        return float(np.abs(np.linalg.eigvalsh(self.weights - 1.0 / self.servers)).max())

    @property
    def spectral_gap(self) -> float:
        """1 - lambda; zero where the servers are apart."""
        return max(0.0, 1.0 - self.spectral_radius) if self.is_connected else 0.0

    @cached_property
    def components(self) -> tuple[NDArray[np.intp], ...]:
        """The servers of every connected component; one component unless servers failed."""
        return components(self.adjacency)

    @property
    def is_connected(self) -> bool:
        """Whether every server reaches every other."""
        return len(self.components) == 1

    @cached_property
    def diameter(self) -> float:
        """The most edges between two servers; infinite where they are apart."""
        from scipy.sparse.csgraph import shortest_path  # here: slow to import, and few ask

        return float(shortest_path(self.adjacency, unweighted=True, directed=False).max())

    def index(self, server: Server) -> int:
        """Return the place of a server, given by its name (str) or by its place (int)."""
        if isinstance(server, str):
            if server in self.names:
                return self.names.index(server)
            close = difflib.get_close_matches(server, self.names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(self.names)}"
            raise ValueError(f"no server is called {server!r}; {hint}")
        if not 0 <= server < self.servers:
            raise ValueError(f"no server {server}; they are numbered 0 to {self.servers - 1}")
        return int(server)

    def neighbours(self, server: Server) -> NDArray[np.intp]:
        """Return the places of a server's neighbours, itself not among them."""
        return np.flatnonzero(self.adjacency[self.index(server)])

    def without(self, servers: Iterable[Server]) -> Topology:
        """Return the topology of the survivors when ``servers`` fail.

        Edges are those among survivors. Metropolis and Laplacian weights are computed again on
        them. In an own matrix, survivor p gives the weight of its lost neighbours to itself,

            a'_pp = a_pp + sum_{m lost} a_mp,      a'_mp = a_mp  for survivors m != p.

        That keeps Assumption 1 but for connectedness: off the diagonal A' is a part of A, hence
        symmetric; a column of A' sums to sum_{m survives} a_mp + sum_{m lost} a_mp = 1, and so does
        a row by symmetry; a'_pp >= a_pp > 0. It does not matter whether servers fail at once or
        one after another.

        Survivors that fall apart go on by themselves: A' is then block diagonal with one block for
        each of `components`, each of which satisfies Assumption 1, and lambda = 1. A warning names
        them. What needs a connected A, such as the noise (24), is to be used block by block.
        """
        lost = sorted({self.index(server) for server in servers})
        if not lost:
            return self
        kept = np.delete(np.arange(self.servers), lost)
        if not kept.size:
            raise ValueError(f"all {self.servers} servers fail; at least one must survive")
        if self.rule == "own":
            weights = self.weights[np.ix_(kept, kept)].copy()
            weights[np.diag_indices_from(weights)] += self.weights[lost][:, kept].sum(axis=0)
        else:
            weights = combination(self.adjacency[np.ix_(kept, kept)], self.rule)
        names = tuple(self.names[i] for i in kept)
        rest = Topology(names, weights, self.rule, self.graph, may_be_apart=True)
        if not rest.is_connected:
            _log.warning(
                "without %s the %d other servers fall into %d components, each of which learns by "
                "itself: %s",
                ", ".join(self.names[i] for i in lost), len(kept), len(rest.components),
                _listed(names, rest.components),
            )  # fmt: skip
        return rest

    def describe(self) -> dict[str, str | int | float]:
        """Return what a report says of the graph."""
        return {
            "graph": self.graph,
            "servers": self.servers,
            "edges": len(self.edges),
            "mean-degree": float(self.degree.mean()),
            "spectral-gap": self.spectral_gap,
            "weights": self.rule,
            "components": len(self.components),
        }


def topology(
    setting: str,
    servers: int | None = None,
    *,
    weights: str = "auto",
    seed: int | np.random.Generator = 0,
    names: Sequence[str] = (),
) -> Topology:
    """Return the topology that a setting names.

    Parameters
    ----------
    setting : ``ring``, ``path``, ``star``, ``complete``, ``grid`` (or ``grid:ROWS,COLUMNS``),
        ``erdos-renyi:PROBABILITY``, ``random:AVERAGE-DEGREE``, ``small-world:NEAREST,REWIRING``, or
        a file (`trellis.strategies.topology.files`)
    servers : P; of a file, None or the number it has
    weights : ``metropolis``, ``laplacian``, ``laplacian:EPS``, or ``own`` for the weights in the
        file; ``auto`` is ``own`` for a matrix and ``metropolis`` for a graph
    seed : of the random graphs; a Generator is drawn from
    names : P names, by default ``server-0`` ...; a file brings its own

    Raises
    ------
    ValueError
        Naming the setting, the file, the line or the entry.
    """
    check_rule(weights)
    if not setting.lower().endswith(SUFFIXES):
        if weights == "own":
            raise ValueError(f"weights = 'own': graph {setting!r} has none; name a file that has")
        count = servers if servers is not None else len(names)
        adjacency = graph(setting, count, np.random.default_rng(seed))
        rule = "metropolis" if weights == "auto" else weights
        labels = tuple(names) or tuple(f"server-{p}" for p in range(count))
        return Topology(labels, combination(adjacency, rule), rule, setting)
    found = read_graph(Path(setting))
    if names:
        raise ValueError(f"names: {setting} names its servers itself; leave them out")
    if servers not in (None, len(found.names)):
        raise ValueError(
            f"servers = {servers}, but {setting} has {len(found.names)}: {', '.join(found.names)}"
        )
    rule = weights
    if weights == "auto":
        rule = "own" if found.is_matrix else "metropolis"
    try:
        parts = components(found.adjacency)
        if len(parts) > 1 and not found.is_matrix:
            raise ValueError(
                f"{len(parts)} components ({_listed(found.names, parts)}); add edges between them"
            )
        if rule == "own":
            if found.weights is None:
                raise ValueError("weights = 'own', but not every edge has a weight")
            matrix = without_rounding(found.weights)
        else:
            matrix = combination(found.adjacency, rule)
        return Topology(found.names, matrix, rule, Path(setting).name)
    except ValueError as error:
        hint = ""
        if found.weights is not None and np.isin(found.weights, (0.0, 1.0)).all() and rule == "own":
            hint = "; of an adjacency matrix only the graph is used with weights = 'metropolis'"
        raise ValueError(f"{setting}: {error}{hint}") from None


def _listed(names: Sequence[str], parts: Iterable[NDArray[np.intp]]) -> str:
    return "; ".join(", ".join(names[i] for i in part) for part in parts)


def _frozen(array: NDArray[Kind]) -> NDArray[Kind]:
    array.setflags(write=False)
    return array
