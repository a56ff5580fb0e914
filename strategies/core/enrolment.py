"""Enrolment: every node says who it is, and what can be used of that takes part.

Nodes are asked as they come online, each once. A node whose data cannot be used, or has other
columns than most clients', is named and left out; the run goes on where enough are left. The server
learns a client's name, the number of its records and the names of its variables.

The question may carry that of the first round (``opening``), where it is the same for everyone and
does not wait for what enrolment tells: who has answered both is asked one message less. It is sent
only while no more nodes are there than take part, so that none is asked in vain.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from .declared import Client, read_client, read_name, short
from .exchange import OFFLINE, Answers, content_bytes
from .nodes import OnlineNode, is_simulation, online

log = logging.getLogger("trellis.strategy")

ENROL = "query.enrol"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
# Seconds for further nodes to answer once there are enough clients: of more, the first take part.
_FOR_OTHERS = 10.0
# Seconds between two lines that say for whom the run waits.
TELL_EVERY = 5.0
_LONGEST_QUOTED = 50  # of a variable's name, in an error
_MOST_REASONS = 10  # why clients are missing, in one error


class StudyError(RuntimeError):
    """A run that cannot go on; the message says why and what to do."""


@dataclass
class Heard:
    """What nodes said: who they are, who refused, and why others cannot take part.

    ``rejected`` is how many of the ``reasons`` are of clients that declare what cannot be. They are
    there, as those who refuse are: else one false declaration would end the run of all. ``bridges``
    are no clients: they bring letters of other servers (`strategies.network`); of each the server
    it says to be of, and its node.
    """

    clients: list[Client] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    rejected: int = 0
    bridges: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Enrolment:
    """Who takes part, which devices refused and why, who else is left out, and the traffic.

    ``nodes`` are all that answered, or failed to. ``opened`` has, by the place of a client, what it
    has answered to the opening.
    """

    clients: list[Client]
    refusals: list[str]
    traffic: Answers
    left_out: list[str] = field(default_factory=list)
    nodes: dict[int, OnlineNode] = field(default_factory=dict)
    opened: dict[int, RecordDict] = field(default_factory=dict)
    bridges: list[tuple[int, int]] = field(default_factory=list)


def enrol(
    grid: Grid,
    needed: int,
    timeout: float,
    node_timeout: float,
    *,
    least: int = 0,
    devices: Sequence[str] = (),
    opening: RecordDict | None = None,
    places: Mapping[str, int] | None = None,
) -> Enrolment:
    """Ask every node who it is, and the ``opening`` if any; return up to ``needed`` clients.

    Parameters
    ----------
    timeout : seconds a node has to answer
    node_timeout : seconds to wait until ``needed`` nodes are there
    least : with how many clients to go on then; 0 is all, those aside who refuse or declare what
        cannot be
    devices : names that the operator expects, to say who is missing
    opening : the first round's question, for as many clients as are ``needed``
    places : how many servers and clusters there are, where there are several

    Raises
    ------
    StudyError
        Where fewer can be enrolled; at once where waiting would not help. It names each and why.
    """
    asking = _Asking(grid, timeout, needed, opening)
    began = told = complete = time.monotonic()
    look, next_look, pause = _FIRST_LOOK, began, _FIRST_PAUSE
    found, heard = Heard(), (0, 0, 0)
    while True:
        now = time.monotonic()
        if now >= next_look:
            asking.look()
            next_look, look = now + look, min(2.0 * look, _LONGEST_LOOK)
        came = asking.collect()
        if heard != (
            now_heard := asking.told()
        ):  # what all have said, read once and not every look
            found, heard = judged(hear(asking.answers, asking.nodes, places)), now_heard
        # A device that refuses is there and well: the others go on without it.
        absent = 0 if least else len(found.refusals) + found.rejected
        taking_part = len(found.clients) + absent
        to_come = max(0, needed - len(asking.nodes) + len(found.bridges))
        enough = bool(found.clients) and taking_part >= (least or needed)
        if not asking.waiting and (not to_come or taking_part + to_come < (least or needed)):
            break
        if now >= began + node_timeout and (enough or not asking.waiting):
            break
        if len(found.clients) < needed:
            complete = now
        elif now >= complete + _FOR_OTHERS:  # a node that hangs must not hold up the run
            break
        if now >= told + TELL_EVERY:
            told = now
            left = (
                f" ({began + node_timeout - now:.0f} s left)" if now < began + node_timeout else ""
            )
            log.info("%s%s", _waiting_for(asking, found, needed, devices), left if to_come else "")
        if not came:
            time.sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
    silent = [f"{asking.nodes[n].called()}: no answer yet" for n in sorted(asking.waiting.values())]
    reasons = [*found.reasons, *silent, *asking.gone]
    if not enough:
        if to_come:
            reasons.append(_waiting_for(asking, found, needed, devices))
        raise StudyError(_too_few(found, needed, least, [*reasons, *sorted(found.refusals)]))
    for reason in [*reasons, *sorted(found.refusals)]:
        log.warning("not enrolled: %s", reason)
    if len(found.clients) > needed:
        log.warning("%d nodes answered; the first %d take part", len(found.clients), needed)
    if len(found.clients) < needed:
        log.warning("the run goes on with %d of %d clients", len(found.clients), needed)
    clients = found.clients[:needed]
    _say_both_names(clients)
    _name_apart(clients)
    # Those who have not answered are asked again when the run has begun.
    silent_nodes = set(asking.waiting.values())
    nodes = {n: node for n, node in asking.nodes.items() if n not in silent_nodes}
    # The opening is a question to exactly as many: of fewer, the first round asks anew.
    opened = _opened(clients, asking.answers) if len(clients) == needed else {}
    return Enrolment(
        *(clients, sorted(found.refusals), asking.answers, reasons, nodes, opened),
        bridges=found.bridges,
    )


def question(node: int, opening: RecordDict | None = None) -> Message:
    """Return the message that asks a node who it is, and the first round's question, if any."""
    return Message(RecordDict(dict(opening or {})), node, ENROL)


def _opened(clients: Sequence[Client], answers: Answers) -> dict[int, RecordDict]:
    """Return what clients answered besides who they are, by their places."""
    found = {}
    for place, client in enumerate(clients):
        content = answers.content[client.node_id]
        if rest := {name: record for name, record in content.items() if name != "client"}:
            found[place] = RecordDict(rest)
    return found


class _Asking:
    """Asks nodes as they come online, each once, and takes what they say."""

    def __init__(self, grid: Grid, timeout: float, needed: int, opening: RecordDict | None) -> None:
        self.grid, self.timeout = grid, timeout
        self.needed, self.opening = needed, opening
        self.nodes: dict[int, OnlineNode] = {}
        self.answers = Answers()  # by node
        self.waiting: dict[str, int] = {}
        self.gone: list[str] = []
        self._until: dict[int, float] = {}

    def look(self) -> None:
        """Ask nodes that are new; give up those that left before they answered."""
        here = online(self.grid)
        for message_id, node in list(self.waiting.items()):
            if node not in here:
                del self.waiting[message_id]
                self.gone.append(f"{self.nodes.pop(node).called()}: it left before it answered")
        new = {n: node for n, node in here.items() if n not in self.nodes}
        if not new:
            return
        self.nodes |= new
        opening = self.opening if len(self.nodes) <= self.needed else None
        messages = {n: question(n, opening) for n in new}
        pushed = {i for i in self.grid.push_messages(list(messages.values())) if i}
        for n, message in messages.items():
            if message.metadata.message_id not in pushed:
                self.answers.failures[n] = OFFLINE
                continue
            self.waiting[message.metadata.message_id] = n
            self.answers.bytes_down += content_bytes(message.content)
            self._until[n] = time.monotonic() + self.timeout

    def told(self) -> tuple[int, int, int]:
        """Return numbers that change with whatever there is to `hear`."""
        return len(self.nodes), len(self.answers.content), len(self.answers.failures)

    def collect(self) -> bool:
        """Take the answers that are there; return whether any came."""
        if not self.waiting:
            return False
        replies = list(self.grid.pull_messages(list(self.waiting)))
        for reply in replies:
            node = self.waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                self.answers.take(node, reply)
        now = time.monotonic()
        for message_id, node in list(self.waiting.items()):
            if now >= self._until[node]:
                del self.waiting[message_id]
                self.answers.failures[node] = f"no reply within {self.timeout:g} s"
        return bool(replies)


def hear(
    answers: Answers, nodes: Mapping[int, OnlineNode], places: Mapping[str, int] | None = None
) -> Heard:
    """Return what nodes said of themselves; ``answers`` are by node."""
    heard = Heard()
    registered = {node.name: number for number, node in nodes.items() if node.name}
    failures = dict(answers.failures)
    named = {number: node.called() for number, node in nodes.items()}
    for number, content in answers.content.items():
        node = nodes[number]
        try:
            record = content.config_records["client"]
            if (server := _bridge_of(record)) is not None:
                heard.bridges.append((server, number))
                continue
            own = read_name(record)
            named[number] = node.called(own)
            if "refused" in record:
                heard.refusals.append(short(f"{named[number]}: {record['refused']!s}"))
                continue
            if "unusable" in record:  # of a simulated client
                heard.reasons.append(short(f"{named[number]}: {record['unusable']!s}"))
                continue
            client = read_client(record, node, places)
        except Exception as error:  # whatever a malicious reply provokes
            failures[number] = f"cannot be enrolled: {error}"
            heard.rejected += 1
            continue
        if registered.get(client.own, number) != number:
            failures[number], named[number] = claims(client.own), node.called()
            continue
        heard.clients.append(client)
    heard.clients.sort(key=lambda client: (client.partition, client.name, client.node_id))
    heard.reasons.sort()
    heard.reasons += [short(f"{named[n]}: {text}") for n, text in sorted(failures.items())]
    return heard


def claims(name: str) -> str:
    """Return why a node is refused that calls itself by a registered name."""
    return f"it calls itself {name}, the name that another device is registered under"


def judged(heard: Heard) -> Heard:
    """Leave out clients that differ from most in what they declare of their columns.

    With as many of either kind, those that are not as the first.
    """
    return _with_usual_moments(_with_usual_variables(heard))


def _with_usual_moments(heard: Heard) -> Heard:
    def columns(client: Client) -> int:
        return len(client.moments[1]) if client.moments else 0

    kinds = Counter(map(columns, heard.clients))
    if len(kinds) < 2:
        return heard
    usual = kinds.most_common(1)[0][0]
    odd = [client for client in heard.clients if columns(client) != usual]
    reasons = [f"{c.name}: cannot be enrolled: its moments are not of {usual} columns" for c in odd]
    return replace(
        heard,
        clients=[client for client in heard.clients if columns(client) == usual],
        reasons=[*heard.reasons, *reasons],
        rejected=heard.rejected + len(odd),
    )


def _with_usual_variables(heard: Heard) -> Heard:
    kinds = Counter(tuple(client.variables) for client in heard.clients)
    if len(kinds) < 2:
        for client in heard.clients:
            client.variables = heard.clients[0].variables  # one list for all, not one each
        return heard
    usual = max(kinds, key=lambda kind: kinds[kind])  # the first of several, in order of clients
    first = next(client for client in heard.clients if tuple(client.variables) == usual)
    kept = [client for client in heard.clients if client.variables == first.variables]
    others = [client for client in heard.clients if client.variables != first.variables]
    odd = [other_variables(client, first) for client in others]
    return replace(heard, clients=kept, reasons=[*heard.reasons, *odd])


def other_variables(client: Client, first: Client) -> str:
    """Return in words how a client's variables differ from those of another."""
    usual, own = set(first.variables), set(client.variables)
    missing = [v for v in first.variables if v not in own]
    extra = [v for v in client.variables if v not in usual]
    if missing or extra:
        lists = (("lacks", missing), ("adds", extra))
        told = [f"{verb} {', '.join(map(_quoted, names[:5]))}" for verb, names in lists if names]
        detail = f"it {' and '.join(told)}"
    else:
        detail = "the same names in another order"
    return (
        f"client {client.name} has other variables than {first.name}: {detail}; give every "
        "client the same columns in the same order"
    )


def _quoted(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_QUOTED else f"{name[:_LONGEST_QUOTED]}...")


def _waiting_for(asking: _Asking, found: Heard, needed: int, devices: Sequence[str]) -> str:
    """Return for whom the run waits."""
    silent = [asking.nodes[n].called() for n in sorted(asking.waiting.values())]
    names = {node.name for node in asking.nodes.values()} | {c.own for c in found.clients}
    missing = [name for name in devices if name not in names]
    there = len(asking.nodes) - len(found.bridges)
    what = "client" if is_simulation(asking.grid) else "device"
    here = f"{there} of {needed} {what}s are online"
    if there >= needed or (silent and not missing):
        return f"waiting for the answer of {', '.join(silent)}; {here}"
    if missing:
        return f"waiting for {', '.join(missing)}, not online yet; {here}"
    more = needed - there
    return f"waiting for {more} more {what}{'s' * (more > 1)}; {here}"


def _too_few(found: Heard, needed: int, least: int, reasons: Sequence[str]) -> str:
    told = f"{len(found.clients)} of {needed} clients could be enrolled"
    if least and least < needed:
        told += f", clients-least={least} must be"
    advice = "" if least else "To go on without some, set clients-least"
    # A line for each: many files may be bad in many ways, very many hardly in as many.
    shown = list(reasons[:_MOST_REASONS])
    if len(reasons) > _MOST_REASONS:
        shown.append(f"and {len(reasons) - _MOST_REASONS} more")
    text = f"{told}. " + "\n  ".join(shown)
    if not advice:
        return text
    return f"{text}\n{advice}" if len(reasons) > 1 else f"{text}. {advice}"


def _bridge_of(record: ConfigRecord) -> int | None:
    """Return of which server a node says to be a bridge; None where it is a client."""
    server = record.get("bridge")
    return server if isinstance(server, int) and not isinstance(server, bool) else None


def _say_both_names(clients: Sequence[Client]) -> None:
    for client in clients:
        if client.own != client.name:
            log.info(
                "the device registered as %s calls itself %s; it is shown as %s",
                *(client.name, client.own, client.name),
            )


def _name_apart(clients: Sequence[Client]) -> None:
    """Give clients with the same name (two files called data.csv) different ones."""
    for key in ("name", "own"):
        times = Counter(getattr(client, key) for client in clients)
        for number, client in enumerate(clients):
            if times[name := getattr(client, key)] > 1:
                setattr(client, key, apart(name, number))


def apart(name: str, number: int) -> str:
    """Return the name of a client that is not the only one so called."""
    return f"{name}-{number + 1}"
