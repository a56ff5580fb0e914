"""Who shares masks with whom, and how many of them must stay.

Up to `COMPLETE` clients everyone shares with everyone [B17]. Beyond, each client shares with k
neighbours only [B20]: the clients are put on a ring in an order drawn from a public nonce, and each
takes the k/2 next on either side. The neighbours of a client are then a uniform k-subset of the
others, and counts of them hypergeometric.

A client's two secrets are shared among itself and its neighbours, h = k + 1 holders, with threshold
t = floor(h/2) + 1. More than half, because each honest holder gives the share of one secret only: a
server that tells different holders different stories then cannot collect t shares of both. k is the
smallest even number for which a round in which 30 % drop out, at random, fails with a probability
of at most 1e-6 (union bound over all clients, exact tails). Computed (`plan`, `failure`,
`exposure`):

    clients   k    t    failure at 30 % dropouts   exposure, 20 % / 30 % colluding
    100       58   30   3.4e-07                    0        / 1.4e-07
    200       92   47   8.1e-07                    0        / 3.4e-07
    500       140  71   9.2e-07                    1.4e-21  / 3.8e-07
    1000      172  87   8.4e-07                    5.6e-21  / 3.5e-07
    5000      218  110  9.7e-07                    3.7e-21  / 4.1e-07

Exposure is the probability that some client has t colluding neighbours, who can unmask it together
with the server. k grows as log n; the constant is larger than that of [B20]'s examples because more
than half of the neighbours must stay. The ring falls apart, which would reveal the sums of its
parts, only where k/2 consecutive clients are gone or colluding at two places: below n^2 2^-k for
one half, less than 1e-13 at 100 clients.

Adversary: these numbers hold for an honest-but-curious server and colluders chosen before the
nonce. A server that picks the nonce after it knows its colluders can place them around a victim;
against that server ask for the complete graph (``neighbours = clients - 1``). A server that lies
about dropouts gets a victim's both secrets if it has 2 t - h of the holders on its side: with the
default threshold one or two. A threshold of 2 h / 3 raises that to h / 3 and lets fewer drop out.

[B17] Bonawitz et al., CCS 2017. [B20] Bell et al., CCS 2020.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .keys import joined

COMPLETE = 64
DROPOUT = 0.3
FAILURE = 1e-6


@dataclass(frozen=True)
class Plan:
    """How many neighbours a client has, and how many shares give a secret back.

    Attributes
    ----------
    clients : n, how many are asked
    neighbours : k, even or n - 1
    threshold : t of k + 1 holders
    """

    clients: int
    neighbours: int
    threshold: int

    def __post_init__(self) -> None:
        n, k, t = self.clients, self.neighbours, self.threshold
        if n < 2 or not 1 <= k <= n - 1 or (k % 2 and k != n - 1):
            raise ValueError(f"neighbours={k} with clients={n}: use an even number or clients - 1")
        if not (k + 1) / 2 < t <= k + 1:
            raise ValueError(
                f"threshold={t} with neighbours={k}: use more than half of the {k + 1} holders, "
                "or one client could be asked out of both its secrets"
            )

    @property
    def survivors(self) -> int:
        """How many of all clients must stay to the end: more than half of those asked."""
        return max(self.clients // 2 + 1, self.threshold)


@lru_cache(maxsize=64)
def plan(clients: int, neighbours: int = 0, threshold: int = 0) -> Plan:
    """Return the plan for ``clients``; 0 chooses neighbours and threshold as in the table above.

    More neighbours than there are clients is everyone: the complete graph.
    """
    k = neighbours or (clients - 1 if clients <= COMPLETE else _fewest_neighbours(clients))
    k = min(k, clients - 1)
    return Plan(clients, k, threshold or (k + 1) // 2 + 1)


def _fewest_neighbours(clients: int) -> int:
    # The failure falls with k but for steps of the threshold; even k keep those alike.
    low, high = 1, (clients - 1) // 2
    while low < high:
        middle = (low + high) // 2
        if failure(Plan(clients, 2 * middle, middle + 1), DROPOUT) <= FAILURE:
            high = middle
        else:
            low = middle + 1
    return 2 * low


def failure(plan: Plan, dropout: float) -> float:
    """Bound the probability that some client's secret cannot be recovered.

    ``dropout`` of the clients, drawn at random, are gone when shares are asked for.
    """
    others, k, t = plan.clients - 1, plan.neighbours, plan.threshold
    gone = math.ceil(dropout * plan.clients)
    # A client that stays holds one share of its own; of one that is gone only neighbours do.
    stays = _below(others, others - gone, k, t - 1)
    left = _below(others, plan.clients - gone, k, t)
    return min(1.0, plan.clients * max(stays, left))


def exposure(plan: Plan, colluding: float) -> float:
    """Bound the probability that some client has t colluding neighbours."""
    others, k = plan.clients - 1, plan.neighbours
    bad = int(colluding * plan.clients)
    tail = _draws(others, bad, k, range(plan.threshold, k + 1))
    return min(1.0, plan.clients * tail)


def _below(population: int, good: int, draws: int, bound: int) -> float:
    return _draws(population, good, draws, range(bound))


def _draws(population: int, good: int, draws: int, counts: range) -> float:
    """Return the probability that the number of good ones among ``draws`` is in ``counts``."""
    ways = sum(math.comb(good, i) * math.comb(population - good, draws - i) for i in counts)
    return ways / math.comb(population, draws)


def neighbours(members: Sequence[int], count: int, nonce: bytes) -> dict[int, list[int]]:
    """Return every member's neighbours, in order; the same for everyone who knows the nonce."""
    ring = sorted(members, key=lambda m: hashlib.sha256(joined("ring", nonce, m)).digest())
    size = len(ring)
    if count >= size - 1:
        return {m: sorted(set(members) - {m}) for m in members}
    reach = range(1, count // 2 + 1)
    return {
        member: sorted(ring[(place + step) % size] for far in reach for step in (far, -far))
        for place, member in enumerate(ring)
    }
