"""Gromov-Wasserstein between all graphs of a data set, next to POT's and CAJAL's, core for core.

Ours is `pairwise` as a user calls it, in one process and with one BLAS thread, from matrices to
matrix. Peers solve a random sample of the pairs on one core with one BLAS thread (`graph_pairs`),
in turns with ours. Beside the ratio stand

- ``warm_up_seconds``: a new process imports numba and loads what it compiled before; once a
  process, not in the ratio; ``compile_seconds``: where it never compiled on this machine;
- ``two_processes``: ms a pair of two, their start included;
- ``without_numba``: ms a pair of the solver that calls POT's simplex, one process, and where its
  time goes (``without_numba_shares``);
- ``solved``: the share of pairs that are solved: graphs that are the same share their row.

Values are compared on the sample, within 1e-4: on embeddings they must agree on 99 % of it and not
be above in the mean. Encoded rows have three distances only, so that POT's value changes if nodes
are renumbered, on the share of pairs that is reported; there POT, started at our plan, must stay at
our value.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor

from trellis.apps.common.tables import DataError
from trellis.apps.common.threads import one_blas_thread
from trellis.apps.experiments.datasets import dataset
from trellis.privacy.mechanisms.multibit import MultiBit, encode
from trellis.strategies.gromov_wasserstein import pair as pot_path
from trellis.strategies.gromov_wasserstein.many import plan_of
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pool import Task, solve
from trellis.strategies.gromov_wasserstein.simplex import transport
from trellis.strategies.gromov_wasserstein.space import Space, isometry

from .graph_pairs import (
    Loop,
    Matrix,
    Pairs,
    cajal,
    compile_seconds,
    distances,
    embeddings,
    pot,
    some_pairs,
    version_of,
    warm_up_seconds,
)
from .timing import entry, in_turns, timed

SAME = 1e-4


def mutag(full: bool = False) -> list[dict[str, Any]]:
    """Return all pairs of MUTAG's embeddings, beside POT and beside CAJAL."""
    return _embedded("gw-mutag", "MUTAG", full, graphs=188, sample=2000 if full else 500)


def proteins(full: bool = False) -> list[dict[str, Any]]:
    """Return a sample of the graphs of PROTEINS, beside POT and beside CAJAL."""
    return _embedded("gw-proteins", "PROTEINS", full, graphs=120, sample=1000 if full else 300)


def encoded(full: bool = False) -> list[dict[str, Any]]:
    """Return one entry: embeddings of PROTEINS after the encoder, one bit a row."""
    try:
        rows, generator = _chosen("PROTEINS", 300)
    except DataError as error:
        return _skipped("gw-encoded", error)
    code = MultiBit(h=rows[0].shape[1], eps_row=1.0, m=1)
    matrices = distances([encode(x, code, generator).astype(float) for x in rows])
    with one_blas_thread():
        row, some, ours, theirs = _beside(
            "gw-encoded", "PROTEINS encoded, m = 1", matrices, pot, full, 2000 if full else 300
        )
        return [row | _check_stays(matrices, some, ours, theirs)]


def mutag_all(full: bool = False) -> list[dict[str, Any]]:
    """Return one entry: MUTAG from its files to the matrix of distances."""
    name = "gw-mutag-all"
    try:
        dataset("MUTAG")
    except DataError as error:
        return _skipped(name, error)
    pairs, some = some_pairs(188, 2000 if full else 500)

    def ours(workers: int = 1) -> float:
        get_reusable_executor().shutdown(wait=True)
        return timed(lambda: pairwise(distances(embeddings("MUTAG")), workers=workers))[0]

    def peer() -> float:
        reading, matrices = timed(lambda: distances(embeddings("MUTAG")))
        return reading + pot(matrices, some)[0] * len(pairs) / len(some)

    with one_blas_thread():
        ours()  # imports
        runs = in_turns(_runs(full), ours, peer)
        two = ours(workers=2)
    setting = (
        f"188 graphs, {len(pairs):,} pairs, from the files to the matrix; POT's loop scaled from "
        f"{len(some):,} pairs"
    )
    return [
        entry(
            name,
            *runs,
            peer_version=version_of(pot),
            unit="s",
            setting=setting,
            ours_cores=1,
            peer_cores=1,
            two_processes=two,
            warm_up_seconds=warm_up_seconds(),
        )
    ]


def _embedded(name: str, data: str, full: bool, graphs: int, sample: int) -> list[dict[str, Any]]:
    try:
        rows, _ = _chosen(data, graphs)
    except DataError as error:
        return _skipped(name, error)
    matrices, found = distances(rows), []
    with one_blas_thread():
        for called, peer in ((name, pot), (f"{name}-cajal", cajal)):
            try:
                row, _, ours, theirs = _beside(
                    called, f"{data} embeddings", matrices, peer, full, sample
                )
            except subprocess.CalledProcessError as error:
                print(f"{called}: skipped, {error}")
                continue
            found.append(row | _check_equal(ours, theirs))
    return found


def _beside(
    name: str, what: str, matrices: list[Matrix], peer: Loop, full: bool, sample: int
) -> tuple[dict[str, Any], Pairs, Matrix, Matrix]:
    """Return a row, the sample of pairs, and on it our values and the peer's."""
    pairs, some = some_pairs(len(matrices), sample)
    solved: list[int] = [0]
    ours_found = theirs_found = np.zeros(0)

    def ours() -> float:
        nonlocal ours_found
        seconds, ours_found = timed(
            lambda: pairwise(matrices, workers=1, on_progress=lambda _, total: solved.append(total))
        )
        return 1e3 * seconds / len(pairs)

    def theirs() -> float:
        nonlocal theirs_found
        seconds, theirs_found = peer(matrices, some)
        return 1e3 * seconds / len(some)

    ours(), theirs()  # imports, and installs
    runs = in_turns(_runs(full), ours, theirs)
    row = entry(
        name,
        *runs,
        peer_version=version_of(peer),
        unit="ms a pair",
        setting=f"{what}, {len(matrices)} graphs, {len(pairs):,} pairs; peer on {len(some):,}",
        ours_cores=1,
        peer_cores=1,
        nodes=float(np.mean([len(c) for c in matrices])),
        solved=solved[-1] / len(pairs),
        warm_up_seconds=warm_up_seconds(),
    )
    if peer is pot:
        get_reusable_executor().shutdown(wait=True)
        two = timed(lambda: pairwise(matrices, workers=2))[0]
        row["two_processes"] = 1e3 * two / len(pairs)
        row |= _without_numba(matrices, some[: 500 if full else 200])
        row |= {"compile_seconds": compile_seconds()} if full else {}
    return row, some, ours_found[some[:, 0], some[:, 1]], theirs_found


def _without_numba(matrices: list[Matrix], pairs: Pairs) -> dict[str, Any]:
    """Return busy ms a pair of the solver on POT's simplex, and the shares of its time."""
    spaces = [Space.of(c)[0] for c in matrices]
    task = Task("gw", 0.5, 0, 0)
    found = []
    for _ in range(4):
        within = _Within()

        def watched(p: Matrix, q: Matrix, costs: Matrix, within: _Within = within) -> Matrix:
            begin = time.process_time()
            plan = transport(p, q, costs)
            within.seconds += time.process_time() - begin
            within.plans.append(plan)
            return plan

        pot_path.transport = watched  # type: ignore[attr-defined]
        try:
            begin = time.process_time()
            solve(spaces, task, pairs)
            total = time.process_time() - begin
        finally:
            pot_path.transport = transport  # type: ignore[attr-defined]
        # One vertex of a pair, the first, is found without a problem and multiplied all the same.
        products = within.multiply() * (1.0 + len(pairs) / max(1, len(within.plans)))
        found.append((total, within.seconds / total, products / total))
    total, simplex, products = np.median(np.array(found[1:]), axis=0).tolist()
    shares = {"simplex": simplex, "products": products, "python": 1.0 - simplex - products}
    return {"without_numba": 1e3 * total / len(pairs), "without_numba_shares": shares}


@dataclass
class _Within:
    """What the simplex took within a run, and the plans it returned."""

    seconds: float = 0.0
    plans: list[Matrix] = field(default_factory=list)

    def multiply(self) -> float:
        """Return the seconds for C1 T C2 of all plans."""
        squares = [[np.ones((size, size)) for size in plan.shape] for plan in self.plans]
        begin = time.process_time()
        for (c1, c2), plan in zip(squares, self.plans, strict=True):
            _ = c1 @ plan @ c2
        return time.process_time() - begin


def _check_equal(ours: Matrix, theirs: Matrix) -> dict[str, float]:
    found = _compared(ours, theirs)
    if found["share_that_differs"] > 0.01 or found["mean_relative_difference"] > SAME:
        raise RuntimeError(f"values are not the peer's: {found}")
    return found


def _compared(ours: Matrix, theirs: Matrix) -> dict[str, float]:
    gap, room = ours - theirs, SAME * theirs + 1e-9
    return {
        "share_that_differs": float(np.mean(np.abs(gap) > room)),
        "share_where_ours_is_lower": float(np.mean(gap < -room)),
        "mean_relative_difference": float(ours.mean() / theirs.mean() - 1.0),
    }


def _check_stays(
    matrices: list[Matrix], pairs: Pairs, ours: Matrix, theirs: Matrix
) -> dict[str, float]:
    solver: Any = import_module("ot").gromov.gromov_wasserstein
    generator = np.random.default_rng(2)
    spaces = [Space.of(c) for c in matrices]
    moved = other = 0
    for (i, j), value, peer in zip(pairs, ours, theirs, strict=True):
        a, b = matrices[i], matrices[j]
        (x, atoms_x), (y, atoms_y) = spaces[i], spaces[j]
        if isometry(x, y) is None:
            uniform = (np.full(len(c), 1.0 / len(c)) for c in (a, b))
            plan = pot_path.spread(plan_of(x, y)[1], x, y, atoms_x, atoms_y, *uniform)
            stayed = solver(a, b, G0=plan, log=True)[1]["gw_dist"]
            moved += abs(stayed - value) > SAME * value + 1e-9
        order = generator.permutation(len(a))
        renumbered = solver(a[np.ix_(order, order)], b, log=True)[1]["gw_dist"]
        other += abs(renumbered - peer) > SAME * peer + 1e-9
    if moved > 0.01 * len(pairs):
        raise RuntimeError(f"POT leaves our plan on {moved} of {len(pairs)} pairs")
    return {
        "share_where_pot_leaves_our_plan": moved / len(pairs),
        "share_where_pot_differs_from_pot_renumbered": other / len(pairs),
        **_compared(ours, theirs),
    }


def _chosen(data: str, graphs: int) -> tuple[list[Matrix], np.random.Generator]:
    """Return the embeddings of some graphs, and a generator for what is drawn next."""
    rows, generator = embeddings(data), np.random.default_rng(1)
    chosen = np.sort(generator.permutation(len(rows))[:graphs])
    return [rows[i] for i in chosen], generator


def _runs(full: bool) -> int:
    return 5 if full else 3


def _skipped(name: str, error: DataError) -> list[dict[str, Any]]:
    print(f"{name}: skipped, {error}")
    return []
