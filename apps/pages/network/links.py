"""Which letters servers used, round by round.

Reads ``network`` of the result (see `apps.common.results.RunResult`) and, (R, L) each, R rows as in
the metrics and L links,

    link_rounds    of which round the letter was that a server used: 0 for none, -1 for unknown
    links (L, 2)   of a gathered run: the server that used letters, the one that wrote them. Of one
                   server, links are from its neighbours, in their order

A letter's age is the number of rounds between the one it is of and the one that used it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Links:
    """Which letters were used: ``ends`` (L, 2) user and writer, ``at`` (R,), ``used`` (R, L)."""

    ends: NDArray[np.int64]
    at: Matrix
    used: NDArray[np.int64]

    @classmethod
    def of(cls, result: RunResult) -> Links | None:
        """Return the links of a run; None where it has none that fit together."""
        network, used = result.network, np.asarray(result.arrays.get("link_rounds", ()))
        if "server" in network:
            server = int(network["server"])
            ends = [(server, int(other)) for other in network.get("neighbours", ())]
        else:
            ends = [(int(a), int(b)) for a, b in result.arrays.get("links", ())]
        if used.ndim != 2 or used.shape[1] != len(ends) or not used.size:
            return None
        rows = result.metrics
        at = [row.get("round", k + 1.0) for k, row in enumerate(rows)]
        if len(at) != len(used):
            at = [k + 1.0 for k in range(len(used))]
        return cls(np.array(ends, dtype=np.int64), np.array(at), used.astype(np.int64))

    @property
    def ages(self) -> Matrix:
        """(R, L), in rounds; nan where no letter was used."""
        return np.where(self.used > 0, self.at[:, None] - self.used, np.nan)

    @property
    def letters(self) -> NDArray[np.int64]:
        """(L,), how many letters were used."""
        return np.count_nonzero(self.used > 0, axis=0)

    @property
    def rounds(self) -> NDArray[np.int64]:
        """(L,), in how many rounds one could have been."""
        return np.count_nonzero(self.used >= 0, axis=0)

    @property
    def oldest(self) -> Matrix:
        """(L,), the largest age; nan where no letter was used."""
        ages = self.ages
        most = np.max(np.where(np.isnan(ages), -np.inf, ages), axis=0, initial=-np.inf)
        return np.where(np.isfinite(most), most, np.nan)


def names_of(network: Mapping[str, Any]) -> list[str]:
    """Return the names of all servers."""
    return [str(name) for name in network.get("names", ())]


def name_of(network: Mapping[str, Any], server: object) -> str:
    """Return the name of a server by its number; what is no number of one, as it is."""
    names = names_of(network)
    if isinstance(server, int) and 0 <= server < len(names):
        return names[server]
    return str(server)


def by_edge(links: Links) -> dict[tuple[int, int], tuple[int, float]]:
    """Return letters used in both directions, and the oldest one's age, by edge."""
    found: dict[tuple[int, int], tuple[int, float]] = {}
    for (a, b), count, age in zip(links.ends.tolist(), links.letters, links.oldest, strict=True):
        edge = (min(a, b), max(a, b))
        before, oldest = found.get(edge, (0, np.nan))
        found[edge] = before + int(count), float(np.fmax(oldest, age))
    return found


def row_names(network: Mapping[str, Any], links: Links) -> list[str]:
    """Return what the links are called: by the neighbour, of a gathered run by both ends."""
    if "server" in network:
        return [name_of(network, writer) for _, writer in links.ends.tolist()]
    return [f"{name_of(network, a)} from {name_of(network, b)}" for a, b in links.ends.tolist()]


def marks(network: Mapping[str, Any], links: Links) -> list[float]:
    """Return the rounds in which something happened, of those that are drawn."""
    told = {float(event.get("round", 0)) for event in network.get("events", ())}
    return sorted(at for at in told if links.at[0] <= at <= links.at[-1])


def known_servers(models: NDArray[Any]) -> NDArray[np.bool_]:
    """Return of which servers (P,) a run has the model: their rows have numbers only."""
    return np.isfinite(models.reshape(len(models), -1)).all(axis=1)
