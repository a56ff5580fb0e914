"""The private consensus as a Flower strategy: one sum of all clients' statistics, solved once.

The strategy sees nothing but sums, and does not know whether they are masked or noisy: run it on
`trellis.strategies.secure_grid.SecureGrid` for secure aggregation with distributed noise. What is
computed from the sum is the study's (`apps.consensus_graph.private`), given as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.node_strategy import NodeStrategy

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Shared:
    """What was made of the sum.

    Attributes
    ----------
    consensus : (p,)
    noise : how much of it is in what the consensus is made of
    signals : number that the sum was divided by; not more than were declared
    """

    consensus: Vector
    noise: float
    signals: int


class PooledConsensus(NodeStrategy):
    """The graph that all clients share, from one sum over all of them.

    ``initial_arrays`` may be empty; ``Result.arrays`` has ``consensus`` (p,) and ``noise`` (1,),
    the standard deviation of the noise in an entry of the pooled statistic over its mean entry.

    Sent with ``train``, to all nodes alike:
        config   ``server-round`` and ``train_config``
    Expected back, added up over all replies (one, if a `SecureGrid` did so):
        arrays   the terms of the sum, as ``parts`` has them
        metrics  ``num-examples``; ``noise``, the standard deviation of the noise in an entry of
                 the sum (0 if absent)
    Sent with ``evaluate``, if ``scored``, to all nodes alike:
        arrays   ``consensus`` and ``noise``; config ``evaluate_config``
    Expected back, added up:
        arrays   ``scores`` (2,): held-out signals that the consensus explains better than no
                 graph, and clients whom it helped
        metrics  ``num-examples``, held-out signals; ``clients``; ``noise``

    Parameters
    ----------
    make : the consensus from the sum, the number of signals in it and the noise of an entry
    parts : names and shapes of the terms of the sum
    scored : also ask for the score of held-out signals
    helped : whether the second score means something: clients make graphs of their own
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        make: Callable[[Mapping[str, Vector], int, float], Shared],
        parts: Mapping[str, tuple[int, ...]],
        *,
        scored: bool = False,
        helped: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.make, self.parts, self.scored, self.helped = make, dict(parts), scored, helped
        self.shared: Shared | None = None
        # Signals in the sum: as clients declared them, and as it was divided by.
        self.declared = self.signals = 0
        self._evaluated = False

    @property
    def done(self) -> bool:
        """Whether the one sum is made."""
        return self.shared is not None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask everyone for its terms of the sum, once."""
        if self.done:
            return
        for node in self.all_nodes(grid):
            told = ConfigRecord({**config, "server-round": server_round})
            yield Message(RecordDict({"config": told}), node, "train", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Solve the whole problem from the sum."""
        total, facts = add_up(self.usable(replies, lambda found: read_terms(found, self.parts)))
        if not total:
            return None, None
        self.declared = int(facts["num-examples"])
        self.shared = self.make(total, self.declared, facts["noise"])
        self.signals = self.shared.signals
        metrics = {
            "change": 0.0,
            "consensus-edges": int(np.count_nonzero(self.shared.consensus)),
            "noise": self.shared.noise,
        }
        return self.public(), MetricRecord(dict(metrics))

    def public(self) -> ArrayRecord:
        """Return the public result: the consensus and how much noise is in it."""
        assert self.shared is not None
        noise = np.array([self.shared.noise])
        return wire.record({"consensus": self.shared.consensus, "noise": noise})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask how many held-out signals the consensus explains, once."""
        if not self.scored or not self.done or self._evaluated:
            return
        self._evaluated = True
        for node in self.all_nodes(grid):
            told = ConfigRecord({**config, "server-round": server_round})
            content = RecordDict({"arrays": arrays, "config": told})
            yield Message(content, node, "evaluate", group_id=str(server_round))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the share of held-out signals that the consensus explains, and its noise."""
        total, facts = add_up(self.usable(replies, lambda found: read_terms(found, SCORES)))
        if not total:
            return None
        held, clients = max(int(facts["num-examples"]), 1), facts["clients"]
        explained, helped = (float(value) for value in total["scores"])
        found = {"held-out-noise": facts["noise"] / held, "held-out": explained / held}
        if self.helped:
            found |= {"helped": helped / clients, "helped-noise": facts["noise"] / clients}
        return MetricRecord(dict(found))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the public result, if there is one."""
        if self.shared is None:
            return {}
        return {"consensus": self.shared.consensus, "noise": np.array([self.shared.noise])}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        if "consensus" in state:
            self.shared = Shared(state["consensus"].copy(), float(state["noise"][0]), 0)
            self._evaluated = True


class NoTraining(NodeStrategy):
    """No messages at all: every client learns on its own device (IGL under privacy)."""

    @property
    def done(self) -> bool:
        """True: there is nothing to do."""
        return True

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nothing."""
        return []


class PersonalGraphs:
    """Graphs that clients made on their devices; simulated ones send them, to be evaluated."""

    def __init__(self, clients: int, size: int) -> None:
        self.own, self.alone = np.zeros((clients, size)), np.zeros((clients, size))
        self.gathered = np.zeros(clients, dtype=bool)
        self.gamma = np.zeros(clients)
        self.pulls = np.full(clients, np.nan)
        self.gains = np.full(clients, np.nan)

    def take(self, client: int, content: RecordDict) -> None:
        """Take a simulated client's graphs; raise `BadReply` to reject them."""
        record = content["arrays"]
        graphs = {}
        for name in ("weights", "alone"):
            if not isinstance(record, ArrayRecord) or name not in record:
                raise wire.BadReply(f"{name} is missing")
            graphs[name] = wire.unpack(record[name])
            wire.check_reals(graphs[name], name, self.own.shape[1:])
            if np.min(graphs[name]) < 0.0:
                raise wire.BadReply(f"{name} has a negative entry, {np.min(graphs[name]):g}")
        self.own[client], self.alone[client] = graphs["weights"], graphs["alone"]
        self.gathered[client] = True
        summary = content.get("summary")
        if isinstance(summary, MetricRecord):
            known = {key: float(value) for key, value in summary.items()}  # type: ignore[arg-type]
            self.gamma[client] = known.get("gamma", 0.0)
            self.pulls[client] = known.get("pull", np.nan)
            self.gains[client] = known.get("gain", np.nan)


SCORES = {"scores": (2,)}


def read_terms(
    content: RecordDict, parts: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Vector], dict[str, float]]:
    """Return the terms of a reply and its numbers; raise an error for others than ``parts``."""
    found = wire.arrays(content["arrays"])
    if set(found) != set(parts):
        raise wire.BadReply(f"holds {sorted(found)}, not {sorted(parts)}")
    for name, array in found.items():
        wire.check_reals(array, name, parts[name])
    metrics = content.metric_records.get("metrics", MetricRecord())
    facts = {key: float(metrics.get(key, 0.0)) for key in ("num-examples", "noise")}  # type: ignore[arg-type]
    facts["clients"] = float(metrics.get("clients", 1.0))  # type: ignore[arg-type]
    if not all(0.0 <= value < 2.0**53 for value in facts.values()):
        raise wire.BadReply(f"numbers out of range: {facts}")
    return found, facts


def add_up(
    replies: Mapping[int, tuple[dict[str, Vector], dict[str, float]]],
) -> tuple[dict[str, Vector], dict[str, float]]:
    """Return the sums of all replies' terms and numbers; noise adds up by its squares."""
    if not replies:
        return {}, {}
    terms, facts = [found[0] for found in replies.values()], [f[1] for f in replies.values()]
    total = {name: np.asarray(np.sum([t[name] for t in terms], axis=0)) for name in terms[0]}
    whole = {key: sum(each[key] for each in facts) for key in ("num-examples", "clients")}
    return total, {**whole, "noise": float(np.sqrt(sum(each["noise"] ** 2 for each in facts)))}
