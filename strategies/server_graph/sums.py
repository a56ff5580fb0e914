"""server-graph with noise in every server's secure sum: all that servers know is public.

A round i, with u_{p,k} a client's clipped gradients over the expected size of its batch:

    S_p = sum_k u_{p,k} + noise                                  the clients of p, one secure sum
    psi_p = w_p - mu (S_p / K_p + rho w_p)                       server p, (6) and (7)
    w_p = sum_m a_mp psi_m                                       servers among themselves, (8)

K_p is the number of clients in the sum. Every model is computed from the S_p, and so is whatever
servers tell each other, what they keep and what they send: post-processing, against which no noise
or mask between servers is needed. So is the result, the mean of the models over the last rounds:
noise of many rounds averages out there, and costs nothing.

The deviation of the noise is in the payload: the largest that a client of this server needs, by the
numbers of samples that clients enrolled with. Devices check that it is enough for themselves.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.privacy.accounting.events import PrivacyEvent
from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row, StudyError
from trellis.strategies.core.closing.deliver import deliver
from trellis.strategies.core.exchange import Answers
from trellis.strategies.core.sums import noise_in

from .strategy import ServerGraph

if TYPE_CHECKING:
    from trellis.strategies.core.secure import SecureAnswers

log = logging.getLogger("trellis.strategy")

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Releases = Counter[tuple[float, float]]


@dataclass(frozen=True)
class SumPlan:
    """What servers do with noisy sums.

    Attributes
    ----------
    step, ridge : mu and rho
    deviation : of the noise in a sum, which a client with this many samples needs
    spent : epsilon of releases counted by (ratio, sampling)
    average : share of the rounds, the last ones, whose models the result is the mean of
    settings : what devices know the run's settings by; it is in every order, and so in the masks
    """

    step: float
    ridge: float
    deviation: Callable[[int], float]
    spent: Callable[[Mapping[tuple[float, float], int]], float]
    average: float = 0.5
    settings: str = ""


class NoisySums(ServerGraph):
    """One model over a graph of servers, from noisy secure sums.

    Parameters
    ----------
    sums : what to do with them

    ``secure`` must be given, with ``noisy=True``.
    """

    def __init__(self, *args: Any, sums: SumPlan, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._secure is None:
            raise ValueError("noise in sums needs secure sums")
        self.sums = sums
        self.epsilons = self._epsilons
        self.noise = 0.0
        self._tail, self._tail_rounds = np.zeros(0), 0
        self._releases: dict[int, Releases] = {}
        self.own: dict[int, dict[str, NDArray[Any]]] = {}

    def admit(self, client: Client) -> bool:
        """Return False: the noise of the sums was told for the clients of the beginning."""
        return False

    # --- a round -----------------------------------------------------------------------------

    def deviation(self, server_round: int, server: int) -> float:
        """Return the deviation of the noise that a server's clients need."""
        homes = self.homes_in(server_round)
        own = {c.count for c, home in zip(self.clients, homes, strict=True) if home == server}
        return max(map(self.sums.deviation, own))

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the model of the client's server, and how much noise its sum needs."""
        content = super().payload(server_round, client)
        server = int(self.homes_in(server_round)[client])
        deviation = self.deviation(server_round, server)
        content["order"] = ConfigRecord(
            {"round": server_round, "deviation": deviation, "settings": self.sums.settings}
        )
        return content

    def sum_group(self, client: int) -> int:
        """Return the client's server: each has a sum of its own."""
        return int(self.homes[client])

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Gather every server's noisy sum, and take one step of all servers."""
        assert self._secure is not None
        asked = {
            server: {client: self.payload(server_round, client) for client in own}
            for server, own in self._asked_by_server(server_round).items()
        }
        found = self._secure.gather_groups(
            *(grid, asked, self.clients, server_round, self.plan.timeout),
            layout={"gradient": self.first_model.shape},
        )
        answers, survivors = Answers(), list[int]()
        steps, counts = np.zeros_like(self.models), np.zeros(len(self.models))
        noise = list[float]()
        for server, one in found.items():
            answers.failures |= one.failures
            answers.bytes_up += one.bytes_up
            answers.bytes_down += one.bytes_down
            self.enter(server_round, one)
            if one.error:  # too few are left: nothing was learnt
                answers.failures |= dict.fromkeys(asked[server], f"server {server}: {one.error}")
                continue
            steps[server], counts[server] = one.total["gradient"], len(one.survivors)
            noise.append(noise_in(one) / len(one.survivors))
            survivors += one.survivors
        self.note_failures(server_round, answers)
        if not survivors:
            reasons = " | ".join(sorted(set(answers.failures.values())))
            raise StudyError(f"round {server_round}: no server has a sum. {reasons}")
        self.noise = max(noise)
        return self._row(answers, survivors, self.advance(server_round, steps, counts))

    def advance(self, server_round: int, totals: Matrix, counts: Vector) -> Row:
        """Take one step from sums S (P, M) over so many clients (P,); a sum over none is left."""
        there = counts[:, None] > 0
        mean = totals / np.maximum(counts, 1.0)[:, None]
        psi = self.models - self.sums.step * (mean + self.sums.ridge * self.models)
        row = self._combine(server_round, np.where(there, psi, self.models), np.ones_like(counts))
        if server_round > self.plan.rounds * (1.0 - self.sums.average):
            self._tail = self.models + (self._tail if self._tail_rounds else 0.0)
            self._tail_rounds += 1
        return row

    def enter(self, server_round: int, found: SecureAnswers) -> None:
        """Enter all releases of a sum, opened or not, in the run's account."""
        for client, content in found.sent:
            for key, item in content.items():
                if not key.startswith("privacy.") or not isinstance(item, ConfigRecord):
                    continue
                event = PrivacyEvent.from_record(dict(item))
                # A device that came back after a restart counts from one again.
                named = replace(event, name=f"round {server_round}, {event.name}")
                self.ledger.commit(self.clients[client].name, named)
                self.count(client, event.noise_ratio, event.sampling)

    def count(self, client: int, ratio: float, sampling: float, times: int = 1) -> int:
        """Count releases of a client; return how many that makes."""
        known = self._releases.setdefault(client, Counter())
        known[ratio, sampling] += times
        return known.total()

    def _epsilons(self, server_round: int, size: int) -> Row:
        """Return what the client that spent most has spent."""
        kinds = {tuple(sorted(known.items())) for known in self._releases.values()}
        return {"epsilon": max((self.sums.spent(dict(kind)) for kind in kinds), default=0.0)}

    # --- the result --------------------------------------------------------------------------

    @property
    def result(self) -> Matrix:
        """The models (P, M) that are kept: means over the last rounds; else the last ones."""
        return self._tail / self._tail_rounds if self._tail_rounds else self.models

    @property
    def known_models(self) -> Matrix:
        """The kept models (P, M), nan for servers that are elsewhere."""
        return self._known(self.result)

    def result_centroid(self) -> Vector:
        """Return the mean model of the servers that are up."""
        return np.mean(self.result[self.up(self.current_round)], axis=0)

    def score(self, grid: Grid) -> SecureAnswers:
        """Return the noisy sum of all clients' scores of the kept centroid."""
        last = self.current_round
        content = RecordDict(
            {
                "arrays": wire.record({"model": self.result_centroid(), **self.preprocessing}),
                "order": ConfigRecord(
                    {"round": last, "score": True, "settings": self.sums.settings}
                ),
            }
        )
        return self.sum_over_all(grid, content, {"terms": (1,)})

    def units_order(self) -> ConfigRecord:
        """Return the order for counts that tell the units of features."""
        return ConfigRecord({"round": 0, "units": True, "settings": self.sums.settings})

    def deliver(self, grid: Grid) -> None:
        """Send every client the private model; take simulated clients' own models."""
        arrays = {"model": self.result_centroid(), **self.preprocessing}
        public = RecordDict({"arrays": wire.record(arrays)})
        deliver(self, grid, public, self._take_own)

    def _take_own(self, client: int, content: RecordDict) -> None:
        arrays = wire.arrays(content["arrays"])
        wire.check_reals(arrays["model"], "model", self.first_model.shape)
        self.own[client] = arrays

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the models, and the sum of those that the result is made of."""
        tail = self._tail if self._tail_rounds else np.zeros_like(self.models)
        return {**super().state(), "tail": tail, "tail-rounds": np.array(self._tail_rounds)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`; what was released is in the ledger."""
        super().restore(state)
        self._tail, self._tail_rounds = state["tail"].copy(), int(state["tail-rounds"])
        for client, known in enumerate(self.clients):
            for one in self.ledger.series(known.name):
                self.count(client, one.first.noise_ratio, one.first.sampling, one.times)
