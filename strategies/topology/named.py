"""Graphs of P servers by name: ring, path, star, complete, grid, and three random families.

A graph is its adjacency (P, P): symmetric, bool, False on the diagonal. All graphs made here are
connected. A random one is drawn until it is, so its law is that of its family given that it is
connected: uniform over the pairs (``erdos-renyi``), over the graphs of so many edges (``random``),
or a ring with shortcuts (``small-world``, Watts and Strogatz 1998). Only where `random` asks for
so few edges that draws hardly ever connect, it joins the servers by a random tree first.

networkx makes rings, paths, stars, grids and the ring a small world starts from; it is imported
when one is asked for. ``complete`` is ours: one line, which every run with one server asks for, and
0.1 ms at 1000 servers where networkx takes a second.
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.install import pip_install
from trellis.privacy.components import matrix_components

Adjacency = NDArray[np.bool_]
Draw = Callable[[], Adjacency]

_MOST_DRAWS = 1000
_log = logging.getLogger("trellis.topology")


def graph(setting: str, servers: int, rng: np.random.Generator) -> Adjacency:
    """Return the graph that ``setting`` names, such as ``ring`` or ``small-world:4,0.1``.

    Raises
    ------
    ValueError
        Naming the setting and what is wrong: an unknown family, a number that is missing or out of
        its range, or a random family that is practically never connected.
    """
    if servers < 1:
        raise ValueError(f"servers = {servers}: a graph needs at least one server")
    name, _, text = setting.partition(":")
    if name not in FAMILIES:
        close = difflib.get_close_matches(name.lower().replace("_", "-"), FAMILIES, n=2, cutoff=0.5)
        known = ", ".join(family.example for family in FAMILIES.values())
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise ValueError(
            f"graph {setting!r}: unknown; {hint}Known are {known}, and files that end in "
            f".csv, .txt, .graphml or .npz"
        )
    family = FAMILIES[name]
    try:
        numbers = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        numbers = [math.nan]
    if len(numbers) not in family.counts or not all(map(math.isfinite, numbers)):
        wanted = f"write it as {family.example!r}" if text else family.missing
        raise ValueError(f"graph {setting!r}: {wanted}")
    try:
        return family.build(servers, numbers, rng)
    except ValueError as error:
        raise ValueError(f"graph {setting!r} of {servers} servers: {error}") from None


def components(adjacency: NDArray[np.bool_]) -> tuple[NDArray[np.intp], ...]:
    """Return the servers of each connected component, in the order of their first servers."""
    label = matrix_components(adjacency)
    return tuple(np.flatnonzero(label == which) for which in range(label.max(initial=-1) + 1))


def from_pairs(servers: int, first: NDArray[np.intp], second: NDArray[np.intp]) -> Adjacency:
    """Return the graph whose edges are the pairs (first_e, second_e)."""
    adjacency = np.zeros((servers, servers), dtype=bool)
    adjacency[first, second] = adjacency[second, first] = True
    return adjacency


def _networkx() -> ModuleType:
    """Return networkx. Late: it is slow to import, and most graphs do without."""
    try:
        import networkx
    except ImportError as error:
        raise ImportError(
            "rings, paths, stars, grids and small worlds of servers need networkx: "
            f"{pip_install('laptop')}; 'complete', 'erdos-renyi:0.3', 'random:4' and files do not"
        ) from error
    return networkx


def _adjacency(made: Any, nodes: Sequence[object] | None = None) -> Adjacency:
    """Return the adjacency of a graph of networkx, of ``nodes`` only where they are given."""
    adjacency: Adjacency = _networkx().to_numpy_array(made, nodes, dtype=bool)
    np.fill_diagonal(adjacency, False)  # a circle of one server is joined to itself
    return adjacency


def _path(servers: int, _: Sequence[float], __: np.random.Generator) -> Adjacency:
    return _adjacency(_networkx().path_graph(servers))


def _ring(servers: int, _: Sequence[float], __: np.random.Generator) -> Adjacency:
    return _adjacency(_networkx().cycle_graph(servers))


def _star(servers: int, _: Sequence[float], __: np.random.Generator) -> Adjacency:
    return _adjacency(_networkx().star_graph(servers - 1))


def _complete(servers: int, _: Sequence[float], __: np.random.Generator) -> Adjacency:
    return ~np.eye(servers, dtype=bool)


def _grid(servers: int, numbers: Sequence[float], _: np.random.Generator) -> Adjacency:
    """Fill rows from the left; without numbers nearly square, the last row perhaps not full."""
    columns = math.isqrt(servers - 1) + 1
    rows = -(-servers // columns)
    if numbers:
        rows, columns = _whole(numbers[0], "rows"), _whole(numbers[1], "columns")
        if rows * columns != servers or rows < 1:
            raise ValueError(f"{rows} rows of {columns} make {rows * columns} servers")
    full = _networkx().grid_2d_graph(rows, columns)
    return _adjacency(full, list(full)[:servers])


def _erdos_renyi(servers: int, numbers: Sequence[float], rng: np.random.Generator) -> Adjacency:
    """Draw every pair with probability p.

    All pairs in one call: networkx asks pair by pair, 15 times slower at 1000 servers, and the
    order of its draws is no promise.
    """
    (probability,) = numbers
    if not 0.0 < probability <= 1.0:
        raise ValueError(f"probability {probability:g} is not in (0, 1]")
    first, second = np.triu_indices(servers, 1)

    def draw() -> Adjacency:
        chosen = rng.random(first.size) < probability
        return from_pairs(servers, first[chosen], second[chosen])

    found = _until_connected(draw)
    if found is None:
        likely = math.log(servers) / servers
        degree = min(max(2.0, probability * (servers - 1)), servers - 1)
        raise ValueError(
            f"not connected in {_MOST_DRAWS} draws; probabilities above log(P) / P = {likely:.2g} "
            f"mostly are, or take 'random:{degree:.2g}', which always is"
        )
    return found


def _random(servers: int, numbers: Sequence[float], rng: np.random.Generator) -> Adjacency:
    """Draw round(P d / 2) of the pairs, so that the average degree is d up to that rounding.

    By our own draws: networkx's ``gnm_random_graph`` gives other graphs for the same seed.
    """
    (degree,) = numbers
    first, second = np.triu_indices(servers, 1)
    edges = round(servers * degree / 2.0)
    if edges > first.size:
        raise ValueError(f"an average degree of {degree:g} is above P - 1 = {servers - 1}")
    if edges < servers - 1:
        least = 2.0 * (servers - 1) / servers
        raise ValueError(
            f"an average degree of {degree:g} is {edges} edges, too few to connect the servers; "
            f"take at least {least:.4g}"
        )

    def draw() -> Adjacency:
        chosen = rng.choice(first.size, size=edges, replace=False)
        return from_pairs(servers, first[chosen], second[chosen])

    found = _until_connected(draw)
    if found is not None:
        return found
    _log.info("random:%g of %d servers: joined by a random tree first", degree, servers)
    from scipy.sparse.csgraph import minimum_spanning_tree  # here: slow to import, and rare

    lengths = np.zeros((servers, servers))
    lengths[first, second] = 1.0 - rng.random(first.size)  # zero would mean no edge
    tree = from_pairs(servers, *minimum_spanning_tree(lengths).nonzero())
    free = np.flatnonzero(~tree[first, second])
    chosen = rng.choice(free, size=edges - (servers - 1), replace=False)
    return tree | from_pairs(servers, first[chosen], second[chosen])


def _small_world(servers: int, numbers: Sequence[float], rng: np.random.Generator) -> Adjacency:
    """Join each server to its k nearest on a ring; move each edge's far end with probability b.

    By our own draws: networkx's ``watts_strogatz_graph`` gives other graphs for the same seed.
    """
    nearest, probability = _whole(numbers[0], "nearest servers"), numbers[1]
    if nearest < 2 or nearest % 2:
        raise ValueError(f"{nearest} nearest servers; an even number of at least 2 is needed")
    if nearest >= servers:
        raise ValueError(f"{nearest} nearest servers, but each has {servers - 1} others only")
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"rewiring probability {probability:g} is not in [0, 1]")
    lattice = _adjacency(_networkx().circulant_graph(servers, range(1, nearest // 2 + 1)))

    def draw() -> Adjacency:
        adjacency = lattice.copy()
        for step in range(1, nearest // 2 + 1):
            for server in np.flatnonzero(rng.random(servers) < probability):
                strangers = ~adjacency[server]
                strangers[server] = False
                if strangers.any():
                    old, new = (server + step) % servers, rng.choice(np.flatnonzero(strangers))
                    adjacency[server, old] = adjacency[old, server] = False
                    adjacency[server, new] = adjacency[new, server] = True
        return adjacency

    found = _until_connected(draw)
    if found is None:
        raise ValueError(
            f"not connected in {_MOST_DRAWS} draws; take more nearest servers than {nearest} or "
            f"a smaller rewiring probability than {probability:g}"
        )
    return found


def _until_connected(draw: Draw) -> Adjacency | None:
    for _ in range(_MOST_DRAWS):
        adjacency = draw()
        lonely = len(adjacency) > 1 and not adjacency.any(axis=1).all()  # cheap, and mostly why
        if not lonely and not matrix_components(adjacency).any():
            return adjacency
    return None


def _whole(number: float, what: str) -> int:
    if number != int(number):
        raise ValueError(f"{number:g} {what}; a whole number is needed")
    return int(number)


@dataclass(frozen=True)
class _Family:
    """How to draw a graph, how many numbers it takes, and how a user writes it."""

    build: Callable[[int, Sequence[float], np.random.Generator], Adjacency]
    counts: tuple[int, ...]
    example: str
    missing: str = ""


FAMILIES = {
    "ring": _Family(_ring, (0,), "ring"),
    "path": _Family(_path, (0,), "path"),
    "star": _Family(_star, (0,), "star"),
    "complete": _Family(_complete, (0,), "complete"),
    "grid": _Family(_grid, (0, 2), "grid"),
    "erdos-renyi": _Family(
        _erdos_renyi, (1,), "erdos-renyi:0.3", "needs the probability of an edge: 'erdos-renyi:0.3'"
    ),
    "random": _Family(_random, (1,), "random:4", "needs the average degree: 'random:4'"),
    "small-world": _Family(
        _small_world,
        (2,),
        "small-world:4,0.1",
        "needs the nearest servers and the rewiring probability: 'small-world:4,0.1'",
    ),
}
