"""What cancels exactly: masks of clients (23), noise between servers (25)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.experiments.finding import Finding, Verdict
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Job
from trellis.strategies.server_graph.exchange import servers
from trellis.strategies.server_graph.post import Post

from ..config import ServerGraphConfig
from .setting import PAPER, Vector

ROUNDING = 1e-12
FIXED_POINT = 1e-8  # masks are added to models in steps of 2^-32


def left_over(item: tuple[str, int, float, int]) -> tuple[float, float]:
    """Return what is left of the noise in the centroid, and the largest noise there was.

    Models of ``rounds`` rounds are drawn at random; servers tell each other and combine for real.
    The second number is of single servers: how far noise moves one of them.
    """
    graph_name, rounds, sigma, seed = item
    config = ServerGraphConfig.from_settings({**PAPER, "topology": graph_name})
    graph = build_topology(config, seed, config.weights)
    parties = servers("hybrid", graph.servers, sigma, partial(generator, seed, "server noise"))
    source, post = generator(seed, "models"), Post()
    centre, single = 0.0, 0.0
    for i in range(1, rounds + 1):
        psi = source.standard_normal((graph.servers, 2))
        w = _combined(post.exchange(parties, i, dict(enumerate(psi)), graph.weights))
        centre = max(centre, float(np.abs(w.mean(axis=0) - psi.mean(axis=0)).max()))
        single = max(single, float(np.abs(w - graph.weights @ psi).max()))
    return centre, single


def _combined(found: Any) -> Vector:
    return np.array([found[p] for p in sorted(found)])


def averaging(graph_name: str, sigma: float, seed: int) -> float:
    """Return what (24) leaves in the centroid where weights are plain neighbourhood averages."""
    config = ServerGraphConfig.from_settings({**PAPER, "topology": graph_name})
    graph = build_topology(config, seed, config.weights)
    A = graph.adjacency + np.eye(graph.servers)
    A = A / A.sum(axis=0)  # column p: what p gives to each of its neighbours, and to itself
    g = generator(seed, "averaging").laplace(scale=sigma / math.sqrt(2.0), size=graph.servers)
    own = np.diag(A)
    total = A @ np.ones(graph.servers) - own  # of server m: the weights its noise is taken with
    return float(abs(np.mean(total * g - (1.0 - own) * g)))


def cancellation(making: Making) -> list[Finding]:
    """Write what is left of noise and masks; judge (23) and (25)."""
    sigma, graphs = float(making["sigma"]), list(making["graphs"])
    seeds = list(making.seeds)
    items = [(graph, making["rounds"], sigma, seed) for graph in graphs for seed in seeds]
    found = dict(zip(items, making.on_all_cores(left_over, items), strict=True))
    rows: list[dict[str, Any]] = []
    for graph in graphs:
        values = [value for item, value in found.items() if item[0] == graph]
        rows.append(
            {
                "graph": graph,
                "noise": sigma,
                "largest left in the centroid": max(value[0] for value in values),
                "largest in a single server": max(value[1] for value in values),
                "left with plain averages": max(averaging(graph, sigma, seed) for seed in seeds),
            }
        )
    making.table(rows, show="noise between servers, and what is left of it")
    masks = _masks(making)
    return [_noise(rows, len(seeds)), masks]


def _noise(rows: list[dict[str, Any]], seeds: int) -> Finding:
    most = max(row["largest left in the centroid"] for row in rows)
    single = max(row["largest in a single server"] for row in rows)
    plain = max(row["left with plain averages"] for row in rows)
    words = (
        f"in {len(rows)} kinds of graphs the centroid keeps at most {most:.1e} of noise that moves "
        f"single servers by up to {single:.2g}; with plain neighbourhood averages, which "
        f"Assumption 1 excludes, {plain:.2g} is left"
    )
    good = most < ROUNDING * max(1.0, single)
    why = "" if good else "more is left than rounding explains"
    verdict: Verdict = "reproduced" if good else "refuted"
    return Finding("noise-cancels", words, verdict, why, seeds)


def _masks(making: Making) -> Finding:
    settings = {
        "servers": 3, "clients": making["mask-clients"], "topology": "complete", "rounds": 3,
        "method": "hybrid", "sigma": 0.2, "samples": "20",
    }  # fmt: skip
    jobs = [
        Job("server-graph", {**settings, "secure-aggregation": way}, seed, (way,), ("models",))
        for seed in making.seeds
        for way in ("on", "off")
    ]
    outcomes = making.sweep(jobs, "masks")
    rows = []
    for on, off in zip(outcomes[::2], outcomes[1::2], strict=True):
        apart = float(np.abs(on.arrays["models"] - off.arrays["models"]).max())
        rows.append({"seed": on.job.seed, "largest difference": apart})
    making.table(rows, "masks")
    most = max(float(row["largest difference"]) for row in rows)
    good = most < FIXED_POINT
    words = (
        f"runs with masked and with open updates end with models that differ by {most:.1e} at "
        "most, which is the rounding to steps of 2^-32; masks are whole numbers modulo 2^64 and "
        "cancel without a remainder"
    )
    why = "" if good else "models differ by more than rounding"
    verdict: Verdict = "reproduced" if good else "refuted"
    return Finding("masks-cancel", words, verdict, why, len(rows))
