"""Strategies of one sum: all clients' terms are added up once, and all is computed from the sum.

The strategy sees nothing but sums, and does not know whether they are masked or noisy: run it on
`trellis.strategies.secure_grid.SecureGrid` for secure aggregation with distributed noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from .core import wire
from .node_strategy import NodeStrategy

Vector = NDArray[np.float64]
Terms = dict[str, Vector]
Facts = dict[str, float]

SCORES = {"scores": (2,)}


class PooledStrategy(NodeStrategy):
    """One sum over all nodes, the whole problem solved from it, and a score in a second sum.

    ``initial_arrays`` may be empty; ``Result.arrays`` has the public result, ``found``.

    Sent with ``train``, to all nodes alike:
        config   ``server-round`` and ``train_config``
    Expected back, added up over all replies (one, if a `SecureGrid` did so):
        arrays   the terms of the sum, as ``parts`` has them
        metrics  ``num-examples``; ``noise``, the standard deviation of the noise in an entry of
                 the sum (0 if absent)
    Sent with ``evaluate``, if ``scored``, to all nodes alike:
        arrays   those of the public result that ``judged`` names; config ``evaluate_config``
    Expected back, added up:
        arrays   ``scores`` (2,): what held-out records say, and clients whom the result helped
        metrics  ``num-examples``, what the first score is divided by; ``clients``; ``noise``

    Parameters
    ----------
    parts : names and shapes of the terms of the sum
    scored : also ask for the score of held-out records
    helped : whether the second score means something: clients make results of their own
    options : of `NodeStrategy`
    """

    # The arrays that clients need to score the result.
    judged: ClassVar[tuple[str, ...]]
    # What the first score is called among the metrics.
    score: ClassVar[str] = "held-out"

    def __init__(
        self,
        parts: Mapping[str, tuple[int, ...]],
        *,
        scored: bool = False,
        helped: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.parts, self.scored, self.helped = dict(parts), scored, helped
        self.found: dict[str, NDArray[Any]] = {}
        self._evaluated = False

    @abstractmethod
    def solve(self, total: Terms, facts: Facts) -> tuple[dict[str, NDArray[Any]], Facts]:
        """Return the public result of a sum, and metrics."""

    @property
    def done(self) -> bool:
        """Whether the one sum is made."""
        return bool(self.found)

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
        self.found, metrics = self.solve(total, facts)
        return wire.record(self.found), MetricRecord({"change": 0.0, **metrics})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for the score of held-out records, once."""
        if not self.scored or not self.done or self._evaluated:
            return
        self._evaluated = True
        shown = ArrayRecord({name: arrays[name] for name in self.judged})
        for node in self.all_nodes(grid):
            told = ConfigRecord({**config, "server-round": server_round})
            content = RecordDict({"arrays": shown, "config": told})
            yield Message(content, node, "evaluate", group_id=str(server_round))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the score of held-out records and whom the result helped, with their noise."""
        total, facts = add_up(self.usable(replies, lambda found: read_terms(found, SCORES)))
        if not total:
            return None
        held, clients = max(int(facts["num-examples"]), 1), facts["clients"]
        score, helped = (float(value) for value in total["scores"])
        found = {"held-out-noise": facts["noise"] / held, self.score: score / held}
        if self.helped:
            found |= {"helped": helped / clients, "helped-noise": facts["noise"] / clients}
        return MetricRecord(dict(found))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the public result, if there is one."""
        return dict(self.found)

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        self.found = {name: array.copy() for name, array in state.items()}
        self._evaluated = self.done


class NoTraining(NodeStrategy):
    """No messages at all: every client learns on its own device, local-only under privacy."""

    @property
    def done(self) -> bool:
        """True: there is nothing to do."""
        return True

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nothing."""
        return []


def read_terms(
    content: RecordDict, parts: Mapping[str, tuple[int, ...]]
) -> tuple[Terms, dict[str, float]]:
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


def add_up(replies: Mapping[int, tuple[Terms, Facts]]) -> tuple[Terms, Facts]:
    """Return the sums of all replies' terms and numbers; noise adds up by its squares."""
    if not replies:
        return {}, {}
    terms, facts = [found[0] for found in replies.values()], [f[1] for f in replies.values()]
    total = {name: np.asarray(np.sum([t[name] for t in terms], axis=0)) for name in terms[0]}
    whole = {key: sum(each[key] for each in facts) for key in ("num-examples", "clients")}
    return total, {**whole, "noise": float(np.sqrt(sum(each["noise"] ** 2 for each in facts)))}
