"""How the time for Gromov-Wasserstein grows, beside POT and CAJAL, core for core.

- ``graphs``: seconds for all pairs of the first graphs of MUTAG (embeddings, see `graph_pairs`); a
  peer solves a sample of the pairs, and its time is scaled;
- ``nodes``: ms a pair of clouds of points in three dimensions with about so many nodes each (a
  fifth less to a fifth more), of which no two are the same.

Each side has one process and one BLAS thread. numba has been loaded before.
"""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np

from trellis.apps.common.tables import DataError
from trellis.apps.common.threads import one_blas_thread
from trellis.strategies.gromov_wasserstein.many import warm_up
from trellis.strategies.gromov_wasserstein.pairwise import pairwise

from .graph_pairs import (
    Loop,
    Matrix,
    cajal,
    distances,
    embeddings,
    pot,
    some_pairs,
    version_of,
)
from .timing import entry, in_turns, timed

GRAPHS = (20, 50, 100, 188)
NODES = {10: 60, 20: 60, 40: 40, 80: 20, 160: 8}  # to the number of clouds


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return one row for each size and peer."""
    warm_up()
    peers = (pot, cajal) if full else (pot,)
    found = []
    with one_blas_thread():
        try:
            molecules = distances(embeddings("MUTAG"))
        except DataError as error:
            print(f"gw-growth: no series over graphs, {error}")
            molecules = []
        for count in GRAPHS if molecules else ():
            for peer in peers:
                found += _row("graphs", count, molecules[:count], peer, full)
        for nodes in NODES if full else list(NODES)[:-1]:
            clouds = _clouds(nodes, NODES[nodes])
            for peer in peers:
                found += _row("nodes", nodes, clouds, peer, full)
    return found


def _row(
    series: str, x: int, matrices: list[Matrix], peer: Loop, full: bool
) -> list[dict[str, Any]]:
    in_all = series == "graphs"
    most = (1000 if full else 200) if in_all or x < 80 else 30
    pairs, some = some_pairs(len(matrices), most)

    def ours() -> float:
        seconds = timed(lambda: pairwise(matrices, workers=1, solver="compiled"))[0]
        return seconds if in_all else 1e3 * seconds / len(pairs)

    def theirs() -> float:
        a_pair = peer(matrices, some)[0] / len(some)
        return a_pair * len(pairs) if in_all else 1e3 * a_pair

    name = f"gw-growth-{series}" + ("" if peer is pot else "-cajal")
    try:
        ours(), theirs()
        runs = in_turns(5 if full else 3, ours, theirs)
    except subprocess.CalledProcessError as error:
        print(f"{name}: skipped, {error}")
        return []
    what = f"all pairs of {x} graphs of MUTAG" if in_all else f"clouds of about {x} points"
    row = entry(
        name,
        *runs,
        peer_version=version_of(peer),
        unit="s" if in_all else "ms a pair",
        setting=f"{what}, {len(pairs):,} pairs; peer on {len(some):,}",
        ours_cores=1,
        peer_cores=1,
    )
    return [row | {"series": series, "x": x}]


def _clouds(nodes: int, count: int) -> list[Matrix]:
    generator = np.random.default_rng(nodes)
    sizes = np.rint(np.linspace(0.8, 1.2, count) * nodes).astype(int)
    return distances([generator.normal(size=(size, 3)) for size in sizes])
