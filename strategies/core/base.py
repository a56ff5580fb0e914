"""What every study's strategy shares: enrolment, rounds, bad replies, stopping, checkpoints.

A strategy for a new study subclasses `StudyStrategy` and writes five small methods:

    begin(clients)               set up the arrays once the clients are known
    payload(round, client)       the record sent to one client in one round
    read_reply(client, content)  check one client's reply; an error (BadReply) rejects it
    update(round, replies)       the update rule; returns the round's metrics
    state() / restore(...)       the arrays a checkpoint must hold

and, for ``norm-bound`` (see `robust`), `bounded_part`, `with_part` and `forget`. Where clients map
their records before they learn from them, `preprocessing` holds what they need: arrays that are the
same for all and go with every model; ``find_preprocessing`` finds them before the first round.

The rest is here: one query round to enrol clients, one message a client and round, replies matched
by message, clients that fail or answer nonsense named and passed over, those that are out of range
three times running left out for good, stopping by tolerance, checkpoints, by which a run that was
killed goes on.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger

from ..rounds import RoundPlan, _Progress
from . import wire
from .checkpoint import Checkpoint, Snapshot
from .closing.scores import ScoreTable
from .declared import Client, bound_counts, short
from .enrolment import StudyError, enrol
from .exchange import OFFLINE, Answers, exchange
from .history.rows import Row
from .member import Member
from .nodes import may_change
from .presence import Presence, matched
from .robust import Robust, clipped, excess
from .wire import BadReply

__all__ = ["BadReply", "Client", "RoundPlan", "Row", "StudyError", "StudyStrategy"]

log = logging.getLogger("trellis.strategy")

Reply = TypeVar("Reply")
Vector = NDArray[np.float64]

_ROUNDS_TO_COME_BACK = 3
_PATIENCE_OUT_OF_RANGE = 3
_PREPROCESSING = "preprocessing."  # in checkpoints


class StudyStrategy(Strategy, Generic[Reply]):
    """A Flower strategy with one record a node, bad replies rejected, and checkpoints.

    Parameters
    ----------
    plan : rounds, tolerance, participation, time limits
    ledger : where clients' releases are entered
    sampler : generator of a round's random choices, for client sampling
    checkpoint : where to keep snapshots; None keeps none
    on_round : called with every round's metrics
    evaluate : called with `state` after every round; returns more metrics, from a known truth
    on_enrolled : called with the clients before the first round
    robust : how far a reply may go, and what stands in the place of means
    """

    def __init__(
        self,
        plan: RoundPlan,
        *,
        ledger: Ledger | None = None,
        sampler: Callable[[int], np.random.Generator] | None = None,
        checkpoint: Checkpoint | None = None,
        on_round: Callable[[Row], None] | None = None,
        evaluate: Callable[[Mapping[str, NDArray[Any]]], Row] | None = None,
        on_enrolled: Callable[[Sequence[Client]], None] | None = None,
        robust: Robust | None = None,
    ) -> None:
        self.plan = plan
        self.ledger = ledger or Ledger("none")
        self.sampler = sampler or np.random.default_rng
        self.checkpoint = checkpoint
        self.on_round = on_round or (lambda row: None)
        self.evaluate = evaluate or (lambda state: {})
        self.on_enrolled = on_enrolled or (lambda clients: None)
        self.robust = robust or Robust()
        self.clients: list[Client] = []
        self.refusals: list[str] = []
        self.left_out: list[str] = []
        self.undelivered: list[str] = []
        # Held-out scores by client, and who was asked for them (`deliver`).
        self.scores: dict[int, ScoreTable] = {}
        self.evaluated: set[int] = set()
        # Called when nothing stands against the run any more, a checkpoint to go on from included.
        self.on_ready: Callable[[], None] = lambda: None
        # Sent with every model; a checkpoint has it too.
        self.preprocessing: dict[str, Vector] = {}
        # Whether models have one parameter more than there are variables.
        self.intercept = False
        self.find_preprocessing: Callable[[Grid], None] = lambda grid: None
        self.progress = _Progress()
        # Of a graph of servers, where this one is alone.
        self.network = Member()
        self._late: list[Client] = []
        self._presence: Presence
        # Who is asked in the round, and by which message where Flower's interface made them.
        self._asked: list[int] = []
        self._messages: dict[int, Message] = {}
        self._opened: dict[int, RecordDict] = {}

    # --- what a study writes -----------------------------------------------------------------

    @abstractmethod
    def begin(self, clients: Sequence[Client]) -> None:
        """Set up the strategy's arrays for these clients."""

    @abstractmethod
    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return what one client is sent in one round."""

    @abstractmethod
    def read_reply(self, client: int, content: RecordDict) -> Reply:
        """Return one client's reply, checked; raise `BadReply` to reject it."""

    @abstractmethod
    def update(self, server_round: int, replies: Mapping[int, Reply]) -> Row:
        """Apply the update rule to the round's good replies; return metrics, ``change`` in them."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `state` returned; called after `begin`."""

    def opening(self) -> RecordDict | None:
        """Return the first round's question, to be asked with enrolment; None asks it by itself.

        For a question that is the same for all clients and needs nothing that enrolment tells.
        """
        return None

    # --- what it writes where one client's reply can be bounded ------------------------------

    def bounded_part(
        self, server_round: int, client: int, reply: Reply
    ) -> tuple[Vector, Vector] | None:
        """Return the vector that ``norm-bound`` limits and what it is measured from, if any."""
        raise NotImplementedError(f"{type(self).__name__} has no bound on a reply")

    def with_part(self, client: int, reply: Reply, part: Vector) -> Reply:
        """Return the reply with another vector in the place of its `bounded_part`."""
        raise NotImplementedError(f"{type(self).__name__} cannot clip a reply")

    def forget(self, client: int) -> None:
        """Drop what is kept of a client that is left out from now on."""

    def admit(self, client: Client) -> bool:
        """Make room for a client that comes late, as the last; False where that cannot be.

        Called between two rounds; the client is then added to `clients`. May raise `StudyError`
        with the reason.
        """
        return False

    def places(self) -> Mapping[str, int]:
        """Return how many servers and clusters clients can belong to, where the study has some."""
        return {}

    def greeting(self) -> tuple[bytes, dict[str, Any]]:
        """Return what other servers of a graph must know of this one: a key for masks, facts."""
        return b"", {}

    def met(self, first: int, planned: int) -> None:
        """Begin with round ``first``, when the other servers of a graph are known.

        By itself this server would have begun with round ``planned``.
        """

    def sum_group(self, client: int) -> int:
        """Return a number that clients share whose replies are summed together."""
        return 0

    def parameters(self, clients: Sequence[Client]) -> int:
        """Return the number of a linear model's parameters."""
        return len(clients[0].variables) + int(self.intercept)

    # --- the run -----------------------------------------------------------------------------

    def run(self, grid: Grid, *, resume: bool = False) -> None:
        """Enrol the clients and run rounds until the tolerance or the last round is reached."""
        snapshot = self.checkpoint.load() if self.checkpoint and resume else None
        if self.checkpoint and not resume:
            self.checkpoint.clear()
        self.clients = self._enrol(grid, snapshot)
        self.on_enrolled(self.clients)
        self.begin(self.clients)
        first = 1
        if snapshot is not None:
            self._restore(snapshot)
            first = snapshot.server_round + 1
            log.info("resumed after round %d", snapshot.server_round)
        self.on_ready()
        if snapshot is None:
            self.find_preprocessing(grid)
        server_round = first = self._meet(grid, first)
        for client in self._late:
            self._presence.place(client, first)
        try:
            while server_round <= self.plan.rounds:
                if self.progress.converged or self.exhausted():
                    break
                if server_round > first:
                    self._look(grid, server_round)
                self._round(grid, server_round)
                server_round = self.network.next(server_round)
        finally:
            self.network.end(server_round - 1)
        # For what comes after the rounds: whoever is back is told the result.
        self._look(grid, len(self.progress.rows), last=True)

    def _meet(self, grid: Grid, first: int) -> int:
        """Meet the other servers, where there are any; return the first round."""
        mask, facts = self.greeting()
        begun = self.network.begin(grid, first - 1, mask, facts, lambda: self._look(grid, 0))
        self.met(begun, first)
        return begun

    def _enrol(self, grid: Grid, snapshot: Snapshot | None) -> list[Client]:
        """Ask who is there; return the clients of this run, in the order of the checkpoint."""
        plan = self.plan
        enrolled = enrol(
            *(grid, plan.clients, plan.timeout, plan.enrol_timeout),
            least=plan.clients_least,
            devices=plan.devices,
            opening=None if snapshot is not None or plan.sample else self.opening(),
            places=self.places(),
        )
        self._opened = enrolled.opened
        for server, node in enrolled.bridges:
            self.network.bridge(server, node)
        self.refusals, self.left_out = enrolled.refusals, enrolled.left_out
        self.progress.bytes_up += enrolled.traffic.bytes_up
        self.progress.bytes_down += enrolled.traffic.bytes_down
        clients, self._late = enrolled.clients, []
        if snapshot is not None:
            before = [Client(**entry) for entry in snapshot.facts["clients"]]
            clients, self._late = matched(before, clients, plan.clients_least)
        bound_counts(clients)
        self._presence = Presence(
            clients,
            plan.clients,
            min(plan.timeout, plan.enrol_timeout),
            enrolled.nodes,
            self.admit,
            self.left_out,
            self.network.bridge,
            {node for _, node in enrolled.bridges},
            self.places(),
        )
        return clients

    def _look(self, grid: Grid, server_round: int, *, last: bool = False) -> None:
        """See which clients are there, where they can come and go."""
        if may_change(grid):
            traffic = self._presence.look(grid, server_round, last=last)
            self.progress.bytes_up += traffic.bytes_up
            self.progress.bytes_down += traffic.bytes_down

    def _round(self, grid: Grid, server_round: int) -> None:
        began = time.monotonic()
        self.network.expect(grid, server_round)
        row = {"round": float(server_round), **self.gather(grid, server_round)}
        row |= self.network.row()
        row["seconds"] = time.monotonic() - began
        self.progress.rows.append(row)
        self.progress.converged = self.network.may_stop(server_round, self._has_converged(row))
        if self.checkpoint:
            last = self.progress.converged or self.exhausted() or server_round == self.plan.rounds
            if last or self.checkpoint.due():
                self.checkpoint.save(self._snapshot(server_round))
        log.info(
            "round %d: %d clients answered, %d failed, change %.3g",
            *(server_round, row["clients"], row["failed"], row["change"]),
        )
        self.on_round(row)

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Ask the round's clients, take their replies, return the round's metrics."""
        opened, self._opened = self._opened, {}
        # One by one, as they are sent: of many clients, none has to be kept.
        questions = (
            (client, self._round_message(server_round, client))
            for client in self._choose(server_round)
            if client not in opened
        )
        answers = exchange(grid, questions, self.plan.timeout)
        # Their bytes are counted with enrolment.
        answers.content |= opened
        return self._take(server_round, answers)

    def _take(self, server_round: int, answers: Answers) -> Row:
        """Check every reply, apply the update rule, count what happened."""
        replies: dict[int, Reply] = {}
        for client in sorted(answers.content):
            try:
                reply = self.read_reply(client, answers.content[client])
                replies[client] = self._in_range(server_round, client, reply)
                self._enter_releases(client, answers.content[client])
            except Exception as error:
                replies.pop(client, None)
                answers.failures[client] = f"reply rejected: {error}"
        self.note_failures(server_round, answers)
        if not replies and self.needs_reply():
            raise StudyError(
                f"round {server_round}: no usable reply. " + self._reasons(answers.failures)
            )
        return self._row(answers, list(replies), self.update(server_round, replies))

    def _in_range(self, server_round: int, client: int, reply: Reply) -> Reply:
        """Return the reply, clipped where the rule says so; raise `BadReply` to reject it."""
        bound = self.robust.bound
        part = self.bounded_part(server_round, client, reply) if bound else None
        if part is None:
            return reply
        known, norm = self.clients[client], excess(*part, bound)
        known.strikes = known.strikes + 1 if norm else 0
        if not norm:
            return reply
        known.out_of_range += 1
        what = f"its update has norm {norm:.3g}, above norm-bound={bound:g}"
        if known.strikes >= _PATIENCE_OUT_OF_RANGE:
            known.left_out = server_round
            self.forget(client)
            raise BadReply(f"{what}, {known.strikes} times running: left out from now on")
        if self.robust.rule != "clip":
            raise BadReply(what)
        log.warning("round %d: client %s is clipped: %s", server_round, known.name, what)
        return self.with_part(client, reply, clipped(*part, bound))

    def note_failures(self, server_round: int, answers: Answers) -> None:
        """Count and name the clients that failed in a round."""
        for client, reason in sorted(answers.failures.items()):
            known = self.clients[client]
            known.failures += 1
            known.last_failure = short(reason)
            if reason == OFFLINE:
                continue  # told once, when it was gone
            log.warning(
                "round %d: client %s left out: %s", server_round, known.name, known.last_failure
            )

    def _row(self, answers: Answers, answered: Sequence[int], metrics: Row) -> Row:
        """Count who answered and what was sent; return the round's metrics."""
        for client in answered:
            self.clients[client].rounds += 1
        self.progress.bytes_up += answers.bytes_up
        self.progress.bytes_down += answers.bytes_down
        return {
            "clients": float(len(answered)),
            "failed": float(len(answers.failures)),
            "bytes-up": float(answers.bytes_up),
            "bytes-down": float(answers.bytes_down),
            **metrics,
            **self.evaluate(self.state()),
        }

    def _enter_releases(self, client: int, content: RecordDict) -> None:
        for key, item in content.items():
            if key.startswith("privacy.") and isinstance(item, ConfigRecord):
                event = PrivacyEvent.from_record(dict(item))
                self.ledger.commit(self.clients[client].name, event)

    def needs_reply(self) -> bool:
        """Return whether a round without any usable reply ends the run."""
        return True

    def settled(self, row: Row) -> bool:
        """Return whether another round would change nothing that matters."""
        return row["change"] <= self.plan.tolerance

    def exhausted(self) -> bool:
        """Return whether to stop though nothing is settled, before the plan's last round."""
        return False

    def shortfall(self) -> str:
        """Return, for a run that stopped early, what is still above the tolerance."""
        change = self.progress.rows[-1]["change"] if self.progress.rows else float("nan")
        return f"a relative change of {change:.2g}"

    def _has_converged(self, row: Row) -> bool:
        # With sampling a quiet round says little: wait until everyone had a turn. So does one with
        # failures: give the clients that failed a chance to come back.
        needed = -(-len(self.clients) // self.plan.sample) if self.plan.sample else 1
        if row["failed"]:
            needed += _ROUNDS_TO_COME_BACK
        quiet = self.settled(row)
        self.progress.quiet_rounds = self.progress.quiet_rounds + 1 if quiet else 0
        return self.plan.tolerance > 0.0 and self.progress.quiet_rounds >= needed

    def may_score(self, client: int) -> bool:
        """Return whether a client may be asked for the scores of its held-out records."""
        asked = self.plan.scores
        return asked == "all" or (asked == "simulated" and self.clients[client].simulated)

    # --- Flower's strategy interface ---------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make the round's messages, one record a node."""
        chosen = self._choose(server_round)
        self._messages = {client: self._round_message(server_round, client) for client in chosen}
        return list(self._messages.values())

    def _choose(self, server_round: int) -> list[int]:
        """Return the clients that are asked in this round, and remember them."""
        chosen = self.participants(server_round)
        self._asked = [client for client in chosen if not self.clients[client].left_out]
        return self._asked

    def _round_message(self, server_round: int, client: int) -> Message:
        """Return the round's message to one client."""
        content, node = self.payload(server_round, client), self.clients[client].node_id
        return Message(content, node, "train", group_id=str(server_round))

    def participants(self, server_round: int) -> list[int]:
        """Return the clients asked in this round."""
        everyone = len(self.clients)
        if not self.plan.sample or self.plan.sample >= everyone:
            return list(range(everyone))
        chosen = self.sampler(server_round).choice(everyone, self.plan.sample, replace=False)
        return sorted(int(client) for client in chosen)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies to the messages `configure_train` made."""
        asked = {m.metadata.message_id: client for client, m in self._messages.items()}
        answers = Answers()
        for reply in replies:
            client = asked.pop(reply.metadata.reply_to_message_id, None)
            if client is not None:
                answers.take(client, reply)
        answers.failures |= dict.fromkeys(asked.values(), "no reply")
        row = self._take(server_round, answers)
        return wire.record(self.state()), MetricRecord(dict(row))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for nothing in a round: held-out scores are of the result (`deliver`)."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing, as nothing was asked."""
        return None

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """Run the study (Flower's entry point); see `run`."""
        self.summary()
        self.run(grid)
        result = Result()
        result.arrays = wire.record(self.state())
        for row in self.progress.rows:
            result.train_metrics_clientapp[int(row["round"])] = MetricRecord(dict(row))
        return result

    def summary(self) -> None:
        """Log what is about to run."""
        log.info("%s: %s", type(self).__name__, self.plan)

    # --- checkpoints -------------------------------------------------------------------------

    def _snapshot(self, server_round: int) -> Snapshot:
        counted = {name: n for name, n in vars(self.progress).items() if name != "rows"}
        facts = {
            "progress": counted,
            "clients": [vars(client) for client in self.clients],
            "ledger": self.ledger.state_dict(),
        }
        preprocessing = {
            f"{_PREPROCESSING}{name}": array for name, array in self.preprocessing.items()
        }
        return Snapshot(server_round, {**self.state(), **preprocessing}, facts, self.progress.rows)

    def _restore(self, snapshot: Snapshot) -> None:
        before = [Client(**entry) for entry in snapshot.facts["clients"]]
        for client, old in zip(self.clients, before, strict=True):
            client.rounds, client.failures = old.rounds, old.failures
            client.last_failure = old.last_failure
            client.strikes, client.out_of_range = old.strikes, old.out_of_range
            client.left_out, client.joined = old.left_out, old.joined
        self.progress = _Progress(snapshot.rows, **snapshot.facts["progress"])
        self.ledger.load_state_dict(snapshot.facts["ledger"])
        kept = {name for name in snapshot.arrays if name.startswith(_PREPROCESSING)}
        self.preprocessing = {
            name[len(_PREPROCESSING) :]: snapshot.arrays[name] for name in sorted(kept)
        }
        self.restore({n: array for n, array in snapshot.arrays.items() if n not in kept})
        # A resumed run may be given a stricter tolerance or more rounds.
        if self.progress.converged and self.progress.rows:
            self.progress.converged = self.settled(self.progress.rows[-1])

    def _reasons(self, failures: Mapping[int, str]) -> str:
        return " | ".join(f"{self.clients[c].name}: {text}" for c, text in sorted(failures.items()))
