"""A run with all servers in one process, cut into what each would have left by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trellis import apps
from trellis.apps.common.results import RunResult

OF_CLIENTS = ("homes", "clusters", "clients", "personal", "choices")
OF_TRUTH = ("truth", "true_clusters")
SMALL: dict[str, dict[str, Any]] = {
    "server-graph": {
        "clients": 9,
        "servers": 3,
        "topology": "path",
        "rounds": 6,
        "samples": "10",
        "batch": 2,
        "step": 0.5,
        "method": "none",
        "secure-aggregation": "off",
    },
    "cluster-admm": {
        "clients": 9,
        "servers": 3,
        "topology": "path",
        "clusters": "2",
        "features": 4,
        "samples": "6-9",
        "rounds": 6,
    },
}


def whole(study: str, **changes: Any) -> RunResult:
    """Return a run with all servers in one process."""
    settings = {name.replace("_", "-"): value for name, value in changes.items()}
    return apps.run(study, {**SMALL[study], **settings}, seed=1)


def edges(result: RunResult) -> list[list[int]]:
    joined = result.arrays.get("adjacency", result.arrays.get("combination"))
    return [[int(a), int(b)] for a, b in np.argwhere(np.triu(joined, 1))]


def cut(result: RunResult, server: int, events: list[dict[str, Any]] | None = None) -> RunResult:
    """Return what one server would have left: its clients, its model, letters one round old."""
    arrays, pairs = dict(result.arrays), edges(result)
    own = np.flatnonzero(arrays["homes"] == server)
    models = np.full_like(arrays["models"], np.nan)
    models[server] = arrays["models"][server]
    kept = {name: array for name, array in arrays.items() if name not in OF_TRUTH}
    kept |= {name: arrays[name][own] for name in OF_CLIENTS if name in arrays}
    kept["models"] = models
    if "centroid" in arrays:
        kept["centroid"] = np.full_like(arrays["centroid"], np.nan)
    near = sorted({a + b - server for a, b in pairs if server in (a, b)})
    rounds = np.array([row["round"] for row in result.metrics])
    shape = len(rounds), len(near)
    # Of the first neighbour always this round's letter, of the others that of the round before.
    late = np.maximum(rounds[:, None] - np.minimum(np.arange(len(near)), 1)[None, :], 0)
    kept["link_rounds"] = late.astype(np.int64)
    kept["link_weights"] = np.where(late > 0, 0.25, 0.0)
    kept["link_seconds"] = np.where(late > 0, np.arange(shape[0])[:, None] + 0.5, np.nan)
    metrics = [
        {
            "round": row["round"],
            "clients": float(own.size),
            "failed": 0.0,
            "bytes-up": 100.0 + server,
            "bytes-down": 10.0,
            "change": row["change"] * (server + 1),
            "seconds": 1.0 + server,
            "links": float(np.count_nonzero(late[k])),
            "oldest": float(min(len(near) - 1, 1)),
        }
        for k, row in enumerate(result.metrics)
    ]
    names = [f"site-{p}" for p in range(len(models))]
    return replace(
        result,
        engine="deployment",
        arrays=kept,
        metrics=metrics,
        clients=[result.clients[k] for k in own],
        ledger={
            "mode": "none",
            "epsilon": 0.5 + server,
            "clients": [{"name": result.clients[k]["name"], "events": []} for k in own],
        },
        headline={"rounds": float(len(metrics)), "change": metrics[-1]["change"]},
        notes=[f"a note of {server}"],
        bytes_up=1000 + server,
        bytes_down=100,
        seconds=5.0 + server,
        status="completed",
        folder=None,
        network={
            "server": server,
            "name": names[server],
            "run": "trial-7",
            "names": names,
            "edges": pairs,
            "neighbours": near,
            "max_staleness": 1,
            "events": events or [],
        },
    )


def cuts(result: RunResult) -> list[RunResult]:
    """Return what all servers would have left."""
    return [cut(result, server) for server in range(len(result.arrays["models"]))]
