"""The server of cluster-admm: config -> rounds of the run's method -> result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from trellis.apps.common.own_data.scaling import told_at_enrolment
from trellis.apps.common.own_data.standardising import (
    counts_layout,
    standardise,
    take_counts,
    tell,
)
from trellis.apps.common.progress import publish
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.settings import ConfigError
from trellis.apps.network.place import bridges
from trellis.apps.server_graph.data import told_classes
from trellis.strategies.bounded_grid import BoundedGrid
from trellis.strategies.cluster_admm.finding import ClusterFinding
from trellis.strategies.cluster_admm.local import LocalModels
from trellis.strategies.cluster_admm.moments import UNITS, ClusterMoments, LastingGrid
from trellis.strategies.cluster_admm.search import agreement
from trellis.strategies.cluster_admm.strategy import STEP, ClusterAdmm
from trellis.strategies.core import wire
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.pooled import NoTraining
from trellis.strategies.preprocessing_grid import RECORD
from trellis.strategies.rounds import Rounds

from . import build
from .config import ClusterAdmmConfig
from .data import Truth, is_numeric, synthetic_truth
from .methods import ENROLMENT, METHODS
from .private.forecast import forecast_of, sum_warnings
from .problem import nmsd

log = logging.getLogger("trellis.run")

app = ServerApp()

Run = StudyRun[ClusterAdmmConfig]
Models = NDArray[np.float64]

GATHERED = (
    "simulated clients' own models were gathered for evaluation; on devices they stay where they "
    "are."
)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ClusterAdmmConfig)
    config = run.config
    if config.has_noise:
        from . import as_printed

        run.result.notes += as_printed.notes(config)
        for note in as_printed.warnings(config, range(1, config.rounds + 1)):
            run.result.notes.append(note)
            log.warning(note)
    rounds: Rounds = METHODS.load(METHODS.row(config.method, config.privacy).server)(run)
    with run.recording(rounds):
        try:
            rounds.run(grid, resume=run.resume)
        finally:  # also of a run that fails: what was spent is spent
            if rounds.clients:
                names = [client.name for client in rounds.clients]
                claims = statement(config, run.place is not None)
                run.result.ledger = run.ledger.report(names, claims)
        own = _deliver(run, rounds, grid)
        _fill(run, rounds, own)
    run.write_report()


# --- the rounds of each method ------------------------------------------------------------------


def pgfl(run: Run) -> Rounds:
    """Return the paper's method: one model per cluster over a graph of servers."""
    if run.place is not None and run.config.searches:
        raise ConfigError(
            f"server={run.place.server}: clusters={run.config.clusters!r} are found in one "
            "process; give their number"
        )
    return _admm(run, build.pgfl)


def gfl(run: Run) -> Rounds:
    """Return the baseline with one model for all clients."""
    return _admm(run, build.gfl)


def clusterfl(run: Run) -> Rounds:
    """Return the baseline whose servers do not talk to each other."""
    _refuse_place(run, "has servers that do not talk")
    return _admm(run, build.clusterfl)


def fedavg(run: Run) -> Rounds:
    """Return the baseline with one server and one model."""
    _refuse_place(run, "has servers that do not talk")
    return _admm(run, build.fedavg)


def local(run: Run) -> Rounds:
    """Return the baseline in which every client learns from its own data only."""
    _refuse_place(run, "has servers that do not talk")
    rounds = Rounds(
        LocalModels(),
        lambda clients: wire.record(
            {"models": np.zeros((len(clients), 1, _parameters(rounds, clients)))}
        ),
        admits=False,
        on_enrolled=lambda clients: _standardise(run, rounds, clients),
        **run.round_arguments(),
    )
    return _evaluated(run, rounds)


def moments(run: Run) -> Rounds:
    """Return the private regression from noisy secure sums."""
    # Here: other runs do without its modules.
    from trellis.strategies.core.secure import SecureSum
    from trellis.strategies.secure_grid import SecureGrid

    config, numbers = run.config, is_numeric(run.config)
    _refuse_place(run, "has secure sums over the clients of all servers")

    def take_units(total: Models, noise: float) -> None:
        take_counts(holder, config, run.result, total, noise, numbers)

    noisy_units = config.units() == "noisy"
    strategy = build.moments(config, units=take_units if noisy_units else None)

    def enrolled(clients: Sequence[Client]) -> None:
        _standardise(run, rounds, clients)
        strategy.shapes[UNITS] = counts_layout(len(clients[0].variables) + int(numbers))
        counts = [client.counted for client in clients]
        tell(run.result, forecast_of(config, counts, _parameters(rounds, clients)).text())

    def start(clients: Sequence[Client]) -> ArrayRecord:
        strategy.groups = {
            number: client.cluster if strategy.clusters > 1 else 0
            for number, client in enumerate(clients, 1)
        }
        return strategy.begin(_parameters(rounds, clients), strategy.given)

    sums = SecureSum(
        build.FRACTION_BITS, noisy=True, dropout=config.dropout, colluding=config.colluding
    )
    arguments, number = run.round_arguments(), len(strategy.sums)
    plan = replace(arguments["plan"], rounds=number, sample=0, tolerance=0.0)
    arguments |= {"plan": plan, "on_round": partial(publish, config.study, number)}
    rounds = Rounds(
        strategy,
        start,
        middleware=lambda grid: LastingGrid(SecureGrid(grid, sums), strategy),
        admits=False,
        places={"cluster": strategy.clusters},
        on_enrolled=enrolled,
        **arguments,
    )
    holder: Any = rounds
    return _evaluated(run, rounds)


def on_devices(run: Run) -> Rounds:
    """Return no rounds at all: every client learns on its device, and nothing is sent."""
    _refuse_place(run, "has servers that do not talk")
    rounds = Rounds(
        NoTraining(),
        lambda clients: ArrayRecord(),
        admits=False,
        on_enrolled=lambda clients: _standardise(run, rounds, clients),
        **run.round_arguments(),
    )
    return rounds


def _refuse_place(run: Run, why: str) -> None:
    """Refuse a graph of SuperLinks."""
    if run.place is not None:
        raise ConfigError(
            f"server={run.place.server}: method={run.config.method!r} {why}; use pgfl or gfl"
        )


def _admm(run: Run, make: Callable[..., ClusterAdmm]) -> Rounds:
    """Return the rounds of a method that runs ADMM."""
    config, network = run.config, None
    mail = None
    if run.place is not None:
        from trellis.strategies.network.member import GraphMember

        mail = bridges(build.graph(config, run.seed), run.place)
        network = GraphMember(mail)
    strategy = make(config, run.seed, mailbox=mail)

    def enrolled(clients: Sequence[Client]) -> None:
        _standardise(run, rounds, clients)
        if config.is_auto("rho"):
            plain = "; features are not standardised: it may not fit them"
            more = "" if rounds.intercept else plain
            tell(run.result, f"rho={strategy.rho:.3g} (auto: loss {config.loss}{more})")

    def start(clients: Sequence[Client]) -> ArrayRecord:
        for client in clients:
            admits(client)
        first = strategy.begin(_parameters(rounds, clients))
        strategy.assign({number: vars(client) for number, client in enumerate(clients, 1)})
        return first

    def admits(client: Client) -> bool:
        server = client.server if len(strategy.adjacency) > 1 else 0
        if server not in strategy.mailbox.own:
            raise StudyError(strategy.not_here(f"client {client.name}", server))
        return not isinstance(strategy, ClusterFinding)  # found among those of the beginning

    def bounding(grid: EnrolledGrid) -> Grid:
        return BoundedGrid(grid, run.robust, STEP, strategy.drop) if run.robust.bound else grid

    rounds = Rounds(
        strategy,
        start,
        middleware=bounding,
        admits=admits,
        places=strategy.numbers(),
        on_enrolled=enrolled,
        network=network,
        **run.round_arguments(),
    )
    return _evaluated(run, rounds)


def _standardise(run: Run, rounds: Rounds, clients: Sequence[Client]) -> None:
    """Have features standardised, if the settings say so."""
    holder: Any = rounds
    standardise(holder, run.config, run.result, clients, numbers=is_numeric(run.config))


def _parameters(rounds: Rounds, clients: Sequence[Client]) -> int:
    """Return the number of a model's parameters."""
    return len(clients[0].variables) + int(rounds.intercept)


def _evaluated(run: Run, rounds: Rounds) -> Rounds:
    rounds.evaluate = partial(_evaluate, run, rounds)
    return rounds


# --- the result ---------------------------------------------------------------------------------


class OwnModels:
    """Models that clients made on their devices; simulated ones send them, to be evaluated."""

    def __init__(self, clients: int, size: int) -> None:
        self.models = np.full((clients, size), np.nan)
        self.choices = np.full((clients, 3), np.nan)  # cluster, scale and pull; see `private.own`

    @property
    def gathered(self) -> NDArray[np.bool_]:
        """Whose models are here (K,)."""
        return np.asarray(np.all(np.isfinite(self.models), axis=1))

    def take(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's model; raise `BadReply` to reject it."""
        arrays = wire.arrays(content["arrays"])
        wire.check_reals(arrays["model"], "model", self.models.shape[1:])
        if "choice" in arrays:
            wire.check_reals(arrays["choice"], "choice", (3,))
            self.choices[client] = arrays["choice"]
        self.models[client] = arrays["model"]


def places_of(rounds: Rounds) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return server and cluster of every client (K,), as places in the array ``models``."""
    strategy, count = rounds.strategy, len(rounds.clients)
    numbers = range(1, count + 1)
    nobody = np.zeros(count, dtype=np.intp)
    if isinstance(strategy, ClusterAdmm):
        places = np.array([strategy.places[n] for n in numbers], dtype=np.intp).reshape(-1, 2)
        return places[:, 0].copy(), places[:, 1].copy()
    if isinstance(strategy, ClusterMoments):
        return nobody, np.array([strategy.groups[n] for n in numbers], dtype=np.intp)
    return np.arange(count, dtype=np.intp), nobody


def models_of(rounds: Rounds) -> Models:
    """Return the models (S, Q, d); of a method whose clients learn alone (K, 1, d)."""
    strategy = rounds.strategy
    if isinstance(strategy, ClusterAdmm):
        return wire.unpack(rounds.arrays["models"])
    if isinstance(strategy, ClusterMoments):
        return strategy.releases.models[None]
    size = _parameters(rounds, rounds.clients)
    found = np.zeros((len(rounds.clients), 1, size))
    if isinstance(strategy, LocalModels):
        for node, model in strategy.models.items():
            found[node - 1, 0] = model
    return found


def last_of(rounds: Rounds) -> Models:
    """Return what clients found last by themselves (K, d); zero of those never asked."""
    strategy = rounds.strategy
    kept = strategy.last if isinstance(strategy, ClusterAdmm) else {}
    if isinstance(strategy, LocalModels):
        kept = strategy.models
    found = np.zeros((len(rounds.clients), _parameters(rounds, rounds.clients)))
    for node, model in kept.items():
        found[node - 1] = model
    return found


def _deliver(run: Run, rounds: Rounds, grid: Grid) -> OwnModels | None:
    """Send every device its result; return simulated clients' own models, if they made any."""
    more = {RECORD: wire.record(rounds.preprocessing)} if rounds.preprocessing else {}
    if run.config.at_home:
        own = OwnModels(len(rounds.clients), _parameters(rounds, rounds.clients))
        deliver(rounds, grid, RecordDict({"arrays": rounds.arrays, **more}), own.take)
        return own
    models, (homes, groups) = models_of(rounds), places_of(rounds)

    def content(client: int) -> RecordDict:
        arrays = wire.record({"model": models[homes[client], groups[client]]})
        config = ConfigRecord({"cluster": int(groups[client])})
        return RecordDict({"arrays": arrays, "config": config, **more})

    deliver(rounds, grid, content)
    return None


def _fill(run: Run, rounds: Rounds, own: OwnModels | None) -> None:
    """Put the models and the headline numbers into the result.

    ``models`` is (S, Q, d); where clients learn alone (K, 1, d), every client its own server in
    ``homes``. ``clients`` (K, d) is what every client has; of devices that made models of their
    own, which stay with them, the model of their cluster.
    """
    result, config, strategy = run.result, run.config, rounds.strategy
    rows, models, (homes, groups) = rounds.progress.rows, models_of(rounds), places_of(rounds)
    truth = _truth(config, run.seed, rounds.clients)
    headline: dict[str, float] = {"rounds": float(len(rows))}
    if rows:
        headline["change"] = rows[-1]["change"]
    if isinstance(strategy, NoTraining) and own is not None:
        models = own.models[:, None]
        if not np.all(own.gathered):
            models = np.zeros((0, 1, models.shape[2]))
    result.arrays = {"models": models, "homes": homes, "clusters": groups}
    if len(models):
        result.arrays["clients"] = models[homes, groups]
    if isinstance(strategy, ClusterAdmm):
        graph = build.graph(config, run.seed)
        result.arrays |= {"adjacency": graph.adjacency, "server_names": np.array(graph.names)}
    result.arrays |= {**told_classes(rounds.clients), **rounds.preprocessing}
    if config.is_auto("rho") and isinstance(strategy, ClusterAdmm):
        headline["rho"] = strategy.rho
    if own is not None:
        _fill_own(run, rounds, own)
    if isinstance(strategy, ClusterMoments):
        result.arrays["pulls"] = strategy.pulls
        if np.all(np.isfinite(strategy.scored)):
            headline["score"], headline["score-error"] = strategy.scored.tolist()
    if truth is not None:
        result.arrays |= {"truth": truth.models, "true_clusters": truth.clusters}
        told = ("nmsd", "nmsd-servers", "right")
        headline |= {name: rows[-1][name] for name in told if rows and name in rows[-1]}
        if own is not None and np.all(own.gathered):
            headline["nmsd"] = nmsd(own.models, truth.models[truth.clusters])
    if result.ledger.get("epsilon"):
        headline["epsilon"] = float(result.ledger["epsilon"])
    result.headline = headline


def _fill_own(run: Run, rounds: Rounds, own: OwnModels) -> None:
    """Keep models that clients made on their devices, where simulated ones sent them."""
    result, here = run.result, own.gathered
    if here.any():
        result.notes.append(f"{int(np.count_nonzero(here))} {GATHERED}")
    if isinstance(rounds.strategy, NoTraining):
        if not np.all(here):
            result.arrays = {}  # nothing to show of some clients and not of others
        return
    strategy = rounds.strategy
    assert isinstance(strategy, ClusterMoments)
    result.arrays["clients"] = np.where(here[:, None], own.models, result.arrays["clients"])
    result.arrays["choices"] = own.choices
    if strategy.cut_short:
        result.notes.append(
            f"exchange {len(rounds.progress.rows)} failed: the models are those of the exchanges "
            "before it. An exchange that is made again counts as one more, which the budget does "
            "not have."
        )
    notes = sum_warnings(run.config, strategy)
    result.notes += notes
    for note in notes:
        log.warning(note)


def statement(config: ClusterAdmmConfig, apart: bool = False) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report.

    ``apart`` says that this server has a SuperLink of its own.
    """
    claim = METHODS.row(config.method, config.privacy).claim
    return {**claim, "enrolment": ENROLMENT + told_at_enrolment(config, apart)}


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


def _evaluate(run: Run, rounds: Rounds, arrays: ArrayRecord) -> dict[str, float]:
    """Return how far models are from the truth, and how many clients are in the right cluster.

    ``nmsd-servers`` is of the models that servers hold for their clients; ``nmsd``, (50), of the
    clients' own, which nobody outside knows where they are noised.
    """
    config, strategy = run.config, rounds.strategy
    truth = _truth(config, run.seed, rounds.clients)
    if truth is None:
        return {}
    targets, (homes, groups) = truth.models[truth.clusters], places_of(rounds)
    found = {"nmsd-servers": nmsd(models_of(rounds)[homes, groups], targets)}
    if not (config.has_noise or config.sums):
        found["nmsd"] = nmsd(last_of(rounds), targets)
    if isinstance(strategy, ClusterFinding):
        count = max(strategy.clusters, len(truth.models))
        found["right"] = agreement(groups, truth.clusters, count)
    return found
