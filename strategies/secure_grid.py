"""Secure aggregation as middleware: a Grid whose exchange returns one reply, the sum.

    strategy = FedAvg()                                       # or any strategy that needs a mean
    strategy.start(SecureGrid(grid), initial_arrays)

and on the client ``secure_aggregation(app)`` (`trellis.privacy.secagg.client`). The strategy does
not know: it sends its messages, alike for all nodes, and gets one reply, whose arrays are the mean
over the nodes that answered, weighted by ``num-examples``; or the plain sum, if the client's
summands are given by the study. No reply of a single node ever reaches the server unmasked.

Nodes that are sent the same message are summed together: a strategy with several servers, each with
a model of its own, gets one reply per server, whose source is the first node of that server. A
group whose sum fails is left out; the exchange fails if no group has a sum.

Beside ``arrays`` and ``metrics`` a reply has a record ``sum``: the ``nodes`` in it and, for those
that sent it in the clear, their ``num-examples``.

With ``noisy`` every client adds its share of one noise before it masks (distributed differential
privacy), and the reply's metrics have ``noise``, the standard deviation in an entry of the sum.

A strategy that needs single replies, for a median or for distances to the mean, cannot run on sums:
those of Flower are refused (`core.sums_only`).
`core.secure` has the protocol's rounds, `privacy.secagg` what it protects against.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from trellis.privacy.secagg.client import COUNT, METRIC
from trellis.privacy.secagg.errors import TooFewClients
from trellis.privacy.secagg.graph import FEWEST

from .core.declared import Client
from .core.enrolment import StudyError
from .core.secure import SecureAnswers, SecureSum
from .core.sum_noise import noise_in
from .core.sums_only import refuse_single_replies, running_strategy
from .enrolled_grid import EnrolledGrid
from .grid_wrapper import GridWrapper

_TIMEOUT = 3600.0


class SecureGrid(GridWrapper):
    """A Grid around another: replies to ``train`` and ``evaluate`` messages are sums.

    So are those to ``train`` messages with an action of their own, as ``train.units``, by what the
    client registers for it. ``query`` messages pass as they are.

    Parameters
    ----------
    grid : any Flower Grid
    sums : the protocol's parameters; see `SecureSum`
    """

    def __init__(self, grid: Grid, sums: SecureSum | None = None) -> None:
        super().__init__(grid)
        self.sums = sums or SecureSum()
        self._checked = False
        self._numbers: dict[int, int] = {}  # the place of a node among the clients, by id

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return one reply per group of equal messages, a sum, and all replies to queries.

        Raises
        ------
        StudyError
            If no sum opens, a message goes to too few nodes, or the strategy needs single replies.
        """
        if not self._checked:
            refuse_single_replies(running_strategy())
            self._checked = True
        every = list(messages)
        queries = [m for m in every if m.metadata.message_type.startswith("query")]
        asked = [m for m in every if not m.metadata.message_type.startswith("query")]
        found = self._sum(asked, timeout) if asked else []
        if queries:
            found += self.grid.send_and_receive(queries, timeout=timeout)
        return found

    def _sum(self, asked: list[Message], timeout: float | None) -> list[Message]:
        """Return one reply per group of equal messages: the sum over the nodes that answered."""
        category = asked[0].metadata.message_type
        if category.partition(".")[0] not in ("train", "evaluate"):
            raise StudyError(f"a secure sum of {category!r}: use train or evaluate messages")
        groups = self._large_enough(_alike(asked))
        nodes = [message.metadata.dst_node_id for group in groups for message in group]
        clients = self._clients(nodes)
        number, label = self._numbers, asked[0].metadata.group_id
        found = self.sums.gather_groups(
            self.grid,
            {
                str(place) if len(groups) > 1 else "": {
                    number[message.metadata.dst_node_id]: message.content for message in group
                }
                for place, group in enumerate(groups)
            },
            clients,
            int(label) if label.isdecimal() else 0,
            _TIMEOUT if timeout is None else timeout,
            category=category,
        )
        replies = []
        for group, one in zip(groups, found.values(), strict=True):
            self._enter_failures(one)
            if not one.error:
                content = _content(one, group[0])
                content["sum"] = self._members(one)
                replies.append(Message(content, reply_to=group[0]))
        if not replies:
            raise StudyError(" | ".join(dict.fromkeys(one.error for one in found.values())))
        return replies

    def _members(self, found: SecureAnswers) -> ConfigRecord:
        """Return who is in a sum, and with how many examples, as they said in the clear."""
        of = {place: node for node, place in self._numbers.items()}
        counts = [_examples(found.clear.get(place, RecordDict())) for place in found.survivors]
        nodes = [of[place] for place in found.survivors]
        return ConfigRecord({"nodes": nodes, "num-examples": counts})

    def _enter_failures(self, found: SecureAnswers) -> None:
        """Say of whom a sum goes without, if the grid below keeps account of that."""
        if not isinstance(self.grid, EnrolledGrid):
            return
        of = {place: node for node, place in self._numbers.items()}
        self.grid.failures |= {of[place]: text for place, text in found.failures.items()}
        if found.error:
            self.grid.failures |= {of[place]: found.error for place in found.asked}
            return
        for place in found.survivors:  # in the sum, even if they did not help to open it
            self.grid.failures.pop(of[place], None)

    def _large_enough(self, groups: list[list[Message]]) -> list[list[Message]]:
        """Return the groups that a sum can be over, all if it is one; name who is offline.

        Raises
        ------
        StudyError
            If every group is too small.
        """
        found = [group for group in groups if len(group) >= FEWEST]
        enrolled = self.grid if isinstance(self.grid, EnrolledGrid) else None
        # Under a plain grid nobody would hear of those left out.
        if len(found) == len(groups) or (found and enrolled is not None):
            for group in groups:
                if len(group) < FEWEST and enrolled is not None:
                    few = TooFewClients.left(len(group), len(group), "are there", FEWEST)
                    nodes = [message.metadata.dst_node_id for message in group]
                    enrolled.failures |= dict.fromkeys(nodes, f"no secure sum: {few}")
            return found
        fewest, server_round = min(map(len, groups)), groups[0][0].metadata.group_id
        if len(groups) > 1:
            raise StudyError(
                f"SecureGrid: {fewest} of the nodes are sent different messages than all others, "
                f"and a sum is over {FEWEST} nodes at least that are sent the same, which masks "
                "bind; run a strategy on it that needs nothing but a sum over each group of nodes"
            )
        if enrolled is None:
            return groups  # the protocol says how many it needs
        gone = sorted(enrolled.failures.items())
        text = TooFewClients.left(fewest, fewest + len(gone), "are there", FEWEST)
        names = " | ".join(f"{enrolled.client(number).name}: {why}" for number, why in gone)
        raise StudyError(f"round {server_round}: {text}. {names}")

    def _clients(self, nodes: Iterable[int]) -> list[Client]:
        """Return every node that is or was there: a node may be asked later, and needs keys."""
        there = set(self.get_node_ids())
        if isinstance(self.grid, EnrolledGrid):
            nodes = range(1, len(self.grid.clients) + 1)
        for node in [*nodes, *sorted(there)]:
            self._numbers.setdefault(node, len(self._numbers))
        found = []
        for node, place in self._numbers.items():
            known = Client(f"node {node}", place, 0, [], node)
            if isinstance(self.grid, EnrolledGrid):
                known = replace(self.grid.client(node), node_id=node)
            found.append(known if node in there else replace(known, node_id=0))
        return found

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: what is pushed by itself would be answered in the clear."""
        raise StudyError("SecureGrid: use send_and_receive, which returns sums")


def _alike(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages in groups of equal content, in the order of each group's first."""
    groups: list[list[Message]] = []
    for message in messages:
        for group in groups:
            first = group[0].content
            if message.content is first or message.content == first:
                group.append(message)
                break
        else:
            groups.append([message])
    return groups


def _content(found: SecureAnswers, asked: Message) -> RecordDict:
    """Return a sum as a reply: arrays by name, numbers that clients sent in the clear added up."""
    total, metrics = dict(found.total), _added(found)
    for name in [name for name in total if name.startswith(METRIC)]:
        metrics[name.removeprefix(METRIC)] = float(total.pop(name)[0])
    if COUNT in total:  # terms were weighted: the reply is their mean
        count = float(total.pop(COUNT)[0])
        if not count > 0.0:
            raise StudyError("a secure mean over no examples: every client sent num-examples=0")
        total = {name: array / count for name, array in total.items()}
        metrics["num-examples"] = count
    metrics |= {"clients": float(len(found.survivors)), "noise": noise_in(found)}
    sent = asked.content.get("arrays")
    arrays = ArrayRecord()
    for name, array in total.items():
        kind = sent[name].dtype if isinstance(sent, ArrayRecord) and name in sent else "float64"
        arrays[name] = Array(np.asarray(array, dtype=kind))
    return RecordDict({"arrays": arrays, "metrics": MetricRecord(dict(metrics))})


def _examples(content: RecordDict) -> float:
    count = content.get("metrics", ConfigRecord()).get("num-examples", 0.0)
    return float(count) if isinstance(count, int | float) else 0.0


def _added(found: SecureAnswers) -> dict[str, float]:
    """Return the sums of the metrics that survivors sent in the clear."""
    total: dict[str, float] = {}
    for client in found.survivors:
        record = found.clear.get(client, RecordDict()).get("metrics", ConfigRecord())
        for key, value in record.items():
            if isinstance(value, int | float):
                total[key] = total.get(key, 0.0) + float(value)
    return total
