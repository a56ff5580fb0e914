"""Where the time of a round goes (Fig. 5): clients, server, and sending.

With one BLAS thread. In process, clients compute in turn, so a round's seconds are

    all clients' steps (12)-(14) + the server's (15)-(18) + the rest,

the rest being Flower's records, copies and the engine (``copying``). No network is here: what the
round's bytes take over the paper's 5 Mbit/s is ``link``. All are seconds of CPU: those of the
server's part are its time multiplied by the share of CPU in it, for other processes may be at work.
Medians over rounds are what is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from ..data import bent, block_matrices, edge_values, gaussian_samples, power_law_graph
from .listening import BITS_A_SECOND, CLIENTS, listened, quiet
from .rounds import judged

SUBNETWORKS = 10
PARTS = {
    "local": "slowest client",
    "server": "server",
    "link": "sending over 5 Mbit/s",
    "copying": "copying within this process",
}
AXES = {
    "d": "variables of a subnetwork, d (10 subnetworks)",
    "n": "samples of a client",
    "kept": "share of the edges that is kept (1 is the densest network)",
}
WINDOW = 9  # rounds, of the running median
Rows = list[dict[str, Any]]


class Timed(NamedTuple):
    """One run: variables of a subnetwork, samples, share of edges kept, rounds."""

    d: int
    n: int
    share: float
    rounds: int


def figure_5(making: Making) -> list[Finding]:
    """Write the seconds of clients, server and sending, by round, over d, n and density."""
    making.console.print(
        "The paper's third sweep varies s, which it relates to the exponent of a power law by a "
        "rule it does not give: here a share of the edges is kept instead, which is the density.",
        soft_wrap=True,
    )
    rounds = dict(zip(making["dimensions"], making["rounds"], strict=True))
    n, middle, large = making["samples"], making["n-dimension"], making["kept-dimension"]
    sweeps = {
        "d": [(d, Timed(d, n, 1.0, rounds[d])) for d in rounds],
        "n": [
            (r * middle, Timed(middle, r * middle, 1.0, rounds[middle])) for r in making["ratios"]
        ],
        "kept": [(share, Timed(large, n, share, rounds[large])) for share in making["kept"]],
    }
    # The largest first: the last to end is then a short one.
    items = sorted({item for points in sweeps.values() for _, item in points}, reverse=True)
    found = dict(zip(items, making.on_all_cores(_timed, items), strict=True))
    by_round: Rows = [
        {"sweep": name, "value": value, "d": item.d, "n": item.n, **row}
        for name, points in sweeps.items()
        for value, item in points
        for row in found[item]
    ]
    summary = [
        _median([row for row in by_round if (row["sweep"], row["value"]) == (name, value)])
        for name, points in sweeps.items()
        for value, _ in points
    ]
    shown = [{k: row[k] for k in ("sweep", "value", "n", *PARTS)} for row in summary]
    making.table(shown, "seconds", show=f"Median seconds of a round; p = 10 d, {CLIENTS} clients")
    making.table(summary)
    making.table(by_round, "rounds")
    for name in sweeps:
        _draw(making, name, [row for row in summary if row["sweep"] == name], by_round)
    return judged(summary, by_round)


def _draw(making: Making, name: str, mine: Rows, by_round: Rows) -> None:
    values = [row["value"] for row in mine]
    plot = curves(
        values,
        {words: [row[part] for row in mine] for part, words in PARTS.items()},
        x_label=AXES[name],
        y_label="seconds of a round",
        title="median over rounds, quartiles",
        log_x=True,
        log_y=True,
        bands={
            words: ([row[f"{part}, low"] for row in mine], [row[f"{part}, high"] for row in mine])
            for part, words in PARTS.items()
        },
    )
    making.plot(plot, name)
    for part, words in PARTS.items():
        places, lines, bands = {}, {}, {}
        for value in values:
            label = f"{name} = {value:g}"
            own = [row for row in by_round if (row["sweep"], row["value"]) == (name, value)]
            places[label] = [row["round"] for row in own]
            low, lines[label], high = _running(np.array([row[part] for row in own]))
            bands[label] = (low, high)
        plot = curves(
            places, lines, y_label=f"{words}, seconds", log_y=True, bands=bands,
            title=f"running median and quartiles of {WINDOW} rounds",
        )  # fmt: skip
        making.plot(plot, f"{name}-{part}")


def _running(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quartiles (3, rounds) of the rounds around each."""
    half = WINDOW // 2
    near = [values[max(k - half, 0) : k + half + 1] for k in range(len(values))]
    return np.array([np.quantile(some, (0.25, 0.5, 0.75)) for some in near]).T


def thinned_tables(d: int, n: int, share: float, seed: int = 1) -> list[NDArray[np.float64]]:
    """Return samples (n, c d) of three clients with this share of a power-law graph's edges."""
    rng = generator(seed, "subnetworks")
    blocks = []
    for _ in range(SUBNETWORKS):
        graph = power_law_graph(d, rng)
        kept = np.triu(graph & (rng.random(graph.shape) < share), 1)
        blocks.append(block_matrices(edge_values(kept | kept.T, rng), "danaher")[1])
    tables = []
    for client in range(CLIENTS):
        own = np.array(blocks)
        own[len(own) - client :] = np.eye(d)  # the paper's three classes
        latent = gaussian_samples(own, n, generator(seed, "samples", client))
        tables.append(bent(latent, generator(seed, "margins", client)))
    return tables


def _timed(item: Timed) -> Rows:
    """Return the rounds of one run."""
    tables = thinned_tables(item.d, item.n, item.share)
    with quiet():
        settings = {"rounds": item.rounds, "tolerance": 0.0, "screening": False}
        result, app = listened(settings, tables)
    rows: Rows = []
    pairs = tables[0].shape[1] * (tables[0].shape[1] - 1) / 2
    usual = float(np.median(list(app.busy.values())))
    for row in result.metrics:
        number = int(row["round"])
        together = app.seconds[number] + app.listening[number]
        sent = row["bytes-up"] + row["bytes-down"]
        down, up = app.nonzero[number]
        busy = app.busy.get(number, usual)
        rows.append(
            {
                "round": row["round"],
                "local": app.slowest[number],
                "server": busy * row["server-seconds"],
                "link": 8.0 * sent / BITS_A_SECOND,
                "copying": busy * (row["seconds"] - together - row["server-seconds"]),
                "bytes-up": row["bytes-up"],
                "bytes-down": row["bytes-down"],
                "nonzero-down": down,
                "nonzero-up": up,
                "memory": app.memory[number],
                "density": row["edges"] / pairs,
            }
        )
    return rows


def _median(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return medians and quartiles over rounds; of the density, the last round's."""
    found: dict[str, Any] = {name: rows[0][name] for name in ("sweep", "value", "d", "n")}
    found["rounds"] = len(rows)
    for name in (*PARTS, "bytes-up", "bytes-down"):
        low, middle, high = np.quantile([row[name] for row in rows], (0.25, 0.5, 0.75)).tolist()
        found[name] = middle
        if name in PARTS:
            found |= {f"{name}, low": low, f"{name}, high": high}
    return {**found, "density": rows[-1]["density"]}
