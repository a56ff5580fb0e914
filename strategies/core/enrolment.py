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
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from .exchange import OFFLINE, Answers, content_bytes
from .nodes import OnlineNode, is_simulation, online
from .wire import MOMENTS, BadReply

log = logging.getLogger("trellis.strategy")

ENROL = "query.enrol"
_LONGEST_REASON = 1000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
# Seconds for further nodes to answer once there are enough clients: of more, the first take part.
_FOR_OTHERS = 10.0
# Seconds between two lines that say for whom the run waits.
TELL_EVERY = 5.0
_MOST_REASONS = 10  # why clients are missing, in one error
_LARGEST = 1e140  # number that a client may tell of its columns


class StudyError(RuntimeError):
    """A run that cannot go on; the message says why and what to do."""


@dataclass
class Client:
    """One enrolled client, in the order of its partition, then its name.

    ``node_id`` is 0 while its node is not online. ``name`` is the one its node is registered under,
    where it is; ``own`` what it calls itself, by which devices know each other's keys.
    ``synthetic`` says that its data was made by the study, so that the truth is known;
    ``simulated`` that it is no device, so that its noise may come from the seed; ``server``
    and ``cluster`` which of several servers and clusters it belongs to, and ``classes`` how many
    classes its labels are of, where a study has them. ``strikes`` counts its replies beyond the
    norm bound running, ``out_of_range`` all of them; ``left_out`` is the round in which it was left
    out for good, 0 while it takes part; ``joined`` the first round of one that came late.
    ``moments`` are the count, means and squared deviations of its columns, where it tells them;
    ``zeros`` whether its labels are 0 and 1, and not -1 and 1.
    """

    name: str
    partition: int
    count: int
    variables: list[str]
    node_id: int
    synthetic: bool = False
    server: int = -1
    cluster: int = -1
    classes: int = -1
    rounds: int = 0
    failures: int = 0
    last_failure: str = ""
    simulated: bool = False
    strikes: int = 0
    out_of_range: int = 0
    left_out: int = 0
    own: str = ""
    registered: bool = False
    joined: int = 0
    moments: list[list[float]] = field(default_factory=list)
    zeros: bool = False


@dataclass
class Heard:
    """What nodes said: who they are, who refused, and why others cannot take part.

    ``bridges`` are no clients: they bring letters of other servers (`strategies.network`); of each
    the server it says to be of, and its node.
    """

    clients: list[Client] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
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
) -> Enrolment:
    """Ask every node who it is, and the ``opening`` if any; return up to ``needed`` clients.

    Parameters
    ----------
    timeout : seconds a node has to answer
    node_timeout : seconds to wait until ``needed`` nodes are there
    least : with how many clients to go on then; 0 is all, those who refuse aside
    devices : names that the operator expects, to say who is missing
    opening : the first round's question, for as many clients as are ``needed``

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
            found, heard = judged(hear(asking.answers, asking.nodes)), now_heard
        # A device that refuses is there and well: the others go on without it.
        taking_part = len(found.clients) + (0 if least else len(found.refusals))
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


def hear(answers: Answers, nodes: Mapping[int, OnlineNode]) -> Heard:
    """Return what nodes said of themselves; ``answers`` are by node."""
    heard = Heard()
    registered = {node.name: number for number, node in nodes.items() if node.name}
    failures = dict(answers.failures)
    named = {number: node.called() for number, node in nodes.items()}
    for number, content in answers.content.items():
        node = nodes[number]
        try:
            if (server := _bridge_of(content)) is not None:
                heard.bridges.append((server, number))
                continue
            own, refusal = _refusal(content)
            named[number] = node.called(own)
            if refusal:
                heard.refusals.append(f"{node.called(own)}: {refusal}"[:_LONGEST_REASON])
                continue
            if unusable := _unusable(content):
                heard.reasons.append(f"{node.called(own)}: {unusable}"[:_LONGEST_REASON])
                continue
            client = _read(content, node)
        except Exception as error:  # whatever a malicious reply provokes
            failures[number] = f"cannot be enrolled: {error}"
            continue
        if registered.get(client.own, number) != number:
            failures[number], named[number] = claims(client.own), node.called()
            continue
        heard.clients.append(client)
    heard.clients.sort(key=lambda client: (client.partition, client.name, client.node_id))
    heard.reasons.sort()
    heard.reasons += [f"{named[n]}: {text}" for n, text in sorted(failures.items())]
    return heard


def claims(name: str) -> str:
    """Return why a node is refused that calls itself by a registered name."""
    return f"it calls itself {name}, the name that another device is registered under"


def judged(heard: Heard) -> Heard:
    """Leave out clients with other variables than most have; of as many, than the first have."""
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
    return Heard(kept, heard.refusals, [*heard.reasons, *odd], heard.bridges)


def other_variables(client: Client, first: Client) -> str:
    """Return in words how a client's variables differ from those of another."""
    missing = [v for v in first.variables if v not in set(client.variables)]
    extra = [v for v in client.variables if v not in set(first.variables)]
    if missing or extra:
        lists = (("lacks", missing), ("adds", extra))
        told = [f"{verb} {', '.join(map(repr, names[:5]))}" for verb, names in lists if names]
        detail = f"it {' and '.join(told)}"
    else:
        detail = "the same names in another order"
    return (
        f"client {client.name} has other variables than {first.name}: {detail}; give every "
        "client the same columns in the same order"
    )


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


def _bridge_of(content: RecordDict) -> int | None:
    """Return of which server a node says to be a bridge; None where it is a client."""
    server = content.config_records["client"].get("bridge")
    return server if isinstance(server, int) and not isinstance(server, bool) else None


def _refusal(content: RecordDict) -> tuple[str, str]:
    """Return a device's own name and why it refuses to take part; nothing where it does not."""
    record = content.config_records["client"]
    return str(record["name"]), str(record["refused"]) if "refused" in record else ""


def _unusable(content: RecordDict) -> str:
    """Return why a simulated client's data cannot be used; nothing where it can."""
    return str(content.config_records["client"].get("unusable", ""))


def _read(content: RecordDict, node: OnlineNode) -> Client:
    record = content.config_records["client"]
    name, partition, count = record["name"], record["partition"], record["count"]
    variables = record["variables"]
    if not (isinstance(name, str) and name and isinstance(variables, list) and variables):
        raise BadReply("a name and the names of the variables are needed")
    if not (isinstance(partition, int) and isinstance(count, int) and count > 0):
        raise BadReply(f"partition {partition!r} and count {count!r} must be whole numbers")
    kind = {key: record.get(key) is True for key in ("synthetic", "simulated", "zeros")}
    places = {key: record.get(key, -1) for key in ("server", "cluster", "classes")}
    for key, value in places.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadReply(f"{key} {value!r} must be a whole number")
    names = [str(variable) for variable in variables]
    known = {"own": name, "registered": bool(node.name), "moments": _moments(record)}
    return Client(node.called(name), partition, count, names, node.id, **kind, **places, **known)  # type: ignore[arg-type]


def _moments(record: ConfigRecord) -> list[list[float]]:
    """Return the moments that a client tells of its columns; nothing where it tells none."""
    told = [record.get(f"moments-{name}") for name in MOMENTS]
    if all(part is None for part in told):
        return []
    found = [[float(n) for n in part] if isinstance(part, list) else [] for part in told]
    count, means, spreads = found
    whole = len(count) == 1 and bool(means) and len(means) == len(spreads)
    # So put that nothing of it is true of what is no number.
    finite = all(abs(number) <= _LARGEST for part in found for number in part)
    if not (whole and finite and count[0] >= 1.0 and min(spreads) >= 0.0):
        raise BadReply("count, means and squared deviations of its columns are no such numbers")
    return found


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
