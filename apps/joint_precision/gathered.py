"""The methods of joint-precision that need one round: what clients send, and the solution of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.declared import Client
from trellis.strategies.core.wire import BadReply
from trellis.strategies.joint_precision.baselines import Arrays
from trellis.strategies.joint_precision.blocks import Blocks, above_diagonal, mirror
from trellis.strategies.joint_precision.messages import read_screening
from trellis.strategies.joint_precision.path import PathSolution, pair_ends, path_points
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.screening import joint_blocks
from trellis.strategies.joint_precision.splitting import Splitting

from .config import JointPrecisionConfig
from .correlation import correlation, to_positive_semidefinite
from .problem import LocalProblem
from .solver import iterate, solve_path

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

# The server of one exchange solves to this part of the tolerance: nothing more is sent for it.
_SHARPER = 0.1


def points_of(config: JointPrecisionConfig) -> Matrix:
    """Return the penalties (L, 2) of a path that starts from an empty graph."""
    # No correlation is above 1, and what is above every correlation leaves the graph empty.
    joint = "lambda2" in config.used
    return path_points(config.lambda1, config.lambda2 if joint else 0.0, 1.0, config.path)


# --- glasso, clime -------------------------------------------------------------------------------


def read_matrices(content: RecordDict, variables: int, points: int) -> Arrays:
    """Return the matrices that a client learned alone, checked."""
    arrays = _arrays(content)
    size = _own_blocks(arrays, variables).size
    shapes = {
        "psi": (points, size),
        "omega": (points, size),
        "losses": (points,),
        "gaps": (points,),
        "smallest": (),
    }
    if missing := sorted(set(shapes) - set(arrays)):
        raise BadReply(f"{missing[0]} is missing")
    for name, shape in shapes.items():
        if name in ("psi", "omega", "smallest"):
            wire.check_reals(arrays[name], name, shape)
        elif arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise BadReply(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
    return arrays


def _arrays(content: RecordDict) -> Arrays:
    return {name: np.array(array) for name, array in wire.arrays(content["arrays"]).items()}


def _own_blocks(arrays: Mapping[str, NDArray[Any]], variables: int) -> Blocks:
    """Return how a client packs its matrices: as one block, or by the labels it sends."""
    if "labels" not in arrays:
        return Blocks.whole(variables)
    labels = arrays["labels"]
    if labels.shape != (variables,) or labels.dtype != np.int32:
        raise BadReply(f"labels is {labels.dtype} of shape {labels.shape}")
    return Blocks.of(labels)


def stack(
    points: Matrix, clients: Sequence[Client], gathered: Mapping[int, Arrays]
) -> PathSolution:
    """Return the matrices that clients learned alone; one that never answered has none.

    Parameters
    ----------
    gathered : what clients sent, by their numbers from 1
    """
    p = len(clients[0].variables)
    own = {number: _own_blocks(arrays, p) for number, arrays in gathered.items()}
    common = Blocks.joined(list(own.values()))
    solution = _empty(points, clients, common)
    smallest = np.full(len(clients), np.nan)
    gaps = [arrays["gaps"] for arrays in gathered.values()]
    for number, arrays in gathered.items():
        row = number - 1
        solution.psi[:, row] = common.repacked(arrays["psi"], own[number])
        solution.omega[:, row] = common.repacked(arrays["omega"], own[number])
        solution.losses[:, row] = arrays["losses"]
        smallest[row] = arrays["smallest"]
    # The problems are apart, and each is solved to its own gap: the worst is what is known of all.
    return replace(solution, gaps=np.max(gaps, axis=0), smallest=smallest)


def _empty(points: Matrix, clients: Sequence[Client], blocks: Blocks | None = None) -> PathSolution:
    """Return a solution in which nobody has an edge, on one block or on these."""
    blocks = Blocks.whole(len(clients[0].variables)) if blocks is None else blocks
    psi = np.zeros((len(points), len(clients), blocks.size))
    psi[..., blocks.diagonal] = 1.0
    unknown = np.full((len(points), len(clients)), np.nan)
    return PathSolution(blocks, points, psi, psi.copy(), unknown, unknown[:, 0], unknown[0])


# --- one-shot, pooled ----------------------------------------------------------------------------


def read_correlations(content: RecordDict, variables: int, dtype: str) -> Arrays:
    """Return a client's whole correlation matrix, checked, and its smallest eigenvalue."""
    found = read_screening(content, variables, dtype)
    matrix = np.eye(variables)
    matrix[pair_ends(found.pairs, variables)] = found.correlations
    mirror(matrix)
    return {"correlation": matrix, "smallest": np.array(found.smallest)}


def read_data(content: RecordDict, columns: Sequence[str], kind: str) -> Arrays:
    """Return the correlation matrix of a client's raw data, as `read_correlations`."""
    arrays = _arrays(content)
    count = int(content.metric_records["metrics"]["num-examples"])  # type: ignore[arg-type]
    if "data" not in arrays:
        raise BadReply("data is missing")
    wire.check_reals(arrays["data"], "data", (count, len(columns)))
    matrix = correlation(arrays["data"], kind, columns)
    projected, smallest = to_positive_semidefinite(matrix)
    return {"correlation": projected, "smallest": np.array(smallest)}


def solve_pooled(
    config: JointPrecisionConfig,
    points: Matrix,
    clients: Sequence[Client],
    gathered: Mapping[int, Arrays],
) -> PathSolution:
    """Solve the joint problem (9) in one place, from clients' correlation matrices by number."""
    rows, weights = _rows_and_weights(clients, gathered)
    path = solve_path(
        np.array([arrays["correlation"] for arrays in gathered.values()]),
        [(float(first), float(second)) for first, second in points],
        config.penalty,
        weights=weights,
        rho=config.rho,
        tolerance=config.tolerance,
        rounds=config.rounds,
        screening=config.screening,
    )
    solution = _empty(points, clients)
    for number, point in enumerate(path):
        solution.psi[number, rows] = solution.blocks.pack(point.sparse)
        solution.omega[number, rows] = solution.blocks.pack(point.precision)
        solution.losses[number, rows] = point.losses
    gaps = np.array([point.gap for point in path])
    return replace(solution, gaps=gaps, smallest=_smallest(clients, gathered))


def solve_once(
    config: JointPrecisionConfig, clients: Sequence[Client], gathered: Mapping[int, Arrays]
) -> PathSolution:
    """Solve (9) as the rounds of the joint methods do, on their blocks and path of penalties."""
    rows, weights = _rows_and_weights(clients, gathered)
    rule = PENALTIES[config.penalty]
    matrices = [arrays["correlation"] for arrays in gathered.values()]
    p = len(matrices[0])
    every = np.arange(p * (p - 1) // 2)
    entries = [(every, above_diagonal(matrix)) for matrix in matrices]
    blocks, largest = joint_blocks(p, entries, weights, rule, config.lambda1, config.lambda2)
    if not config.screening:
        blocks = Blocks.whole(p)
    points = path_points(config.lambda1, config.lambda2, largest, config.path)
    split = Splitting(blocks, weights, rule, config.rho)
    problems = [LocalProblem(matrix, blocks) for matrix in matrices]
    solution = _empty(points, clients, blocks)
    gaps = np.zeros(len(points))
    for number, (lambda1, lambda2) in enumerate(points.tolist()):
        split.penalise(lambda1, lambda2)
        found = iterate(split, problems, _SHARPER * config.tolerance, config.rounds)
        solution.psi[number, rows], solution.omega[number, rows] = found.psi, found.omega
        solution.losses[number, rows], gaps[number] = found.losses, found.gap
    return replace(solution, gaps=gaps, smallest=_smallest(clients, gathered))


def _rows_and_weights(
    clients: Sequence[Client], gathered: Mapping[int, Arrays]
) -> tuple[list[int], Vector]:
    """Return the places of the clients that answered, and their w_i."""
    rows = [number - 1 for number in gathered]
    counts = np.array([clients[row].counted for row in rows], dtype=np.float64)
    return rows, counts / np.mean(counts)


def _smallest(clients: Sequence[Client], gathered: Mapping[int, Arrays]) -> Vector:
    found = np.full(len(clients), np.nan)
    for number, arrays in gathered.items():
        found[number - 1] = float(arrays["smallest"])
    return found
