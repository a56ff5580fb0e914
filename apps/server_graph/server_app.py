"""The server of server-graph: config -> strategy -> result.

`OpenRun` is a run of (6)-(8) in which clients make their steps, `SummedRun` one in which servers
make them from noisy sums; both fill the same result. Which one a run is, and which servers it has,
is its method's (`methods`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from trellis.apps.common.own_data.standardising import standardise, tell
from trellis.apps.common.recording import StudyRun
from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.apps.network.place import bridges
from trellis.privacy.accounting.sampled import spent_by
from trellis.privacy.secagg.graph import FEWEST
from trellis.strategies.bounded_grid import Bounded, BoundedGrid
from trellis.strategies.core import wire
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.enrolled_grid import EnrolledGrid
from trellis.strategies.preprocessing_grid import RECORD, PreprocessingGrid
from trellis.strategies.rounds import Rounds
from trellis.strategies.server_graph.noise import ServerNoise
from trellis.strategies.server_graph.post import Post
from trellis.strategies.server_graph.strategy import ServerGraph
from trellis.strategies.server_graph.sums import GradientSums
from trellis.strategies.topology.graph import Topology

from .build import NoiseNeeded, gradient_sums, parties, server_graph
from .config import ServerGraphConfig
from .data import told_classes
from .forecast import sum_warnings
from .losses import loss_by_name, start
from .methods import METHODS
from .private import Terms, digest
from .release import chosen, statement, sum_statement, warnings
from .spending import epsilons, settled
from .truth import alone, deviations, distances, steady_state, truth_of

log = logging.getLogger("trellis.run")

app = ServerApp()

Run = StudyRun[ServerGraphConfig]
Array = NDArray[np.float64]
Matrix = NDArray[np.float64]

_SIMULATORS = ("local", "flower")  # engines that can have clients that are no devices

# A client's model, measured from its server's, from which it started.
MODEL = Bounded(
    reference=lambda sent: sent.array_records["arrays"]["model"],
    vector=lambda reply, _: wire.unpack(reply.array_records["arrays"]["model"]),
    origin=lambda _, model: wire.unpack(model),
    replace=lambda reply, clipped: reply.update({"arrays": wire.record({"model": clipped})}),
)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the study and keep its result."""
    run = StudyRun(context, grid, ServerGraphConfig)
    study: GraphRun = METHODS.load(run.config.row.server)(run)
    with run.recording(study.rounds):
        try:
            study.rounds.run(grid, resume=run.resume)
        finally:  # also of a run that fails: what was released is released
            study.account()
        study.close(grid)
    run.write_report()


# --- the rounds of each method ------------------------------------------------------------------


def graph_rounds(run: Run) -> GraphRun:
    """Return rounds of (6), (7) and (8), with the servers of the run's method."""
    return OpenRun(run)


def gradient_rounds(run: Run) -> GraphRun:
    """Return rounds of noisy sums of gradients."""
    return SummedRun(run)


class GraphRun:
    """What all methods have in common: enrolment, rounds, the result."""

    def __init__(self, run: Run) -> None:
        self.run, self.config, self.result = run, run.config, run.result
        self.graph = build_topology(run.config, run.seed, run.config.weights)
        self.post = _post(run, self.graph)
        self.first_model = np.zeros(0)
        self.simulated = False
        self.strategy = self.make()
        self.rounds = Rounds(
            self.strategy,
            lambda clients: wire.record({"model": self.first_model}),
            middleware=self.middleware,
            train_config=self.train_config(),
            on_enrolled=self.enrolled,
            admits=self.admits,
            places={} if self.apart else {"server": self.graph.servers},
            sum_group=lambda client: self.home(self.rounds.clients[client]),
            network=self.post.member(),
            **run.round_arguments(),
        )
        self.rounds.evaluate = self.evaluate

    @property
    def apart(self) -> bool:
        """Whether the other servers are elsewhere."""
        return self.post.own is not None

    def make(self) -> ServerGraph:
        """Return the strategy."""
        raise NotImplementedError

    def middleware(self, grid: EnrolledGrid) -> Grid:
        """Return what stands between the strategy and the clients."""
        raise NotImplementedError

    def train_config(self) -> Mapping[str, Any]:
        """Return what is sent with every message."""
        return {}

    def admits(self, client: Client) -> bool:
        """Return whether a client that comes late may join."""
        self.home(client)
        return True

    def home(self, client: Client) -> int:
        """Return the server that a client belongs to.

        Raises
        ------
        StudyError
            If that is not this server, and only this one is here.
        """
        if self.graph.servers == 1:
            return 0
        if self.post.own is None:
            return client.server
        (here,) = self.post.own
        if client.server != here and self.config.on_server_loss != "rehome":
            raise StudyError(
                f"client {client.name} belongs to server {client.server}, this is {here} "
                f"({self.graph.names[here]}); connect it to its own SuperLink, or set "
                "on-server-loss=rehome to take in clients of servers that are gone"
            )
        return here

    def enrolled(self, clients: Sequence[Client]) -> None:
        """Set what depends on the clients, and say what a reader must know beforehand."""
        config, rounds = self.config, self.rounds
        # The seed may make noise only if there is nobody to protect.
        engine = self.result.engine in _SIMULATORS
        self.simulated = engine and all(client.simulated for client in clients)
        loss = loss_by_name(config.loss)
        numbers = getattr(loss, "targets", "labels") == "numbers"
        standardise(rounds, config, self.result, clients, numbers=numbers, ask=self.ask_units)
        self.first_model = start(loss, len(clients[0].variables) + int(rounds.intercept))
        self._check_servers(clients)
        if config.is_auto("step"):
            size = self.first_model.size
            more = "" if rounds.intercept else "; features are not standardised, and it may not fit"
            text = f"step={config.pace(size):.3g} (auto: {size} parameters, loss {config.loss}"
            tell(self.result, f"{text}{more})")

    def _check_servers(self, clients: Sequence[Client]) -> None:
        """Warn of servers without clients; refuse too few clients for a secure sum."""
        homes = [self.home(client) for client in clients]
        for server in [*self.post.own] if self.post.own else range(self.graph.servers):
            own = homes.count(server)
            if not own:
                log.warning(
                    "server %s has no clients: it passes on what its neighbours send",
                    self.graph.names[server],
                )
                continue
            asked = min(self.config.sample or own, own)
            if self.config.masked and asked < FEWEST:
                raise StudyError(
                    f"round 1: server {server} asks {asked} clients; the sum of fewer than "
                    f"{FEWEST} would tell one of them the others' models. Give every server "
                    f"{FEWEST} clients, set sample=0 or at least {FEWEST}, or "
                    "secure-aggregation=off"
                )

    def ask_units(
        self, grid: Grid, layout: Mapping[str, tuple[int, ...]]
    ) -> tuple[dict[str, Array], float]:
        """Return one secure sum over the clients of all servers, and the noise in it."""
        told = ConfigRecord({**self.train_config(), "server-round": 0})
        messages = [
            Message(RecordDict({"config": told}), node, "train.units", group_id="0")
            for node in grid.get_node_ids()
        ]
        (reply,) = grid.send_and_receive(messages, timeout=self.rounds.plan.timeout)
        total = wire.arrays(reply.content["arrays"])
        if {name: array.shape for name, array in total.items()} != dict(layout):
            raise StudyError("standardise: clients sent other sums than the run asks for")
        return total, float(reply.content["metrics"]["noise"])  # type: ignore[arg-type]

    def evaluate(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return more metrics of a round: how far models are from a known truth."""
        return deviations(self.config, self.run.seed, self.strategy, self.rounds.clients)

    # --- the end ------------------------------------------------------------------------------

    def account(self) -> None:
        """Enter what was released, whether or not the run came to its end."""

    def close(self, grid: Grid) -> None:
        """Send everyone the result, and fill it."""
        raise NotImplementedError

    def deliver_models(self, grid: Grid, centroid: Array | None) -> None:
        """Send every device its server's model, and the centroid if it may know it."""
        strategy = self.strategy
        homes, own = strategy.homes(strategy.current_round), strategy.server_of

        def content(client: int) -> RecordDict:
            # Of a server that is down, and whose clients go to no other: its last model.
            known = self.rounds.clients[client]
            home = homes.get(client + 1, -1)
            home = home if home >= 0 else own.get(client + 1, self.home(known))
            arrays = {"model": strategy.kept[home]}
            if centroid is not None:
                arrays["centroid"] = centroid
            return self._with_preprocessing(arrays)

        deliver(self.rounds, grid, content)

    def _with_preprocessing(self, arrays: Mapping[str, Array]) -> RecordDict:
        content = RecordDict({"arrays": wire.record(arrays)})
        if self.rounds.preprocessing:
            content[RECORD] = wire.record(self.rounds.preprocessing)
        return content

    def fill(self) -> None:
        """Put the models and what is known of them into the result."""
        strategy, rows = self.strategy, self.rounds.progress.rows
        last = strategy.current_round
        homes = strategy.homes(last)
        clients = self.rounds.clients
        now = [homes.get(n, self.home(known)) for n, known in enumerate(clients, 1)]
        self.result.arrays = {
            "models": strategy.known,
            "centroid": strategy.centroid(),
            "combination": np.array(self.graph.weights),
            "homes": np.array(now, dtype=np.intp),
            "alive": self.post.running(strategy.up(last)),
            **told_classes(clients),
            **self.rounds.preprocessing,
        }
        headline = {"rounds": float(len(rows)), "disagreement": rows[-1]["disagreement"]}
        headline["spectral-gap"] = self.graph.spectral_gap
        headline["between-servers"] = sum(row["between-servers"] for row in rows)
        if self.config.is_auto("step"):
            headline["step"] = self.config.pace(self.first_model.size)
        truth = truth_of(self.config, self.run.seed, strategy, clients)
        if truth is not None:
            self.result.arrays["truth"] = truth
        self.result.headline = headline


class OpenRun(GraphRun):
    """A run in which clients make their steps, and servers may have noise or masks among them."""

    def make(self) -> ServerGraph:
        """Return the strategy, with the servers of the run's method."""
        run, folder = self.run, self.run.folder
        checkpoints = None if folder is None else folder / "checkpoint"
        self.noise = ServerNoise(
            partial(generator, run.seed, "server noise"), checkpoints, run.resume
        )
        name = None if run.place is None else run.place.run.encode()
        exchange = parties(self.config, run.seed, self.graph, self.noise, name)
        return server_graph(self.config, run.seed, exchange, self.post, self.graph)

    def middleware(self, grid: EnrolledGrid) -> Grid:
        """Return secure sums, or bounds on single replies."""
        robust = self.run.robust
        if self.config.masked:  # then the devices keep the bound, before they mask
            from trellis.strategies.core.secure import SecureSum
            from trellis.strategies.secure_grid import SecureGrid

            return SecureGrid(grid, SecureSum())
        return BoundedGrid(grid, robust, MODEL, self.strategy.drop) if robust.bound else grid

    def enrolled(self, clients: Sequence[Client]) -> None:
        """Set the noise between servers as well."""
        super().enrolled(clients)
        config, size = self.config, self.first_model.size
        self.noise.decide(self.simulated)
        for party in self.strategy.exchange:
            party.use_noise(settled(config, size).sigma)
        self.result.notes += chosen(config, size)
        for note in warnings(config, self.graph, size, self.simulated, self.apart):
            log.warning(note)
            self.result.notes.append(note)
        log.info("servers: %s", self.graph.describe())

    def evaluate(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return also what the noise between servers has spent."""
        return {**super().evaluate(arrays), **self.spent(self.strategy.current_round)}

    def spent(self, server_round: int) -> dict[str, float]:
        """Return epsilon by both formulas; nothing if one process plays devices' servers."""
        if not (self.simulated or self.apart) or not server_round:
            return {}
        return epsilons(self.config, self.graph, server_round, self.first_model.size)

    def account(self) -> None:
        """Enter what every server has sent the others."""
        config, rounds = self.config, len(self.rounds.progress.rows)
        if not self.rounds.clients:
            return
        spent = self.spent(rounds)
        account: dict[str, Any] = {
            "mode": config.privacy,
            "simulated": self.simulated,
            **statement(config, self.simulated, self.apart),
        }
        if spent:
            account |= {
                "epsilon_paper": spent["epsilon-paper"],
                "epsilon_corrected": spent["epsilon-corrected"],
            }
        if config.row.has("epsilon"):
            names = self.graph.names
            if self.post.own is not None:
                names = tuple(names[server] for server in self.post.own)
            total: dict[str, Any] = {}
            if self.simulated or self.apart:
                total = {"epsilon": spent.get("epsilon-paper", 0.0), "delta": config.delta}
                account["sigma"] = settled(config, self.first_model.size).sigma
            account["clients"] = [{"name": name, **total, "events": []} for name in names]
            account |= total
        self.result.ledger = {"clients": [], **account}

    def close(self, grid: Grid) -> None:
        """Fill the result, and send every device its server's model."""
        self.fill()
        rows, headline = self.rounds.progress.rows, self.result.headline
        if "truth" in self.result.arrays:
            headline["msd"] = steady_state([row["msd"] for row in rows])
            headline["msd-servers"] = steady_state([row["msd-servers"] for row in rows])
        for name in ("epsilon-paper", "epsilon-corrected"):
            if name in rows[-1]:
                headline[name] = rows[-1][name]
        # In the centroid the noise between servers cancels, which no single server knows.
        open_servers = not self.config.row.has("epsilon")
        self.deliver_models(grid, self.strategy.centroid() if open_servers else None)


class SummedRun(GraphRun):
    """A run in which servers make the steps from noisy secure sums: all they know is public."""

    strategy: GradientSums
    through: Grid

    def make(self) -> ServerGraph:
        """Return the strategy."""
        return gradient_sums(self.config, self.run.seed, self.post, self.graph)

    def train_config(self) -> Mapping[str, Any]:
        """Return what devices know the run's settings by; it is in every message's masks."""
        return {"settings": digest(self.config)}

    def middleware(self, grid: EnrolledGrid) -> Grid:
        """Return noisy secure sums, each with the noise that its clients need."""
        from trellis.strategies.core.secure import SecureSum
        from trellis.strategies.secure_grid import SecureGrid

        config = self.config
        sums = SecureSum(noisy=True, dropout=config.dropout, colluding=config.colluding)
        terms = Terms.of(config)
        self.through = NoiseNeeded(SecureGrid(grid, sums), self.strategy, grid.clients, terms)
        return self.through

    def admits(self, client: Client) -> bool:
        """Return False: the noise of the sums is for the clients of the beginning."""
        return False

    def enrolled(self, clients: Sequence[Client]) -> None:
        """Forecast what the run is worth as well."""
        super().enrolled(clients)
        self.strategy.step = self.config.pace(self.first_model.size)
        for note in sum_warnings(self.config, clients, self.first_model.size):
            log.warning(note)
            self.result.notes.append(note)
        log.info("servers: %s", self.graph.describe())

    def evaluate(self, arrays: ArrayRecord) -> dict[str, float]:
        """Return also what the client that spent most has spent."""
        ledger = self.rounds.ledger
        kinds = {
            tuple(
                sorted(
                    ((one.first.noise_ratio, one.first.sampling), one.times)
                    for one in ledger.series(client.name)
                )
            )
            for client in self.rounds.clients
        }
        spent = max((spent_by(_counted(kind), self.config.delta) for kind in kinds), default=0.0)
        return {**super().evaluate(arrays), "epsilon": spent}

    def close(self, grid: Grid) -> None:
        """Score the private model, send it to everyone, and fill the result."""
        self.fill()
        headline = self.result.headline
        if self.config.held_out:
            headline |= self._score()
        own: dict[int, Array] = {}
        public = self._with_preprocessing({"model": self.strategy.centroid()})
        size = self.first_model.shape

        def take(client: int, content: RecordDict) -> None:
            arrays = wire.arrays(content["arrays"])
            wire.check_reals(arrays["model"], "model", size)
            own[client] = arrays["model"]

        deliver(self.rounds, grid, public, take)
        clients = self.rounds.clients
        if len(own) == len(clients):
            # Simulated clients only: gathered for evaluation.
            self.result.arrays["personal"] = np.array([own[c] for c in range(len(clients))])
        simulated = all(client.simulated for client in clients)
        names = [client.name for client in clients]
        claim = sum_statement(self.config, simulated)
        self.result.ledger = self.rounds.ledger.report(names, claim)
        self.result.ledger["simulated"] = simulated
        headline["epsilon"] = float(self.result.ledger.get("epsilon", 0.0))
        truth = self.result.arrays.get("truth")
        if truth is not None:
            up = self.strategy.up(self.strategy.current_round)
            headline |= distances(self.strategy.kept[up], truth)
            by_itself = alone(self.config, self.run.seed, clients, truth)
            if by_itself is not None:
                headline["alone-msd"] = by_itself

    def _score(self) -> dict[str, float]:
        """Return the mean score of held-out samples and the deviation of its noise."""
        last, clients = self.strategy.current_round, self.rounds.clients
        told = ConfigRecord({**self.train_config(), "server-round": last})
        arrays = wire.record({"model": self.strategy.centroid()})
        messages = [
            Message(
                RecordDict({"arrays": arrays, "config": told}),
                *(node, "evaluate"),
                group_id=str(last),
            )
            for node in self.through.get_node_ids()
        ]
        grid = PreprocessingGrid(self.through, self.rounds.preprocessing)
        self.rounds.grid.begin_round()
        try:
            (reply,) = grid.send_and_receive(messages, timeout=self.rounds.plan.timeout)
        except StudyError as error:
            self.result.notes.append(f"There is no score: {error}")
            return {}
        terms, metrics = Terms.of(self.config), reply.content.metric_records["metrics"]
        failed = self.rounds.grid.failures
        count = sum(
            terms.kept_back(client.counted)
            for n, client in enumerate(clients, 1)
            if n not in failed
        )
        if not count:
            self.result.notes.append("There is no score: no client has a sample to hold out.")
            return {}
        total = wire.arrays(reply.content["arrays"])["terms"]
        mean = float(np.clip(total[0] / count, 0.0, 1.0))
        return {"score": mean, "score-noise": float(metrics["noise"]) / count}  # type: ignore[arg-type]


def _counted(kind: Sequence[tuple[tuple[float, float], int]]) -> dict[tuple[float, float], int]:
    """Return how many releases there are of every ratio and sampling."""
    found: dict[tuple[float, float], int] = {}
    for pair, times in kind:
        found[pair] = found.get(pair, 0) + times
    return found


def _post(run: Run, graph: Topology) -> Post:
    """Return what carries messages between servers: to other SuperLinks, if they have their own.

    Raises
    ------
    ConfigError
        For settings that need all servers in one process, or in step.
    """
    config, place = run.config, run.place
    if place is None:
        return Post()
    if config.failures:
        raise ConfigError(
            f"failures={config.failures!r}: outages are played in one process; servers with "
            "SuperLinks of their own really stop"
        )
    if place.max_staleness and config.method == "masked":
        raise ConfigError(
            f"max-staleness={place.max_staleness}: masks cancel only if all messages are of one "
            "round; set max-staleness=0, or another method"
        )
    from trellis.strategies.server_graph.lone import LonePost

    return LonePost(bridges(graph, place))
