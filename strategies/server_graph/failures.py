"""Servers that stop, and where their clients go.

``3:100`` stops server 3 from round 100 on, ``3:100-200`` in rounds 100 to 200; several with commas
between. Servers are named by number, from 0. While a server is down its clients are lost with it
(``drop``) or served by others (``rehome``): each goes to the nearest server that is up, to the one
with the fewest clients where several are as near.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Homes = NDArray[np.intp]

_ENTRY = re.compile(r"(\d+):(\d+)(?:-(\d+))?")
NOWHERE = -1


@dataclass(frozen=True)
class Outage:
    """One server that is down from round ``first`` to round ``last``, both included."""

    server: int
    first: int
    last: float


def parse_failures(text: str, servers: int) -> tuple[Outage, ...]:
    """Return the outages that a setting names.

    Raises
    ------
    ValueError
        For what cannot be read, no such server, or a round in which none is left.
    """
    outages = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _ENTRY.fullmatch(part)
        if found is None:
            raise ValueError(f"failures={part!r}: write server:round or server:first-last")
        server, first = int(found[1]), int(found[2])
        last = float(found[3]) if found[3] else float("inf")
        if server >= servers:
            raise ValueError(f"failures={part!r}: servers are numbered 0 to {servers - 1}")
        if first < 1 or last < first:
            raise ValueError(f"failures={part!r}: rounds start at 1 and must not run backwards")
        outages.append(Outage(server, first, last))
    for outage in outages:
        if not np.any(alive(outages, outage.first, servers)):
            raise ValueError(f"failures={text!r}: in round {outage.first} no server is left")
    return tuple(outages)


def alive(
    outages: tuple[Outage, ...] | list[Outage], server_round: int, servers: int
) -> NDArray[np.bool_]:
    """Return which servers (P,) are up in a round."""
    up = np.ones(servers, dtype=bool)
    for outage in outages:
        if outage.first <= server_round <= outage.last:
            up[outage.server] = False
    return up


def homes_now(
    homes: Homes, up: NDArray[np.bool_], adjacency: NDArray[np.bool_], rehome: bool
) -> Homes:
    """Return the server (K,) of every client while only ``up`` servers run; `NOWHERE` for none."""
    now = homes.copy()
    now[~up[homes]] = NOWHERE
    if not rehome or np.all(up):
        return now
    from scipy.sparse.csgraph import shortest_path  # here: slow to import, and few runs need it

    distance = shortest_path(adjacency, unweighted=True, directed=False)
    load = np.bincount(now[now >= 0], minlength=up.size).astype(np.float64)
    load[~up] = np.inf
    for client in np.flatnonzero(now == NOWHERE):
        hops = np.where(up, distance[homes[client]], np.inf)
        nearest = np.flatnonzero(hops == np.min(hops))
        now[client] = nearest[np.argmin(load[nearest])]
        load[now[client]] += 1.0
    return now
