"""Secure sums for a strategy: what `exchange` is for single replies, `SecureSum` is for their sum.

    total = sum over the clients that stayed of x_i,   in fixed point, exact

in three exchanges a round, for one group of clients or for several side by side; before the first,
one exchange in which clients send their keys, which all are told with their first round; before it
in a noisy sum, where a round that fails because somebody refuses the others would have cost all of
them a release. A client that fails is left out and named; once its masked vector has come it stays
in the sum, unless the sum cannot be opened without it: then the round is made again without those
who failed. For update rules that need nothing but a sum.

Keys are set up anew, for everyone, where a client has lost them by a restart or has come late.

Adversary: an active server, given signed keys; see `privacy.secagg.protocol` for the bounds, and
`privacy.secagg.server` for what a round made again tells. Revealed: the sum, who took part, what
clients send in the clear. Not covered: what the sum itself tells, over many rounds with changing
clients in particular: a value that is the same every round is known from two sums that differ by
its client. Wrong values from clients, a server that lies about keys that are not signed, side
channels.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.privacy.secagg.client import (
    AGREE,
    DIRECTORY,
    KEYS,
    MASKED,
    MEET,
    RECORD,
    UNMASK,
    VECTOR,
)
from trellis.privacy.secagg.errors import Again, BadMessage, SecAggError, TooFewClients
from trellis.privacy.secagg.graph import FEWEST, Plan, noisy_plan, plan
from trellis.privacy.secagg.messages import Advert, Agreed, M, Masked, Met, Opened, parse, to_fields
from trellis.privacy.secagg.ring import Layout, Ring
from trellis.privacy.secagg.server import ServerRound, Session

from . import wire
from .declared import Client
from .enrolment import StudyError
from .exchange import OFFLINE, exchange

G = TypeVar("G", bound=Hashable)

log = logging.getLogger("trellis.strategy")

# How often a round is made before a group gives up; each time some client has failed for good.
ATTEMPTS = 6
# How often a client may say that it has lost its keys before it waits as one that never answers.
_RESTARTS = 3
_LOST = "it has lost its keys, by a restart perhaps"


@dataclass
class SecureAnswers:
    """What came of one secure sum.

    Attributes
    ----------
    asked : the clients that were to be in the sum
    total : the sums over ``survivors``, by name
    survivors : the clients in the sum
    failures : why a client failed, by client; one that failed after its vector had come is in
        ``survivors`` as well
    clear : what survivors sent in the clear, by client
    sent : what came in the clear with any masked vector, opened or not, in order: releases among it
        are made, whatever became of the sum
    counted : in a noisy sum, how many clients' noise one counts on that trusts as the run does
    error : why there is no sum; empty where there is one
    """

    asked: list[int] = field(default_factory=list)
    total: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    survivors: list[int] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    clear: dict[int, RecordDict] = field(default_factory=dict)
    sent: list[tuple[int, RecordDict]] = field(default_factory=list)
    counted: int = 1
    error: str = ""
    bytes_up: int = 0
    bytes_down: int = 0


@dataclass
class _Group:
    """One group's sum in the making."""

    label: str
    payloads: Mapping[int, RecordDict]
    answers: SecureAnswers = field(default_factory=SecureAnswers)
    left: list[int] = field(default_factory=list)
    turn: ServerRound | None = None

    @property
    def round(self) -> ServerRound:
        assert self.turn is not None
        return self.turn


class NoSum(StudyError):
    """A sum that did not open; ``found`` has what was sent all the same."""

    def __init__(self, found: SecureAnswers) -> None:
        super().__init__(found.error)
        self.found = found


class _Restarted(Exception):
    """Some clients have lost their keys; everyone needs new ones."""


class SecureSum:
    """Secure sums over the rounds of one run; keep one for the run: its clients share keys.

    Parameters
    ----------
    fraction_bits : f; every client's values are rounded to multiples of 2^-f
    largest : the declared range: values beyond are clipped on the device; 0 takes the widest that
        fits, |x| 2^f clients < 2^63
    neighbours : with how many others a client shares masks; 0 chooses, see `graph.plan`; devices
        refuse fewer than that
    threshold : how many holders give a client's secret back; 0 chooses two thirds, and devices
        refuse fewer
    noisy : clients add noise and count on that of others: everyone shares masks with everyone, and
        a sum opens only where all but a share ``dropout`` of the clients are in it
    dropout, colluding : shares of the clients that may drop out, and that may be the server's
    """

    def __init__(
        self,
        fraction_bits: int = 32,
        neighbours: int = 0,
        threshold: int = 0,
        largest: float = 0.0,
        *,
        noisy: bool = False,
        dropout: float = 0.0,
        colluding: float = 0.0,
    ) -> None:
        self.noisy, self.dropout, self.colluding = noisy, dropout, colluding
        self.ring = Ring(fraction_bits, 1, largest)
        self.neighbours, self.threshold = neighbours, threshold
        self._session: Session | None = None
        # Not the strategy's round: one that is made again needs a number of its own.
        self._number = 0
        self._claims: Counter[int] = Counter()
        self._gathers, self._set_up_at, self._patience = 0, 0, 1

    def gather(
        self,
        grid: Grid,
        payloads: Mapping[int, RecordDict],
        clients: Sequence[Client],
        server_round: int,
        timeout: float,
        *,
        layout: Mapping[str, tuple[int, ...]] | None = None,
        category: str = "train",
    ) -> SecureAnswers:
        """Send each client its payload and return the sum of what they make of it.

        Parameters
        ----------
        payloads : what each client's ``summands`` gets, by index in ``clients``; alike for all
        clients : all enrolled clients
        server_round : for the messages' group and for error messages
        timeout : seconds for each exchange
        layout : names and shapes that clients must send; None takes what most of them send
        category : of the messages that ask for summands, ``train`` or ``evaluate``, or either with
            an action, as ``train.units``

        Raises
        ------
        StudyError
            Where too few clients are left, at whatever stage. No sum is learnt then.
        """
        groups = {"": payloads}
        (found,) = self.gather_groups(
            *(grid, groups, clients, server_round, timeout),
            layout=layout,
            category=category,
        ).values()
        if found.error:
            raise NoSum(found)
        return found

    def gather_groups(
        self,
        grid: Grid,
        groups: Mapping[G, Mapping[int, RecordDict]],
        clients: Sequence[Client],
        server_round: int,
        timeout: float,
        *,
        layout: Mapping[str, tuple[int, ...]] | None = None,
        category: str = "train",
    ) -> dict[G, SecureAnswers]:
        """Gather the sums of several groups side by side: one exchange a stage for all of them.

        As `gather`, but a group without a sum says why in ``error``. No client is in two groups;
        payloads are alike within a group. Bytes of the set-up and of exchanges are entered with the
        first group.
        """
        wanted = {label: _Group(str(label), payloads) for label, payloads in groups.items()}
        for group in wanted.values():
            group.answers.asked = sorted(group.payloads)
        for group in wanted.values():
            if len(group.payloads) < FEWEST:
                raise StudyError(
                    f"round {server_round}: a secure sum needs at least {FEWEST} clients, not "
                    f"{len(group.payloads)}: of fewer it would tell the others' values"
                )
        stages = _Stages(grid, clients, server_round, timeout, list(wanted.values()), category)
        self._gathers += 1
        asked = {client for group in wanted.values() for client in group.payloads}
        try:
            session = self._ready(stages, asked)
        except SecAggError as error:
            for group in wanted.values():
                group.answers.error = stages.no_sum(group, str(error))
            return {label: group.answers for label, group in wanted.items()}
        stages.admit(session)
        expected = tuple(sorted(layout.items())) if layout else None
        open_groups = list(wanted.values())
        for _ in range(ATTEMPTS):
            try:
                again = self._attempt(stages, session, open_groups, expected)
            except _Restarted:
                # Nobody has been asked to unmask anything: the round is left as it is.
                try:
                    session = self._renew(stages)
                except SecAggError as error:
                    for group in open_groups:
                        group.answers.error = stages.no_sum(group, str(error))
                    break
                stages.admit(session)
            else:
                open_groups = again
            if not open_groups:
                break
        for group in wanted.values():
            self._refuse_clipped(group, server_round)
        return {label: group.answers for label, group in wanted.items()}

    def _refuse_clipped(self, group: _Group, server_round: int) -> None:
        """Stop where values have come near the end of what sums hold: devices clip in silence.

        Not where a range was declared, which is for clipping.
        """
        if not group.answers.total or self.ring.largest:
            return
        count = len(group.answers.survivors)
        limit = replace(self.ring, clients=len(group.payloads)).limit
        largest = max(float(np.max(np.abs(x), initial=0.0)) for x in group.answers.total.values())
        if largest / count > 0.25 * limit:
            raise StudyError(
                f"round {server_round}: clients' values have grown to {largest / count:.3g} on "
                f"average; beyond {limit:.3g} devices clip them, and the sum is wrong. Does the "
                "run diverge? Then lower step; or scale the data down"
            )

    # --- keys ----------------------------------------------------------------------------------

    def _ready(self, stages: _Stages, asked: set[int]) -> Session:
        """Return a session that all who can be are members of."""
        session = self._session
        if session is not None:
            missing = asked - set(session.members)
            # Someone who never answers must not cost everyone new keys in every round.
            if not missing or self._gathers - self._set_up_at < self._patience:
                return session
            self._patience *= 2
        return self._renew(stages)

    def _renew(self, stages: _Stages) -> Session:
        self._session, self._set_up_at, self._number = None, self._gathers, 0
        self._session = self._set_up(stages)
        return self._session

    def _set_up(self, stages: _Stages) -> Session:
        clients = stages.clients
        session = Session({i: client.own or client.name for i, client in enumerate(clients)})
        everyone = dict.fromkeys(range(len(clients)))

        def take_advert(client: int, content: RecordDict) -> None:
            session.take_advert(client, _read(Advert, content))

        stages.ask(f"query.{KEYS}", everyone, lambda c: _record(session.hello(c)), take_advert)
        directory = RecordDict({DIRECTORY: ConfigRecord(to_fields(session.close()))})

        def take_met(client: int, content: RecordDict) -> None:
            if _read(Met, content).directory != session.hash:
                raise BadMessage("it has another directory")
            session.met.add(client)

        if self.noisy:
            members = dict.fromkeys(session.members)
            stages.ask(f"query.{MEET}", members, lambda c: RecordDict(dict(directory)), take_met)
            # The directory stands, with those who refused it: they are as if they had dropped out.
            session.members = sorted(session.met)
        return session

    # --- a round -------------------------------------------------------------------------------

    def _attempt(
        self,
        stages: _Stages,
        session: Session,
        groups: list[_Group],
        layout: Layout | None,
    ) -> list[_Group]:
        """Make one round of all ``groups``; return those that should try again."""
        self._number += 1
        again: list[_Group] = []

        def each(step: Callable[[_Group], Any]) -> None:
            """Do one step for every group that is still in; let go of those it ends for."""
            for group in list(groups):
                try:
                    step(group)
                except Again as error:
                    groups.remove(group)
                    group.answers.failures = error.without | group.answers.failures
                    group.left = [c for c in group.left if c not in group.answers.failures]
                    group.answers.error = stages.no_sum(group, str(error))
                    if len(group.left) >= max(FEWEST, len(group.payloads) // 2 + 1):
                        again.append(group)
                except SecAggError as error:
                    groups.remove(group)
                    group.answers.error = stages.no_sum(group, str(error))

        def begin(group: _Group) -> None:
            chosen, stay = self._plan(max(len(group.left), 2))
            if len(group.left) < FEWEST:
                asked = len(group.payloads)
                raise TooFewClients.left(len(group.left), asked, "are there", FEWEST)
            group.turn = ServerRound(
                *(session, self._number, group.left, chosen),
                group=group.label,
                ring=self.ring,
                stay=stay,
            )
            group.answers.error, group.answers.clear = "", {}
            bad = math.floor(self.colluding * len(group.left) + 1e-9)
            group.answers.counted = max(1, stay - bad)

        groups = list(groups)
        each(begin)
        self._masked(stages, session, groups)
        if stages.lost:
            self._restarted(stages, session)

        def close_masked(group: _Group) -> None:
            try:
                group.answers.survivors = group.round.close_masked(layout)
            finally:
                refused = group.round.refused
                stages.fail(stages.masked, refused, dict.fromkeys(refused, group))
            there = set(group.answers.survivors)
            group.answers.clear = {c: r for c, r in group.answers.clear.items() if c in there}

        each(close_masked)
        self._agree(stages, groups)
        each(lambda group: group.round.close_agreed())
        self._unmask(stages, groups)

        def close(group: _Group) -> None:
            group.answers.total = group.round.total()

        each(close)
        return again

    def _plan(self, clients: int) -> tuple[Plan, int]:
        """Return neighbours and threshold for a sum over ``clients``, and how many must stay."""
        if not self.noisy:
            return plan(clients, self.neighbours, self.threshold), 0
        return noisy_plan(clients, self.dropout, self.colluding, self.threshold)

    def _restarted(self, stages: _Stages, session: Session) -> None:
        """Stop the round for new keys, unless the clients that ask for them do so all the time."""
        self._claims.update(stages.lost)
        heard = any(self._claims[client] <= _RESTARTS for client in stages.lost)
        session.members = [client for client in session.members if client not in stages.lost]
        if heard and not stages.renewed:
            stages.renewed = True
            raise _Restarted
        stages.lost.clear()

    def _masked(self, stages: _Stages, session: Session, groups: list[_Group]) -> None:
        """Ask for masked vectors; whoever has not met the others yet is told their keys with it."""
        directory = ConfigRecord(to_fields(session.directory))
        asked = {client: group for group in groups for client in group.left}
        orders = {id(group): ConfigRecord(to_fields(group.round.order)) for group in groups}

        def content(client: int) -> RecordDict:
            payload = RecordDict(dict(asked[client].payloads[client]))
            if reserved := sorted({RECORD, DIRECTORY} & set(payload)):
                raise ValueError(f"a payload must not have a record called {reserved[0]}")
            payload[RECORD] = orders[id(asked[client])]
            if client not in session.met:
                payload[DIRECTORY] = directory
            return payload

        def take(client: int, reply: RecordDict) -> None:
            if "lost-session" in reply.get(RECORD, {}):
                stages.lost.add(client)
                raise BadMessage(_LOST)
            session.met.add(client)
            arrays = wire.arrays(reply[VECTOR]) if VECTOR in reply else {}
            if set(arrays) != {"vector"}:
                raise BadMessage("no masked vector in the reply")
            group = asked[client]
            group.round.take_masked(client, _read(Masked, reply), arrays["vector"])
            clear = RecordDict(
                {name: record for name, record in reply.items() if name not in (RECORD, VECTOR)}
            )
            group.answers.clear[client] = clear
            group.answers.sent.append((client, clear))

        stages.ask(stages.masked, asked, content, take)
        # The directory stands, with those who refused it, or from whom nothing has ever come: they
        # are as if they had dropped out, and come back with new keys.
        strangers = set(asked) - session.met - stages.lost
        session.members = [member for member in session.members if member not in strangers]

    def _agree(self, stages: _Stages, groups: list[_Group]) -> None:
        asked = {client: group for group in groups for client in group.round.survivors}
        rolls = {id(group): _record(group.round.roll()) for group in groups}

        def take(client: int, reply: RecordDict) -> None:
            asked[client].round.take_agreed(client, _read(Agreed, reply))

        stages.ask(f"query.{AGREE}", asked, lambda c: RecordDict(dict(rolls[id(asked[c])])), take)

    def _unmask(self, stages: _Stages, groups: list[_Group]) -> None:
        asked = {client: group for group in groups for client in group.round.agreed}

        def content(client: int) -> RecordDict:
            return _record(asked[client].round.question(client))

        def take(client: int, reply: RecordDict) -> None:
            asked[client].round.take_opened(client, _read(Opened, reply))

        stages.ask(f"query.{UNMASK}", asked, content, take)


@dataclass
class _Stages:
    """The exchanges of secure sums in one round of a strategy."""

    grid: Grid
    clients: Sequence[Client]
    server_round: int
    timeout: float
    groups: list[_Group]
    category: str = "train"
    lost: set[int] = field(default_factory=set)
    renewed: bool = False

    @property
    def masked(self) -> str:
        """The kind of message that asks for masked summands."""
        kind, _, action = self.category.partition(".")
        return f"{kind}.{MASKED}" + (f"_{action}" if action else "")

    def admit(self, session: Session) -> None:
        """Let all members take part that have not failed; lost keys have been made anew."""
        members = set(session.members)
        for group in self.groups:
            failures = group.answers.failures
            for client in self.lost & set(group.payloads) & members:
                failures.pop(client, None)
            for client in group.payloads:
                if not self.clients[client].node_id:
                    failures[client] = OFFLINE
            for client in set(group.payloads) - members:
                failures.setdefault(client, "it sent no keys when they were set up")
            group.left = [client for client in sorted(group.payloads) if client not in failures]
        self.lost.clear()

    def ask(
        self,
        action: str,
        asked: Mapping[int, _Group | None],
        content: Callable[[int], RecordDict],
        take: Callable[[int, RecordDict], None],
    ) -> None:
        """Send one message a client; take good answers, name the clients with bad ones."""
        if not asked:
            return
        label = str(self.server_round)
        messages = {
            client: Message(content(client), self.clients[client].node_id, action, group_id=label)
            for client in sorted(asked)
        }
        came = exchange(self.grid, messages, self.timeout)
        for client in sorted(came.content):
            try:
                take(client, came.content[client])
            except Exception as error:  # whatever a malicious reply provokes
                came.failures[client] = f"reply rejected: {error}"
        self.fail(action, came.failures, asked)
        self.groups[0].answers.bytes_up += came.bytes_up
        self.groups[0].answers.bytes_down += came.bytes_down

    def fail(
        self, action: str, failures: Mapping[int, str], asked: Mapping[int, _Group | None]
    ) -> None:
        """Enter why clients failed, with the group that they are in."""
        for client, reason in sorted(failures.items()):
            name = self.clients[client].name
            if reason != OFFLINE:  # which is told once, when its node goes
                log.warning(
                    "round %s: client %s failed at %s: %s", self.server_round, name, action, reason
                )
            for group in self.groups if asked.get(client) is None else [asked[client]]:
                if group is not None and client in group.payloads:
                    group.answers.failures[client] = reason

    def no_sum(self, group: _Group, reason: str) -> str:
        """Return why a group has no sum, with every client's reason."""
        reasons = [
            f"{self.clients[c].name}: {why}" for c, why in sorted(group.answers.failures.items())
        ]
        return f"round {self.server_round}: no secure sum: {reason}. " + " | ".join(reasons)


def _record(message: object) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(to_fields(message))})


def _read(kind: type[M], content: RecordDict) -> M:
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise BadMessage(f"no {RECORD} record in the reply")
    return parse(kind, record)
