"""A path of penalties, what was learned along it, and which point to keep.

A path runs from an empty graph down to the wanted lambda1, lambda2 in the same proportion; every
point starts from the last one's solution. Two ways to choose a point:

    extended BIC   sum_i n_i loss_i + E_i log n_i + 4 gamma E_i log p, the smallest
                   (Foygel and Drton 2010; E_i edges, loss_i = -log det Psi_i + <Psi_i, S_i>)
    stability      the densest point whose graphs change little between subsamples of the data: mean
                   of 2 theta (1 - theta) over all pairs <= 0.05, theta the share of subsamples with
                   the edge, made monotone along the path (StARS, Liu et al. 2010)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError

from .blocks import Blocks

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

LARGEST_INSTABILITY = 0.05


@dataclass
class PathSolution:
    """K clients' matrices at the L points of a path (L = 1 where there is none).

    Attributes
    ----------
    blocks : how matrices are packed
    lambdas : (L, 2) lambda1 and lambda2
    psi, omega : (L, K, m) sparse and positive definite matrices, packed
    losses : (L, K) -log det Psi_i + <Psi_i, S_i>, infinite where that is not positive definite
    gaps : (L,) certified duality gaps; nan where there is no certificate
    smallest : (K,) smallest eigenvalues of the clients' correlation matrices before projection
    instability : (L,) or None where no subsamples were taken
    """

    blocks: Blocks
    lambdas: Matrix
    psi: Matrix
    omega: Matrix
    losses: Matrix
    gaps: Vector
    smallest: Vector
    instability: Vector | None = None

    def edges(self) -> NDArray[np.int64]:
        """Return the number of edges (L, K)."""
        return np.count_nonzero(self.psi[:, :, self.blocks.off_diagonal], axis=-1)

    def upper_support(self) -> NDArray[np.bool_]:
        """Return which of the p (p - 1) / 2 pairs are edges (L, K, pairs), triangle row by row."""
        p = self.blocks.variables
        support = np.zeros((*self.psi.shape[:2], p * (p - 1) // 2), dtype=bool)
        off = self.blocks.off_diagonal
        rows, columns = (ends[off] for ends in self.blocks.ends)
        support[:, :, pair_index(rows, columns, p)] = self.psi[:, :, off] != 0.0
        return support


class PathProgress:
    """How far a run has come along its path, and what it has found.

    The path is walked once with all data (replicate 0), then once for every subsample, where only
    the edges are counted.

    Parameters
    ----------
    points : (L, 2) lambda1 and lambda2
    clients, blocks : K and how matrices are packed
    subsamples : how often the path is walked again
    """

    def __init__(self, points: Matrix, clients: int, blocks: Blocks, subsamples: int = 0) -> None:
        self.points = points
        self.blocks = blocks
        self.subsamples = subsamples
        self.stage = 0
        self.done = False
        shape = (len(points), clients, blocks.size)
        self.psi, self.omega = np.zeros(shape), np.zeros(shape)
        self.losses = np.full(shape[:2], np.nan)
        self.gaps = np.full(shape[0], np.nan)
        counted = blocks.off_diagonal.size if subsamples else 0
        self.selected = np.zeros((*shape[:2], counted), dtype=np.uint16)

    @property
    def point(self) -> int:
        """The point that is being solved."""
        return self.stage % len(self.points)

    @property
    def lambdas(self) -> tuple[float, float]:
        """Its lambda1 and lambda2."""
        lambda1, lambda2 = self.points[self.point].tolist()
        return lambda1, lambda2

    @property
    def replicate(self) -> int:
        """0 for the whole data, then the number of the subsample."""
        return self.stage // len(self.points)

    @property
    def last_stage(self) -> bool:
        """Whether nothing comes after this point."""
        return self.stage == len(self.points) * (1 + self.subsamples) - 1

    def keep(self, psi: Matrix, omega: Matrix, losses: Vector, gap: float) -> None:
        """Take what was found at this point."""
        point = self.point
        if self.replicate == 0:
            self.psi[point], self.omega[point] = psi, omega
            self.losses[point], self.gaps[point] = losses, gap
        elif not self.done:  # a run that goes on after its last round must not count twice
            self.selected[point] += psi[:, self.blocks.off_diagonal] != 0.0
        self.done = self.last_stage

    def next(self) -> None:
        """Go to the next point."""
        self.stage += 1

    def solution(self, smallest: Vector) -> PathSolution:
        """Return what was found at the points that were reached."""
        reached = np.ones(len(self.points), dtype=bool)
        if self.replicate == 0:
            reached[self.point + self.done :] = False
        whole = self.replicate - (not self.done)
        unstable = None
        if self.subsamples and whole >= 1:
            unstable = instability(self.selected[reached], whole, self.blocks.variables)
        return PathSolution(
            self.blocks,
            self.points[reached],
            self.psi[reached],
            self.omega[reached],
            self.losses[reached],
            self.gaps[reached],
            smallest,
            unstable,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays."""
        return {
            "points": self.points,
            "place": np.array([self.stage, self.done]),
            "psi": self.psi,
            "omega": self.omega,
            "losses": self.losses,
            "gaps": self.gaps,
            "selected": self.selected,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        stage, done = state["place"].tolist()
        self.stage, self.done = int(stage), bool(done)
        for name in ("points", "psi", "omega", "losses", "gaps", "selected"):
            setattr(self, name, state[name].copy())


def pair_index(
    rows: NDArray[np.intp], columns: NDArray[np.intp], variables: int
) -> NDArray[np.intp]:
    """Return where pairs (row < column) stand in ``numpy.triu_indices(variables, 1)``."""
    return rows * (2 * variables - rows - 1) // 2 + columns - rows - 1


def pair_ends(
    pairs: NDArray[np.integer], variables: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of places in ``numpy.triu_indices(variables, 1)``."""
    starts = pair_index(np.arange(variables), np.arange(1, variables + 1), variables)
    rows = np.searchsorted(starts[: variables - 1], pairs, side="right") - 1
    return rows, pairs - starts[rows] + rows + 1


def path_points(lambda1: float, lambda2: float, largest: float, count: int) -> Matrix:
    """Return (L, 2): ``count`` points falling geometrically from ``largest`` to lambda1.

    One point where ``count`` is 0, or where the graph is empty at lambda1 already.
    """
    if count < 2 or largest <= lambda1:
        return np.array([[lambda1, lambda2]])
    first = np.geomspace(largest, lambda1, count)
    return np.column_stack([first, first * (lambda2 / lambda1)])


def refuse_unbounded(
    clients: Sequence[Client], penalty: str, lambda1: float, lambda2: float
) -> None:
    """Refuse penalties that leave singular correlation matrices a way to minus infinity."""
    p = len(clients[0].variables)
    bounded = lambda1 > 0.0 or (penalty == "group" and lambda2 > 0.0)
    few = [client for client in clients if client.count <= p]
    if not bounded and few:
        raise StudyError(
            f"lambda1=0: client {few[0].name} has {few[0].count} samples of {p} variables, so its "
            "correlation matrix is singular and the objective has no minimum; set lambda1 > 0"
        )


def extended_bic(
    losses: Matrix, edges: NDArray[np.int64], counts: Vector, variables: int, gamma: float
) -> Vector:
    """Return the extended BIC (L,) of all clients together."""
    price = np.log(counts) + 4.0 * gamma * np.log(variables)
    return np.sum(counts * losses + edges * price, axis=1)


def instability(selected: NDArray[np.integer], subsamples: int, variables: int) -> Vector:
    """Return the mean of 2 theta (1 - theta) (L,) over clients and all pairs of variables.

    Parameters
    ----------
    selected : (L, K, q) in how many subsamples each of q pairs was an edge; pairs left out never
        were
    """
    theta = selected / subsamples
    pairs = variables * (variables - 1) // 2
    total = np.sum(2.0 * theta * (1.0 - theta), axis=(1, 2))
    return total / (pairs * selected.shape[1])


def most_stable(unstable: Vector) -> int:
    """Return the densest point of a path (from sparse to dense) that is stable enough."""
    worst_so_far = np.maximum.accumulate(unstable)
    return max(int(np.count_nonzero(worst_so_far <= LARGEST_INSTABILITY)) - 1, 0)
