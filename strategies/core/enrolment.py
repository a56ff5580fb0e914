"""Enrolment: one query round in which every node says who it is.

The question may carry that of the first round (``opening``), where it is the same for everyone and
does not wait for what enrolment tells: who has answered both is asked one message less. It is sent
only where exactly as many nodes are there as take part, so that none is asked in vain.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from .exchange import Answers, exchange
from .wire import BadReply

log = logging.getLogger("trellis.strategy")

_LONGEST_REASON = 1000


class StudyError(RuntimeError):
    """A run that cannot go on; the message says why and what to do."""


@dataclass
class Client:
    """One enrolled client, in the order of its partition, then its name.

    ``synthetic`` says that its data was made by the study, so that the truth is known;
    ``simulated`` that it is no device, so that its noise may come from the seed; ``server``
    and ``cluster`` which of several servers and clusters it belongs to, and ``classes`` how many
    classes its labels are of, where a study has them. ``strikes`` counts its replies beyond the
    norm bound running, ``out_of_range`` all of them; ``left_out`` is the round in which it was left
    out for good, 0 while it takes part.
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


@dataclass(frozen=True)
class Enrolment:
    """Who takes part, which devices refused and why, and the traffic it took to ask.

    ``opened`` has, by the place of a client, what it has answered to the opening.
    """

    clients: list[Client]
    refusals: list[str]
    traffic: Answers
    opened: dict[int, RecordDict] = field(default_factory=dict)


def enrol(
    grid: Grid,
    needed: int,
    timeout: float,
    node_timeout: float,
    opening: RecordDict | None = None,
) -> Enrolment:
    """Ask every node who it is, and the ``opening`` if any; return up to ``needed`` clients.

    The server learns a client's name, the number of its records and the names of its variables.

    Raises
    ------
    StudyError
        Where fewer than ``needed`` clients can be enrolled, or their variables differ.
    """
    nodes = _wait_for_nodes(grid, needed, node_timeout)
    asked = dict(opening) if opening is not None and len(nodes) == needed else {}
    messages = {
        number: Message(RecordDict(dict(asked)), node, "query.enrol")
        for number, node in enumerate(nodes)
    }
    answers = exchange(grid, messages, timeout)
    found, refusals = [], []
    for number, content in answers.content.items():
        try:
            refusal = _refusal(content)
            if refusal:
                refusals.append(refusal)
            else:
                found.append(_read(content, nodes[number]))
        except Exception as error:  # whatever a malicious reply provokes
            answers.failures[number] = f"cannot be enrolled: {error}"
    reasons = [f"node {nodes[n]}: {text}" for n, text in sorted(answers.failures.items())]
    # A device that refuses is there and well: the others go on without it.
    if len(found) + len(refusals) < needed or not found:
        raise StudyError(
            f"{len(found)} of {needed} clients could be enrolled. "
            + " | ".join([*reasons, *sorted(refusals)])
        )
    for reason in [*reasons, *sorted(refusals)]:
        log.warning("not enrolled: %s", reason)
    found.sort(key=lambda client: (client.partition, client.name, client.node_id))
    if len(found) > needed:
        log.warning("%d nodes answered; the first %d take part", len(found), needed)
    clients = found[:needed]
    _name_apart(clients)
    _check_variables(clients)
    by_node = {nodes[number]: content for number, content in answers.content.items()}
    opened = _opened([by_node[client.node_id] for client in clients]) if asked else {}
    return Enrolment(clients, sorted(refusals), answers, opened if len(clients) == needed else {})


def _opened(replies: Sequence[RecordDict]) -> dict[int, RecordDict]:
    """Return what was answered besides who a client is, of those who answered it."""
    rest = [{k: v for k, v in content.items() if k != "client"} for content in replies]
    return {place: RecordDict(found) for place, found in enumerate(rest) if found}


def _wait_for_nodes(grid: Grid, needed: int, timeout: float) -> list[int]:
    # Nodes register after the ServerApp has started: look until enough are there.
    deadline = time.monotonic() + timeout
    while True:
        nodes = sorted(grid.get_node_ids())
        if len(nodes) >= needed:
            return nodes
        if time.monotonic() >= deadline:
            raise StudyError(
                f"{len(nodes)} nodes are connected, clients={needed} are needed; start more "
                "SuperNodes or lower clients"
            )
        time.sleep(0.05)


def _refusal(content: RecordDict) -> str:
    """Return why a device refuses to take part, or nothing where it does not."""
    record = content.config_records["client"]
    if "refused" not in record:
        return ""
    return f"{record['name']!s}: {record['refused']!s}"[:_LONGEST_REASON]


def _read(content: RecordDict, node_id: int) -> Client:
    record = content.config_records["client"]
    name, partition, count = record["name"], record["partition"], record["count"]
    variables = record["variables"]
    if not (isinstance(name, str) and name and isinstance(variables, list) and variables):
        raise BadReply("a name and the names of the variables are needed")
    if not (isinstance(partition, int) and isinstance(count, int) and count > 0):
        raise BadReply(f"partition {partition!r} and count {count!r} must be whole numbers")
    kind = {key: record.get(key) is True for key in ("synthetic", "simulated")}
    places = {key: record.get(key, -1) for key in ("server", "cluster", "classes")}
    for key, value in places.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadReply(f"{key} {value!r} must be a whole number")
    names = [str(variable) for variable in variables]
    return Client(name, partition, count, names, node_id, **kind, **places)  # type: ignore[arg-type]


def _name_apart(clients: Sequence[Client]) -> None:
    """Give clients with the same name (two files called data.csv) different ones."""
    names = [client.name for client in clients]
    for number, client in enumerate(clients):
        if names.count(client.name) > 1:
            client.name = f"{client.name}-{number + 1}"


def _check_variables(clients: Sequence[Client]) -> None:
    """Refuse clients whose variables differ, naming them and the variables."""
    first = clients[0]
    for client in clients[1:]:
        if client.variables == first.variables:
            continue
        missing = [v for v in first.variables if v not in set(client.variables)]
        extra = [v for v in client.variables if v not in set(first.variables)]
        if missing or extra:
            detail = f"it lacks {missing[:5]} and adds {extra[:5]}"
        else:
            detail = "the same names in another order"
        raise StudyError(
            f"client {client.name} has other variables than {first.name}: {detail}; give every "
            "client the same columns in the same order"
        )
