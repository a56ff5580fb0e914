"""Who shares masks with whom, and how many of them must stay.

Up to `COMPLETE` clients everyone shares with everyone [B17]. Beyond, each client shares with k
neighbours only [B20]: the clients are put on a ring in an order drawn from a public nonce, and each
takes the k/2 next on either side. The neighbours of a client are then a uniform k-subset of the
others, and counts of them hypergeometric.

A client's self seed is shared among itself and its neighbours, h = k + 1 holders, with threshold
t = 2 h / 3 or more. Two thirds, because a server that tells different holders different stories
needs t of them for each: with 2 t - h - 1, about a third, of a client's holders on its side it
could (`protocol`). k is the smallest even number for which a round in which 20 % drop out, at
random, fails with a probability of at most 1e-6 (union bound over all clients, exact tails).
Computed (`plan`, `failure`, `exposure`):

    clients   k    t    failure at        exposure: t of a client's   2 t - h - 1 of them
                        20 % dropouts     neighbours, 50 % colluding  at 10 %   / at 20 %
    100       60   41   0                 9.8e-04                     0         / 9.8e-04
    200       110  74   5.2e-07           1.5e-05                     0         / 4.2e-05
    500       194  130  7.7e-07           5.7e-07                     0         / 5.7e-06
    1000      260  174  7.9e-07           1.5e-07                     6.5e-38   / 3.1e-06
    5000      368  246  9.9e-07           4.7e-08                     5.7e-34   / 2.3e-06

The first exposure is that to a curious server: t colluding holders have the self seed. It is below
1e-34 where a third collude. The second is that to a server that lies. Beyond 20 % a lying server
finds clients it can expose in a graph of so few neighbours: ask for the complete one
(``neighbours = clients - 1``), in which a third of all clients is the bound.

The ring falls apart, which would reveal the sums of its parts, only where k/2 consecutive clients
are gone or colluding at two places: below n^2 2^-k for one half, less than 1e-13 at 100 clients.

Adversary: every device draws the graph itself, from a nonce that covers all members' keys; the
server cannot choose it. Colluding clients who choose their keys last can try many and take the one
whose graph suits them: g tries multiply the probabilities above by at most g. A server that picks
who takes part picks who can be a neighbour: the smallest number of clients that a device insists on
bounds that.

[B17] Bonawitz et al., CCS 2017. [B20] Bell et al., CCS 2020.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .keys import joined

# A sum of two tells each of the two what the other sent.
FEWEST = 3
COMPLETE = 64
DROPOUT = 0.2
FAILURE = 1e-6
SHARE = 2.0 / 3.0
# Of one sum: an index has two bytes in nobody's head, and a lie about it costs no memory.
MOST_CLIENTS = 1 << 16


def least_threshold(holders: int, share: float = SHARE) -> int:
    """Return the smallest number of ``holders`` that is ``share`` of them, and more than half."""
    # Two thirds of 6 are 4, whatever the last bit of 2/3 says.
    return max(math.ceil(share * holders - 1e-9), holders // 2 + 1)


@dataclass(frozen=True)
class Plan:
    """How many neighbours a client has, and how many shares give a secret back.

    Attributes
    ----------
    clients : n, how many take part
    neighbours : k, even or n - 1
    threshold : t of k + 1 holders
    """

    clients: int
    neighbours: int
    threshold: int

    def __post_init__(self) -> None:
        n, k, t = self.clients, self.neighbours, self.threshold
        if not 2 <= n <= MOST_CLIENTS:
            raise ValueError(f"clients={n}: use 2 to {MOST_CLIENTS}")
        if not 1 <= k <= n - 1 or (k % 2 and k != n - 1):
            raise ValueError(f"neighbours={k} with clients={n}: use an even number or clients - 1")
        if not (k + 1) / 2 < t <= k + 1:
            raise ValueError(
                f"threshold={t} with neighbours={k}: use more than half of the {k + 1} holders, "
                "or a client could be told two stories"
            )


@lru_cache(maxsize=64)
def plan(clients: int, neighbours: int = 0, threshold: int = 0) -> Plan:
    """Return the plan for ``clients``; 0 chooses neighbours and threshold as in the table above.

    More neighbours than there are clients is everyone: the complete graph.
    """
    k = neighbours or (clients - 1 if clients <= COMPLETE else _fewest_neighbours(clients))
    k = min(k, clients - 1)
    return Plan(clients, k, min(threshold, k + 1) or least_threshold(k + 1))


def noisy_plan(
    clients: int, dropout: float, colluding: float, threshold: int = 0
) -> tuple[Plan, int]:
    """Return the plan of a noisy sum over ``clients``, and how many of them must stay."""
    bad = math.floor(colluding * clients + 1e-9)
    # Devices count on others' noise only where bad < 2 threshold - clients - 1.
    least = max(threshold, least_threshold(clients), (clients + 1 + bad) // 2 + 1)
    chosen = plan(clients, clients - 1, min(least, clients))
    lost = math.floor(dropout * clients + 1e-9)
    return chosen, max(chosen.threshold, clients - lost)


def expected_noisers(clients: int, dropout: float, colluding: float) -> int:
    """Return how many clients' noise each of ``clients`` counts on in a noisy sum.

    What `protocol.Member.noisers` gives where all keys are signed, or in a
    simulation: for forecasts, and experiments without messages.
    """
    if clients < FEWEST:
        return 1
    return max(
        1, noisy_plan(clients, dropout, colluding)[1] - math.floor(colluding * clients + 1e-9)
    )


def _fewest_neighbours(clients: int) -> int:
    # Steps of the threshold make the failure go up and down a little: the first k that will do.
    for k in range(8, clients - 1, 2):
        if failure(Plan(clients, k, least_threshold(k + 1)), DROPOUT) <= FAILURE:
            return k
    return clients - 1


def failure(plan: Plan, dropout: float) -> float:
    """Bound the probability that some client's self seed cannot be recovered.

    ``dropout`` of the clients, drawn at random, are gone when shares are asked for.
    """
    others, k, t = plan.clients - 1, plan.neighbours, plan.threshold
    gone = math.ceil(dropout * plan.clients)
    # A client whose vector is in the sum may have stayed, with a share of its own, or not.
    stays = _below(others, others - gone, k, t - 1)
    left = _below(others, plan.clients - gone, k, t)
    return min(1.0, plan.clients * max(stays, left))


def exposure(plan: Plan, colluding: float, needed: int = 0) -> float:
    """Bound the probability that some client has ``needed`` (0: t) colluding neighbours."""
    others, k = plan.clients - 1, plan.neighbours
    bad = int(colluding * plan.clients)
    tail = _draws(others, bad, k, range(needed or plan.threshold, k + 1))
    return min(1.0, plan.clients * tail)


def _below(population: int, good: int, draws: int, bound: int) -> float:
    return _draws(population, good, draws, range(bound))


def _draws(population: int, good: int, draws: int, counts: range) -> float:
    """Return the probability that the number of good ones among ``draws`` is in ``counts``."""
    ways = sum(math.comb(good, i) * math.comb(population - good, draws - i) for i in counts)
    return ways / math.comb(population, draws)


def neighbours(members: Sequence[int], count: int, nonce: bytes) -> dict[int, list[int]]:
    """Return every member's neighbours, in order; the same for everyone who knows the nonce."""
    if count >= len(members) - 1:
        return {m: sorted(set(members) - {m}) for m in members}
    ring = _ring(members, nonce)
    near = ring[(np.arange(len(ring))[:, None] + _steps(count)) % len(ring)]
    return dict(zip(ring.tolist(), np.sort(near, axis=1).tolist(), strict=True))


def neighbours_of(member: int, members: Sequence[int], count: int, nonce: bytes) -> list[int]:
    """Return one member's neighbours, in order."""
    if count >= len(members) - 1:
        return sorted(set(members) - {member})
    ring = _ring(members, nonce)
    place = int(np.flatnonzero(ring == member)[0])
    near: list[int] = np.sort(ring[(place + _steps(count)) % len(ring)]).tolist()
    return near


def _steps(count: int) -> NDArray[np.int64]:
    reach = np.arange(1, count // 2 + 1)
    return np.concatenate([reach, -reach])


def _ring(members: Sequence[int], nonce: bytes) -> NDArray[np.int64]:
    """Return the members in the order of a hash of their index and the nonce."""
    places = np.sort(np.asarray(members, dtype=np.int64))
    stream = hashlib.shake_256(joined("ring", nonce)).digest(8 * (int(places[-1]) + 1))
    return places[np.argsort(np.frombuffer(stream, "<u8")[places], kind="stable")]
