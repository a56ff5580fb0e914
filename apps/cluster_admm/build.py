"""From settings to the strategy of cluster-admm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from trellis.apps.common.own_data.standardising import counts_layout
from trellis.apps.common.progress import publish
from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.apps.network.place import bridges
from trellis.strategies.cluster_admm.accelerated import AcceleratedAdmm
from trellis.strategies.cluster_admm.finding import ClusterFinding, first_assignment
from trellis.strategies.cluster_admm.local import ClientsAlone
from trellis.strategies.cluster_admm.releases import Bounds
from trellis.strategies.cluster_admm.selection import ClusterSelection
from trellis.strategies.cluster_admm.strategy import ClusterAdmm, ClusterTask
from trellis.strategies.cluster_admm.summed import SummedClusters, SumTask
from trellis.strategies.network.place import Place

from .config import ONE_TASK, TIMES_ASKED_ALONE, ClusterAdmmConfig
from .data import held_out_count, is_numeric
from .private.moments import LABEL_SCALE
from .private.scales import PLACES, ROWS, scales_in
from .private.score import SIZE, score_of

HELD_OUT_TO_CHOOSE = 0.25
FRACTION_BITS = 24  # of moments, which are of the order of 1: a step is far below any noise


def build_strategy(
    config: ClusterAdmmConfig,
    seed: int,
    arguments: Mapping[str, Any],
    place: Place | None = None,
) -> ClusterAdmm:
    """Return the strategy of the run's method.

    ``place`` tells which server this is, where the others are elsewhere.

    Raises
    ------
    ConfigError
        For settings that do not go together, before any client is asked.
    """
    one_task = config.method in ONE_TASK
    task = ClusterTask(
        topology=build_topology(config, seed),
        clusters=1 if one_task else config.cluster_count,
        rho=config.penalty(config.features),
        tau=(lambda server_round: 0.0) if one_task else partial(_tau, config),
        exact=config.mixing == "exact",
        apart=config.method == "clusterfl",
    )
    if place is not None:
        return _one_server(config, task, arguments, place)
    if config.finds_clusters:
        config.permit_search(first_assignment(config.assign_every))
    if config.method == "local":
        if config.privacy == "paper":
            raise ConfigError(
                "privacy='paper' with method='local': the paper's noise (43) is of a step with "
                "rho, and clients alone take none; set privacy='none' or 'sound'"
            )
        return ClientsAlone(**arguments, task=task, tries=TIMES_ASKED_ALONE)
    if one_task or not config.finds_clusters:
        made = AcceleratedAdmm if config.accelerated else ClusterAdmm
        return made(**arguments, task=task)
    candidates = config.candidates
    if len(candidates) == 1:
        return ClusterFinding(**arguments, task=task, every=config.assign_every)
    plan = replace(arguments["plan"], rounds=(len(candidates) + 1) * config.rounds)
    longer = {"plan": plan, "on_round": partial(publish, config.study, plan.rounds)}
    return ClusterSelection(
        **{**arguments, **longer},
        task=task,
        every=config.assign_every,
        candidates=candidates,
        length=config.rounds,
        fraction=config.held_out or HELD_OUT_TO_CHOOSE,
    )


def _one_server(
    config: ClusterAdmmConfig, task: ClusterTask, arguments: Mapping[str, Any], place: Place
) -> ClusterAdmm:
    """Return the strategy of one server with a SuperLink of its own."""
    obstacle = ""
    if config.sums:
        obstacle = (
            "release='sum' has one secure sum over the clients of all servers, who would need one "
            "SuperLink; set release='each'"
        )
    elif config.method in ("local", "clusterfl", "fedavg"):
        obstacle = f"method={config.method!r} has servers that do not talk; use pgfl or gfl"
    elif config.finds_clusters and config.method not in ONE_TASK:
        obstacle = f"clusters={config.clusters!r} are found in one process; give their number"
    if obstacle:
        raise ConfigError(f"server={place.server}: {obstacle}")
    return ClusterAdmm(**arguments, task=task, mailbox=bridges(task.topology, place))


def sum_bounds(config: ClusterAdmmConfig) -> Bounds:
    """Return the bounds of samples whose moments are summed."""
    logistic = config.loss == "logistic"
    return Bounds(config.clip_features, LABEL_SCALE if logistic else config.clip_target, logistic)


def build_sums(
    config: ClusterAdmmConfig, seed: int, arguments: Mapping[str, Any]
) -> SummedClusters:
    """Return the strategy of a run with ``release = "sum"``."""

    def taught(count: int) -> int:
        return count - held_out_count(count, config.held_out)

    task = SumTask(
        topology=build_topology(config, seed),
        clusters=config.task_count,
        bounds=sum_bounds(config),
        exchanges=config.exchange_count,
        taught=taught,
        scales=scales_in if config.find_clips else None,
        score=partial(score_of, config.loss) if config.held_out else None,
        shapes={"scales": (ROWS[config.loss], PLACES), "score": (SIZE[config.loss],)},
        units=partial(_places, config) if config.units() == "noisy" else None,
    )
    rounds = len(task.asks)
    plan = replace(arguments["plan"], rounds=rounds, sample=0, tolerance=0.0)
    from trellis.strategies.core.secure import SecureSum  # here: other runs do without its modules

    secure = SecureSum(
        FRACTION_BITS, noisy=True, dropout=config.dropout, colluding=config.colluding
    )
    changed = {"plan": plan, "on_round": partial(publish, config.study, rounds)}
    return SummedClusters(
        **{**arguments, **changed}, secure=secure, at_home=config.at_home, task=task
    )


def _places(config: ClusterAdmmConfig, features: int) -> dict[str, tuple[int, ...]]:
    return counts_layout(features + int(is_numeric(config)))


def _tau(config: ClusterAdmmConfig, server_round: int) -> float:
    return config.tau * config.tau_decay**server_round
