"""The server of gromov-wasserstein [JC]: averaged weights, then the clients' embeddings.

    w_r = sum_i c_i w_r^(i) / sum_i c_i            [JC] Algorithm 2 line 11, FedAvg and FedProx

over the clients i that answered, c_i labelled items each; the two methods differ in what clients
minimise, not here. Only sums over clients are used, so secure aggregation can gather them; in the
clear the server sees every client's weights, which tell of its data.

Embeddings come by another exchange, ``query.embed``, to all clients: every s = ``every`` rounds,
and after the last ([JC] Algorithm 2 line 6: there in the training message, with the weights of the
client; here all embed with the same weights w_r, so that their rows share a space). A release costs
budget, so it is in the checkpoint and a resumed run does not ask for it again. A client that fails
then keeps its rows from an earlier release, if there was one; one that was left out is not asked.

``norm-bound`` limits |w_r^(i) - w_{r-1}|; with ``robust`` median or trimmed, that of the clients'
weights stands in place of their weighted mean, all clients with labels alike.

Arrays: ``weights`` (d,), ``asked_in`` the round after which embeddings last came, and those
of `embedding_release`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client, Row, StudyError
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.exchange import exchange
from trellis.strategies.core.sums import Summands, SumStrategy

from .embeddings import Embeddings, Released, ReleaseTerms, read_embeddings

Vector = NDArray[np.float64]

SPLITS = ("train", "validation", "test")
_MOST_ITEMS = 1e12  # beyond it one client's word would be all that counts


@dataclass(frozen=True)
class GnnStart:
    """What is fixed once the clients are known: w_0 (d,), the terms of a release, the classes."""

    weights: Vector
    terms: ReleaseTerms
    classes: int = 2


def weighted_mean(total: Mapping[str, Vector]) -> Vector:
    """Return sum_i c_i w_i / sum_i c_i (d,) from the two sums."""
    return total["weights"] / total["count"][0]


class FederatedGnn(SumStrategy):
    """One model for all clients (methods ``fedavg`` and ``fedprox``), then their embeddings.

    A client replies with c w, c, c times its mean loss, and, of the weights that it was *sent*, its
    numbers of items and of hits in each of `SPLITS`. Devices under sound privacy send zeros
    for loss, items and hits, and a c that does not depend on their labels.

    Parameters
    ----------
    start : called with the clients once they are enrolled
    every : s, rounds between two releases of embeddings; 0 releases after the last round only
    at_home : send every client the final weights, for a model of its own that stays with it
    """

    def __init__(
        self,
        *args: Any,
        start: Callable[[Sequence[Client]], GnnStart],
        every: int = 0,
        at_home: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.start_of = start
        self.every = every
        self.at_home = at_home
        self.personal_results: dict[int, dict[str, float]] = {}

    per_count = ("weights",)

    # --- training ----------------------------------------------------------------------------

    def begin(self, clients: Sequence[Client]) -> None:
        """Take the first weights; nothing is released yet."""
        start = self.start_of(clients)
        self.weights = np.array(start.weights, dtype=np.float64)
        self.classes = start.classes
        self.released = Released(start.terms)
        self.asked_in = 0
        self._release_bytes = 0

    def admit(self, client: Client) -> bool:
        """Let a late client learn with the others, where it has no classes that they have not."""
        if client.classes > self.classes:
            raise StudyError(
                f"its labels are of {client.classes} classes, the model has {self.classes}; set "
                "classes for all"
            )
        return True

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return what a client replies with."""
        splits = (len(SPLITS),)
        return {
            "weights": self.weights.shape,
            "count": (1,),
            "loss": (1,),
            "items": splits,
            "correct": splits,
        }

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the weights, the round, and how many classes the model tells apart."""
        return RecordDict(
            {
                "arrays": wire.record({"weights": self.weights}),
                "order": ConfigRecord({"round": server_round, "classes": self.classes}),
            }
        )

    def read_reply(self, client: int, content: RecordDict) -> Summands:
        """Check a reply in the clear: the arrays of `layout`, and numbers that count something."""
        found = super().read_reply(client, content)
        count, items, correct = found["count"][0], found["items"], found["correct"]
        if not (0.0 <= count <= _MOST_ITEMS and np.all(items <= _MOST_ITEMS)):
            raise BadReply(f"count is {count:g} and items {items.tolist()}: no numbers of items")
        if np.any(correct < 0.0) or np.any(correct > items):
            raise BadReply(f"correct is {correct.tolist()} of {items.tolist()} items")
        if count == 0.0 and np.any(found["weights"]):
            raise BadReply("weights without a labelled item: they must be 0, as the count is")
        return found

    def bounded_part(
        self, server_round: int, client: int, reply: Summands
    ) -> tuple[Vector, Vector] | None:
        """Return a client's weights and those it was sent; nothing of one without labels."""
        if not reply["count"][0] > 0.0:
            return None
        return reply["weights"] / reply["count"], self.weights

    def with_part(self, client: int, reply: Summands, part: Vector) -> Summands:
        """Return the reply with other weights."""
        return {**reply, "weights": reply["count"] * part}

    def update_from_sum(
        self, server_round: int, total: Mapping[str, Vector], clients: Sequence[int]
    ) -> Row:
        """Take the mean over the clients that answered, weighted by their labelled items."""
        count = float(total["count"][0])
        if not count > 0.0:
            raise StudyError(
                f"round {server_round}: no client has labels to learn from (their numbers of "
                f"labelled items sum to {count:g}); give labels, of nodes with task='node' and of "
                "graphs with task='graph'"
            )
        before = self.weights
        self.weights = weighted_mean(total)
        moved = float(np.linalg.norm(self.weights - before))
        row = {"change": moved / max(float(np.linalg.norm(before)), 1e-12)}
        if np.any(total["items"] > 0.0):  # devices may keep loss and hits to themselves
            row["loss"] = float(total["loss"][0]) / count
        for name, items, correct in zip(SPLITS, total["items"], total["correct"], strict=True):
            if items > 0.0:
                row[f"{name}-accuracy"] = float(correct / items)
        return row

    # --- embeddings --------------------------------------------------------------------------

    def run(self, grid: Grid, *, resume: bool = False) -> None:
        """Train, then ask for the embeddings, unless the checkpoint has those of these weights."""
        super().run(grid, resume=resume)
        rows = self.progress.rows
        last = int(rows[-1]["round"])
        self.trained(grid, last)
        if self.asked_in != last:
            self.release(grid, last)
            rows[-1] |= self._released_row(last)
            self._need_embeddings()
            if self.checkpoint:
                self.checkpoint.save(self._snapshot(last))
        if self.at_home:
            self.deliver(grid, last)

    def trained(self, grid: Grid, server_round: int) -> None:
        """Do what is to be done between the last round and the release."""

    def _need_embeddings(self) -> None:
        if not self.released.sizes.size:
            reasons = {i: c.last_failure for i, c in enumerate(self.clients)}
            raise StudyError(f"no client released an embedding. {self._reasons(reasons)}")

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Train for a round; release embeddings where it is the time for that."""
        row = super().gather(grid, server_round)
        if self.every and server_round % self.every == 0:
            self.release(grid, server_round)
            row |= self._released_row(server_round)
        return row

    def _released_row(self, server_round: int) -> Row:
        return {
            "released-graphs": float(np.count_nonzero(self.released.moment == server_round)),
            "release-bytes-up": float(self._release_bytes),
        }

    def release(self, grid: Grid, server_round: int) -> dict[int, Embeddings]:
        """Ask every client for the embeddings of its graphs and keep them.

        Returns
        -------
        good : by client; one that failed or answered nonsense is named in a warning and passed over
        """
        asked = {
            client: Message(
                self.payload(server_round, client),
                known.node_id,
                "query.embed",
                group_id=str(server_round),
            )
            for client, known in enumerate(self.clients)
            if not known.left_out
        }
        answers = exchange(grid, asked, self.plan.timeout)
        good: dict[int, Embeddings] = {}
        for client in sorted(answers.content):
            try:
                found = read_embeddings(answers.content[client], self.released.terms)
                self._enter_releases(client, answers.content[client])
                good[client] = found
            except Exception as error:  # whatever a malicious reply provokes
                answers.failures[client] = f"reply rejected: {error}"
        for client, reason in answers.failures.items():
            kept = self.released.moment_of(client)
            instead = f"; those of round {kept} are used" if kept else ""
            answers.failures[client] = f"no embeddings, {reason}{instead}"
        self.note_failures(server_round, answers)
        self.progress.bytes_up += answers.bytes_up
        self.progress.bytes_down += answers.bytes_down
        self._release_bytes = answers.bytes_up
        self.released.keep(server_round, good)
        if good:  # otherwise a resumed run asks again
            self.asked_in = server_round
        return good

    # --- what stays with the clients ---------------------------------------------------------

    def deliver(self, grid: Grid, server_round: int) -> None:
        """Send simulated clients the final weights; take what they tell of their own model.

        Devices get theirs once the distances are known, with their graphs' neighbours.
        """
        deliver(self, grid, self.payload(server_round, 0), self._take_own, devices=False)

    def _take_own(self, client: int, content: RecordDict) -> None:
        told = content.metric_records["summary"]
        numbers = {key: float(value) for key, value in told.items()}  # type: ignore[arg-type]
        self.personal_results[client] = numbers

    # --- checkpoints -------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the weights and what was released."""
        own = {"weights": self.weights, "asked_in": np.array(self.asked_in)}
        return own | self.released.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        if state["weights"].shape != self.weights.shape:
            raise ValueError(f"weights in the checkpoint have shape {state['weights'].shape}")
        self.weights, self.asked_in = state["weights"].copy(), int(state["asked_in"])
        self.released.restore(state)
