"""The baselines of consensus-graph as Flower strategies: IGL, FedAvg, and (8) in one exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.wire import BadReply
from trellis.strategies.node_strategy import NodeStrategy

from .strategy import ConsensusGraph, GraphReply, Matrix, Vector, relative_change

# A client's graph and objective, from its statistic, the pull and the consensus: (13).
LocalSolve = Callable[[Vector, float, Vector], tuple[Vector, float]]


class IndependentGraphs(ConsensusGraph):
    """Every client learns from its own data only (IGL); there is no consensus, it stays zero.

    Messages are those of `ConsensusGraph`, with ``pull`` = 0.
    """

    @property
    def done(self) -> bool:
        """Whether every node has answered; later answers would be the same, unless by steps."""
        return not self.send_own and bool(self.graphs) and set(self.asked) <= set(self.graphs)

    def pull(self, node: int) -> float:
        """Return 0: there is no consensus to be pulled to."""
        return 0.0

    def combine(self) -> Vector:
        """Return the empty graph."""
        self.gamma = dict.fromkeys(self.graphs, 0.0)
        return np.zeros_like(self._consensus)

    def objective(self, consensus: Vector) -> float:
        """Return the sum of the clients' objectives."""
        return float(np.sum([self.local[node] for node in sorted(self.graphs)]))


class AveragedGraph(NodeStrategy):
    """One graph for all clients (FedAvg): the minimiser of (36).

    Averaging full local solutions does not minimise (36): every client drifts to its own optimum.
    Clients' parts of (36) differ in a linear term only, the slope 2 zbar_i. Clients send their
    slopes with their first graphs and are sent the mean slope, to put in the place of their own
    (the control variates of SCAFFOLD); with exact local solves the second round is exact.

    All nodes are asked in the first round, whatever the fraction. Slopes never change, so they are
    averaged once, over one set of clients: means over changing sets would be equations to solve for
    every client's own. Only means are used, so `SecureGrid` can carry them.

    Start it with ``initial_arrays`` = ``consensus`` (p,); ``Result.arrays`` has the learned graph
    under that name.

    Sent with ``train``:
        arrays   ``consensus`` (p,); from the second round on ``slope`` (p,), the mean slope;
                 with ``send_own`` also ``own``, the start of gradient steps
        config   ``pull`` = 0.0, ``server-round``, and ``train_config``
    Expected back:
        arrays   ``weights`` (p,), finite; in the first round also ``slope`` (p,) and ``objective``
                 (1,), the client's part of (36)
        metrics  ``num-examples``: the weight of this client, its number of signals

    Parameters
    ----------
    objective : the objective of (36) at a graph (p,), from the mean zbar (p,)
    send_own : also send the shared graph as the start of gradient steps
    centre : (rows (I, p)) -> (p,), a robust centre in the place of weighted means; None for means
    fewest : the number of replies below which there is no ``centre``
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        objective: Callable[[Vector, Vector], float],
        *,
        send_own: bool = False,
        centre: Callable[[Matrix], Vector] | None = None,
        fewest: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.objective, self.send_own = objective, send_own
        self.centre, self.fewest = centre, fewest
        self.slope = np.zeros(0)  # not known before the first round
        self._consensus = np.zeros(0)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send everyone the shared graph and, once it is known, the mean slope."""
        self._consensus = wire.unpack(arrays["consensus"])
        sent: dict[str, Array] = {"consensus": arrays["consensus"]}
        if self.slope.size:
            sent["slope"] = wire.pack(self.slope)
        if self.send_own:
            sent["own"] = arrays["consensus"]
        told = ConfigRecord({**config, "server-round": server_round, "pull": 0.0})
        packed = ArrayRecord(sent)
        nodes = self.nodes(grid, server_round) if self.slope.size else self.all_nodes(grid)
        for node in nodes:
            content = RecordDict({"arrays": packed, "config": told})
            yield Message(content, node, "train", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average graphs and, in the first round, slopes, weighted by the numbers of signals."""
        good = self.usable(replies, self._read)
        if len(good) < self.fewest:
            return None, None
        mean = self._mean([found[0]["weights"] for found in good.values()], good)
        graph = np.maximum(mean, 0.0)
        if not self.slope.size:
            self.slope = self._mean([found[0]["slope"] for found in good.values()], good)
            values = [found[0]["objective"] for found in good.values()]
            value = float(weighted(values, [n for _, n in good.values()])[0])
        else:
            # All that answered have this graph: their mean objective is that of the mean slope.
            value = self.objective(mean, 0.5 * self.slope)
        metrics = {
            "change": relative_change(graph, self._consensus),
            "consensus-edges": int(np.count_nonzero(graph)),
            "objective": value,
        }
        return ArrayRecord({"consensus": wire.pack(graph)}), MetricRecord(dict(metrics))

    def _mean(
        self, rows: list[Vector], good: Mapping[int, tuple[dict[str, Vector], float]]
    ) -> Vector:
        if self.centre is not None:
            return self.centre(np.array(rows))
        return weighted(rows, [count for _, count in good.values()])

    def _read(self, content: RecordDict) -> tuple[dict[str, Vector], float]:
        """Return the arrays of a reply and its number of examples; raise `BadReply`."""
        found = wire.arrays(content["arrays"])
        shapes = {"weights": self._consensus.shape}
        if not self.slope.size:
            shapes |= {"slope": self._consensus.shape, "objective": (1,)}
        if set(found) != set(shapes):
            raise BadReply(f"holds {sorted(found)}, not {sorted(shapes)}")
        for name, array in found.items():
            wire.check_reals(array, name, shapes[name])
        count = float(content.metric_records["metrics"]["num-examples"])  # type: ignore[arg-type]
        if not 0.0 < count < 2.0**53:
            raise BadReply(f"num-examples is {count:g}")
        return found, count

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the mean slope."""
        return {"slope": self.slope}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        self.slope = state["slope"].copy()


def weighted(rows: list[Vector], counts: list[float]) -> Vector:
    """Return sum_i n_i x_i / sum_i n_i, added up in the order of the rows."""
    total = np.sum([count * row for row, count in zip(rows, counts, strict=True)], axis=0)
    return np.asarray(total / float(np.sum(counts)))


class OneShotConsensus(ConsensusGraph):
    """(8) in one exchange: clients send their statistic once, and the server iterates alone.

    The same graphs as `ConsensusGraph` with exact local solves, bit for bit. The price is
    disclosure: the server sees the whole statistic, of which graphs show the part on their edges.

    Sent with ``train.statistic``:
        arrays   none; config ``server-round`` and ``train_config``
    Expected back:
        arrays   ``statistic`` (p,) float64: zbar_i, mean squared differences

    Parameters
    ----------
    rho, lambda_ : of (8)
    local : solves (13) for one client
    iterations, tolerance : when to stop iterating
    """

    def __init__(
        self,
        rho: float,
        lambda_: float,
        *,
        local: LocalSolve,
        iterations: int,
        tolerance: float,
        **options: Any,
    ) -> None:
        super().__init__(rho, lambda_, **options)
        self.local_solve, self.iterations, self.tolerance = local, iterations, tolerance
        self.converged = False

    @property
    def done(self) -> bool:
        """Whether the one exchange is over."""
        return bool(self.graphs)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client for its statistic, once."""
        if self.done:
            return
        self._consensus = wire.unpack(arrays["consensus"])
        self.nodes(grid, server_round)
        self._first_gamma = 1.0 / max(len(self.asked), 1)
        for node in self.asked:
            told = ConfigRecord({**config, "server-round": server_round})
            content = RecordDict({"config": told})
            yield Message(content, node, "train.statistic", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Iterate (13), (19) and (20) on the statistics until they change no more."""
        statistics = self.usable(replies, self._read_statistic)
        if not statistics:
            return None, None
        step = 0
        while step < self.iterations and not self.converged:
            step += 1
            before = [self.graphs.get(node, self._consensus) for node in statistics]
            for node, z in statistics.items():
                found = GraphReply(*self.local_solve(z, self.pull(node), self._consensus))  # (13)
                self.graphs[node], self.local[node] = found.weights, found.objective
            consensus = self.combine()  # (19), (20)
            change = max(
                relative_change(np.stack([*self.graphs.values()]), np.stack(before)),
                relative_change(consensus, self._consensus),
            )
            self._consensus = consensus
            self.converged = self.tolerance > 0.0 and change <= self.tolerance
        metrics = {
            "change": change,
            "consensus-edges": int(np.count_nonzero(consensus)),
            "objective": self.objective(consensus),
            "iterations": step,
        }
        return ArrayRecord({"consensus": wire.pack(consensus)}), MetricRecord(dict(metrics))

    def _read_statistic(self, content: RecordDict) -> Vector:
        record = content["arrays"]
        if not isinstance(record, ArrayRecord) or "statistic" not in record:
            raise BadReply("statistic is missing")
        z = wire.unpack(record["statistic"])
        wire.check_reals(z, "statistic", self._consensus.shape)
        return z
