"""Federated graph learning with a sparse consensus: the server of Algorithm 1 of [ZW].

    min_{w_i >= 0, w_con}  sum_i g_i(w_i) + rho sum_i |w_i - w_con|_2 + lambda |w_con|_1     (8)

is solved in rounds. Every client solves (13), its own problem with a quadratic pull to the
consensus, exactly or by K gradient steps; the server computes, in closed form,

    w_con   = soft(sum_i gamma_i w_i / C, lambda / (C rho)),   C = sum_i gamma_i             (19)
    gamma_i = 1 / (|w_i - w_con|_2 + eps)                                                    (20)

A node that was not asked, failed, or sent an unusable reply keeps its last graph in (19); one that
never answered has no part in it.

.. [ZW] Zhang & Wang, Graph topology learning under privacy constraints.
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
from trellis.strategies.core.rules import FEWEST
from trellis.strategies.core.wire import BadReply
from trellis.strategies.node_strategy import NodeStrategy

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_SMALLEST_DISTANCE = 1e-6  # epsilon_gamma in (20)


def first_graph(nodes: int) -> Vector:
    """Return the graph (p,) that Algorithm 1 starts from: complete, with weights 1 / (d - 1)."""
    return np.full(nodes * (nodes - 1) // 2, 1.0 / (nodes - 1))


def soft_threshold(x: Vector, threshold: float) -> Vector:
    """Return the proximal operator of ``threshold`` |x|_1."""
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0)


def weighted_mean(weights: Matrix, gamma: Vector) -> Vector:
    """Return sum_i gamma_i w_i / sum_i gamma_i (p,) of the rows of ``weights`` (I, p)."""
    return np.asarray(np.sum(gamma[:, None] * weights, axis=0) / float(np.sum(gamma)))


def consensus_update(weights: Matrix, gamma: Vector, rho: float, lambda_: float) -> Vector:
    """Return w_con (p,), (19): the sparse weighted mean of the graphs ``weights`` (I, p)."""
    total = float(np.sum(gamma))
    return soft_threshold(weighted_mean(weights, gamma), lambda_ / (total * rho))


def gamma_update(weights: Matrix, consensus: Vector) -> Vector:
    """Return gamma (I,), (20): the closer a client is to the consensus, the more it weighs."""
    gap = weights - consensus
    return 1.0 / (np.sqrt(np.sum(gap * gap, axis=1)) + _SMALLEST_DISTANCE)


def joint_objective(
    local: Vector, weights: Matrix, consensus: Vector, rho: float, lambda_: float
) -> float:
    """Return the objective of (8), from the clients' own parts ``local`` (I,)."""
    gap = weights - consensus
    distances = np.sqrt(np.sum(gap * gap, axis=1))
    penalty = rho * np.sum(distances) + lambda_ * np.sum(np.abs(consensus))
    return float(np.sum(local) + penalty)


def relative_change(now: Vector, before: Vector) -> float:
    """Return |now - before| / |before|."""
    norm = float(np.sqrt(np.sum(before * before)))
    gap = now - before
    return float(np.sqrt(np.sum(gap * gap))) / max(norm, 1e-12)


@dataclass(frozen=True)
class GraphReply:
    """A client's graph (p,) and its part of the objective, nan if it did not send one."""

    weights: Vector
    objective: float


def read_graph(content: RecordDict, size: int) -> GraphReply:
    """Return a reply's graph: ``size`` finite, non-negative weights; else raise `BadReply`."""
    record = content["arrays"]
    if not isinstance(record, ArrayRecord) or "weights" not in record:
        raise BadReply("weights is missing")
    weights = wire.unpack(record["weights"])
    wire.check_reals(weights, "weights", (size,))
    if np.min(weights) < 0.0:
        raise BadReply(f"weights has a negative entry, {np.min(weights):g}")
    metrics = content.get("metrics")
    value = float("nan")
    if isinstance(metrics, MetricRecord) and "objective" in metrics:
        value = float(metrics["objective"])  # type: ignore[arg-type]
        if not np.isfinite(value):
            raise BadReply(f"objective is {value}")
    return GraphReply(weights, value)


class ConsensusGraph(NodeStrategy):
    """Algorithm 1 of [ZW] as a Flower strategy.

    Start it with ``initial_arrays`` = ``consensus`` (p,), p = d (d - 1) / 2 edges in
    ``numpy.triu_indices(d, 1)`` order; see `first_graph`. ``Result.arrays`` has the learned
    ``consensus``; `graphs` every client's own graph, by node id.

    Sent with ``train``:
        arrays   ``consensus`` (p,) float64; with ``send_own`` also ``own`` (p,), the client's last
                 graph, from which its gradient steps start
        config   ``pull`` = rho gamma_i, float; ``server-round``; and ``train_config``
    Expected back:
        arrays   ``weights`` (p,) float64, finite, >= 0: the client's graph, (13) solved
        metrics  optional ``objective``, float: g_i at that graph; ``num-examples``
    Sent with ``evaluate`` (if ``fraction_evaluate`` > 0):
        arrays   ``consensus`` and ``weights``, the client's own graph; config ``evaluate_config``

    Flower's wrappers for central differential privacy run around it, but their noise is sized for
    a mean with equal weights, and gamma of (20) depends on the data: the epsilon that they report
    does not hold here. Use the method with ``privacy=dp``.

    Parameters
    ----------
    rho, lambda_ : > 0 and >= 0, of (8)
    send_own : also send each client its own last graph
    mean : (weights (I, p), gamma (I,)) -> (p,), the mean in (19); a robust one ignores gamma, with
        which a client that repeats w_con could hold it where it is
    fewest : the number of graphs below which ``mean`` is not taken and the consensus stays
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        rho: float,
        lambda_: float,
        *,
        send_own: bool = False,
        mean: Callable[[Matrix, Vector], Vector] = weighted_mean,
        fewest: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.rho, self.lambda_, self.send_own = rho, lambda_, send_own
        self.mean, self.fewest = mean, fewest
        self.graphs: dict[int, Vector] = {}  # w_i by node
        self.gamma: dict[int, float] = {}  # gamma_i by node
        self.local: dict[int, float] = {}  # g_i(w_i) by node
        self._consensus = np.zeros(0)  # as it was sent
        self._first_gamma = 1.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send each client the consensus and how hard it pulls, rho gamma_i."""
        if self.done:
            return
        self._consensus = wire.unpack(arrays["consensus"])
        self._first_gamma = 1.0 / max(len(list(grid.get_node_ids())), 1)  # gamma_i^0 = 1 / I
        for node in self.nodes(grid, server_round):
            sent = arrays
            if self.send_own:
                own = wire.pack(self.graphs.get(node, self._consensus))
                sent = ArrayRecord({"consensus": arrays["consensus"], "own": own})
            told = {**config, "server-round": server_round, "pull": self.pull(node)}
            content = RecordDict({"arrays": sent, "config": ConfigRecord(told)})
            yield Message(content, node, "train", group_id=str(server_round))

    def pull(self, node: int) -> float:
        """Return rho gamma_i, the weight of the quadratic pull in (13)."""
        return self.rho * self.gamma.get(node, self._first_gamma)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Compute the new consensus (19) and the new weights gamma (20)."""
        size = self._consensus.size
        good = self.usable(replies, lambda content: read_graph(content, size))
        if not good:
            return None, None
        nodes = sorted({*self.graphs, *self.asked})
        before = np.stack([self.graphs.get(node, self._consensus) for node in nodes])
        self.graphs |= {node: reply.weights for node, reply in good.items()}
        self.local |= {node: reply.objective for node, reply in good.items()}
        after = np.stack([self.graphs.get(node, self._consensus) for node in nodes])

        consensus = self.combine()
        change = max(relative_change(after, before), relative_change(consensus, self._consensus))
        metrics = {"change": change, "consensus-edges": int(np.count_nonzero(consensus))}
        value = self.objective(consensus)
        if np.isfinite(value):
            metrics["objective"] = value
        return ArrayRecord({"consensus": wire.pack(consensus)}), MetricRecord(dict(metrics))

    def combine(self) -> Vector:
        """Return the consensus of all graphs received so far, and update gamma."""
        nodes = sorted(self.graphs)
        if len(nodes) < self.fewest:
            return self._consensus
        weights = np.stack([self.graphs[node] for node in nodes])
        gamma = np.array([self.gamma.get(node, self._first_gamma) for node in nodes])
        total = float(np.sum(gamma))
        middle = self.mean(weights, gamma)
        consensus = soft_threshold(middle, self.lambda_ / (total * self.rho))  # (19)
        self.gamma = dict(
            zip(nodes, gamma_update(weights, consensus).tolist(), strict=True)
        )  # (20)
        return consensus

    def objective(self, consensus: Vector) -> float:
        """Return the value of (8); nan unless every client sent its part."""
        nodes = sorted(self.graphs)
        local = np.array([self.local[node] for node in nodes])
        weights = np.stack([self.graphs[node] for node in nodes])
        return joint_objective(local, weights, consensus, self.rho, self.lambda_)

    def model_of(self, node: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the consensus and the node's own graph."""
        own = self.graphs.get(node)
        if own is None:
            return arrays
        return ArrayRecord({"consensus": arrays["consensus"], "weights": wire.pack(own)})

    def drop(self, node: int) -> None:
        """Exclude a node's graph from (19)."""
        for kept in (self.graphs, self.gamma, self.local):
            kept.pop(node, None)

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return every node's graph, gamma and part of the objective."""
        nodes = sorted(self.graphs)
        size = (len(nodes), self._consensus.size)
        return {
            "nodes": np.array(nodes, dtype=np.uint64),
            "weights": np.array([self.graphs[node] for node in nodes]).reshape(size),
            "gamma": np.array([self.gamma.get(node, np.nan) for node in nodes]),
            "local": np.array([self.local[node] for node in nodes]),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        nodes = [int(node) for node in state["nodes"]]
        self.graphs = {node: row.copy() for node, row in zip(nodes, state["weights"], strict=True)}
        self.local = dict(zip(nodes, state["local"].tolist(), strict=True))
        known = zip(nodes, state["gamma"].tolist(), strict=True)
        self.gamma = {node: gamma for node, gamma in known if np.isfinite(gamma)}


def robust_mean(centre: Callable[[Matrix], Vector]) -> dict[str, Any]:
    """Return the arguments of `ConsensusGraph` that put another centre in place of the mean."""
    return {"mean": lambda weights, gamma: centre(weights), "fewest": FEWEST}
