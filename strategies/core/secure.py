"""Secure sums for a strategy: what `exchange` is for single replies, `SecureSum` is for their sum.

    total = sum over the clients that stayed of x_i,   in fixed point, exact

in four exchanges a round. A client that fails at any of them is left out and named; once its masked
vector has come it stays in the sum, whatever happens to it. For update rules that need nothing but
a sum.

Adversary: the server, this code included, honest but curious, with fewer than the threshold of any
client's holders; see `privacy.secagg.protocol` for an active one. Revealed: the sum, who took part,
what clients send in the clear. Not covered: what the sum itself tells, wrong values from clients, a
server that lies about keys that are not signed, side channels.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from privacy.secagg.client import KEYS, MASKED, RECORD, SHARES, UNMASK, VECTOR
from privacy.secagg.errors import BadMessage, SecAggError
from privacy.secagg.graph import plan
from privacy.secagg.messages import Advert, M, Masked, Sealed, Shares, parse, to_fields
from privacy.secagg.protocol import FEWEST, SESSION_BYTES
from privacy.secagg.ring import Layout
from privacy.secagg.server import ServerRound

from . import wire
from .enrolment import Client, StudyError
from .exchange import exchange

log = logging.getLogger("trellis.strategy")


@dataclass
class SecureAnswers:
    """What came of one secure sum.

    Attributes
    ----------
    total : the sums over ``survivors``, by name
    survivors : the clients in the sum
    failures : why a client failed, by client; one that failed after its vector had come is in
        ``survivors`` as well
    clear : what survivors sent in the clear, by client
    """

    total: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    survivors: list[int] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    clear: dict[int, RecordDict] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


class SecureSum:
    """Secure sums over the rounds of one run; keep one for the run: clients know its session.

    Parameters
    ----------
    fraction_bits : f; every client's values are rounded to multiples of 2^-f, and
        |x| * 2^f * clients must stay below 2^63
    neighbours : with how many others a client shares masks; 0 chooses, see `graph.plan`
    threshold : how many holders give a client's secret back; 0 chooses more than half
    """

    def __init__(self, fraction_bits: int = 32, neighbours: int = 0, threshold: int = 0) -> None:
        self.fraction_bits, self.neighbours = fraction_bits, neighbours
        self.threshold = threshold
        self._session = secrets.token_bytes(SESSION_BYTES)
        # Not the strategy's round: one that is tried again needs keys of its own.
        self._number = 0

    def gather(
        self,
        grid: Grid,
        payloads: Mapping[int, RecordDict],
        clients: Sequence[Client],
        server_round: int,
        timeout: float,
        *,
        layout: Mapping[str, tuple[int, ...]] | None = None,
    ) -> SecureAnswers:
        """Send each client its payload and return the sum of what they make of it.

        Parameters
        ----------
        payloads : what each client's ``summands`` gets, by index in ``clients``
        clients : all enrolled clients
        server_round : for the messages' group and for error messages
        timeout : seconds for each of the four exchanges
        layout : names and shapes that clients must send; None takes what most of them send

        Raises
        ------
        StudyError
            Where fewer clients are left than the threshold, at whatever stage, or where shares do
            not fit together. No sum is learnt then.
        """
        if len(payloads) < FEWEST:
            raise StudyError(
                f"round {server_round}: a secure sum needs at least {FEWEST} clients, not "
                f"{len(payloads)}: of fewer it would tell the others' values"
            )
        self._number += 1
        names = {client: clients[client].name for client in sorted(payloads)}
        chosen = plan(len(names), self.neighbours, self.threshold)
        turn = ServerRound(names, chosen, self._session, self._number, self.fraction_bits)
        stages = _Stages(grid, clients, str(server_round), timeout)
        try:
            _run(turn, stages, payloads, tuple(sorted(layout.items())) if layout else None)
            stages.answers.total = turn.total()
        except SecAggError as error:
            reasons = [f"{names[c]}: {why}" for c, why in sorted(stages.answers.failures.items())]
            raise StudyError(
                f"round {server_round}: no secure sum: {error}. " + " | ".join(reasons)
            ) from error
        return stages.answers


@dataclass
class _Stages:
    """The exchanges of one secure sum."""

    grid: Grid
    clients: Sequence[Client]
    group: str
    timeout: float
    answers: SecureAnswers = field(default_factory=SecureAnswers)

    def ask(
        self,
        action: str,
        asked: Iterable[int],
        content: Callable[[int], RecordDict],
        take: Callable[[int, RecordDict], None],
    ) -> None:
        """Send one message a client; take good answers, name the clients with bad ones."""
        messages = {
            client: Message(
                content(client), self.clients[client].node_id, action, group_id=self.group
            )
            for client in asked
        }
        came = exchange(self.grid, messages, self.timeout)
        for client in sorted(came.content):
            try:
                take(client, came.content[client])
            except Exception as error:  # whatever a malicious reply provokes
                came.failures[client] = f"reply rejected: {error}"
        self.fail(action, came.failures)
        self.answers.bytes_up += came.bytes_up
        self.answers.bytes_down += came.bytes_down

    def fail(self, action: str, failures: Mapping[int, str]) -> None:
        """Enter why clients failed."""
        self.answers.failures |= failures
        for client, reason in sorted(failures.items()):
            log.warning(
                "round %s: client %s failed at %s: %s",
                *(self.group, self.clients[client].name, action, reason),
            )


def _run(
    turn: ServerRound,
    stages: _Stages,
    payloads: Mapping[int, RecordDict],
    layout: Layout | None,
) -> None:
    """Go through the four stages; afterwards ``turn`` can give the total."""
    answers = stages.answers

    def take_advert(client: int, content: RecordDict) -> None:
        turn.take_advert(client, _read(Advert, content))

    def take_sealed(client: int, content: RecordDict) -> None:
        turn.take_sealed(client, _read(Sealed, content))

    def delivery(client: int) -> RecordDict:
        content = RecordDict(dict(payloads[client]))
        if RECORD in content:
            raise ValueError(f"a payload must not have a record called {RECORD}")
        content[RECORD] = ConfigRecord(to_fields(turn.delivery(client)))
        return content

    def take_masked(client: int, content: RecordDict) -> None:
        arrays = wire.arrays(content[VECTOR]) if VECTOR in content else {}
        if set(arrays) != {"vector"}:
            raise BadMessage("no masked vector in the reply")
        turn.take_masked(client, _read(Masked, content), arrays["vector"])
        answers.clear[client] = RecordDict(
            {name: record for name, record in content.items() if name not in (RECORD, VECTOR)}
        )

    def take_shares(client: int, content: RecordDict) -> None:
        turn.take_shares(client, _read(Shares, content))

    stages.ask(f"query.{KEYS}", turn.names, lambda c: _record(turn.hello(c)), take_advert)
    members = turn.close_keys()
    stages.ask(f"query.{SHARES}", members, lambda c: _record(turn.directory(c)), take_sealed)
    sharers = turn.close_shares()
    for client in set(members) - set(sharers) - set(answers.failures):
        answers.failures[client] = "too few of its neighbours are left"
    stages.ask(f"train.{MASKED}", sharers, delivery, take_masked)
    answers.survivors, refused = turn.close_masked(layout)
    stages.fail(f"train.{MASKED}", refused)
    answers.clear = {client: answers.clear[client] for client in answers.survivors}
    asked = answers.survivors
    stages.ask(f"query.{UNMASK}", asked, lambda c: _record(turn.question(c)), take_shares)


def _record(message: object) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(to_fields(message))})


def _read(kind: type[M], content: RecordDict) -> M:
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise BadMessage(f"no {RECORD} record in the reply")
    return parse(kind, record)
