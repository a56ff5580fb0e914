"""The server of cluster-admm: config -> strategy -> result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from trellis.apps.common.own_data.standardising import standardise, take_counts, tell
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.results import RunResult
from trellis.apps.server_graph.data import told_classes
from trellis.strategies.cluster_admm.finding import ClusterFinding
from trellis.strategies.cluster_admm.search import agreement
from trellis.strategies.cluster_admm.selection import ClusterSelection
from trellis.strategies.cluster_admm.strategy import ClusterAdmm
from trellis.strategies.cluster_admm.summed import SummedClusters
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client
from trellis.strategies.core.closing.deliver import deliver

from .build import build_strategy, build_sums
from .config import ClusterAdmmConfig
from .data import Truth, is_numeric, synthetic_truth
from .private.forecast import sum_warnings
from .problem import nmsd
from .release import chosen, statement, warnings

log = logging.getLogger("trellis.run")

app = ServerApp()

Models = NDArray[np.float64]


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ClusterAdmmConfig)
    config = run.config
    if config.sums and run.place is None:
        _by_sums(run, grid)
        return
    run.result.notes += chosen(config)
    for note in warnings(config, range(1, config.releases + 1)):
        run.result.notes.append(note)
        log.warning(note)
    strategy = build_strategy(config, run.seed, run.strategy_arguments(), run.place)
    strategy.on_enrolled = partial(_enrolled, config, run.result, strategy)
    strategy.evaluate = partial(_evaluate, config, run.seed, strategy)
    with run.recording(strategy):
        try:
            strategy.run(grid, resume=run.resume)
        finally:  # also of a run that fails: what was spent is spent
            if strategy.clients:
                names = [client.name for client in strategy.clients]
                claims = statement(config, run.place is not None)
                run.result.ledger = run.ledger.report(names, claims)
        _fill(run.result, strategy, _truth(config, run.seed, strategy.clients))
        if config.is_auto("rho"):
            run.result.headline["rho"] = strategy.task.rho
        _deliver(strategy, grid, client_models(strategy))
    run.write_report()


def _enrolled(
    config: ClusterAdmmConfig,
    result: RunResult,
    strategy: ClusterAdmm | SummedClusters,
    clients: Sequence[Client],
) -> None:
    """Have features standardised and rho chosen, where the settings say so."""
    standardise(strategy, config, result, clients, numbers=is_numeric(config))
    if isinstance(strategy, ClusterAdmm) and config.is_auto("rho"):
        rho = config.penalty(strategy.parameters(clients))
        strategy.task = replace(strategy.task, rho=rho)
        more = "" if strategy.intercept else "; features are not standardised: it may not fit them"
        tell(result, f"rho={rho:.3g} (auto: loss {config.loss}{more})")


def _deliver(strategy: ClusterAdmm | SummedClusters, grid: Grid, models: Models) -> None:
    """Send every device the model (d,) of its cluster and the cluster's number."""

    def content(client: int) -> RecordDict:
        order = ConfigRecord({"cluster": int(strategy.groups[client])})
        arrays = wire.record({"model": models[client], **strategy.preprocessing})
        return RecordDict({"arrays": arrays, "order": order})

    deliver(strategy, grid, content)


def _by_sums(run: StudyRun[ClusterAdmmConfig], grid: Grid) -> None:
    """Run the study where noise is in secure sums."""
    config = run.config
    strategy = build_sums(config, run.seed, run.strategy_arguments())
    strategy.on_enrolled = partial(_enrolled, config, run.result, strategy)
    strategy.on_units = partial(
        take_counts, strategy, config, run.result, numbers=is_numeric(config)
    )
    strategy.evaluate = partial(_evaluate_sums, config, run.seed, strategy)
    with run.recording(strategy):
        strategy.run(grid, resume=run.resume)
        names = [client.name for client in strategy.clients]
        run.result.ledger = run.ledger.report(names, statement(config))
        _fill_sums(run.result, config, strategy, _truth(config, run.seed, strategy.clients))
        for note in run.result.notes:
            log.warning(note)
        if not config.at_home:
            _deliver(strategy, grid, strategy.releases.models[strategy.groups])
    run.write_report()


def _evaluate_sums(
    config: ClusterAdmmConfig, seed: int, strategy: SummedClusters, state: Mapping[str, Any]
) -> dict[str, float]:
    """Return how far the clusters' models are from the truth."""
    truth = _truth(config, seed, strategy.clients)
    if truth is None:
        return {}
    models = strategy.releases.models[strategy.groups]
    return {"nmsd-servers": nmsd(models, truth.models[truth.clusters])}


def _fill_sums(
    result: RunResult, config: ClusterAdmmConfig, strategy: SummedClusters, truth: Truth | None
) -> None:
    """Put the models and the headline numbers into the result.

    ``clients`` (K, d) are simulated clients' own models, gathered to be evaluated; of devices,
    whose models stay with them, the private model of their cluster.
    """
    rows, public = strategy.progress.rows, strategy.releases.models[strategy.groups]
    kept = np.isnan(strategy.own).any(axis=1)
    result.arrays = {
        "models": strategy.models,
        "clients": np.where(kept[:, None], public, strategy.own),
        "homes": strategy.homes,
        "clusters": strategy.groups,
        "adjacency": strategy.task.topology.adjacency,
        "server_names": np.array(strategy.task.topology.names),
        "choices": strategy.choices,
        "pulls": strategy.pulls,
        **strategy.preprocessing,
    }
    result.headline = {"rounds": float(len(rows)), "change": rows[-1]["change"]}
    if np.all(np.isfinite(strategy.scored)):
        score, error = strategy.scored.tolist()
        result.headline |= {"score": score, "score-error": error}
    gathered = int(np.count_nonzero(~kept))
    if truth is not None:
        result.arrays |= {"truth": truth.models, "true_clusters": truth.clusters}
        targets = truth.models[truth.clusters]
        result.headline["nmsd-servers"] = nmsd(public, targets)
        if gathered == len(kept):
            result.headline["nmsd"] = nmsd(strategy.own, targets)
    if gathered:
        result.notes.append(
            f"{gathered} simulated clients' own models were gathered for evaluation; on devices "
            "they stay where they are."
        )
    if strategy.cut_short:
        result.notes.append(
            f"exchange {len(rows)} failed: the models are those of the exchanges before it. An "
            "exchange that is made again counts as one more, which the budget does not have."
        )
    result.notes += sum_warnings(config, strategy)
    if result.ledger.get("epsilon"):
        result.headline["epsilon"] = float(result.ledger["epsilon"])


def _truth(config: ClusterAdmmConfig, seed: int, clients: Sequence[Client]) -> Truth | None:
    """Return the models behind the clients' data, where that was made by this study."""
    partitions = [client.partition for client in clients]
    # Both are the clients' word: one that lies must not stop the run.
    known = all(client.synthetic for client in clients)
    known = known and config.standardise == "none"  # else models have other coordinates
    if not known or not all(0 <= partition < config.clients for partition in partitions):
        return None
    whole = _synthetic_truth(config, seed)
    return Truth(whole.models, whole.clusters[partitions])


_synthetic_truth = lru_cache(maxsize=4)(synthetic_truth)


def client_models(strategy: ClusterAdmm) -> NDArray[np.float64]:
    """Return the model (K, d) that every client uses: of its server and its cluster."""
    return strategy.models[strategy.homes, strategy.groups]


def _evaluate(
    config: ClusterAdmmConfig, seed: int, strategy: ClusterAdmm, state: Mapping[str, Any]
) -> dict[str, float]:
    """Return how far models are from the truth, and how many clients are in the right cluster.

    ``nmsd-servers`` is of the models that servers hold for their clients; ``nmsd``, (50), of the
    clients' own, which nobody outside knows where they are noised.
    """
    truth = _truth(config, seed, strategy.clients)
    if truth is None:
        return {}
    targets = truth.models[truth.clusters]
    found = {"nmsd-servers": nmsd(client_models(strategy), targets)}
    if config.privacy == "none":
        found["nmsd"] = nmsd(strategy.last, targets)
    if isinstance(strategy, ClusterFinding):
        count = max(strategy.models.shape[1], len(truth.models))
        found["right"] = agreement(strategy.groups, truth.clusters, count)
    return found


def _fill(result: RunResult, strategy: ClusterAdmm, truth: Truth | None) -> None:
    """Put the models and the headline numbers into the result.

    ``models`` is (S, Q, d); of ``local`` (K, 1, d), every client its own server in ``homes``. Where
    Q was chosen, ``candidates`` and ``held_out`` have the Q that were tried and their losses.
    """
    rows = strategy.progress.rows
    result.arrays = {
        "models": strategy.models,
        "clients": client_models(strategy),
        "homes": strategy.homes,
        "clusters": strategy.groups,
        "adjacency": strategy.task.topology.adjacency,
        "server_names": np.array(strategy.task.topology.names),
        **told_classes(strategy.clients),
        **strategy.preprocessing,
    }
    result.headline = {"rounds": float(len(rows)), "change": rows[-1]["change"]}
    if isinstance(strategy, ClusterSelection):
        tried = dict(zip(strategy.candidates.tolist(), strategy.tried.tolist(), strict=True))
        result.arrays |= {"candidates": strategy.candidates, "held_out": strategy.tried}
        result.headline["clusters"] = float(strategy.models.shape[1])
        result.headline |= {f"held-out-{count}": loss for count, loss in tried.items()}
    if truth is not None:
        result.arrays |= {"truth": truth.models, "true_clusters": truth.clusters}
        told = ("nmsd", "nmsd-servers", "right")
        result.headline |= {name: rows[-1][name] for name in told if name in rows[-1]}
    if result.ledger.get("epsilon"):
        result.headline["epsilon"] = float(result.ledger["epsilon"])
