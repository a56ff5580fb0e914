"""The rounds of a run, around any Flower strategy: what ``Strategy.start`` lacks.

`Rounds.run` calls a strategy's five methods in the order in which Flower's own ``start`` does, so
that both give the same result. Around them it enrols clients, stops when a round changes less than
the tolerance, writes checkpoints and resumes from one, follows clients that leave and come back,
enters releases in the privacy ledger, returns a metrics row per round, and, if this server is one
of a graph of SuperLinks, keeps in step with the others (`core.member`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger

from .core import wire
from .core.checkpoint import Checkpoint, Snapshot
from .core.closing.scores import ScoreTable
from .core.declared import Client, bound_counts, short
from .core.enrolment import StudyError, enrol
from .core.exchange import OFFLINE
from .core.history.rows import Row, Rows
from .core.member import Member
from .core.nodes import may_change
from .core.presence import Presence, matched
from .enrolled_grid import EnrolledGrid
from .node_strategy import NodeStrategy
from .preprocessing_grid import PreprocessingGrid

log = logging.getLogger("trellis.strategy")

_ROUNDS_TO_COME_BACK = 3
_MODEL, _STATE, _PREPROCESSING = "model.", "state.", "preprocessing."  # in checkpoints

Middleware = Callable[[EnrolledGrid], Grid]


@dataclass(frozen=True)
class RoundPlan:
    """How long and with whom to run; see the settings of the same names."""

    rounds: int
    tolerance: float
    clients: int
    sample: int = 0
    timeout: float = 3600.0
    enrol_timeout: float = 120.0
    clients_least: int = 0
    devices: tuple[str, ...] = ()
    # Who is asked how the result does on held-out records: nobody, simulated clients, or all.
    scores: Literal["nobody", "simulated", "all"] = "nobody"


@dataclass
class _Progress:
    rows: Rows = field(default_factory=Rows)
    quiet_rounds: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    converged: bool = False


class Rounds:
    """One run of a Flower strategy over enrolled clients.

    Parameters
    ----------
    strategy : any Flower strategy; one with ``done``, ``rejected``, ``state_dict`` and
        ``load_state_dict`` (`NodeStrategy`) also stops by itself and resumes
    initial_arrays : the model to start from, once the clients are known
    plan : rounds, tolerance, participation, time limits
    middleware : what stands between the strategy and the clients: a Grid around the grid of
        clients, for secure aggregation or bounds
    train_config, evaluate_config : sent with every message, as in Flower's ``start``
    evaluate : called with the model and the strategy's state after every round; returns more
        metrics, from a known truth
    ledger : where clients' releases are entered
    checkpoint : where to keep snapshots; None keeps none
    on_round : called with every round's metrics
    on_enrolled : called with the clients before the first round
    admits : whether a client that comes late may join a run that has begun; a function of the
        client may raise `StudyError` with the reason why not
    places : how many servers and clusters clients can belong to, by name; checked at enrolment
    sum_group : a number that clients share whose replies are summed together
    network : the graph of servers that this one is part of

    A strategy with ``handshake``, a method without arguments, says by it what other servers of the
    graph must know of this one: a key for masks (bytes) and facts. One with ``joined`` is called
    with the round to begin with, and the one that this server by itself would have begun with.
    """

    def __init__(
        self,
        strategy: Strategy,
        initial_arrays: Callable[[Sequence[Client]], ArrayRecord],
        plan: RoundPlan,
        *,
        middleware: Middleware = lambda grid: grid,
        train_config: Mapping[str, Any] | None = None,
        evaluate_config: Mapping[str, Any] | None = None,
        evaluate: Callable[[ArrayRecord], Row] | None = None,
        ledger: Ledger | None = None,
        checkpoint: Checkpoint | None = None,
        on_round: Callable[[Row], None] | None = None,
        on_enrolled: Callable[[Sequence[Client]], None] | None = None,
        admits: bool | Callable[[Client], bool] = True,
        places: Mapping[str, int] | None = None,
        sum_group: Callable[[int], int] = lambda client: 0,
        network: Member | None = None,
    ) -> None:
        self.strategy, self.initial_arrays, self.plan = strategy, initial_arrays, plan
        self.middleware = middleware
        self.admits = admits if callable(admits) else lambda client: admits
        self.places, self.sum_group = places or {}, sum_group
        self.train_config, self.evaluate_config = train_config or {}, evaluate_config or {}
        self.evaluate = evaluate or (lambda arrays: {})
        self.ledger = ledger or Ledger("none")
        self.checkpoint = checkpoint
        self.on_round = on_round or (lambda row: None)
        self.on_enrolled = on_enrolled or (lambda clients: None)
        # Called when nothing prevents the run any more, a checkpoint to resume from included.
        self.on_ready: Callable[[], None] = lambda: None
        self.clients: list[Client] = []
        self.refusals: list[str] = []
        self.left_out: list[str] = []
        self.undelivered: list[str] = []
        self.scores: dict[int, ScoreTable] = {}
        self.evaluated: set[int] = set()
        self.network = network or Member()
        # Arrays that clients map their records by, sent with every message; found before the first
        # round, and kept in checkpoints. With an intercept models have one parameter more.
        self.preprocessing: dict[str, NDArray[Any]] = {}
        self.find_preprocessing: Callable[[Grid], None] = lambda grid: None
        self.intercept = False
        self.progress = _Progress()
        self.arrays = ArrayRecord()
        self.grid: EnrolledGrid
        self._presence: Presence
        self._late: list[Client] = []

    # --- the run ------------------------------------------------------------------------------

    def run(self, grid: Grid, *, resume: bool = False) -> Result:
        """Enrol the clients and run rounds until the tolerance or the last round is reached."""
        snapshot = self.checkpoint.load() if self.checkpoint and resume else None
        if self.checkpoint and not resume:
            self.checkpoint.clear()
        self._enrol(grid, snapshot)
        self.on_enrolled(self.clients)
        self.arrays = self.initial_arrays(self.clients)
        first, result = 1, Result()
        if snapshot is not None:
            self._restore(snapshot)
            first = snapshot.server_round + 1
            log.info("resumed after round %d", snapshot.server_round)
        self.on_ready()
        through = self.middleware(self.grid)
        if snapshot is None:
            self.find_preprocessing(through)
        server_round = first = self._join(grid, first)
        for client in self._late:
            self._presence.place(client, first)
        # A strategy that needs no round at all has converged.
        self.progress.converged |= not self.progress.rows and self.exhausted()
        if snapshot is not None and not snapshot.facts.get("evaluated", True):
            self.grid.begin_round()
            self._evaluate_round(through, snapshot.server_round, result)
            self._end_round(snapshot.server_round)
        try:
            while server_round <= self.plan.rounds:
                if self.progress.converged or self.exhausted():
                    break
                if server_round > first:
                    self._refresh(grid, server_round)
                self.network.expect(grid, server_round)
                self._round(self._preprocessed(through), server_round, result)
                server_round = self.network.next(server_round)
        finally:
            self.network.end(server_round - 1)
        # For what comes after the rounds: a client that is back is sent the result.
        self._refresh(grid, len(self.progress.rows), last=True)
        result.arrays = self.arrays
        return result

    def _preprocessed(self, grid: Grid) -> Grid:
        """Return a grid that adds what clients map their records by, which a round may find."""
        return PreprocessingGrid(grid, self.preprocessing) if self.preprocessing else grid

    def _round(self, grid: Grid, server_round: int, result: Result) -> None:
        """Make one round, as Flower's ``start`` does: train, then evaluate."""
        began, enrolled = time.monotonic(), self.grid
        enrolled.begin_round()
        up, down = enrolled.bytes_up, enrolled.bytes_down
        strategy, timeout = self.strategy, self.plan.timeout
        config = ConfigRecord(dict(self.train_config))
        asked = strategy.configure_train(server_round, self.arrays, config, grid)
        replies = grid.send_and_receive(asked, timeout=timeout)
        arrays, metrics = strategy.aggregate_train(server_round, replies)
        failures = {**getattr(strategy, "rejected", {}), **enrolled.failures}
        if arrays is None:
            reasons = " | ".join(self._named(failures))
            raise StudyError(f"round {server_round}: no usable reply. {reasons}")
        self.arrays = arrays
        if metrics is not None:
            result.train_metrics_clientapp[server_round] = metrics
        answered = self._count(failures, server_round)
        row = {
            "round": float(server_round),
            "clients": float(answered),
            "failed": float(len(failures)),
            "bytes-up": float(enrolled.bytes_up - up),
            "bytes-down": float(enrolled.bytes_down - down),
            **_numbers(metrics),
            **self.network.row(),
            "seconds": time.monotonic() - began,
        }
        self.progress.rows.append(row)
        converged = self._has_converged(row)
        self.progress.converged = self.network.may_stop(server_round, converged)
        self._evaluate_round(grid, server_round, result)
        self._end_round(server_round)

    def _evaluate_round(self, grid: Grid, server_round: int, result: Result) -> None:
        """Make a round's second half; one exchange for each kind of message.

        In the last round a checkpoint is written before each: what clients release in it costs
        budget, and a run that is resumed must not ask again for what went before.
        """
        began, enrolled, strategy = time.monotonic(), self.grid, self.strategy
        up, down = enrolled.bytes_up, enrolled.bytes_down
        last = self._is_last(server_round)
        if isinstance(strategy, NodeStrategy):
            strategy.last_round = server_round if last else 0
        row = self.progress.rows[-1]
        config = ConfigRecord(dict(self.evaluate_config))
        asked = strategy.configure_evaluate(server_round, self.arrays, config, grid)
        for kind, messages in groupby(asked, key=lambda message: message.metadata.message_type):
            if last:
                self._save(server_round, evaluated=False)
            before = {**getattr(strategy, "rejected", {}), **enrolled.failures}
            replies = grid.send_and_receive(messages, timeout=self.plan.timeout)
            trouble: StudyError | None = None
            scored: MetricRecord | None = None
            try:
                scored = strategy.aggregate_evaluate(server_round, replies)
            except StudyError as error:
                trouble = error
            failures = {**getattr(strategy, "rejected", {}), **enrolled.failures}
            failures = {n: text for n, text in failures.items() if before.get(n) != text}
            if trouble is not None:
                reasons = " | ".join(self._named(failures))
                raise StudyError(f"round {server_round}: {trouble}. {reasons}") from trouble
            self._note_failures(
                {n: text if text == OFFLINE else f"{kind}: {text}" for n, text in failures.items()},
                server_round,
            )
            row["failed"] += len(failures.keys() - before)
            if scored is not None:
                known = dict(result.evaluate_metrics_clientapp.get(server_round, MetricRecord()))
                scored = MetricRecord({**known, **scored})
                result.evaluate_metrics_clientapp[server_round] = scored
                row |= _numbers(scored)
            self.progress.rows[-1] = row
        row |= self.evaluate(self.arrays)
        row["bytes-up"] += float(enrolled.bytes_up - up)
        row["bytes-down"] += float(enrolled.bytes_down - down)
        row["seconds"] = row.pop("seconds") + time.monotonic() - began
        self.progress.rows[-1] = row

    def _is_last(self, server_round: int) -> bool:
        """Return whether no round follows."""
        return self.progress.converged or self.exhausted() or server_round >= self.plan.rounds

    def _save(self, server_round: int, *, evaluated: bool) -> None:
        """Write a checkpoint; ``evaluated`` says whether the round's second half is over."""
        if self.checkpoint is not None:
            progress = self.progress
            progress.bytes_up, progress.bytes_down = self.grid.bytes_up, self.grid.bytes_down
            self.checkpoint.save(self._snapshot(server_round, evaluated=evaluated))

    def _end_round(self, server_round: int) -> None:
        progress, row = self.progress, self.progress.rows[-1]
        progress.bytes_up, progress.bytes_down = self.grid.bytes_up, self.grid.bytes_down
        if self.exhausted():
            progress.converged = self.settled(row)
        if self.checkpoint and (self._is_last(server_round) or self.checkpoint.due()):
            self._save(server_round, evaluated=True)
        change = f", change {row['change']:.3g}" if "change" in row else ""
        counts = server_round, row["clients"], row["failed"]
        log.info("round %d: %d clients answered, %d failed%s", *counts, change)
        self.on_round(row)

    def _count(self, failures: Mapping[int, str], server_round: int) -> int:
        """Count who answered and who failed in a round; return how many answered."""
        asked = getattr(self.strategy, "asked", None) or self.grid.get_node_ids()
        self._note_failures(failures, server_round)
        answered = [number for number in asked if number not in failures]
        for number in answered:
            self.grid.client(number).rounds += 1
        return len(answered)

    def _note_failures(self, failures: Mapping[int, str], server_round: int) -> None:
        """Count and name the clients that failed."""
        for number, reason in failures.items():
            client = self.grid.client(number)
            client.failures += 1
            client.last_failure = short(reason)
            if reason != OFFLINE:  # which was logged once, when its node was gone
                log.warning(
                    "round %d: client %s left out: %s",
                    *(server_round, client.name, client.last_failure),
                )

    def _named(self, failures: Mapping[int, str]) -> list[str]:
        return [f"{self.grid.client(n).name}: {text}" for n, text in sorted(failures.items())]

    # --- when to stop -------------------------------------------------------------------------

    def exhausted(self) -> bool:
        """Return whether the strategy needs no more rounds."""
        return bool(getattr(self.strategy, "done", False))

    def settled(self, row: Row) -> bool:
        """Return whether another round would change nothing that matters."""
        converged = getattr(self.strategy, "converged", None)
        if converged is not None:
            return bool(converged)
        return self.exhausted() or row.get("change", np.inf) <= self.plan.tolerance

    def _has_converged(self, row: Row) -> bool:
        # With sampling a quiet round says little: wait until everyone had a turn. So does one with
        # failures: give the clients that failed a chance to come back.
        if self.exhausted():
            return self.settled(row)
        needed = -(-len(self.clients) // self.plan.sample) if self.plan.sample else 1
        if row["failed"]:
            needed += _ROUNDS_TO_COME_BACK
        quiet = self.settled(row)
        self.progress.quiet_rounds = self.progress.quiet_rounds + 1 if quiet else 0
        return self.plan.tolerance > 0.0 and self.progress.quiet_rounds >= needed

    def shortfall(self) -> str:
        """Return, for a run that stopped early, what is still above the tolerance."""
        if told := getattr(self.strategy, "shortfall", None):
            return str(told())
        change = self.progress.rows[-1]["change"] if self.progress.rows else float("nan")
        return f"a relative change of {change:.2g}"

    # --- clients ------------------------------------------------------------------------------

    def _enrol(self, grid: Grid, snapshot: Snapshot | None) -> None:
        plan = self.plan
        enrolled = enrol(
            *(grid, plan.clients, plan.timeout, plan.enrol_timeout),
            least=plan.clients_least,
            devices=plan.devices,
            places=self.places,
        )
        for server, node in enrolled.bridges:
            self.network.bridge(server, node)
        self.refusals, self.left_out = enrolled.refusals, enrolled.left_out
        self.clients, self._late = enrolled.clients, []
        if snapshot is not None:
            before = [Client(**entry) for entry in snapshot.facts["clients"]]
            self.clients, self._late = matched(before, self.clients, plan.clients_least)
        bound_counts(self.clients)
        self.grid = EnrolledGrid(grid, self.clients, plan.timeout, self._enter_releases)
        self.grid.bytes_up, self.grid.bytes_down = (
            enrolled.traffic.bytes_up,
            enrolled.traffic.bytes_down,
        )
        self._presence = Presence(
            self.clients,
            plan.clients,
            min(plan.timeout, plan.enrol_timeout),
            enrolled.nodes,
            self.admits,
            self.left_out,
            self.network.bridge,
            {node for _, node in enrolled.bridges},
            self.places,
        )

    def _join(self, grid: Grid, first: int) -> int:
        """Meet the other servers of the graph, if there are any; return the first round."""
        mask, facts = getattr(self.strategy, "handshake", lambda: (b"", {}))()
        begun = self.network.begin(grid, first - 1, mask, facts, lambda: self._refresh(grid, 0))
        getattr(self.strategy, "joined", lambda first, planned: None)(begun, first)
        return begun

    def _refresh(self, grid: Grid, server_round: int, *, last: bool = False) -> None:
        """See which clients are there, if they can come and go."""
        if may_change(grid):
            traffic = self._presence.look(grid, server_round, last=last)
            self.grid.bytes_up += traffic.bytes_up
            self.grid.bytes_down += traffic.bytes_down

    def _enter_releases(self, client: Client, content: RecordDict) -> None:
        for key, item in content.items():
            if key.startswith("privacy.") and isinstance(item, ConfigRecord):
                self.ledger.commit(client.name, PrivacyEvent.from_record(dict(item)))

    def may_score(self, client: int) -> bool:
        """Return whether a client may be asked for the scores of its held-out records."""
        asked = self.plan.scores
        return asked == "all" or (asked == "simulated" and self.clients[client].simulated)

    # --- checkpoints --------------------------------------------------------------------------

    def _snapshot(self, server_round: int, *, evaluated: bool = True) -> Snapshot:
        counted = {name: n for name, n in vars(self.progress).items() if name != "rows"}
        facts = {
            "progress": counted,
            "clients": [vars(client) for client in self.clients],
            "ledger": self.ledger.state_dict(),
            "evaluated": evaluated,
        }
        state: dict[str, NDArray[Any]] = getattr(self.strategy, "state_dict", dict)()
        arrays = {f"{_MODEL}{name}": array for name, array in wire.arrays(self.arrays).items()}
        arrays |= {f"{_STATE}{name}": array for name, array in state.items()}
        arrays |= {f"{_PREPROCESSING}{name}": a for name, a in self.preprocessing.items()}
        return Snapshot(server_round, arrays, facts, self.progress.rows)

    def _restore(self, snapshot: Snapshot) -> None:
        before = [Client(**entry) for entry in snapshot.facts["clients"]]
        for client, old in zip(self.clients, before, strict=True):
            client.rounds, client.failures = old.rounds, old.failures
            client.last_failure = old.last_failure
            client.strikes, client.out_of_range = old.strikes, old.out_of_range
            client.left_out, client.joined = old.left_out, old.joined
        self.progress = _Progress(snapshot.rows, **snapshot.facts["progress"])
        # As if it had not been interrupted: without the second enrolment.
        self.grid.bytes_up, self.grid.bytes_down = self.progress.bytes_up, self.progress.bytes_down
        self.ledger.load_state_dict(snapshot.facts["ledger"])
        kept = _part(snapshot.arrays, _MODEL)
        now = wire.arrays(self.arrays)
        for name in now.keys() & kept.keys():
            if kept[name].shape != now[name].shape:
                raise ValueError(f"{name} in the checkpoint has shape {kept[name].shape}")
        self.arrays = wire.record(kept)
        self.preprocessing = _part(snapshot.arrays, _PREPROCESSING)
        if load := getattr(self.strategy, "load_state_dict", None):
            load(_part(snapshot.arrays, _STATE))
        # A resumed run may be given a stricter tolerance or more rounds.
        if self.progress.converged and self.progress.rows:
            self.progress.converged = self.settled(self.progress.rows[-1])


def _part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _numbers(metrics: MetricRecord | None) -> Row:
    found = {} if metrics is None else dict(metrics)
    return {key: float(v) for key, v in found.items() if isinstance(v, int | float)}
