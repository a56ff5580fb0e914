"""The server of joint-precision with ``release = "sum"``: its strategy, and what the run found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.strategies.core.base import Client, Row, StudyError
from trellis.strategies.core.declared import total_note
from trellis.strategies.joint_precision.one_sum import Arrays, PooledPrecision
from trellis.strategies.joint_precision.path import path_points

from ..config import JointPrecisionConfig
from ..curves import area_under_pr, area_under_roc, pr_points, prevalence, roc_points
from ..data import Truth
from ..outcome import graph_scores
from ..problem import partial_correlations
from .concordance import learning_count
from .consensus import consensus, consensus_path, samples_in
from .score import pairs_of

Vector = NDArray[np.float64]

FRACTION_BITS = 24

GATHERED = (
    "The clients' own graphs were gathered for evaluation, because this is a simulation: on "
    "devices they stay where they were made, and the server has the consensus alone."
)
KEPT = (
    "Every device has made its own graph from its raw samples and the consensus, and kept it: see "
    "results in its state folder. What this result holds for every client is the consensus."
)


def pooled_strategy(config: JointPrecisionConfig, arguments: Mapping[str, Any]) -> PooledPrecision:
    """Return the strategy of one noisy sum."""
    from trellis.strategies.core.secure import SecureSum  # here: other runs do without its modules

    points = own_points(config)
    pairs = partial(_held_out_pairs, config) if config.held_out else None
    return PooledPrecision(
        **arguments,
        estimate=partial(_estimate, config, points),
        points=points,
        held_out_pairs=pairs,
        at_home=config.at_home,
        secure=SecureSum(
            FRACTION_BITS, noisy=True, dropout=config.dropout, colluding=config.colluding
        ),
    )


def own_points(config: JointPrecisionConfig) -> Vector:
    """Return the penalties (L,) of the clients' own paths."""
    return path_points(config.lambda1, 0.0, 1.0, config.path)[:, 0]


def set_path(strategy: PooledPrecision, config: JointPrecisionConfig) -> None:
    """Give a strategy another path, before its clients are asked."""
    strategy.points = own_points(config)
    strategy.estimate = partial(_estimate, config, strategy.points)


def _held_out_pairs(config: JointPrecisionConfig, client: Client) -> int:
    return pairs_of(client.counted, config.held_out)


def _estimate(
    config: JointPrecisionConfig,
    points: Vector,
    total: Mapping[str, Vector],
    clients: Sequence[Client],
    noise: float,
) -> tuple[Arrays, Row]:
    """Make the consensus; with a path also its graphs along it, for curves."""
    p = len(clients[0].variables)
    declared = sum(learning_count(client.counted, config.held_out) for client in clients)
    if declared < 2:
        raise StudyError("the clients have no samples to learn from")
    weight = float(total["weight"][0])
    samples = samples_in(weight, declared, p, noise)
    found = consensus(total["concordance"], weight, samples, p, noise)
    arrays: Arrays = {
        "sparse": found.sparse,
        "precision": found.precision,
        "correlation": found.correlation,
        "tau": found.tau,
        "samples": np.array([declared, samples]),
        "numbers": np.array([found.noise, found.weight, found.penalty, found.gap, found.smallest]),
    }
    upper = np.triu_indices(p, 1)
    if config.path:
        path = consensus_path(found, points.tolist(), max(config.tolerance, 1e-4))
        arrays["path_support"] = np.packbits(path[:, *upper] != 0.0, axis=-1)
    edges = float(np.count_nonzero(found.sparse[upper]))
    return arrays, {"gap": found.gap, "edges": edges, "noise-of-tau": found.noise}


def fill_pooled(
    result: RunResult,
    config: JointPrecisionConfig,
    strategy: PooledPrecision,
    truth: Truth | None,
) -> None:
    """Put the consensus, gathered graphs and headline numbers into the result."""
    found, clients = strategy.found, len(strategy.clients)
    p, upper = strategy.variables, np.triu_indices(strategy.variables, 1)
    own = strategy.personal_results
    # Who has no graph of its own here has the consensus: it is all that the server knows.
    each = {
        name: np.array([own[k][name] if k in own else found[name] for k in range(clients)])
        for name in ("precision", "sparse")
    }
    gathered = np.array([k in own for k in range(clients)])
    result.arrays = {
        **each,
        "partial": partial_correlations(each["sparse"]),
        "consensus": found["sparse"],
        "consensus_precision": found["precision"],
        "consensus_correlation": found["correlation"],
        "consensus_partial": partial_correlations(found["sparse"]),
        "answered": strategy.answered,
        "gathered": gathered,
    }
    support = each["sparse"][:, *upper] != 0.0
    noise, weight, penalty, gap, _ = found["numbers"].tolist()
    result.headline = {
        "rounds": float(len(strategy.progress.rows)),
        "gap": gap,
        "consensus-edges": float(np.count_nonzero(found["sparse"][upper])),
        "consensus-lambda": penalty,
        "noise-of-tau": noise,
        "mean-weight": weight,
        "edges": float(np.mean(np.count_nonzero(support, axis=1))),
        "common-edges": float(np.count_nonzero(np.all(support, axis=0))),
    }
    if own:
        _fill_own(result, config, strategy)
    if config.at_home:
        result.notes.append(GATHERED if own else KEPT)
    result.notes += total_note(strategy.clients, *found["samples"].tolist())
    if strategy.scored is not None:
        result.headline |= {
            "held-out-accuracy": strategy.scored.accuracy,
            "held-out-noise": strategy.scored.accuracy_noise,
            "helped": strategy.scored.helped,
            "helped-noise": strategy.scored.helped_noise,
        }
    if result.ledger.get("epsilon"):
        result.headline["epsilon"] = float(result.ledger["epsilon"])
    if truth is not None:
        result.arrays["truth"] = truth.precision
        result.headline |= graph_scores(each["sparse"], truth.precision)
        if len(own) == clients:
            alone = np.array([own[k]["alone"] for k in range(clients)])
            result.headline["alone-mcc"] = graph_scores(alone, truth.precision)["mcc"]
        _score_consensus(result, strategy, truth, p)


def _fill_own(result: RunResult, config: JointPrecisionConfig, strategy: PooledPrecision) -> None:
    """Add what the gathered graphs rest on: each client's trust, and its point of the path."""
    own, clients = strategy.personal_results, len(strategy.clients)
    trust = np.full((clients, 3), np.nan)
    chosen = np.full(clients, -1)
    for client, arrays in own.items():
        trust[client], chosen[client] = arrays["trust"], int(arrays["chosen"])
    result.arrays |= {"trust": trust, "chosen": chosen}
    known = trust[sorted(own)]
    result.headline["lambda1"] = float(np.mean(strategy.points[chosen[sorted(own)]]))
    result.headline["using-consensus"] = float(
        np.mean((known[:, 0] > 0.0) | np.isfinite(known[:, 1]))
    )
    if config.path:
        result.arrays["own_lambda1"] = strategy.points


def _score_consensus(
    result: RunResult, strategy: PooledPrecision, truth: Truth, variables: int
) -> None:
    """Add the areas under the ROC curves.

    The consensus is held against the edges that all clients have, each client's own graph against
    its own network.
    """
    fact, own = truth.edges(), strategy.personal_results
    pairs = variables * (variables - 1) // 2
    common = np.all(fact, axis=0)[None]
    if "path_support" in strategy.found:
        support = np.unpackbits(strategy.found["path_support"], axis=-1, count=pairs) != 0
        result.headline["consensus-auc"] = area_under_roc(*roc_points(support[:, None], common))
    if len(own) < len(strategy.clients) or strategy.points.size < 2:
        return
    packed = np.array([own[client]["path_support"] for client in sorted(own)])
    support = np.unpackbits(packed, axis=-1, count=pairs).transpose(1, 0, 2) != 0
    fpr, tpr = roc_points(support, fact)
    recall, precision = pr_points(support, fact)
    result.arrays |= {"own_tpr": tpr, "own_fpr": fpr, "own_ppv": precision}
    result.headline["auc"] = area_under_roc(fpr, tpr)
    result.headline["aupr"] = area_under_pr(recall, precision, prevalence(fact))
