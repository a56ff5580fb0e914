"""What a client declares about itself at enrolment, and the bound that each value has.

The server cannot check any of it against the client's data. So every value has a bound, whatever it
is used for, and this is the one place that reads them:

    name               1 to 255 characters, no control characters
    partition          -1 (none) to 10^7
    count              1 to 10^9 records
    variables          1 to 10^6 names, each once and of 1,000 characters at most, 10^7 in all
    server, cluster    -1 (none) to 10^4, and one that the study has
    classes            -1 (none) to 10^4
    moments            of ``count`` records at most, of as many columns as variables or one more,
                       numbers of 1e140 at most

A client beyond a bound is left out and named, and the run goes on without it.

**Numbers of records** weigh clients and divide sums, and one within the bound may still be false.
Among three clients or more none counts as more than `FAR` times the median of all (`bound_counts`),
and one beyond that, or below the median by as much, is noted in the result (`count_notes`). While
fewer than half of the clients lie, the median lies between honest numbers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import TypeGuard

from flwr.app import ConfigRecord

from .nodes import OnlineNode
from .wire import MOMENTS, BadReply

MOST_RECORDS = 10**9
MOST_CLASSES = 10**4
FAR = 100  # times the median
FEWEST = 3  # clients; of two nobody can say which number is the odd one
_MOST_PLACES = {"partition": 10**7, "server": 10**4, "cluster": 10**4, "classes": MOST_CLASSES}
_LONGEST_NAME, _LONGEST_VARIABLE = 255, 1000
_MOST_VARIABLES, _MOST_LETTERS = 10**6, 10**7
_LARGEST = 1e140  # number that a client may declare of its columns
_LONGEST_REASON = 1000
_MOST_NOTES = 10


@dataclass
class Client:
    """One enrolled client, in the order of its partition, then its name.

    ``node_id`` is 0 while its node is not online. ``name`` is the one its node is registered under,
    where it is; ``own`` what it calls itself, by which devices know each other's keys. ``count`` is
    the number of its records as declared, ``counted`` what it weighs and divides sums by.
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
    counted: int = 0

    def __post_init__(self) -> None:
        self.counted = self.counted or self.count


def read_name(record: ConfigRecord) -> str:
    """Return what a client calls itself.

    Raises
    ------
    BadReply
        For anything beyond the bounds above; so do the other functions here.
    """
    name = record["name"]
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise BadReply(f"its name must have 1 to {_LONGEST_NAME} characters; set name shorter")
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in name):
        raise BadReply("its name has control characters; set another name")
    return name


def read_client(
    record: ConfigRecord, node: OnlineNode, places: Mapping[str, int] | None = None
) -> Client:
    """Return the client that a node declares to be.

    ``places`` says how many servers or clusters there are, where the study has several: a client of
    none of them cannot take part.
    """
    name, count = read_name(record), record["count"]
    if not _is_whole(count) or not 1 <= count <= MOST_RECORDS:
        raise BadReply(f"{shown(count)} records; a whole number from 1 to {MOST_RECORDS} is needed")
    given = {key: _place(record, key, most) for key, most in _MOST_PLACES.items()}
    for key, number in (places or {}).items():
        if number > 1 and not 0 <= given[key] < number:
            raise BadReply(
                f"it belongs to {key} {given[key]}; they are numbered 0 to {number - 1}. Set {key} "
                "in its node config or in assignment.csv"
            )
    variables = _variables(record)
    return Client(
        node.called(name),
        given["partition"],
        count,
        variables,
        node.id,
        synthetic=record.get("synthetic") is True,
        simulated=record.get("simulated") is True,
        zeros=record.get("zeros") is True,
        server=given["server"],
        cluster=given["cluster"],
        classes=given["classes"],
        own=name,
        registered=bool(node.name),
        moments=_moments(record, count, len(variables)),
    )


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _place(record: ConfigRecord, key: str, most: int) -> int:
    value = record["partition"] if key == "partition" else record.get(key, -1)
    if not _is_whole(value) or not -1 <= value <= most:
        raise BadReply(f"{key} {shown(value)} must be a whole number from -1 to {most}")
    return value


def _variables(record: ConfigRecord) -> list[str]:
    names = record["variables"]
    if not isinstance(names, list) or not 1 <= len(names) <= _MOST_VARIABLES:
        raise BadReply(f"the names of its variables must be a list of 1 to {_MOST_VARIABLES}")
    found = [name for name in names if isinstance(name, str) and len(name) <= _LONGEST_VARIABLE]
    if len(found) < len(names) or sum(map(len, found)) > _MOST_LETTERS:
        raise BadReply(
            f"the names of its variables must be texts of at most {_LONGEST_VARIABLE} characters, "
            f"{_MOST_LETTERS} in all"
        )
    if len(set(found)) < len(found):
        raise BadReply("two of its variables have the same name")
    return found


def _moments(record: ConfigRecord, count: int, variables: int) -> list[list[float]]:
    """Return the moments that a client declares of its columns; nothing where it has none."""
    told = [record.get(f"moments-{name}") for name in MOMENTS]
    if all(part is None for part in told):
        return []
    parts = [part if isinstance(part, list) else [] for part in told]
    lengths = [len(part) for part in parts]
    fits = lengths[0] == 1 and lengths[1] == lengths[2] and 0 <= lengths[1] - variables <= 1
    found = [[float(number) for number in part] for part in parts] if fits else []
    # So put that nothing of it is true of what is no number.
    finite = all(abs(number) <= _LARGEST for part in found for number in part)
    if not (fits and finite and 1.0 <= found[0][0] <= count and min(found[2]) >= 0.0):
        raise BadReply("count, means and squared deviations of its columns are no such numbers")
    return found


def shown(value: object) -> str:
    """Return a value for an error, however long it is."""
    if isinstance(value, str | bytes | list):
        return f"({type(value).__name__} of length {len(value)})"
    if isinstance(value, int) and abs(value) >= 10**30:
        return "(more than 30 digits)"
    return repr(value)


def short(text: str) -> str:
    """Return a text that a client may have chosen, cut and in one line, for notes and logs."""
    cut = text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
    return "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in cut)


# Numbers of records


def bound_counts(clients: Sequence[Client]) -> None:
    """Let no client count as more records than `FAR` times the median of all."""
    most = most_counted(clients)
    for client in clients:
        client.counted = min(client.count, most)


def most_counted(clients: Sequence[Client]) -> int:
    """Return the largest number of records that one among ``clients`` can count as."""
    if len(clients) < FEWEST:
        return MOST_RECORDS
    return FAR * median_low([client.count for client in clients])


def count_notes(clients: Sequence[Client]) -> list[str]:
    """Return which clients declare a number of records far from all others', and what it counts."""
    if len(clients) < FEWEST:
        return []
    usual = median_low([client.count for client in clients])
    notes = []
    for client in clients:
        if client.counted < client.count:
            notes.append(
                f"Client {client.name} declares {client.count} records, more than {FAR} times the "
                f"median of all clients, {usual}: it counts as {client.counted} where clients are "
                "weighed and sums divided. Ask its owner; if the number is false, the result is of "
                "no use, and a run without this client is needed."
            )
        elif client.count * FAR < usual:
            notes.append(
                f"Client {client.name} declares {client.count} records, less than 1/{FAR} of the "
                f"median of all clients, {usual}. Ask its owner whether that is right."
            )
    if len(notes) > _MOST_NOTES:
        rest = len(notes) - _MOST_NOTES
        notes[_MOST_NOTES:] = [f"{rest} more clients declare numbers of records as far off."]
    return notes


def total_note(clients: Sequence[Client], declared: int, shown: int) -> list[str]:
    """Return a note where clients declare more records than a private sum shows."""
    if declared <= shown:
        return []
    largest = max(clients, key=lambda client: client.count)
    return [
        f"The clients declare {declared} records in all, and the private sum shows no more than "
        f"{shown}: it is divided by these. Client {largest.name} declares most, {largest.count}: "
        "ask its owner."
    ]
