"""What a run of joint-precision found: the arrays and headline numbers of its result."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import matthews
from trellis.apps.common.results import RunResult
from trellis.strategies.joint_precision.alone import GatheredPrecision
from trellis.strategies.joint_precision.path import PathSolution, extended_bic, most_stable
from trellis.strategies.joint_precision.strategy import JointPrecision

from .config import JointPrecisionConfig
from .curves import area_under_pr, area_under_roc, pr_points, prevalence, roc_points
from .data import Truth
from .problem import partial_correlations

Matrix = NDArray[np.float64]


def fill(
    result: RunResult,
    config: JointPrecisionConfig,
    strategy: JointPrecision | GatheredPrecision,
    truth: Truth | None,
) -> None:
    """Put the matrices, the path and the headline numbers into the result."""
    solution = strategy.solution()
    present = strategy.answered > 0
    ebic, chosen = _chosen(config, strategy, solution)
    sparse = solution.blocks.unpack(solution.psi[chosen])
    result.arrays = {
        "precision": solution.blocks.unpack(solution.omega[chosen]),
        "sparse": sparse,
        "partial": partial_correlations(sparse),
        "smallest_eigenvalue": solution.smallest,
        "blocks": solution.blocks.labels,
        "answered": strategy.answered,
    }
    support = solution.upper_support()
    result.headline = _headline(result, config, strategy, support[chosen][present])
    if config.path:
        result.arrays |= _path_arrays(solution, ebic, chosen, support)
    if truth is not None:
        result.arrays["truth"] = truth.precision
        result.headline |= graph_scores(sparse, truth.precision)
        if config.path:
            _score_path(result, support, truth)


def fill_packed(
    result: RunResult, config: JointPrecisionConfig, strategy: JointPrecision | GatheredPrecision
) -> None:
    """Put in the matrices of very many variables, as `Blocks` packs them, and headline numbers."""
    solution = strategy.solution()
    ebic, chosen = _chosen(config, strategy, solution)
    psi = solution.psi[chosen]
    result.arrays = {
        "packed_precision": solution.omega[chosen],
        "packed_sparse": psi,
        "smallest_eigenvalue": solution.smallest,
        "blocks": solution.blocks.labels,
        "answered": strategy.answered,
    }
    edges = psi[:, solution.blocks.off_diagonal] != 0.0
    result.headline = _headline(result, config, strategy, edges[strategy.answered > 0])
    if config.path:
        result.arrays |= _path_arrays(solution, ebic, chosen)


def _chosen(
    config: JointPrecisionConfig,
    strategy: JointPrecision | GatheredPrecision,
    solution: PathSolution,
) -> tuple[Matrix, int]:
    """Return the extended BIC of every point of the path, and the point to keep."""
    present = strategy.answered > 0
    counts = np.array([client.counted for client in strategy.clients], dtype=np.float64)
    ebic = extended_bic(
        solution.losses[:, present],
        solution.edges()[:, present],
        counts[present],
        solution.blocks.variables,
        config.gamma,
    )
    return ebic, _choose(config, solution, ebic)


def _headline(
    result: RunResult,
    config: JointPrecisionConfig,
    strategy: JointPrecision | GatheredPrecision,
    edges: NDArray[np.bool_],
) -> dict[str, float]:
    """Return the headline numbers, ``edges`` (clients that answered, pairs) of the chosen point."""
    solution = strategy.solution()
    ebic, chosen = _chosen(config, strategy, solution)
    headline = {
        "rounds": float(len(strategy.progress.rows)),
        "gap": float(solution.gaps[chosen]),
        "edges": float(np.mean(np.count_nonzero(edges, axis=1))),
        "common-edges": float(np.count_nonzero(np.all(edges, axis=0))),
        "lambda1": float(solution.lambdas[chosen, 0]),
    }
    if config.method not in ("glasso", "clime"):  # which know no other client
        headline["lambda2"] = float(solution.lambdas[chosen, 1])
    if np.isfinite(ebic[chosen]):
        headline["ebic"] = float(ebic[chosen])
    if result.ledger.get("epsilon"):
        headline["epsilon"] = float(result.ledger["epsilon"])
    return headline


def graph_scores(sparse: Matrix, truth: Matrix) -> dict[str, float]:
    """Return TPR and FPR over all clients' pairs together, and the mean MCC of the clients."""
    upper = np.triu_indices(truth.shape[-1], 1)
    found, fact = sparse[:, *upper] != 0.0, truth[:, *upper] != 0.0
    fpr, tpr = roc_points(found[None], fact)
    pairs = zip(found.astype(np.float64), fact, strict=True)
    mcc = float(np.mean([matthews(graph, true, 0.0) for graph, true in pairs]))
    return {"tpr": float(tpr[0]), "fpr": float(fpr[0]), "mcc": mcc}


def _choose(config: JointPrecisionConfig, solution: PathSolution, ebic: Matrix) -> int:
    """Return the point of the path to keep."""
    if not config.path:
        return len(ebic) - 1
    if config.choose == "stability" and solution.instability is not None:
        return most_stable(solution.instability)
    return int(np.argmin(np.where(np.isfinite(ebic), ebic, np.inf)))


def _path_arrays(
    solution: PathSolution, ebic: Matrix, chosen: int, support: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[np.generic]]:
    arrays: dict[str, NDArray[np.generic]] = {
        "path_lambda1": solution.lambdas[:, 0],
        "path_lambda2": solution.lambdas[:, 1],
        "path_gap": solution.gaps,
        "path_edges": solution.edges(),
        "path_ebic": ebic,
        "path_chosen": np.array(chosen),
    }
    if support is not None:
        arrays["path_support"] = np.packbits(support, axis=-1)
    if solution.instability is not None:
        arrays["path_instability"] = solution.instability
    return arrays


def _score_path(result: RunResult, support: NDArray[np.bool_], truth: Truth) -> None:
    """Add the ROC and precision-recall curves of the path, and the areas under them."""
    fact = truth.edges()
    fpr, tpr = roc_points(support, fact)
    recall, precision = pr_points(support, fact)
    result.arrays |= {"path_tpr": tpr, "path_fpr": fpr, "path_ppv": precision}
    result.headline["auc"] = area_under_roc(fpr, tpr)
    result.headline["aupr"] = area_under_pr(recall, precision, prevalence(fact))
