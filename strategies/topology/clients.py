"""Which clients of every server are asked in a round."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def drawn_by_server(
    homes: NDArray[np.intp], servers: Iterable[int], most: int, rng: np.random.Generator | None
) -> list[int]:
    """Return ``most`` clients of each server, drawn at random, all where there are no more.

    Every server draws from a generator of its own: the same clients whether the others draw in this
    process or elsewhere.

    Parameters
    ----------
    homes : (K,) the server of every client
    servers : those that ask
    most : L; 0 is all
    rng : not needed for all
    """
    asking = [int(server) for server in servers]
    if not most or rng is None:
        found: list[int] = np.flatnonzero(np.isin(homes, asking)).tolist()
        return found
    chosen: list[int] = []
    # A child depends on its place only, not on how many there are.
    generators = rng.spawn(max(asking, default=-1) + 1)
    for server in asking:
        own = np.flatnonzero(homes == server)
        if own.size > most:
            own = generators[server].choice(own, most, replace=False)
        chosen += [int(client) for client in own]
    return sorted(chosen)
