"""Servers that take their clients' steps themselves, from sums of gradients.

A round i, with u_{p,k} a client's clipped gradients over the expected size of its batch:

    S_p = sum_k u_{p,k}                                          the clients of p
    psi_p = w_p - mu (S_p / K_p + rho w_p)                       server p, (6) and (7)
    w_p = sum_m a_mp psi_m                                       servers among themselves, (8)

K_p is the number of clients in the sum. The strategy sees nothing but sums, and does not know
whether they are masked or noisy: run it on `trellis.strategies.secure_grid.SecureGrid` for secure
aggregation with distributed noise. If the S_p are private, so is every model, whatever servers send
each other, and the result: the mean of the models over the last rounds, in which noise of many
rounds averages out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.topology.graph import Topology

from .strategy import Matrix, ServerGraph, Vector


def server_steps(
    models: Matrix, totals: Matrix, clients: Vector, step: float, ridge: float
) -> Matrix:
    """Return psi (P, M), (6) and (7), from sums S (P, M) over so many clients (P,).

    A server with a sum over none keeps its model.
    """
    mean = totals / np.maximum(clients, 1.0)[:, None]
    psi = models - step * (mean + ridge * models)
    return np.where(clients[:, None] > 0, psi, models)


class GradientSums(ServerGraph):
    """One model over a graph of servers, from sums of gradients over each server's clients.

    As `ServerGraph`, but a client sends

        arrays   ``gradient`` (M,) float64: its clipped gradients over the expected size of its
                 batch, added up over all clients of the server if a `SecureGrid` did so
        metrics  optional ``clients``, how many are in the sum, and ``noise``, the standard
                 deviation of the noise in an entry of it

    and ``Result.arrays`` has as ``model`` the mean over the last rounds.

    Parameters
    ----------
    topology : the servers' graph
    step, ridge : mu and rho
    rounds : how many are planned
    average : share of them, the last ones, whose models are averaged; 0 takes the last model
    options : of `ServerGraph`
    """

    def __init__(
        self,
        topology: Topology,
        *,
        step: float,
        ridge: float,
        rounds: int,
        average: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(topology, **options)
        self.step, self.ridge = step, ridge
        self.rounds, self.average = rounds, average
        self._tail, self._tail_rounds = np.zeros(0), 0

    def begin(self, model: Vector) -> None:
        """Let all servers begin at ``model`` (M,)."""
        super().begin(model)
        self._tail, self._tail_rounds = np.zeros_like(self.models), 0

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take one step of all servers from their sums (6), (7), and combine (8)."""
        good = self.usable(replies, self._read_sum)
        if not good:
            return None, None
        rows, clients, noise = (list(part) for part in zip(*good.values(), strict=True))
        metrics = self.advance(server_round, list(good), np.stack(rows), clients)
        # The largest, in an entry of a server's mean gradient.
        metrics["noise"] = max(n / count for n, count in zip(noise, clients, strict=True))
        return self.learned(), MetricRecord(dict(metrics))

    def advance(
        self, server_round: int, nodes: Sequence[int], rows: Matrix, clients: Sequence[float]
    ) -> dict[str, float]:
        """Make the servers' part of a round, from sums ``rows`` (n, M) of ``nodes``."""
        homes = self.homes_of(server_round, nodes)
        totals, counts = np.zeros_like(self.models), np.zeros(len(self.models))
        np.add.at(totals, homes, rows)
        np.add.at(counts, homes, np.asarray(clients, dtype=np.float64))
        psi = server_steps(self.models, totals, counts, self.step, self.ridge)
        metrics = self.combine(server_round, psi)
        if server_round > self.rounds * (1.0 - self.average):
            self._tail = self.models + (self._tail if self._tail_rounds else 0.0)
            self._tail_rounds += 1
        return metrics

    def _read_sum(self, content: RecordDict) -> tuple[Vector, float, float]:
        gradient, clients = self.read(content, "gradient")
        metrics = content.get("metrics")
        noise = metrics.get("noise", 0.0) if isinstance(metrics, MetricRecord) else 0.0
        return gradient, clients, float(noise)  # type: ignore[arg-type]

    @property
    def kept(self) -> Matrix:
        """The models (P, M) that the run has learned: means over the last rounds."""
        return self._tail / self._tail_rounds if self._tail_rounds else self.models

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the models, and the sum of those that the result is made of."""
        return {
            **super().state_dict(),
            "tail": self._tail,
            "tail-rounds": np.array(self._tail_rounds),
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        super().load_state_dict(state)
        self._tail, self._tail_rounds = state["tail"].copy(), int(state["tail-rounds"])
