"""The two strategies of gromov-wasserstein in which everything that clients send is counted.

`UntrainedGnn`  nothing is trained: one release of embeddings made with the initial weights.
`NoisyGnn`      one step per round on the sum of clipped gradients, one per graph; run it on
                `SecureGrid` with noisy sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError

from .descent import Descent
from .embeddings import ReleaseTerms
from .strategy import EMBED, FederatedGnn, Vector, question, relative_change


class UntrainedGnn(FederatedGnn):
    """No training: one release of embeddings made with ``initial_arrays``, in the first round.

    Sent is ``query.embed`` as by `FederatedGnn`, and nothing else.
    """

    @property
    def done(self) -> bool:
        """Whether embeddings have been released."""
        return self.asked_in > 0

    def due(self, server_round: int) -> bool:
        """Return whether nothing is released yet."""
        return not self.done

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send nothing; keep the weights as they are."""
        self._arrays = arrays
        self.all_nodes(grid)
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the weights as they are."""
        return self._arrays, MetricRecord({"change": 0.0})


class NoisyGnn(FederatedGnn):
    """Training by sums of clipped gradients; see `Descent` for the server's step.

    Start it with ``initial_arrays`` = ``weights`` (d,).

    Sent with ``train``, to all nodes alike:
        arrays   ``weights``; config ``server-round`` and ``train_config``
    Expected back, added up over all replies (one, if a `SecureGrid` did so):
        arrays   ``gradient`` (d,): the sum of the graphs' gradients, each clipped to ``bound``
        metrics  ``num-examples``: graphs to train with; ``noise``, the standard deviation of the
                 noise in an entry of the sum (0 if absent)
    Sent with ``evaluate``, if ``scored``, after the last round, to all nodes alike:
        arrays   ``weights``; config ``server-round`` and ``evaluate_config``
    Expected back, added up:
        arrays   ``correct`` (1,): sum over held-out graphs of their share of correct items
        metrics  ``num-examples``: held-out graphs; ``noise``
    Sent with ``query.embed``: as by `FederatedGnn`.

    Everything after a sum is post-processing.

    Parameters
    ----------
    terms, rounds : of `FederatedGnn`
    descent : the server's step
    bound : C, of a graph's gradient
    scored : whether the final weights are scored on held-out graphs
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        terms: ReleaseTerms | None = None,
        *,
        descent: Descent,
        bound: float,
        scored: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(terms, **options)
        self.descent, self.bound, self.scored = descent, bound, scored
        self.velocity: Vector = np.zeros(0)
        self.score: Vector = np.full(2, math.nan)  # accuracy on held-out graphs, its noise

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients for their term of the sum of gradients."""
        self._weights = wire.unpack(arrays["weights"])
        if not self.velocity.size:
            self.velocity = np.zeros_like(self._weights)
        content = question(server_round, arrays, config)
        for node in self.all_nodes(grid):
            yield Message(content, node, "train", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take one step."""
        before = self._weights
        good = self.usable(replies, lambda found: read_sum(found, "gradient", before.size))
        if not good:
            return None, None
        gradient, graphs, noise = add_up(good)
        if not graphs > 0.0:
            raise StudyError(f"round {server_round}: no client has a graph to train with")
        weights, self.velocity = self.descent.step(before, self.velocity, gradient, graphs)
        if not math.isfinite(float(np.linalg.norm(weights - before))):
            raise StudyError(
                f"round {server_round}: the weights are not finite any more; lower learning-rate"
            )
        metrics = {
            "change": relative_change(weights, before),
            # The length of the noise in the mean gradient, over that of the longest gradient.
            "noise": noise * math.sqrt(before.size) / graphs / self.bound,
        }
        return wire.record({"weights": weights}), MetricRecord(dict(metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for the score of the final weights and for the embeddings, once each."""
        if self.scored and server_round == self.last_round and math.isnan(self.score[0]):
            content = question(server_round, arrays, config)
            for node in sorted(grid.get_node_ids()):
                yield Message(content, node, "evaluate", group_id=str(server_round))
        yield from super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Keep the score and the embeddings."""
        every = list(replies)
        terms = [reply for reply in every if reply.metadata.message_type != EMBED]
        embeddings = [reply for reply in every if reply.metadata.message_type == EMBED]
        metrics: dict[str, Any] = {}
        if good := self.usable(terms, lambda found: read_sum(found, "correct", 1)):
            correct, graphs, noise = add_up(good)
            if graphs > 0.0:
                self.score = np.array([float(correct[0]), noise]) / graphs
                names = ("held-out-accuracy", "held-out-noise")
                metrics |= dict(zip(names, self.score.tolist(), strict=True))
        if embeddings or not terms:
            metrics |= super().aggregate_evaluate(server_round, embeddings) or {}
        return MetricRecord(metrics) if metrics else None

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the velocity, the score and what was released."""
        return {**super().state_dict(), "velocity": self.velocity, "score": self.score}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        super().load_state_dict(state)
        self.velocity, self.score = state["velocity"].copy(), state["score"].copy()


def read_sum(content: RecordDict, name: str, size: int) -> tuple[Vector, float, float]:
    """Return a term of a sum (``size``,), its number of graphs and its noise, checked."""
    record, metrics = content["arrays"], content["metrics"]
    if not isinstance(record, ArrayRecord) or set(record) != {name}:
        raise wire.BadReply(f"holds {sorted(record)}, not {[name]}")
    term = wire.unpack(record[name])
    wire.check_reals(term, name, (size,))
    graphs, noise = float(metrics["num-examples"]), float(metrics.get("noise", 0.0))  # type: ignore[arg-type]
    if not (0.0 <= graphs < 2.0**53 and 0.0 <= noise < wire.LARGEST):
        raise wire.BadReply(f"num-examples is {graphs:g}, noise {noise:g}")
    return term, graphs, noise


def add_up(terms: Mapping[int, tuple[Vector, float, float]]) -> tuple[Vector, float, float]:
    """Return the sums of terms and of graphs, and the noise, whose squares add up."""
    total = np.sum([term for term, _, _ in terms.values()], axis=0)
    graphs = sum(graphs for _, graphs, _ in terms.values())
    return total, graphs, math.hypot(*(noise for _, _, noise in terms.values()))
