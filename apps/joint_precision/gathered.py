"""The methods of joint-precision that need one round: what is asked, checked and assembled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client
from trellis.strategies.joint_precision.alone import Arrays, GatheredPrecision
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.path import PathSolution, path_points

from .config import JointPrecisionConfig
from .correlation import correlation, to_positive_semidefinite
from .solver import solve_path

Matrix = NDArray[np.float64]


def gathered_strategy(
    config: JointPrecisionConfig, arguments: Mapping[str, Any], *, chosen_later: bool = False
) -> GatheredPrecision:
    """Return the strategy of ``glasso``, ``clime`` or ``pooled``."""
    pooled = config.method == "pooled"
    return GatheredPrecision(
        **arguments,
        request={"task": "data" if pooled else "alone"},
        penalty=config.penalty if pooled else "alone",
        # Raw data is asked for by itself, and so is what waits for a lambda.
        opens=config.accelerated and not pooled and not chosen_later,
        **_by_path(config),
    )


def set_path(strategy: GatheredPrecision, config: JointPrecisionConfig) -> None:
    """Give a strategy another path, before its clients are asked."""
    found = _by_path(config)
    strategy.points, strategy.check, strategy.assemble = (
        found[name] for name in ("points", "check", "assemble")
    )


def _by_path(config: JointPrecisionConfig) -> dict[str, Any]:
    """Return what of the strategy depends on lambda1 and lambda2."""
    # No correlation is above 1, and what is above every correlation leaves the graph empty.
    points = path_points(config.lambda1, config.lambda2, 1.0, config.path)
    pooled = config.method == "pooled"
    return {
        "points": points,
        "check": _check_data if pooled else partial(_check_matrices, len(points)),
        "assemble": partial(_pool, config, points) if pooled else partial(_stack, points),
    }


def _check_matrices(points: int, client: Client, arrays: Arrays) -> None:
    size = _own_blocks(client, arrays).size
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


def _own_blocks(client: Client, arrays: Arrays) -> Blocks:
    """Return how a client packs its matrices: as one block, or by the labels it sends."""
    p = len(client.variables)
    if "labels" not in arrays:
        return Blocks.whole(p)
    labels = arrays["labels"]
    if labels.shape != (p,) or labels.dtype != np.int32:
        raise BadReply(f"labels is {labels.dtype} of shape {labels.shape}")
    return Blocks.of(labels)


def _check_data(client: Client, arrays: Arrays) -> None:
    if "data" not in arrays:
        raise BadReply("data is missing")
    wire.check_reals(arrays["data"], "data", (client.count, len(client.variables)))


def _empty(points: Matrix, clients: Sequence[Client], blocks: Blocks | None = None) -> PathSolution:
    """Return a solution in which nobody has an edge, on one block or on these."""
    blocks = Blocks.whole(len(clients[0].variables)) if blocks is None else blocks
    psi = np.zeros((len(points), len(clients), blocks.size))
    psi[..., blocks.diagonal] = 1.0
    unknown = np.full((len(points), len(clients)), np.nan)
    return PathSolution(blocks, points, psi, psi.copy(), unknown, unknown[:, 0], unknown[0])


def _stack(
    points: Matrix, clients: Sequence[Client], gathered: Mapping[int, Arrays]
) -> PathSolution:
    """Return the matrices that clients learned alone; one that never answered has none."""
    own = {client: _own_blocks(clients[client], arrays) for client, arrays in gathered.items()}
    common = Blocks.joined(list(own.values()))
    solution = _empty(points, clients, common)
    smallest = np.full(len(clients), np.nan)
    gaps = [arrays["gaps"] for arrays in gathered.values()]
    for client, arrays in gathered.items():
        solution.psi[:, client] = common.repacked(arrays["psi"], own[client])
        solution.omega[:, client] = common.repacked(arrays["omega"], own[client])
        solution.losses[:, client] = arrays["losses"]
        smallest[client] = arrays["smallest"]
    # The problems are apart, and each is solved to its own gap: the worst is what is known of all.
    return replace(solution, gaps=np.max(gaps, axis=0), smallest=smallest)


def _pool(
    config: JointPrecisionConfig,
    points: Matrix,
    clients: Sequence[Client],
    gathered: Mapping[int, Arrays],
) -> PathSolution:
    """Solve the joint problem from everybody's raw data."""
    present = sorted(gathered)
    smallest = np.full(len(clients), np.nan)
    matrices = []
    for client in present:
        names = clients[client].variables
        matrix = correlation(gathered[client]["data"], config.correlation, names)
        projected, smallest[client] = to_positive_semidefinite(matrix)
        matrices.append(projected)
    counts = np.array([clients[client].counted for client in present], dtype=np.float64)
    path = solve_path(
        np.array(matrices),
        [(float(first), float(second)) for first, second in points],
        config.penalty,
        weights=counts / np.mean(counts),
        rho=config.rho,
        tolerance=config.tolerance,
        rounds=config.rounds,
        screening=config.screening,
    )
    solution = _empty(points, clients)
    for number, point in enumerate(path):
        solution.psi[number, present] = solution.blocks.pack(point.sparse)
        solution.omega[number, present] = solution.blocks.pack(point.precision)
        solution.losses[number, present] = point.losses
    return replace(solution, gaps=np.array([point.gap for point in path]), smallest=smallest)
