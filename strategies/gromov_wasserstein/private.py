"""The two strategies of gromov-wasserstein whose every message is covered by epsilon.

`UntrainedGnn`  weights from the seed, one message for the embeddings; nothing is trained.
`NoisyGnn`      every round one step on the secure sum of clipped gradients, one a graph, to which
                devices have added noise (`descent`, and `model.clipping` on the device).

    n   graphs to train with, of the clients that are in the sum: public, by their number of graphs
    q   graphs held out, likewise; the score is the noisy sum of their shares of right items, / q

Everything between two sums is post-processing. What a client can make of the final weights and its
raw graphs it makes at home (`deliver`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core.base import Client, Row, StudyError
from trellis.strategies.core.sums import noise_in

from .descent import Descent
from .strategy import FederatedGnn, Vector


class UntrainedGnn(FederatedGnn):
    """No training: one release of embeddings by the weights that the seed draws."""

    def admit(self, client: Client) -> bool:
        """Return False: there is one release."""
        return False

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Ask for the embeddings, which is all there is to do."""
        down = self.progress.bytes_down
        good = self.release(grid, server_round)
        self._need_embeddings()
        for client in good:
            self.clients[client].rounds += 1
        asked = sum(not known.left_out for known in self.clients)
        return {
            "clients": float(len(good)),
            "failed": float(asked - len(good)),
            "bytes-up": float(self._release_bytes),
            "bytes-down": float(self.progress.bytes_down - down),
            "change": 0.0,
            **self._released_row(server_round),
            **self.evaluate(self.state()),
        }


class NoisyGnn(FederatedGnn):
    """Training by noisy secure sums of clipped gradients.

    Parameters
    ----------
    descent : the server's step
    bound : C, of a graph's gradient
    counts : of a client's number of graphs: how many it trains with, chooses by, holds out
    score : whether the final weights are scored on the graphs that are held out
    """

    def __init__(
        self,
        *args: Any,
        descent: Descent,
        bound: float,
        counts: Callable[[int], tuple[int, int, int]],
        score: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.secure is None or not self.secure.noisy:
            raise ValueError("secure: training with noise in the sums needs SecureSum(noisy=True)")
        self.descent, self.bound, self.counts, self.score = descent, bound, counts, score

    def begin(self, clients: Sequence[Client]) -> None:
        """Take the first weights; nothing is learned and nothing scored yet."""
        super().begin(clients)
        self.velocity: Vector = np.zeros_like(self.weights)
        self.scored: Vector = np.full(3, math.nan)  # accuracy, its noise, graphs

    def admit(self, client: Client) -> bool:
        """Return False: what a sum's noise protects was told for the clients of the beginning."""
        return False

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return what clients add up."""
        return {"gradient": self.weights.shape}

    def update_from_sum(
        self, server_round: int, total: Mapping[str, Vector], clients: Sequence[int]
    ) -> Row:
        """Take one step."""
        graphs = sum(self.counts(self.clients[client].counted)[0] for client in clients)
        before = self.weights
        self.weights, self.velocity = self.descent.step(
            before, self.velocity, total["gradient"], float(graphs)
        )
        moved = float(np.linalg.norm(self.weights - before))
        if not math.isfinite(moved):
            raise StudyError(
                f"round {server_round}: the weights are not finite any more; lower learning-rate"
            )
        return {
            "change": moved / max(float(np.linalg.norm(before)), 1e-12),
            # How long the noise of the mean gradient is, beside the longest a gradient can be.
            "noise": self.noise * math.sqrt(before.size) / graphs / self.bound,
        }

    def trained(self, grid: Grid, server_round: int) -> None:
        """Score the final weights, once."""
        if not self.score or math.isfinite(self.scored[0]) or self.secure is None:
            return
        asked = {client: self._question(server_round) for client in range(len(self.clients))}
        found = self.secure_sum(grid, asked, server_round, {"right": (1,)})
        self.progress.bytes_up += found.bytes_up
        self.progress.bytes_down += found.bytes_down
        graphs = sum(self.counts(self.clients[client].counted)[2] for client in found.survivors)
        if graphs:
            right = float(found.total["right"][0])
            self.scored = np.array([right, noise_in(found), graphs]) / [graphs, graphs, 1]
            self.progress.rows[-1] |= {
                "held-out-accuracy": float(self.scored[0]),
                "held-out-noise": float(self.scored[1]),
            }
        if self.checkpoint:
            self.checkpoint.save(self._snapshot(server_round))

    def _question(self, server_round: int) -> RecordDict:
        content = self.payload(server_round, 0)
        content["order"] = ConfigRecord(
            {"round": server_round, "classes": self.classes, "score": True}
        )
        return content

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the next round depends on."""
        return super().state() | {"velocity": self.velocity, "scored": self.scored}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        super().restore(state)
        self.velocity, self.scored = state["velocity"].copy(), state["scored"].copy()
