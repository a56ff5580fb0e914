"""Who is there between two rounds: nodes that go, come back, or come late.

Before every round the grid is asked once who is online. A client whose node is gone is passed over,
without waiting for Flower to notice. A node that is new, or was restarted, is asked who it is:

- a client that is known is *back*, also under another number (a SuperNode without authentication
  has a new one after every start). It must have the same number of records and the same variables;
- one that is not known is taken in if the method can (`Rounds.admits`) and fewer than
  ``clients`` take part, else told to wait for the next run.

A registered name is bound to a key, so nobody else can be that client. Without registration a name
is a node's word: while the client of that name is online, another that claims it has to wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flwr.serverapp import Grid

from .checkpoint import CheckpointError
from .declared import Client, most_counted
from .enrolment import StudyError, apart, claims, hear, other_variables, question
from .exchange import Answers, content_bytes
from .nodes import OnlineNode, online

log = logging.getLogger("trellis.strategy")

_PATIENCE, _PAUSE = 10.0, 0.02  # seconds that a round waits for nodes that are new


@dataclass
class Presence:
    """Keeps track of the nodes of a run's clients.

    Attributes
    ----------
    clients : of the run, in order; node ids are changed here, and late ones are added at the end
    most : how many may take part
    timeout : seconds for a node to say who it is
    nodes : those that were asked
    admit : takes a new client in, or returns False where the study cannot
    left_out : why nodes that came are left out, in words
    on_bridge : called with the server and the node of a bridge between servers
    bridges : the nodes of these
    places : how many servers and clusters there are, where there are several
    """

    clients: list[Client]
    most: int
    timeout: float
    nodes: dict[int, OnlineNode]
    admit: Callable[[Client], bool]
    left_out: list[str] = field(default_factory=list)
    on_bridge: Callable[[int, int], None] = lambda server, node: None
    bridges: set[int] = field(default_factory=set)
    places: Mapping[str, int] = field(default_factory=dict)
    _claims: dict[int, Client] = field(default_factory=dict)
    _asked: dict[str, tuple[int, float]] = field(default_factory=dict)  # node, until when

    def look(self, grid: Grid, server_round: int, *, last: bool = False) -> Answers:
        """See who is there, ask those who are new; return the traffic of that.

        ``last`` says that no round is to come, so that nobody is taken in.
        """
        here = online(grid)
        self._notice_gone(here, server_round)
        for node in self.bridges - set(here):
            self.nodes.pop(node, None)  # asked anew when it is back
        new = {n: node for n, node in here.items() if self.nodes.get(n) != node}
        self.nodes |= new
        self._claims = {n: c for n, c in self._claims.items() if n in here and n not in new}
        answers = self._ask(grid, new)
        heard = hear(answers, {**self.nodes, **here}, self.places)
        for server, node in heard.bridges:
            self.bridges.add(node)
            self.on_bridge(server, node)
        for reason in [*heard.reasons, *heard.refusals]:
            self._leave_out(reason, server_round)
        answered = {client.node_id for client in heard.clients}
        for known in self.clients:
            if known.node_id in new and known.node_id not in answered:
                known.node_id = 0  # restarted, and of no use any more
        for client in [*self._claims.values(), *heard.clients]:
            self.place(client, server_round, last=last)
        return answers

    def _ask(self, grid: Grid, new: Iterable[int]) -> Answers:
        """Ask nodes who they are; return what they, and those asked before, have answered.

        A node that does not answer holds up a round for a few seconds, once.
        """
        answers, now = Answers(), time.monotonic()
        messages = [question(node) for node in new]
        pushed = {i for i in grid.push_messages(messages) if i} if messages else set()
        for message in messages:
            if message.metadata.message_id in pushed:
                node = message.metadata.dst_node_id
                self._asked[message.metadata.message_id] = node, now + self.timeout
                answers.bytes_down += content_bytes(message.content)
        patience = now + (min(_PATIENCE, self.timeout) if messages else 0.0)
        while self._asked:
            for reply in list(grid.pull_messages(list(self._asked))):
                node, _ = self._asked.pop(reply.metadata.reply_to_message_id, (0, 0.0))
                if node:
                    answers.take(node, reply)
            if time.monotonic() >= patience:
                break
            if self._asked:
                time.sleep(_PAUSE)
        for message_id, (node, until) in list(self._asked.items()):
            if time.monotonic() >= until:
                del self._asked[message_id]
                answers.failures[node] = f"no reply within {self.timeout:g} s"
        return answers

    def _notice_gone(self, here: dict[int, OnlineNode], server_round: int) -> None:
        for known in self.clients:
            if known.node_id and known.node_id not in here and not known.left_out:
                # Asked anew when it is back: what it kept in memory is lost.
                self.nodes.pop(known.node_id, None)
                known.node_id = 0
                log.warning(
                    "round %d: client %s is gone, its SuperNode is not online; it is passed over "
                    "until it is back",
                    *(server_round, known.name),
                )

    def place(self, client: Client, server_round: int, *, last: bool = False) -> None:
        """Let a client that has said who it is be the known one of its name, or a new one."""
        self._claims.pop(client.node_id, None)
        number = self._known(client)
        if number is None:
            self._take_in(client, server_round, last)
            return
        known = self.clients[number]
        if known.registered and not client.registered:
            self._leave_out(f"node {client.node_id}: {claims(client.own)}", server_round)
        elif known.node_id not in (0, client.node_id):
            if client.node_id not in self._claims:
                log.warning(
                    "round %d: node %d calls itself %s, who is online as another; it has to wait",
                    *(server_round, client.node_id, client.own),
                )
            self._claims[client.node_id] = client
        elif problem := _changed(client, known):
            known.node_id = 0
            self._leave_out(f"client {known.name} came back {problem}", server_round)
        elif not known.left_out:
            known.node_id = client.node_id
            log.info("round %d: client %s is back", server_round, known.name)

    def _known(self, client: Client) -> int | None:
        """Return which client this is; None where it is none that was there before."""
        for number, known in enumerate(self.clients):
            if client.registered and known.registered:
                if client.name == known.name:
                    return number
            elif client.own in (known.own, known.name):
                return number
        # Of several with one name: the one that is missing, with as many records.
        for number, known in enumerate(self.clients):
            alike = known.own == apart(client.own, number) and known.count == client.count
            if alike and known.node_id in (0, client.node_id):
                return number
        return None

    def _take_in(self, client: Client, server_round: int, last: bool) -> None:
        first = self.clients[0]
        if client.variables != first.variables:
            self._leave_out(other_variables(client, first), server_round)
            return
        problem = "the run is at its end"
        if not last:
            problem = f"all {self.most} clients are there"
        if not last and len(self.clients) < self.most:
            problem = "nobody is taken in once this study's run has begun"
            client.joined = server_round
            client.counted = min(client.count, most_counted(self.clients))
            try:
                if self.admit(client):
                    self.clients.append(client)
                    log.info("round %d: client %s joins", server_round, client.name)
                    return
            except StudyError as error:
                problem = str(error)
        self._leave_out(
            f"client {client.name} has come late and takes part in the next run: {problem}",
            server_round,
        )

    def _leave_out(self, reason: str, server_round: int) -> None:
        log.warning("round %d: not enrolled: %s", server_round, reason)
        self.left_out.append(reason)


def _changed(client: Client, known: Client) -> str:
    """Return how a client's data differs from what it enrolled with; nothing if it does not."""
    if client.count != known.count:
        return f"with {client.count} records, not {known.count}; it takes part in the next run"
    if client.variables != known.variables:
        return "with other variables; it takes part in the next run"
    return ""


def matched(
    before: list[Client], now: list[Client], least: int
) -> tuple[list[Client], list[Client]]:
    """Return the clients of a checkpoint as they are now, in its order, and those it has not.

    Node ids are new in every run; names and numbers of records are not. One of ``before`` that is
    not there is passed over until it is back.

    Raises
    ------
    CheckpointError
        Where fewer than ``least`` of them are there; 0 is all.
    """
    by_name = {(client.name, client.count): client for client in now}
    clients = [by_name.pop((old.name, old.count), None) for old in before]
    if sum(client is not None for client in clients) < (least or len(before)):
        raise CheckpointError(
            f"the checkpoint is of clients {[c.name for c in before]}, now there are "
            f"{[c.name for c in now]}, or their number of records changed"
        )
    kept = [client or replace(old, node_id=0) for client, old in zip(clients, before, strict=True)]
    return kept, list(by_name.values())
