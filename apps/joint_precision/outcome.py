"""What a run of joint-precision found: the arrays and headline numbers of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import matthews
from trellis.apps.common.results import RunResult
from trellis.strategies.core import wire
from trellis.strategies.core.declared import total_note
from trellis.strategies.joint_precision.baselines import GatheredPrecision
from trellis.strategies.joint_precision.path import PathSolution, extended_bic, most_stable
from trellis.strategies.joint_precision.private import PersonalMatrices
from trellis.strategies.joint_precision.strategy import JointPrecision
from trellis.strategies.rounds import Rounds

from .config import JointPrecisionConfig
from .curves import area_under_pr, area_under_roc, pr_points, prevalence, roc_points
from .data import Truth
from .problem import partial_correlations

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

GATHERED = (
    "Clients' own graphs were made from their raw data and gathered for evaluation, as this is a "
    "simulation. On devices they stay where they are made."
)
KEPT = (
    "Every device has made its own graph from its raw samples and kept it, in the folder results "
    "of its state folder; nobody else has seen it."
)


@dataclass(frozen=True)
class Learned:
    """What the rounds ended with: a solution along the path, and in which round clients answered.

    Attributes
    ----------
    solution : at all points of the path
    answered : (K,) the last round in which each client answered, 0 if it never did
    ebic : (L,) the extended BIC of every point
    chosen : the point to keep
    """

    solution: PathSolution
    answered: NDArray[np.int64]
    ebic: Vector
    chosen: int

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which clients (K,) have answered at all."""
        return self.answered > 0


def learned(config: JointPrecisionConfig, rounds: Rounds) -> Learned:
    """Return what the rounds ended with."""
    strategy, count = rounds.strategy, len(rounds.clients)
    assert isinstance(strategy, JointPrecision | GatheredPrecision)
    solution = strategy.solution()
    answered = np.zeros(count, dtype=np.int64)
    if isinstance(strategy, JointPrecision):
        answered[[number - 1 for number in strategy.members]] = strategy.answered
    else:
        for number, server_round in strategy.answered.items():
            answered[number - 1] = server_round
    present = answered > 0
    counts = np.array([client.counted for client in rounds.clients], dtype=np.float64)
    ebic = extended_bic(
        solution.losses[:, present],
        solution.edges()[:, present],
        counts[present],
        solution.blocks.variables,
        config.gamma,
    )
    return Learned(solution, answered, ebic, _choose(config, solution, ebic))


def fill(
    result: RunResult,
    config: JointPrecisionConfig,
    found: Learned,
    truth: Truth | None,
) -> None:
    """Put the matrices, the path and the headline numbers into the result."""
    solution, chosen = found.solution, found.chosen
    sparse = solution.blocks.unpack(solution.psi[chosen])
    result.arrays = {
        "precision": solution.blocks.unpack(solution.omega[chosen]),
        "sparse": sparse,
        "partial": partial_correlations(sparse),
        "smallest_eigenvalue": solution.smallest,
        "blocks": solution.blocks.labels,
        "answered": found.answered,
    }
    support = solution.upper_support()
    result.headline |= _headline(config, found, support[chosen][found.present])
    if config.path:
        result.arrays |= _path_arrays(found, support)
    if truth is not None:
        result.arrays["truth"] = truth.precision
        result.headline |= graph_scores(sparse, truth.precision)
        if config.path:
            _score_path(result, support, truth)


def fill_packed(result: RunResult, config: JointPrecisionConfig, found: Learned) -> None:
    """Put in the matrices of very many variables, as `Blocks` packs them, and headline numbers."""
    solution, chosen = found.solution, found.chosen
    psi = solution.psi[chosen]
    result.arrays = {
        "packed_precision": solution.omega[chosen],
        "packed_sparse": psi,
        "smallest_eigenvalue": solution.smallest,
        "blocks": solution.blocks.labels,
        "answered": found.answered,
    }
    edges = psi[:, solution.blocks.off_diagonal] != 0.0
    result.headline |= _headline(config, found, edges[found.present])
    if config.path:
        result.arrays |= _path_arrays(found)


def _headline(
    config: JointPrecisionConfig, found: Learned, edges: NDArray[np.bool_]
) -> dict[str, float]:
    """Return the headline numbers, ``edges`` (clients that answered, pairs) of the chosen point."""
    solution, chosen = found.solution, found.chosen
    headline = {
        "gap": float(solution.gaps[chosen]),
        "edges": float(np.mean(np.count_nonzero(edges, axis=1))),
        "common-edges": float(np.count_nonzero(np.all(edges, axis=0))),
        "lambda1": float(solution.lambdas[chosen, 0]),
    }
    if "lambda2" in config.used:
        headline["lambda2"] = float(solution.lambdas[chosen, 1])
    if np.isfinite(found.ebic[chosen]):
        headline["ebic"] = float(found.ebic[chosen])
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
    found: Learned, support: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[np.generic]]:
    solution = found.solution
    arrays: dict[str, NDArray[np.generic]] = {
        "path_lambda1": solution.lambdas[:, 0],
        "path_lambda2": solution.lambdas[:, 1],
        "path_gap": solution.gaps,
        "path_edges": solution.edges(),
        "path_ebic": found.ebic,
        "path_chosen": np.array(found.chosen),
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


# --- methods of devices: one sum, or none --------------------------------------------------------


def fill_private(
    result: RunResult,
    config: JointPrecisionConfig,
    rounds: Rounds,
    personal: PersonalMatrices | None,
    truth: Truth | None,
) -> None:
    """Put the consensus, if any, gathered matrices and headline numbers into the result.

    A client that keeps its matrices has the consensus here: it is all that the server knows. If
    there is none, either all clients have sent theirs or no matrix is shown.
    """
    public = {name: np.array(array) for name, array in wire.arrays(rounds.arrays).items()}
    own = {} if personal is None else personal.found
    numbers = range(len(rounds.clients))
    if public or len(own) == len(rounds.clients):
        each = {
            name: np.array([own[k][name] if k in own else public[shared] for k in numbers])
            for name, shared in (("precision", "precision"), ("sparse", "consensus"))
        }
        result.arrays = {**each, "partial": partial_correlations(each["sparse"])}
        support = each["sparse"][:, *np.triu_indices(each["sparse"].shape[-1], 1)] != 0.0
        result.headline |= {
            "edges": float(np.mean(np.count_nonzero(support, axis=1))),
            "common-edges": float(np.count_nonzero(np.all(support, axis=0))),
        }
    result.arrays["gathered"] = np.array([k in own for k in numbers])
    if public:
        _fill_consensus(result, rounds, public)
    if own and personal is not None:
        _fill_own(result, config, len(rounds.clients), personal)
    if config.at_home:
        result.notes.append(GATHERED if own else KEPT)
    if truth is None:
        return
    result.arrays["truth"] = truth.precision
    if "sparse" in result.arrays:
        result.headline |= graph_scores(result.arrays["sparse"], truth.precision)
    if "path_support" in public:
        support = _unpacked(public["path_support"], truth)[:, None]
        common = np.all(truth.edges(), axis=0)[None]
        result.headline["consensus-auc"] = area_under_roc(*roc_points(support, common))
    if personal is not None and len(own) == len(rounds.clients):
        _score_own(result, personal, truth)


def _fill_consensus(result: RunResult, rounds: Rounds, public: Mapping[str, NDArray[Any]]) -> None:
    """Add the public result of the one sum."""
    sparse = public["consensus"]
    result.arrays |= {
        "consensus": sparse,
        "consensus_precision": public["precision"],
        "consensus_correlation": public["correlation"],
        "consensus_partial": partial_correlations(sparse),
        "answered": np.array([int(client.rounds > 0) for client in rounds.clients]),
    }
    noise, weight, penalty, gap, _ = public["numbers"].tolist()
    result.headline |= {
        "gap": gap,
        "consensus-edges": float(np.count_nonzero(np.triu(sparse, 1))),
        "consensus-lambda": penalty,
        "noise-of-tau": noise,
        "mean-weight": weight,
    }
    last = rounds.progress.rows[-1]
    names = ("held-out-accuracy", "held-out-noise", "helped", "helped-noise")
    result.headline |= {name: last[name] for name in names if name in last}
    result.notes += total_note(rounds.clients, *public["samples"].tolist())


def _fill_own(
    result: RunResult, config: JointPrecisionConfig, clients: int, personal: PersonalMatrices
) -> None:
    """Add what the gathered graphs rest on: each client's trust, and its point of the path."""
    own = personal.found
    trust = np.full((clients, 3), np.nan)
    chosen = np.full(clients, -1)
    for client, arrays in own.items():
        trust[client], chosen[client] = arrays["trust"], int(arrays["chosen"])
    result.arrays |= {"chosen": chosen}
    result.headline["lambda1"] = float(np.mean(personal.points[chosen[sorted(own)]]))
    if config.sums:
        known = trust[sorted(own)]
        used = (known[:, 0] > 0.0) | np.isfinite(known[:, 1])
        result.arrays |= {"trust": trust}
        result.headline["using-consensus"] = float(np.mean(used))
    if config.path:
        result.arrays["own_lambda1"] = personal.points


def _score_own(result: RunResult, personal: PersonalMatrices, truth: Truth) -> None:
    """Hold each client's own graph against its own network, and add the areas of its path."""
    own = [personal.found[client] for client in sorted(personal.found)]
    alone = np.array([arrays["alone"] for arrays in own])
    result.headline["alone-mcc"] = graph_scores(alone, truth.precision)["mcc"]
    if personal.points.size < 2:
        return
    packed = np.array([arrays["path_support"] for arrays in own])
    support = _unpacked(packed, truth).transpose(1, 0, 2)
    fact = truth.edges()
    fpr, tpr = roc_points(support, fact)
    recall, precision = pr_points(support, fact)
    result.arrays |= {"own_tpr": tpr, "own_fpr": fpr, "own_ppv": precision}
    result.headline["auc"] = area_under_roc(fpr, tpr)
    result.headline["aupr"] = area_under_pr(recall, precision, prevalence(fact))


def _unpacked(bits: NDArray[np.uint8], truth: Truth) -> NDArray[np.bool_]:
    pairs = truth.precision.shape[-1] * (truth.precision.shape[-1] - 1) // 2
    return np.unpackbits(bits, axis=-1, count=pairs) != 0
