"""Federated training of a graph neural network, then the release of embeddings: server of [JC].

    w_r = sum_i c_i w_r^(i) / sum_i c_i            [JC] Algorithm 2 line 11, FedAvg and FedProx

over the clients i that answered, c_i labelled items each. The two methods differ in what clients
minimise ([JC] Algorithm 3), not here. After the last round, and every s rounds if asked for, every
client embeds its graphs with w_r and releases what its encoder makes of the rows. ([JC] Algorithm 2
line 6 has the release in the training message, with the client's own weights. Here all clients
embed with the same weights, so that their rows share a space.)

A release costs budget: it is part of the strategy's state, so that a resumed run does not ask for
it again, and a client that fails later keeps its rows from an earlier release.

.. [JC] Jin & Chen, Gromov-Wasserstein discrepancy with local differential privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.bounded_grid import Bounded
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.core.wire import BadReply
from trellis.strategies.node_strategy import NodeStrategy

from .embeddings import Released, ReleaseTerms, read_embeddings

log = logging.getLogger("trellis.strategy")

Vector = NDArray[np.float64]

SPLITS = ("train", "validation", "test")
# Metrics of a reply that are added up over clients: the loss over all labelled items, and per split
# the numbers of items and of those that are classified correctly.
METRICS = ("loss", *(f"{split}-{what}" for split in SPLITS for what in ("items", "correct")))
EMBED = "query.embed"
_MOST_ITEMS = 1e12  # beyond it one client's number would outweigh all others


def weighted_mean(rows: Sequence[Vector], counts: Sequence[float]) -> Vector:
    """Return sum_i c_i w_i / sum_i c_i (d,), added up in order; of one row that row, to the bit."""
    if len(rows) == 1:
        return rows[0]
    total = np.sum([count * row for row, count in zip(rows, counts, strict=True)], axis=0)
    return np.asarray(total / float(np.sum(counts)))


# A client's weights, measured from those that it was sent.
WEIGHTS = Bounded(
    reference=lambda sent: sent.array_records["arrays"]["weights"],
    vector=lambda reply, _: wire.unpack(reply.array_records["arrays"]["weights"]),
    origin=lambda _, weights: wire.unpack(weights),
    replace=lambda reply, clipped: reply.__setitem__("arrays", wire.record({"weights": clipped})),
)


@dataclass(frozen=True)
class Trained:
    """A client's reply: its weights (d,), labelled items, and the sums that it reports."""

    weights: Vector
    count: float
    sums: dict[str, float] = field(default_factory=dict)


def read_trained(content: RecordDict, size: int) -> Trained:
    """Return a reply to ``train``, checked; raise `BadReply` for what no client can have."""
    record, metrics = content["arrays"], content["metrics"]
    if not isinstance(record, ArrayRecord) or set(record) != {"weights"}:
        raise BadReply(f"holds {sorted(record)}, not ['weights']")
    weights = wire.unpack(record["weights"])
    wire.check_reals(weights, "weights", (size,))
    numbers: dict[str, float] = {key: float(value) for key, value in metrics.items()}  # type: ignore[arg-type]
    count = numbers["num-examples"]
    if not 0.0 <= count <= _MOST_ITEMS:
        raise BadReply(f"num-examples is {count:g}: not a number of labelled items")
    sums = {key: numbers[key] for key in METRICS if key in numbers}
    if not np.isfinite(sums.get("loss", 0.0)):
        raise BadReply(f"loss is {sums['loss']}")
    for split in SPLITS:
        items, correct = (sums.get(f"{split}-{what}", 0.0) for what in ("items", "correct"))
        if not 0.0 <= correct <= items <= _MOST_ITEMS:
            raise BadReply(f"{split}-correct is {correct:g} of {items:g} items")
    return Trained(weights, count, sums)


class FederatedGnn(NodeStrategy):
    """FedAvg or FedProx of a graph neural network, and the embeddings of all clients' graphs.

    Start it with ``initial_arrays`` = ``weights`` (d,), all parameters one after the other.
    ``Result.arrays`` has the trained ``weights``; `released` the embeddings.

    Sent with ``train``:
        arrays   ``weights`` (d,) float64: w_(r-1)
        config   ``server-round`` and ``train_config``
    Expected back:
        arrays   ``weights`` (d,) float64: w_r^(i); as they were sent if nothing is labelled
        metrics  ``num-examples``: c_i, labelled items to train with. Optional, sums over items, of
                 the weights that were sent: ``loss`` (of training), ``train-items``,
                 ``train-correct``, and the same of ``validation`` and ``test``
    Sent with ``query.embed``, to all nodes, after the last round and every ``every`` rounds:
        arrays   ``weights``; config ``server-round`` and ``evaluate_config``
    Expected back:
        arrays   the encoded rows of all graphs, one below the other, as `ReleaseTerms.names` says
                 (``codes``, with two encodings also ``second``; ``rows`` without an encoder);
                 ``sizes`` and ``labels`` (graphs,) int64, label -1 if it is not shared
        other    ``privacy.<name>``: the release as an entry of the privacy ledger, if counted

    Only a mean is taken of the replies to ``train``, so `SecureGrid` can carry them.

    Parameters
    ----------
    terms : what a release looks like; `begin` sets it later
    rounds : the number of the last round. `Rounds`, which may stop early, needs none; Flower's
        ``start`` does not tell a strategy its ``num_rounds``, so give it here as well
    every : s, rounds between two releases; 0 releases after the last round only
    centre : (rows (I, d)) -> (d,), a robust centre in place of the weighted mean
    fewest : the number of replies below which there is no ``centre``
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        terms: ReleaseTerms | None = None,
        *,
        rounds: int = 0,
        every: int = 0,
        centre: Callable[[NDArray[np.float64]], Vector] | None = None,
        fewest: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.last_round, self.every = rounds, every
        self.centre, self.fewest = centre, fewest
        self.asked_in = 0  # the round after which embeddings last came
        self._weights = np.zeros(0)  # as they were sent
        self._embedding: list[int] = []  # who was asked for embeddings
        if terms is not None:
            self.begin(terms)

    def begin(self, terms: ReleaseTerms) -> None:
        """Set what a release looks like; nothing is released yet."""
        self.released = Released(terms)

    # --- training ----------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the weights to the clients of the round."""
        self._weights = wire.unpack(arrays["weights"])
        content = question(server_round, arrays, config)
        for node in self.nodes(grid, server_round):
            yield Message(content, node, "train", group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the mean over the clients that answered, weighted by their labelled items."""
        good = self.usable(replies, lambda content: read_trained(content, self._weights.size))
        if not good:
            return None, None
        labelled = [found for found in good.values() if found.count > 0.0]
        if not labelled:
            raise StudyError(
                f"round {server_round}: no client has labels to learn from (their numbers of "
                "labelled items sum to 0); give labels, of nodes with task='node' and of graphs "
                "with task='graph'"
            )
        if len(labelled) < self.fewest:
            raise StudyError(
                f"round {server_round}: {len(labelled)} usable replies; a robust centre cannot "
                f"tell the liar among fewer than {self.fewest}"
            )
        rows, counts = [f.weights for f in labelled], [f.count for f in labelled]
        if self.centre is not None:
            weights = self.centre(np.array(rows))
        else:
            weights = weighted_mean(rows, counts)  # [JC] Algorithm 2 line 11
        metrics = {"change": relative_change(weights, self._weights)}
        total = {key: sum(f.sums.get(key, 0.0) for f in good.values()) for key in METRICS}
        if any(total[f"{split}-items"] for split in SPLITS):
            metrics["loss"] = total["loss"] / float(np.sum(counts))
        for split in SPLITS:
            if items := total[f"{split}-items"]:
                metrics[f"{split}-accuracy"] = total[f"{split}-correct"] / items
        return wire.record({"weights": weights}), MetricRecord(dict(metrics))

    # --- embeddings --------------------------------------------------------------------------

    def due(self, server_round: int) -> bool:
        """Return whether embeddings are released after this round, and have not been yet."""
        periodic = self.every > 0 and server_round % self.every == 0
        return (periodic or server_round == self.last_round) and self.asked_in != server_round

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask all clients for the embeddings of their graphs, if they are due."""
        yield from super().configure_evaluate(server_round, arrays, config, grid)
        if not self.due(server_round):
            return
        self._embedding = sorted(grid.get_node_ids())
        content = question(server_round, arrays, config)
        for node in self._embedding:
            yield Message(content, node, EMBED, group_id=str(server_round))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Keep the embeddings that came; aggregate evaluations as FedAvg does."""
        every = list(replies)
        scores = [reply for reply in every if reply.metadata.message_type != EMBED]
        found = super().aggregate_evaluate(server_round, scores)
        if not self._embedding:
            return found
        came = [reply for reply in every if reply.metadata.message_type == EMBED]
        return MetricRecord({**(found or {}), **self._keep(server_round, came)})

    def _keep(self, server_round: int, replies: Sequence[Message]) -> dict[str, int]:
        """Keep embeddings; a client without usable ones keeps those of an earlier release."""
        asked, self._embedding = self._embedding, []
        good = self.usable(replies, lambda content: read_embeddings(content, self.released.terms))
        for node in asked:
            if node not in good and (before := self.released.moment_of(node)):
                log.warning("node %d: its embeddings of round %d are used", node, before)
        self.released.keep(server_round, good)
        if good:  # otherwise a resumed run asks again
            self.asked_in = server_round
        if not self.released.sizes.size:
            raise StudyError("no client released an embedding")
        return {"released-graphs": int(np.count_nonzero(self.released.moment == server_round))}

    # --- checkpoints -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return what was released, and after which round."""
        return {"asked_in": np.array(self.asked_in), **self.released.state()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        self.asked_in = int(state["asked_in"])
        self.released.restore(state)


def question(server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
    """Return what a client is sent: the weights, and the round in the config."""
    told = ConfigRecord({**config, "server-round": server_round})
    return RecordDict({"arrays": arrays, "config": told})


def relative_change(now: Vector, before: Vector) -> float:
    """Return |now - before| / |before|."""
    return float(np.linalg.norm(now - before)) / max(float(np.linalg.norm(before)), 1e-12)
