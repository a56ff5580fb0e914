"""The strategy of cluster-admm where clusters are found; the mathematics is in `cluster_search`.

    iterations 1 to 2 E       one model for all clients, E = ``every``
    before 2 E + 1            the first split: all clients tell their losses at a few models around
                              the shared one, and each group starts where its losses are least
    before every E-th later   all clients tell their losses under their server's Q models and join
                              the one that fits best, until nobody moves (10 assignments at most)

All clients are asked, sampled or not. One that fails or answers nonsense keeps its cluster and is
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

Where servers do not exchange models (``apart``) the split is still made over all their clients.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row
from trellis.strategies.core.exchange import exchange

from .search import best_split, directions, fitting, probes, quadratics
from .strategy import ClusterAdmm, placed

log = logging.getLogger("trellis.strategy")

Array = NDArray[np.float64]

MOST_ASSIGNMENTS = 10
_WARM_UP = 2  # times ``every``
_FARFETCHED = 1e6  # a loss so many times the median is no part of the first split


def first_assignment(every: int) -> int:
    """Return the iteration before which clients are assigned for the first time."""
    return _WARM_UP * every + 1


@dataclass
class Told:
    """What clients told: ``losses`` (K, m), nan where nothing usable came, of ``counts`` (K,)."""

    losses: Array
    counts: Array

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return whose losses are usable."""
        return np.asarray(np.all(np.isfinite(self.losses), axis=1))


class ClusterFinding(ClusterAdmm):
    """One model a cluster, and whose cluster it is.

    Parameters
    ----------
    every : iterations between two assignments
    """

    together = "clusters are found over the clients of all servers; set clusters to their number"

    def __init__(self, *args: Any, every: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.every = every
        self._traffic = [0, 0]

    def places(self) -> Mapping[str, int]:
        """Return how many servers there are; clusters are found."""
        return {"server": self.task.topology.servers}

    def begin(self, clients: Sequence[Client]) -> None:
        """Start at zero, every client with its server; all in one cluster."""
        self.size = self.parameters(clients)
        self.homes = placed(clients, "server", self.task.topology.servers)
        self.set_up(self.task.clusters)

    def set_up(self, clusters: int) -> None:
        """Start at zero, all clients in cluster 0 of so many."""
        super().set_up(clusters)
        self.groups = np.zeros(len(self.homes), dtype=np.intp)
        self.split = clusters == 1
        self.searching = clusters > 1
        self.assignments = 0

    def admit(self, client: Client) -> bool:
        """Return False: clusters are found among the clients of the beginning."""
        return False

    def tau(self, iteration: int) -> float:
        """Return 0 while clusters are sought."""
        return 0.0 if self.searching else super().tau(iteration)

    def settled(self, row: Row) -> bool:
        """Return whether clusters are found and models do not change."""
        return not self.searching and super().settled(row)

    # --- a round -----------------------------------------------------------------------------

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Assign clients where it is time to, then run the round."""
        self._traffic = [0, 0]
        moved = self._assign(grid, server_round) if self._due(server_round) else None
        row = super().gather(grid, server_round)
        if moved is not None:
            row["moved"] = float(moved)
        return self.counted(row)

    def counted(self, row: Row) -> Row:
        """Return the round's metrics with the traffic that losses took."""
        down, up = self._traffic
        self._traffic = [0, 0]
        self.progress.bytes_down += down
        self.progress.bytes_up += up
        return row | {"bytes-up": row["bytes-up"] + up, "bytes-down": row["bytes-down"] + down}

    def _due(self, server_round: int) -> bool:
        since = self.iteration(server_round) - first_assignment(self.every)
        return self.searching and since >= 0 and since % self.every == 0

    def _assign(self, grid: Grid, server_round: int) -> int:
        """Split the clients, or let everyone choose anew; return how many moved."""
        before = self.groups
        if not self.split:
            self._first_split(grid, server_round)
            return int(np.count_nonzero(self.groups != before))
        losses = self.fit(grid, server_round, self.models[self.homes])
        self.groups = fitting(losses, before)
        moved = self.groups != before
        self.duals[moved] = 0.0
        self.assignments += 1
        asked = [not client.left_out for client in self.clients]
        everyone = bool(np.all(np.isfinite(losses[asked])))
        if (everyone and not np.any(moved)) or self.assignments >= MOST_ASSIGNMENTS:
            self.searching = False
        self._tell(server_round, int(np.count_nonzero(moved)))
        return int(np.count_nonzero(moved))

    def _first_split(self, grid: Grid, server_round: int) -> None:
        """Start every cluster where the losses of some clients are least."""
        clusters = self.models.shape[1]
        counts = np.array([client.counted for client in self.clients], dtype=np.float64)
        seen = np.flatnonzero(self.seen)
        U = directions(self.duals[seen], counts[seen], clusters)
        if not U.shape[1]:
            log.warning("round %d: clients do not differ, so they are not split", server_round)
            return
        shared = self.models[:, 0]
        # Of the order of a step (4); for squared errors any length gives the same.
        scale = np.maximum(np.std(self.duals[seen] @ U, axis=0) / self.task.rho, 1e-9)
        around = shared[self.homes][:, None] + probes(scale) @ U.T
        losses = self.fit(grid, server_round, around)
        known = np.flatnonzero(_believable(losses))
        if known.size < clusters:
            log.warning(
                "round %d: %d clients told their losses, %d clusters need as many; the split has "
                "to wait",
                *(server_round, known.size, clusters),
            )
            return
        of = quadratics(losses[known], scale)
        self.groups = self.groups.copy()
        self.groups[known], points = best_split(
            of,
            counts[known],
            clusters,
            self.sampler(0),  # rounds draw their clients from 1 on
        )
        self.models = shared[:, None] + points @ U.T
        self.server_duals = np.zeros_like(self.models)
        self.duals = np.zeros_like(self.duals)
        self.split = True
        self._tell(server_round, known.size)

    def _tell(self, server_round: int, moved: int) -> None:
        sizes = np.bincount(self.groups, minlength=self.models.shape[1])
        log.info("round %d: %d clients moved; clusters of %s", server_round, moved, sizes.tolist())
        for cluster in np.flatnonzero(sizes == 0):
            log.warning(
                "round %d: nobody is in cluster %d; its model is kept and offered again. Fewer "
                "clusters may do",
                *(server_round, cluster),
            )

    # --- losses ------------------------------------------------------------------------------

    def fit(self, grid: Grid, server_round: int, models: Array) -> Array:
        """Return the losses (K, m) that decide who belongs where, under ``models`` (K, m, d)."""
        return self.ask_losses(grid, server_round, models).losses

    def ask_losses(
        self, grid: Grid, server_round: int, models: Array, held_out: float = 0.0
    ) -> Told:
        """Ask every client for its mean losses under its ``models`` (K, m, d).

        ``held_out`` asks for those of the part of its samples that it leaves out in training.
        """
        order = {"order": ConfigRecord({"held_out": held_out})} if held_out else {}
        messages = {
            client: Message(
                RecordDict(
                    {
                        "arrays": wire.record({"models": models[client], **self.preprocessing}),
                        **order,
                    }
                ),
                known.node_id,
                "query.losses",
                group_id=str(server_round),
            )
            for client, known in enumerate(self.clients)
            if not known.left_out
        }
        answers = exchange(grid, messages, self.plan.timeout)
        told = Told(np.full(models.shape[:2], np.nan), np.zeros(len(self.clients)))
        for client in sorted(answers.content):
            try:
                found = self._read_losses(client, answers.content[client], models.shape[1])
                told.losses[client], told.counts[client] = found
            except Exception as error:  # whatever a malicious reply provokes
                answers.failures[client] = f"reply rejected: {error}"
        for client, reason in sorted(answers.failures.items()):
            log.warning(
                "round %d: client %s told no losses and keeps its cluster: %s",
                *(server_round, self.clients[client].name, reason),
            )
        self._traffic[0] += answers.bytes_down
        self._traffic[1] += answers.bytes_up
        return told

    def _read_losses(self, client: int, content: RecordDict, models: int) -> tuple[Array, int]:
        arrays = wire.arrays(content["arrays"])
        if set(arrays) != {"losses"}:
            raise wire.BadReply(f"holds {sorted(arrays)}, not losses")
        wire.check_reals(arrays["losses"], "losses", (models,))
        if np.any(arrays["losses"] < 0.0):
            raise wire.BadReply("a loss is below 0")
        count, most = content.config_records["samples"]["count"], self.clients[client].count
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= most:
            raise wire.BadReply(f"losses of {count!r} samples; the client has {most}")
        return arrays["losses"], count

    # --- checkpoints -------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every array that the next round depends on."""
        search = np.array([self.split, self.searching, self.assignments], dtype=np.int64)
        return super().state() | {"search": search}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        super().restore(state)
        split, searching, self.assignments = state["search"].tolist()
        self.split, self.searching = bool(split), bool(searching)


def _believable(losses: Array) -> NDArray[np.bool_]:
    """Return whose losses are there and not out of all proportion: one liar would be all."""
    largest = np.where(np.all(np.isfinite(losses), axis=1), np.max(losses, axis=1), np.nan)
    told = largest[np.isfinite(largest)]
    if not told.size:
        return np.zeros(len(losses), dtype=bool)
    return np.asarray(np.nan_to_num(largest, nan=np.inf) <= _FARFETCHED * np.median(told))
