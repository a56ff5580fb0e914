"""Methods of joint-precision that need one round: everyone is asked once, then all is known.

``glasso`` and ``clime``: every client solves its own problem along the whole path and sends its
matrices. ``one-shot``: every client sends its correlation matrix, and the server solves the joint
problem. ``pooled``: every client sends its raw data; a reference that no real federation may run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.node_strategy import NodeStrategy

from .path import PathSolution

Arrays = dict[str, NDArray[Any]]

_TRIES = 3


class GatheredPrecision(NodeStrategy):
    """Ask every node once and assemble what they sent.

    Nodes that did not answer are asked again, twice; then the others go on without them.
    ``initial_arrays`` may be empty. ``Result.arrays`` has ``sparse`` (K, m), the Psi_i of all nodes
    at the last point of the path as `Blocks` packs them, and ``labels`` (p,), the blocks.

    Sent with ``train``:
        arrays   ``points`` (L, 2), lambda1 and lambda2 along the path
        config   ``server-round`` and ``train_config``
    Expected back:
        arrays   what ``read`` takes: a client's matrices (``glasso``, ``clime``), its correlations
                 (``one-shot``) or its ``data`` (``pooled``)
        metrics  ``num-examples``

    Parameters
    ----------
    points : (L, 2) lambda1 and lambda2 of the path
    read : a reply's arrays, checked; raises `BadReply` for those that cannot be used
    assemble : makes the solution from the arrays of the nodes that answered
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        points: NDArray[np.float64],
        read: Callable[[RecordDict], Arrays],
        assemble: Callable[[Mapping[int, Arrays]], PathSolution],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.points, self.read, self.assemble = points, read, assemble
        # Who is expected to answer: all nodes of the first round, unless somebody says it.
        self.members: list[int] = []
        self.gathered: dict[int, Arrays] = {}
        self.answered: dict[int, int] = {}
        self.tries = 0
        self._solution: PathSolution | None = None

    @property
    def converged(self) -> bool:
        """Whether everyone has answered."""
        return bool(self.gathered) and len(self.gathered) == len(self.members)

    @property
    def done(self) -> bool:
        """Whether everyone has answered, or was asked often enough."""
        return self.converged or self.tries >= _TRIES

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask those that have not answered yet."""
        if self.done:
            return
        if not self.members:
            self.nodes(grid, server_round)  # waits for them
            self.members = self.all_nodes(grid)
        there = set(grid.get_node_ids())
        self.asked = [node for node in self.members if node not in self.gathered]
        points = wire.record({"points": self.points})
        for node in self.asked:
            if node in there:
                told = ConfigRecord({**config, "server-round": server_round})
                content = RecordDict({"arrays": points, "config": told})
                yield Message(content, node, "train", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep what was sent; with the last of it, assemble the solution."""
        if self.converged or self.tries >= _TRIES:
            return None, None
        self.tries += 1
        good = self.usable(replies, self.read)
        self.gathered |= good
        self.answered |= dict.fromkeys(good, server_round)
        if not self.gathered:
            return None, None
        complete = len(self.gathered) == len(self.members)
        metrics = {"change": 0.0 if complete else np.nan}
        found = ArrayRecord()
        if complete or self.tries == _TRIES:
            solution = self.solution()
            metrics["gap"] = float(solution.gaps[-1])
            metrics["edges"] = float(np.mean(solution.edges()[-1]))
            found = wire.record({"sparse": solution.psi[-1], "labels": solution.blocks.labels})
        return found, MetricRecord(dict(metrics))

    def shortfall(self) -> str:
        """Return how many never answered."""
        return f"{len(self.members) - len(self.gathered)} clients missing"

    def solution(self) -> PathSolution:
        """Return what was learned."""
        if self._solution is None:
            self._solution = self.assemble(dict(sorted(self.gathered.items())))
        return self._solution

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return what was gathered."""
        sent = {
            f"{node}-{name}": array
            for node, arrays in self.gathered.items()
            for name, array in arrays.items()
        }
        nodes = sorted(self.answered)
        return {
            "members": np.array(self.members, dtype=np.uint64),
            "nodes": np.array(nodes, dtype=np.uint64),
            "answered": np.array([self.answered[node] for node in nodes], dtype=np.int64),
            "tries": np.array(self.tries),
            **sent,
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        self.members = [int(node) for node in state["members"]]
        nodes = [int(node) for node in state["nodes"]]
        self.answered = dict(zip(nodes, state["answered"].tolist(), strict=True))
        self.tries = int(state["tries"])
        for key, array in state.items():
            node, found, name = key.partition("-")
            if found:
                self.gathered.setdefault(int(node), {})[name] = array.copy()
