"""The grid search behind ``tuned.toml`` and ``tuned-large.toml``: methods at points of figures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from trellis.apps.common.results import write_atomically
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Job, means

from .points import METHODS, STUDY


def tune(making: Making) -> list[Finding]:
    """Search the grid on other seeds; write the best parameters of every method and setting."""
    points = [(float(q), int(size)) for q, size in making["points"]]
    methods = [method for method in METHODS if method in making["methods"]]
    grid: list[dict[str, Any]] = [
        {"method": m, "beta": b} for m in methods if m != "fedgl" for b in making["betas"]
    ]
    pulls = itertools.product(making["fedgl-betas"], making["rhos"], making["lambdas"])
    grid += [
        {"method": "fedgl", "beta": b, "rho": rho, "lambda": sparsity} for b, rho, sparsity in pulls
    ]
    how = {
        "tolerance": 1e-3,
        "rounds": making["rounds"],
        "nodes": making["nodes"],
    }
    jobs = [
        Job(
            STUDY,
            {"overlap": q, "signals": str(size), **how, **parameters},
            seed,
            (q, size, *parameters.items()),
        )
        for (q, size), parameters in itertools.product(points, grid)
        for seed in making.seeds
    ]
    found = means(making.sweep(jobs))
    first, last = making.seeds[0], making.seeds[-1]
    lines = [
        f"# Best on seeds {first} to {last}: MCC, for fedgl the sum of local and consensus MCC."
    ]
    rows = []
    for (q, size), method in itertools.product(points, methods):
        mine = {row: v for row, v in found.items() if row[:3] == (q, size, ("method", method))}
        best = max(mine, key=lambda row: mine[row]["mcc"] + _consensus_mcc(method, mine[row]))
        lines += ["", f'["{method}-{q:g}-{size}"]']
        lines += [f"{name} = {value}" for name, value in best[3:]]
        rows.append({"overlap": q, "signals": size, "method": method, **dict(best[3:])})
    path = making.out / making["file"]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    making.table(rows)
    read = Path(__file__).with_name(making["file"])
    making.console.print(f"wrote {path}; the figures read {read}", soft_wrap=True)
    return []


def _consensus_mcc(method: str, headline: dict[str, float]) -> float:
    return headline.get("consensus-mcc", 0.0) if method == "fedgl" else 0.0
