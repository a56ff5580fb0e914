"""CAJAL's Gromov-Wasserstein on one core: seconds and values of some pairs."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from cajal.gw_cython import GW_cell, gw_cython_core  # type: ignore[import-not-found]
from threadpoolctl import threadpool_limits


def main() -> None:
    """Read the name of a file with pairs and matrices; print seconds and discrepancies."""
    with np.load(json.load(sys.stdin)["path"]) as file:
        pairs, sizes = file["pairs"].tolist(), file["sizes"]
        parts = np.split(file["entries"], np.cumsum(sizes**2)[:-1])
    cells = [
        GW_cell(part.reshape(n, n), np.full(n, 1.0 / n))
        for n, part in zip(sizes.tolist(), parts, strict=True)
    ]
    values = []
    with threadpool_limits(1):
        begin = time.perf_counter()
        for i, j in pairs:
            a, b = cells[i], cells[j]
            _, value = gw_cython_core(
                a.dmat,
                a.distribution,
                a.dmat_dot_dist,
                a.cell_constant,
                b.dmat,
                b.distribution,
                b.dmat_dot_dist,
                b.cell_constant,
            )
            values.append(4.0 * value**2)  # it tells half the root
        seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "values": values}))


if __name__ == "__main__":
    main()
