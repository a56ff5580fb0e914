"""ClusterAdmm where clusters are found; the mathematics is in `search`.

    rounds 1 to 2 E           one model for all clients, E = ``every``
    before round 2 E + 1      the first split: all clients send their losses at a few models around
                              the shared one, and each group starts where its losses are least
    before every E-th later   all clients send their losses under their server's Q models and join
                              the one that fits best, until nobody moves (10 assignments at most)

All clients are asked, sampled or not. One that fails or sends nonsense keeps its cluster and is
named; it is asked again next time.

While clusters are sought tau is 0: (10) draws the models to their mean, and a client between two
clusters would find the one that fits it too near to the others. Afterwards tau is what it is set
to.

A client that moves starts with a zero dual. Its dual is the gradient of f_k at the old cluster's
model, the force of a constraint that it no longer has; kept, it would push the new cluster's mean
(8) away by phi_k / rho until (5) has undone it. Where the iteration ends does not depend on the
dual it starts with. The split ends the shared model, so it sets all duals to zero.

A cluster that everyone leaves keeps its model, with a warning, and is offered again. Its model is
the best guess there is: one started anew from a single client, which has fewer samples than
parameters, would fit that client perfectly and nobody else.

Where servers do not exchange models the split is still made over all their clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire

from .search import best_split, directions, fitting, probes, quadratics
from .strategy import ClusterAdmm, Place, number_of_examples

log = logging.getLogger("trellis.strategy")

Array = NDArray[np.float64]

LOSSES = "evaluate.losses"
MOST_ASSIGNMENTS = 10
_WARM_UP = 2  # times ``every``
_FARFETCHED = 1e6  # a loss so many times the median is no part of the first split


def first_assignment(every: int) -> int:
    """Return the round before which clients are assigned for the first time."""
    return _WARM_UP * every + 1


@dataclass
class Losses:
    """What clients sent, by their place in ``nodes``.

    Attributes
    ----------
    nodes : K nodes, ascending
    values : (K, m) nan where nothing usable came
    counts : (K,) numbers of samples
    """

    nodes: list[int]
    values: Array
    counts: Array


class ClusterFinding(ClusterAdmm):
    """One model per cluster, and which clients are in it.

    Messages are those of `ClusterAdmm`, whose ``query.place`` needs no cluster here, and:

    Sent with ``evaluate.losses``:
        arrays   ``models`` (m, d)
        config   ``server-round``
    Expected back:
        arrays   ``losses`` (m,) float64, >= 0: the client's mean loss under each
        metrics  ``num-examples``

    Parameters
    ----------
    every : rounds between two assignments
    rng : makes the generator of the first split's random starts
    timeout : seconds to wait for losses; None leaves it to the grid
    """

    def __init__(
        self,
        *args: Any,
        every: int,
        rng: Callable[[], np.random.Generator] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.every, self.timeout = every, timeout
        self.rng = rng or partial(np.random.default_rng, 0)
        self.split = self.clusters == 1
        self.searching = self.clusters > 1
        self.assignments = 0
        self._moved: int | None = None

    def numbers(self) -> dict[str, int]:
        """Return how many servers there are; clusters are found."""
        return {"server": len(self.adjacency)}

    def _place(self, node: int, said: Mapping[str, Any]) -> Place:
        return super()._place(node, {**said, "cluster": 0})

    def tau_in(self, server_round: int) -> float:
        """Return 0 while clusters are sought."""
        return 0.0 if self.searching else super().tau_in(server_round)

    @property
    def converged(self) -> bool | None:
        """False while clusters are sought; then None, which leaves it to the tolerance."""
        return False if self.searching else None

    # --- a round -----------------------------------------------------------------------------

    def before_round(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Assign clients where it is time to."""
        super().before_round(server_round, arrays, grid)
        since = server_round - first_assignment(self.every)
        due = self.searching and since >= 0 and since % self.every == 0
        self._moved = self._assign(grid, server_round) if due else None

    def update(self, server_round: int, w: Mapping[int, Array]) -> dict[str, float]:
        """Apply the round's update rule; say how many clients moved before it."""
        row = super().update(server_round, w)
        return row if self._moved is None else {**row, "moved": float(self._moved)}

    def _assign(self, grid: Grid, server_round: int) -> int:
        """Split the clients, or let everyone choose anew; return how many moved."""
        before = dict(self.places)
        if not self.split:
            self._first_split(grid, server_round)
            return sum(self.places[node] != place for node, place in before.items())
        own = {node: self.models[place[0]] for node, place in self.places.items()}
        sent = self.ask_losses(grid, server_round, own)
        groups = fitting(sent.values, np.array([before[node][1] for node in sent.nodes]))
        moved = 0
        for node, group in zip(sent.nodes, groups.tolist(), strict=True):
            if group != before[node][1]:
                self.places[node] = before[node][0], group
                self.duals[node] = np.zeros_like(self.duals[node])
                moved += 1
        self._count()
        self.assignments += 1
        everyone = bool(np.all(np.isfinite(sent.values)))
        if (everyone and not moved) or self.assignments >= MOST_ASSIGNMENTS:
            self.searching = False
        self._log(server_round, moved)
        return moved

    def _first_split(self, grid: Grid, server_round: int) -> None:
        """Start every cluster where the losses of some clients are least."""
        seen = sorted(self.last)
        duals = np.array([self.duals[node] for node in seen])
        counts = np.array([self.examples[node] for node in seen], dtype=np.float64)
        U = directions(duals, counts, self.clusters)
        if not U.shape[1]:
            log.warning("round %d: clients do not differ, so they are not split", server_round)
            return
        shared = self.models[:, 0]
        # Of the order of a step (4); for squared errors any length gives the same.
        scale = np.maximum(np.std(duals @ U, axis=0) / self.rho, 1e-9)
        steps = probes(scale) @ U.T
        around = {node: shared[place[0]] + steps for node, place in self.places.items()}
        sent = self.ask_losses(grid, server_round, around)
        known = np.flatnonzero(_believable(sent.values))
        if known.size < self.clusters:
            log.warning(
                "round %d: %d clients sent their losses, %d clusters need as many; the split has "
                "to wait",
                *(server_round, known.size, self.clusters),
            )
            return
        of = quadratics(sent.values[known], scale)
        groups, points = best_split(of, sent.counts[known], self.clusters, self.rng())
        for place, group in zip(known.tolist(), groups.tolist(), strict=True):
            node = sent.nodes[place]
            self.places[node] = self.places[node][0], group
        self._count()
        self.models = shared[:, None] + points @ U.T
        self.server_duals = np.zeros_like(self.models)
        self.duals = {node: np.zeros_like(dual) for node, dual in self.duals.items()}
        self.split = True
        self._log(server_round, known.size)

    def _log(self, server_round: int, moved: int) -> None:
        groups = [cluster for _, cluster in self.places.values()]
        sizes = np.bincount(groups, minlength=self.clusters)
        log.info("round %d: %d clients moved; clusters of %s", server_round, moved, sizes.tolist())
        for cluster in np.flatnonzero(sizes == 0):
            log.warning(
                "round %d: nobody is in cluster %d; its model is kept and offered again. Fewer "
                "clusters may do",
                *(server_round, cluster),
            )

    # --- losses ------------------------------------------------------------------------------

    def ask_losses(self, grid: Grid, server_round: int, models: Mapping[int, Array]) -> Losses:
        """Ask every client that is there for its mean losses under its ``models`` (m, d)."""
        nodes = sorted(node for node in grid.get_node_ids() if node in models)
        number = len(models[nodes[0]]) if nodes else 0
        asked = (
            Message(
                RecordDict(
                    {
                        "arrays": wire.record({"models": models[node]}),
                        "config": ConfigRecord({"server-round": server_round}),
                    }
                ),
                node,
                LOSSES,
                group_id=str(server_round),
            )
            for node in nodes
        )
        replies = grid.send_and_receive(asked, timeout=self.timeout)
        found = self.usable(replies, lambda content: _read_losses(content, number))
        sent = Losses(nodes, np.full((len(nodes), number), np.nan), np.ones(len(nodes)))
        for place, node in enumerate(nodes):
            if node in found:
                sent.values[place], sent.counts[place] = found[node]
            else:
                why = self.rejected.get(node, "no reply")
                log.warning(
                    "round %d: client %d sent no losses and keeps its cluster: %s",
                    *(server_round, node, why),
                )
        return sent

    # --- checkpoints -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        search = np.array([self.split, self.searching, self.assignments], dtype=np.int64)
        return super().state_dict() | {"search": search}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        super().load_state_dict(state)
        split, searching, self.assignments = state["search"].tolist()
        self.split, self.searching = bool(split), bool(searching)


def _read_losses(content: RecordDict, models: int) -> tuple[Array, int]:
    arrays = wire.arrays(content["arrays"])
    if set(arrays) != {"losses"}:
        raise wire.BadReply(f"holds {sorted(arrays)}, not losses")
    wire.check_reals(arrays["losses"], "losses", (models,))
    if np.any(arrays["losses"] < 0.0):
        raise wire.BadReply("a loss is below 0")
    return arrays["losses"], number_of_examples(content)


def _believable(losses: Array) -> NDArray[np.bool_]:
    """Return whose losses are there and not out of all proportion: one liar would be all."""
    largest = np.where(np.all(np.isfinite(losses), axis=1), np.max(losses, axis=1), np.nan)
    told = largest[np.isfinite(largest)]
    if not told.size:
        return np.zeros(len(losses), dtype=bool)
    return np.asarray(np.nan_to_num(largest, nan=np.inf) <= _FARFETCHED * np.median(told))
