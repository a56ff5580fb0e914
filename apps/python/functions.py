"""The mathematics of the studies without a federation: arrays in, arrays out.

Thin over what the studies themselves use; every function names the problem it solves.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .learned import LearnedGraph

Matrix = NDArray[np.float64]

PENALTIES = ("group", "fused")


def smooth_graph(
    X: Any, alpha: float = 2.0, beta: float | None = None, *, names: Sequence[str] | None = None
) -> LearnedGraph:
    """Return the graph over which signals are smooth, learned alone from one table.

    Solves min_{w >= 0} 2 z'w - alpha 1'log(S w) + 2 beta |w|^2, z the mean squared differences
    between columns and S w the nodes' degrees: the local problem of consensus-graph.

    Parameters
    ----------
    X : (n, d) DataFrame or array
        Rows are signals, columns are nodes.
    alpha : float
        > 0, weight of the log barrier that keeps every node connected.
    beta : float, optional
        > 0, ridge: larger gives more edges of smaller weights. None follows the data's unit and
        the number of signals, alpha beta / (mean z)^2 = 3 / sqrt(n).
    names : sequence of str, optional
        Names of the nodes; by default the columns of a DataFrame, or v1, v2 and so on.

    Examples
    --------
    >>> import numpy as np, trellis
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> signals = np.hstack([x, x + 0.1, x - 0.1, -x, 0.1 - x])  # two groups
    >>> graph = trellis.smooth_graph(signals + 0.05 * np.sin(np.arange(5)), names="abcde")
    >>> strongest = graph.to_frame().head(4)
    >>> sorted("".join(sorted(pair)) for pair in zip(strongest["from"], strongest["to"]))
    ['ab', 'ac', 'bc', 'de']
    """
    from trellis.apps.pages.named import NamedGraph

    from .learned import LearnedGraph

    values, columns = table_of(X, names)
    weights = smooth_weights(values, alpha, beta)
    return LearnedGraph.of(NamedGraph.of_pairs(weights, columns), "smooth graph")


def smooth_weights(X: Matrix, alpha: float, beta: float | None) -> NDArray[np.float64]:
    """Return the weights (p,) of `smooth_graph`, in ``numpy.triu_indices(d, 1)`` order."""
    from trellis.apps.consensus_graph.private.personal import own_beta
    from trellis.apps.consensus_graph.problem import statistic
    from trellis.apps.consensus_graph.solver import solve

    if not alpha > 0.0:
        raise ValueError(f"alpha={alpha}: must be > 0")
    if beta is not None and not beta > 0.0:
        raise ValueError(f"beta={beta}: must be > 0, or None")
    if X.shape[1] < 2:
        raise ValueError(f"X has {X.shape[1]} column; a graph needs two at least")
    z = statistic(X)
    if not np.any(z > 0.0):
        raise ValueError("X: all columns are the same, and say nothing about a graph")
    return solve(z, alpha, own_beta(z, alpha, len(X)) if beta is None else beta).w


def joint_graphical_lasso(
    covariances: ArrayLike,
    lambda1: float,
    lambda2: float,
    penalty: str = "group",
    *,
    tolerance: float = 1e-6,
    rounds: int = 5000,
) -> Matrix:
    """Return sparse precision matrices of several groups, estimated jointly.

    Minimises sum_k (-log det O_k + <O_k, S_k>) + lambda1 sum_k |O_k|_1 + lambda2 P(O), diagonals
    unpenalised; P is the group norm over k, or the differences between all pairs of groups.

    Parameters
    ----------
    covariances : (K, p, p) or list of K matrices (p, p)
        Covariance or correlation matrices, positive semidefinite; ``numpy.cov``,
        ``numpy.corrcoef`` and `kendall` make some.
    lambda1, lambda2 : float
        >= 0: sparsity of each, likeness between groups; in the unit of the matrices' entries.
    penalty : {"group", "fused"}
        Groups share which edges there are; or also how strong they are.
    tolerance : float
        Certified distance from the smallest objective.
    rounds : int
        Most steps.

    Returns
    -------
    (K, p, p) array
        With exact zeros.

    Examples
    --------
    >>> import numpy as np, trellis
    >>> rng = np.random.default_rng(0)
    >>> S = [np.corrcoef(rng.normal(size=(100, 4)), rowvar=False) for _ in range(3)]
    >>> precision = trellis.joint_graphical_lasso(S, 0.3, 0.1)
    >>> precision.shape, int(np.count_nonzero(precision[0]))  # independent: the diagonal only
    ((3, 4, 4), 4)
    """
    from trellis.apps.joint_precision.solver import solve_joint

    matrices = checked_covariances(covariances)
    check_penalty(penalty, lambda1, lambda2)
    # In other units, O / c for c S, c lambda: the same objective but for a constant. The solver's
    # steps are made for entries of about 1.
    unit = float(np.mean(np.diagonal(matrices, axis1=1, axis2=2)))
    found = solve_joint(
        matrices / unit,
        lambda1 / unit,
        lambda2 / unit,
        penalty,
        tolerance=tolerance,
        rounds=rounds,
    )
    if not found.gap <= tolerance:
        warnings.warn(
            f"stopped after rounds={rounds} with a gap of {found.gap:.2g}, above "
            f"tolerance={tolerance:g}; raise rounds, or scale variables to variance 1",
            stacklevel=2,
        )
    return found.sparse / unit


def check_penalty(penalty: str, lambda1: float, lambda2: float) -> None:
    """Refuse a penalty that there is not, and weights of it below 0."""
    if penalty not in PENALTIES:
        raise ValueError(f"penalty={penalty!r}: use one of {', '.join(PENALTIES)}")
    for name, value in (("lambda1", lambda1), ("lambda2", lambda2)):
        if not (value >= 0.0 and np.isfinite(value)):
            raise ValueError(f"{name}={value}: must be >= 0")


def checked_covariances(covariances: ArrayLike) -> Matrix:
    """Return K covariance matrices (K, p, p), or say which of them is none."""
    try:
        matrices = np.asarray(covariances, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("covariances: matrices of one size are needed, all of numbers") from None
    if matrices.ndim == 2:
        matrices = matrices[None]
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2] or not matrices.size:
        raise ValueError(f"covariances: shape {matrices.shape}; (K, p, p) is needed")
    for k, matrix in enumerate(matrices):
        if not np.all(np.isfinite(matrix)):
            raise ValueError(f"covariances: matrix {k} has entries that are not finite")
        if not np.all(np.diagonal(matrix) > 0.0):
            place = int(np.argmin(np.diagonal(matrix)))
            raise ValueError(
                f"covariances: matrix {k} has a variance that is not above 0, of variable {place}; "
                "leave out variables that are constant"
            )
        largest = float(np.max(np.diagonal(matrix)))
        if not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-8 * largest):
            raise ValueError(f"covariances: matrix {k} is not symmetric")
        smallest = float(np.linalg.eigvalsh(matrix)[0])
        if smallest < -1e-8 * largest:
            raise ValueError(
                f"covariances: matrix {k} has the eigenvalue {smallest:.3g} and is not positive "
                "semidefinite; trellis.JointGraphicalLasso mends rank correlations by itself"
            )
    return (matrices + matrices.transpose(0, 2, 1)) / 2.0


def gw_distances(
    graphs: Sequence[Any], *, restarts: int = 0, seed: int = 0, workers: int | None = None
) -> Matrix:
    """Return the Gromov-Wasserstein discrepancies between all pairs of graphs.

    Parameters
    ----------
    graphs : sequence
        Graphs of networkx or torch_geometric ``Data``, compared by the lengths of their shortest
        paths; or square matrices (n, n) of distances between nodes, taken as they are. An adjacency
        matrix as a scipy sparse array is taken as a graph.
    restarts, seed : int
        More starts of every pair, of which the best is kept.
    workers : int, optional
        Processes; None takes the cores there are where that is worth it.

    Returns
    -------
    (N, N) array
        Symmetric, zeros on the diagonal; squares, as in POT's ``gromov_wasserstein2``.

    Examples
    --------
    >>> import networkx, trellis
    >>> ring, again, star = networkx.cycle_graph(6), networkx.cycle_graph(6), networkx.star_graph(5)
    >>> trellis.gw_distances([ring, again, star]).round(3).tolist()
    [[0.0, 0.0, 0.667], [0.0, 0.0, 0.667], [0.667, 0.667, 0.0]]
    """
    from trellis.strategies.gromov_wasserstein.pairwise import pairwise

    matrices = [node_distances(graph, number) for number, graph in enumerate(graphs)]
    return pairwise(matrices, restarts=restarts, seed=seed, workers=workers)


def node_distances(graph: Any, number: int = 0) -> Matrix:
    """Return the distances (n, n) between the nodes of a graph, or of a matrix the matrix."""
    from trellis.apps.gromov_wasserstein.graphs import Graph, shortest_paths, undirected

    from .graphs import graph_of, is_graph

    where = f"graph {number}"
    if is_graph(graph):
        return shortest_paths(graph_of(graph, where))
    if hasattr(graph, "tocoo"):
        found = graph.tocoo()
        pairs = np.column_stack([found.row, found.col])[found.data != 0]
        count = int(graph.shape[0])
        edges = undirected(pairs.astype(np.int64), count, symmetrise=True)
        return shortest_paths(Graph(edges, np.zeros((count, 0), dtype=np.float32), source=where))
    matrix = np.asarray(graph)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "fiub":
        raise ValueError(
            f"{where}: {type(graph).__name__} of shape {matrix.shape}; give a networkx graph, "
            "torch_geometric Data, or a square matrix of distances"
        )
    return matrix.astype(np.float64)


def kendall(X: Any) -> Any:
    """Return Kendall's tau-b between all columns of a table.

    Exact, in bounded memory; the same as ``scipy.stats.kendalltau`` for every pair, and the same
    as ``DataFrame.corr(method="kendall")``, faster.

    Parameters
    ----------
    X : (n, p) DataFrame or array
        Finite numbers, no column constant.

    Returns
    -------
    (p, p) array
        A DataFrame with the names of the columns where ``X`` is one.

    Examples
    --------
    >>> import trellis
    >>> trellis.kendall([[1, 2, 9], [2, 4, 7], [3, 8, 8]]).round(3).tolist()
    [[1.0, 1.0, -0.333], [1.0, 1.0, -0.333], [-0.333, -0.333, 1.0]]
    """
    from trellis.apps.joint_precision.kendall import kendall as tau

    from .tables import is_frame

    if not is_frame(X):
        return tau(X)
    from trellis.apps.pages.named import pandas_for

    values, columns = table_of(X)
    found = tau(values, columns=columns)
    return pandas_for("tables").DataFrame(found, index=columns, columns=columns)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least noise with which one Gaussian release is (epsilon, delta)-private.

    Exact (Balle and Wang 2018, Theorem 8), for any epsilon, not only up to 1.

    Parameters
    ----------
    epsilon, delta : float
        > 0; delta below 1.
    sensitivity : float
        How far (l2) the released statistic moves between neighbouring data sets.

    Returns
    -------
    float
        The standard deviation of the noise to add to every entry.

    Examples
    --------
    >>> import trellis
    >>> round(trellis.gaussian_sigma(1, 1e-5, 1), 3)
    3.731
    """
    from trellis.privacy.mechanisms.gaussian import gaussian_sigma as exact

    return exact(float(epsilon), float(delta), float(sensitivity))


def secure_sum(values: Mapping[str, ArrayLike], *, fraction_bits: int = 32) -> Matrix:
    """Return the sum of clients' arrays by the protocol that devices use, played in memory.

    Every client draws keys, shares them, masks its array and helps to open the sum of all: whoever
    plays the server sees masked words and the sum, nothing else. For trying out and for teaching;
    here all of them are in one process.

    Parameters
    ----------
    values : mapping
        Client's name -> array of numbers, all of one shape, of two clients or more. The protocol
        wants three: with two, a third that adds nothing plays along, and each of the two can tell
        from the sum what the other sent, as from any sum of two.
    fraction_bits : int
        Binary digits after the point, 0 to 40: the sum is exact to clients times 2^-fraction_bits
        at most, and exactly the sum of the rounded arrays.

    Examples
    --------
    >>> import trellis
    >>> trellis.secure_sum({"a": [1.0, 2.5], "b": [0.25, 4.0], "c": [-1.0, 0.5]}).tolist()
    [0.25, 7.0]
    >>> trellis.secure_sum({"a": [1.0], "b": [2.0]}).tolist()
    [3.0]
    """
    if len(values) < 2:
        raise ValueError(f"secure_sum: {len(values)} clients; a sum is of two clients or more")
    arrays = {str(name): np.asarray(value, dtype=np.float64) for name, value in values.items()}
    if len(arrays) < len(values):
        raise ValueError("secure_sum: two clients have one name; call them differently")
    first = next(iter(arrays))
    for name, array in arrays.items():
        if array.shape != arrays[first].shape:
            raise ValueError(
                f"secure_sum: client {name!r} has shape {array.shape}, client {first!r} "
                f"{arrays[first].shape}; all need one shape"
            )
        if not np.all(np.isfinite(array)):
            raise ValueError(f"secure_sum: client {name!r} has entries that are not finite")
    from .secure import play

    total = play(list(arrays), [array.reshape(-1) for array in arrays.values()], fraction_bits)
    return total.reshape(arrays[first].shape)


def table_of(X: Any, names: Sequence[str] | None = None) -> tuple[Matrix, list[str]]:
    """Return a table's numbers (n, d) and its columns' names."""
    from .tables import client_table

    table = client_table("X", X, targets=False)
    width = len(str(table.X.shape[1]))
    numbered = [f"v{place + 1:0{width}d}" for place in range(table.X.shape[1])]
    columns = numbered if table.columns is None else list(table.columns)
    if names is not None:
        columns = [str(name) for name in names]
        if len(columns) != table.X.shape[1] or len(set(columns)) < len(columns):
            raise ValueError(
                f"names: {len(columns)} for {table.X.shape[1]} columns; give one each, all "
                "different"
            )
    return table.X, columns
