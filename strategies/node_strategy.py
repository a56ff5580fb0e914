"""What the strategies of the studies share: a Flower strategy that keeps state per node.

`NodeStrategy` is Flower's `FedAvg` with another interface to its own subclasses: which nodes take
part in a round, which replies are usable, what a checkpoint holds. A study's strategy writes
`configure_train` and `aggregate_train`, which are its paper's algorithm, and nothing else is needed
to run it under ``Strategy.start`` or, with stopping by tolerance and resume, under
`trellis.strategies.rounds.Rounds`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes
from numpy.typing import NDArray

log = logging.getLogger("trellis.strategy")

Reply = TypeVar("Reply")
# Which of the nodes that are there take part in a round.
Sampler = Callable[[int, Sequence[int]], Sequence[int]]


class NodeStrategy(FedAvg):
    """A Flower strategy whose state is kept by node id.

    Parameters
    ----------
    fraction_train, fraction_evaluate : fractions of the nodes that train and evaluate in a round,
        as in Flower's FedAvg; by default all train and none evaluates
    min_available_nodes : how many nodes must be connected before a round begins
    sampler : which of the nodes that are there train in a round, in place of ``fraction_train``:
        a function of the round's number and the node ids
    """

    def __init__(
        self,
        *,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 0.0,
        min_available_nodes: int = 1,
        sampler: Sampler | None = None,
    ) -> None:
        # Not with ``fraction_evaluate``: FedAvg warns of 0, which is the default here.
        super().__init__(fraction_train, 1.0, 1, 1, min_available_nodes)
        self.fraction_evaluate = fraction_evaluate
        self.sampler = sampler
        # Who was asked in the last round, and why replies were not used, by node.
        self.asked: list[int] = []
        self.rejected: dict[int, str] = {}
        # The round after which there is none, 0 if not known yet; a loop that may stop early sets
        # it before `configure_evaluate`.
        self.last_round = 0

    @property
    def done(self) -> bool:
        """Whether another round would change nothing; then `configure_train` sends nothing."""
        return False

    def nodes(self, grid: Grid, server_round: int) -> list[int]:
        """Wait for enough nodes; return those that train in this round, in ascending order."""
        there = sorted(grid.get_node_ids())
        size = max(int(len(there) * self.fraction_train), 1)
        if self.sampler is not None:
            self.asked = sorted(self.sampler(server_round, there))
        elif size == len(there) >= self.min_available_nodes:
            self.asked = there
        else:
            self.asked = sorted(sample_nodes(grid, self.min_available_nodes, size)[0])
        return self.asked

    def all_nodes(self, grid: Grid) -> list[int]:
        """Return all nodes that are there, in ascending order, for a round that samples none."""
        self.asked = sorted(grid.get_node_ids())
        return self.asked

    def usable(
        self, replies: Iterable[Message], read: Callable[[RecordDict], Reply]
    ) -> dict[int, Reply]:
        """Return what ``read`` makes of every reply, by node in ascending order.

        An error reply, and one that ``read`` raises an exception for, is logged and left out.
        """
        self.rejected, found = {}, {}
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                self.rejected[node] = str(reply.error.reason)
                continue
            try:
                found[node] = read(reply.content)
            except Exception as error:  # whatever a malformed or malicious reply provokes
                self.rejected[node] = f"reply rejected: {error}"
                log.warning("node %d: reply rejected: %s", node, error)
        return {node: found[node] for node in sorted(found)}

    def drop(self, node: int) -> None:
        """Forget what is kept of a node that is excluded for the rest of the run."""

    def model_of(self, node: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the arrays that a node evaluates: by default the model that all share."""
        return arrays

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the nodes that evaluate their model; see `model_of`."""
        if self.fraction_evaluate == 0.0:
            return
        size = max(int(len(list(grid.get_node_ids())) * self.fraction_evaluate), 1)
        chosen, _ = sample_nodes(grid, self.min_available_nodes, size)
        for node in sorted(chosen):
            told = ConfigRecord({**config, "server-round": server_round})
            content = RecordDict({"arrays": self.model_of(node, arrays), "config": told})
            yield Message(content, node, "evaluate")

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that the next round depends on, besides the model itself."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state_dict` returned."""
