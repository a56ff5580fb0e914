"""The baseline in which clients do not share anything: argmin f_k of every client, once.

    w_k = argmin_w f_k(w),    f_k = loss_k / D_k + R:

the step (4) with v = 0, share = 1 and, because a step needs one, the smallest rho that changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.node_strategy import NodeStrategy

Vector = NDArray[np.float64]

# w_k is off by about rho / curvature; smaller, and the step's rounding, 1e-16 / rho, is more.
RHO = 1e-8
TRIES = 3


class LocalModels(NodeStrategy):
    """Every client learns from its own data only.

    Start it with ``initial_arrays`` = ``models`` (K, 1, d), zeros; ``Result.arrays`` has ``models``
    (K, 1, d), a row per node in ascending order, zero for a node that never answered. A round asks
    the nodes that have not answered, ``tries`` times at most.

    Sent with ``train``:
        arrays   ``v`` (d,), zeros
        config   ``rho``, tiny; ``share`` = 1.0; ``server-round``; and ``train_config``
    Expected back:
        arrays   ``model`` (d,) float64, finite: argmin f_k

    Parameters
    ----------
    tries : how often a client is asked
    options : of `NodeStrategy`
    """

    def __init__(self, *, tries: int = TRIES, **options: Any) -> None:
        super().__init__(**options)
        self.tries, self.rounds = tries, 0
        self.size = self.least = 0  # d, and how many clients there are at least
        self.known: set[int] = set()
        self.models: dict[int, Vector] = {}  # w_k by node

    @property
    def converged(self) -> bool:
        """Whether everyone has answered."""
        return bool(self.models) and len(self.models) >= max(len(self.known), self.least)

    @property
    def done(self) -> bool:
        """Whether everyone has answered, or was asked often enough."""
        return self.converged or self.rounds >= self.tries

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask those that have not answered for argmin f_k."""
        self.least, _, self.size = arrays["models"].shape
        self.known |= set(grid.get_node_ids())
        told = {"rho": RHO, "share": 1.0, "server-round": server_round}
        v = wire.pack(np.zeros(self.size))
        self.asked = [node for node in self.all_nodes(grid) if node not in self.models]
        for node in self.asked:
            content = RecordDict(
                {"arrays": ArrayRecord({"v": v}), "config": ConfigRecord({**config, **told})}
            )
            yield Message(content, node, "train", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Keep what clients found; ``change`` is the share of them still to come."""
        self.rounds += 1
        self.models |= self.usable(replies, self._read)
        if not self.models:
            return None, None
        nodes = sorted(self.known)
        zero = np.zeros(self.size)
        models = np.array([self.models.get(node, zero) for node in nodes])[:, None]
        everyone = max(len(self.known), self.least)
        metrics = {"change": 1.0 - len(self.models) / everyone, "tau": 0.0}
        return wire.record({"models": models}), MetricRecord(dict(metrics))

    def _read(self, content: RecordDict) -> Vector:
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {"model"}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not a model")
        wire.check_reals(arrays["model"], "model", (self.size,))
        return arrays["model"]

    def model_of(self, node: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the node's own model."""
        return wire.record({"model": self.models.get(node, np.zeros(self.size))})

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the models by node, and how often nodes were asked."""
        nodes = sorted(self.models)
        rows = np.array([self.models[node] for node in nodes]).reshape(len(nodes), self.size)
        return {
            "nodes": np.array(nodes, dtype=np.uint64),
            "known": np.array(sorted(self.known), dtype=np.uint64),
            "own": rows,
            "rounds": np.array(self.rounds),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        nodes = [int(node) for node in state["nodes"]]
        self.models = {n: row.copy() for n, row in zip(nodes, state["own"], strict=True)}
        self.known = {int(node) for node in state["known"]}
        self.rounds, self.size = int(state["rounds"]), state["own"].shape[1]
