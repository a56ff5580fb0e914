"""`ConsensusGraph` in fewer rounds: the server runs the rounds to come by itself, clients check it.

Where clients solve (13) exactly, a graph tells most of what it was made of: on the edges with
w > 0 its optimality condition gives the client's own term,

    2 zbar = alpha S'(1 / S w) - 4 beta w - pull (w - w_con),

and elsewhere the right hand side is a lower bound on it. So the server takes what it knows for all
there is, runs (13), (19) and (20) until they settle, and sends clients the end of that instead of
one step of it. Their exact answers either agree, and the rounds are over, or they have edges that
the server did not know of, and it looks ahead again. Nothing is asked that is not asked otherwise,
and less often.

The answer is the same: the consensus and the graphs of the result come from (13), (19) and (20)
applied to the clients' own replies, and a run has settled only where these leave them where they
are, and another look ahead too. Where looking ahead does not lower the objective of (8), or does
not halve the change of a round, plain rounds go on, which converge from anywhere.

A client that coincides with the consensus has gamma = 1 / eps and holds it where it is, in rounds
as in looks ahead: while one does, looks ahead start from the beginning and not from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from trellis.strategies.core.base import Client, Row

from .strategy import (
    ConsensusGraph,
    GraphReply,
    Vector,
    consensus_update,
    first_graph,
    gamma_update,
    relative_change,
)

# A client's graph from its zbar, the pull and the consensus: (13).
LocalSolve = Callable[[Vector, float, Vector], Vector]
# zbar as the optimality condition of (13) has it, from graph, pull and consensus.
Recover = Callable[[Vector, float, Vector], Vector]

_MOST_LOOKS = 12
_MOST_USELESS = 2
_MOST_STEPS = 200
_SHARPER = 0.1  # looks ahead settle to this part of the tolerance
_STRONGER = 100.0  # a pull multiplies the rounding of a graph in what the graph tells
_COINCIDES = 1e-3  # distance from the consensus, by its size
_KEPT = ("ahead_weights", "ahead_consensus", "ahead_gamma", "terms", "known", "best", "looks")


class ForeseenConsensus(ConsensusGraph):
    """Federated graph learning whose server looks ahead.

    Parameters
    ----------
    local : solves (13)
    recover : the inverse of it, as far as there is one
    """

    def __init__(self, *args: Any, local: LocalSolve, recover: Recover, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.local_solve, self.recover = local, recover

    def begin(self, clients: Sequence[Client]) -> None:
        """Start as plain rounds do, knowing nothing."""
        super().begin(clients)
        self.first = first_graph(clients)
        self._stay()
        self.terms = np.full(self.weights.shape, -np.inf)
        self.known = np.full(self.weights.shape, np.inf)  # the weakest pull that told a term
        self.best = np.full(2, np.inf)  # the smallest objective and change so far
        self.looks = np.zeros(2, dtype=np.int64)  # looks ahead, and those that were of no use

    def admit(self, client: Client) -> bool:
        """Make room for a late client, of whom nothing is known yet."""
        super().admit(client)
        unknown = self.weights[-1:]
        self.terms = np.vstack([self.terms, np.full_like(unknown, -np.inf)])
        self.known = np.vstack([self.known, np.full_like(unknown, np.inf)])
        # What was of no use for those who were there may be for those who are now.
        self.best[:], self.looks[:] = np.inf, 0
        self._stay()
        return True

    def _stay(self) -> None:
        """Send what plain rounds send."""
        self.ahead_weights, self.ahead_consensus = self.weights.copy(), self.consensus.copy()
        self.ahead_gamma = self.gamma.copy()

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the consensus and the pull that the look ahead has ended with."""
        pull = float(self.rho * self.ahead_gamma[client])
        return self._asking(server_round, pull, self.ahead_consensus, {})

    def update(self, server_round: int, replies: Mapping[int, GraphReply]) -> Row:
        """Apply (19) and (20) to what clients answered; look ahead from there."""
        asked = self.ahead_consensus, self.rho * self.ahead_gamma
        answered = sorted(replies)
        # What changes is measured from what was expected: nothing does where that was right.
        self.weights[answered] = self.ahead_weights[answered]
        self.consensus, self.gamma = self.ahead_consensus, self.ahead_gamma
        row = super().update(server_round, replies)
        self._stay()
        present = [i for i, client in enumerate(self.clients) if not client.left_out]
        if answered != present or not self._worthwhile(row):
            return row
        for client in answered:
            self._learn(client, replies[client].weights, float(asked[1][client]), asked[0])
        try:
            self._look_ahead(answered)
        except (FloatingPointError, ValueError, np.linalg.LinAlgError):
            self._stay()  # a reply that is nobody's solution tells of no problem
            self.looks[1] += _MOST_USELESS
            return row
        row["change"] = max(
            row["change"],
            relative_change(self.ahead_weights, self.weights),
            relative_change(self.ahead_consensus, self.consensus),
        )
        return row

    def _worthwhile(self, row: Row) -> bool:
        """Return whether to look ahead again: not after looks that led uphill or nowhere."""
        now, best = np.array([row.get("objective", np.inf), row["change"]]), self.best
        uphill = not now[0] <= best[0] + 1e-9 * abs(best[0])
        if self.looks[0] and (uphill or now[1] > 0.5 * best[1]):
            self.looks[1] += 1
        self.best = np.minimum(now, best)
        return bool(self.looks[0] < _MOST_LOOKS and self.looks[1] < _MOST_USELESS)

    def _learn(self, client: int, graph: Vector, pull: float, consensus: Vector) -> None:
        """Take what a client's graph tells of its term, but for what a much weaker pull told."""
        told = self.recover(graph, pull, consensus)
        terms, known = self.terms[client], self.known[client]
        seen = (graph > 0.0) & (pull <= _STRONGER * known)
        terms[seen], known[seen] = told[seen], np.minimum(known[seen], pull)
        unseen = ~np.isfinite(known)
        terms[unseen] = np.maximum(terms[unseen], told[unseen])

    def _look_ahead(self, clients: Sequence[int]) -> None:
        """Run (13), (19) and (20) on what is known until they settle."""
        chosen = list(clients)
        consensus, graphs, gamma = self.consensus, self.weights[chosen], self.gamma[chosen]
        size = float(np.sqrt(np.sum(consensus * consensus)))
        if np.max(gamma) * _COINCIDES * size > 1.0:
            consensus, gamma = self.first, np.full(len(chosen), 1.0 / len(chosen))
        enough = _SHARPER * self.plan.tolerance
        for _ in range(_MOST_STEPS):
            before = graphs, consensus
            graphs = np.array(
                [
                    self.local_solve(self.terms[client], float(self.rho * weight), consensus)
                    for client, weight in zip(chosen, gamma, strict=True)
                ]
            )
            asked = consensus, gamma
            consensus = consensus_update(graphs, gamma, self.rho, self.lambda_)
            gamma = gamma_update(graphs, consensus)
            moved = relative_change(consensus, before[1]), relative_change(graphs, before[0])
            if max(moved) <= enough:
                break
        # The last question and its answers belong together.
        self.ahead_consensus = asked[0]
        self.ahead_weights[chosen], self.ahead_gamma[chosen] = graphs, asked[1]
        self.looks[0] += 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the next round."""
        return {**super().state(), **{name: getattr(self, name) for name in _KEPT}}
