"""Brain graphs of ABIDE with ten sites as clients: how many sites share an edge."""

from __future__ import annotations

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from .real_data import EBIC_GAMMA, chosen_path, read_scans, say


def abide_sites(making: Making) -> list[Finding]:
    """Write the joint graphs of ten sites as clients, and how many sites share each edge."""
    scans = read_scans("abide_cc200.npz", "site", making["most-rows"])
    say(scans, making.console)
    names = ("lambda1", "lambda2", "tolerance")
    settings = {name: making[name] for name in names} | {"path": making["points"]}
    chosen, points = chosen_path(scans, {**settings, "gamma": EBIC_GAMMA}, making)
    path = chosen.result
    clients = [str(client["name"]) for client in path.clients]
    pairs = len(scans.regions) * (len(scans.regions) - 1) // 2
    bits = np.unpackbits(path.arrays["path_support"][chosen.point], axis=-1, count=pairs)
    edges = bits.astype(bool)  # (K, pairs)
    counts = np.bincount(edges.sum(axis=0), minlength=len(clients) + 1)[1:]
    rows = [{"sites": k + 1, "edges": int(count)} for k, count in enumerate(counts)]
    title = f"Edges by how many of {len(clients)} sites hold them; lambda1 = {chosen.lambda1:.3g}"
    making.table(rows, "edges", show=title)
    making.table(points, "path")
    overlap = edges.astype(np.int64) @ edges.T.astype(np.int64)
    shared = [
        {"site": client, **dict(zip(clients, row, strict=True))}
        for client, row in zip(clients, overlap.tolist(), strict=True)
    ]
    making.table(shared, "overlap")
    sizes = range(1, len(clients) + 1)
    label = "number of sites that hold an edge"
    making.plot(curves(sizes, {"edges": counts}, x_label=label, y_label="edges"), "edges")
    return []
