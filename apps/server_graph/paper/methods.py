"""Methods side by side, and servers that stop: ``trellis paper server-graph methods failures``."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from trellis.apps.common.servers import build_topology
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import show_rows
from trellis.apps.pages.plots import curves, mark
from trellis.strategies.topology.graph import Topology
from trellis.strategies.topology.named import components

from ..config import ServerGraphConfig
from ..methods import NEIGHBOUR_LEARNS
from ..simulate import Simulation, cost
from .setting import (
    MSD,
    curve,
    decibel,
    error,
    of_seed,
    of_size,
    power,
    powers,
    simulated,
)
from .synthetic import METHODS, windows

ON_PAR = 0.5  # dB between runs that lost servers and runs that never had them


def methods(making: Making) -> list[Finding]:
    """Write the methods side by side: utility, what a neighbour learns, cost between servers."""
    names, sigmas = (*METHODS, "fedavg"), making["sigmas"]
    cells = list(itertools.product(names, sigmas))
    jobs = [{"method": m, "sigma": sigma, "rounds": making["rounds"]} for m, sigma in cells]
    found = dict(zip(cells, simulated(making, jobs), strict=True))
    late = list(windows(making["rounds"]).values())[-1]
    rows: list[dict[str, Any]] = []
    for name in names:
        row: dict[str, Any] = {"method": name}
        for sigma in sigmas:
            runs = found[name, sigma]
            levels = powers([run.msd for run in runs], late)
            row[f"centroid at sigma {sigma:g}, dB"] = decibel(float(levels.mean()))
            row[f"its error at sigma {sigma:g}, dB"] = error(levels)
            single = power([run.msd_servers for run in runs], late)
            row[f"single server at sigma {sigma:g}, dB"] = decibel(single)
        config = ServerGraphConfig.of_method({**of_size(making), "method": name})
        spent = [cost(config, run.topology, 200) for run in found[name, sigmas[0]]]
        for part in ("messages", "bytes", "key_bytes"):
            row[part.replace("_", "-")] = float(np.mean([getattr(c, part) for c in spent]))
        row["milliseconds"] = 1e3 * float(np.mean([c.seconds for c in spent]))
        rows.append({**row, "neighbour-learns": NEIGHBOUR_LEARNS[name]})
    few = ("method", *(f"centroid at sigma {sigma:g}, dB" for sigma in sigmas), "bytes")
    brief = [{name: row[name] for name in few} for row in rows]
    show_rows(brief, "levels, and bytes between servers per round", making.console)
    for row in rows:
        learns = row["neighbour-learns"]
        making.console.print(f"{row['method']}: a neighbour of server m learns {learns}")
    making.table(rows)
    return []


def failures(making: Making) -> list[Finding]:
    """Draw the MSD when some servers stop, beside a run that never had them."""
    kinds = [f"{how} {kind}" for how in ("drop", "rehome") for kind in ("lost", "never")]
    cases = list(itertools.product(("none", "hybrid", "masked"), kinds))
    items = []
    for seed in making.seeds:
        graph = build_topology(ServerGraphConfig.of_method(of_size(making)), seed)
        lost = removable(graph, making["lost"])
        jobs = []
        for method, case in cases:
            how, kind = case.split()
            first = making["lost-from"] if kind == "lost" else 1
            stops = ",".join(f"{server}:{first}" for server in lost)
            job: dict[str, Any] = {"method": method, "failures": stops, "on-server-loss": how}
            job |= {"rounds": making["rounds"], "sigma": 0.2}
            jobs.append(tuple(sorted({**of_size(making), **job}.items())))
        items.append((tuple(jobs), seed))
    by_seed = making.on_all_cores(of_seed, items)
    found: dict[tuple[str, str], list[Simulation]] = {
        case: [runs[place] for runs in by_seed] for place, case in enumerate(cases)
    }
    late = list(windows(making["rounds"]).values())[-1]
    rows: list[dict[str, Any]] = []
    for method, how in itertools.product(("none", "hybrid", "masked"), ("drop", "rehome")):
        row: dict[str, Any] = {"method": method, "on-server-loss": how}
        for kind in ("lost", "never"):
            levels = powers([r.msd for r in found[method, f"{how} {kind}"]], late)
            row |= {kind: decibel(float(levels.mean())), f"{kind} error": error(levels)}
        rows.append({**row, "difference": row["lost"] - row["never"]})
    making.table(rows, show=f"{making['lost']} servers stop at round {making['lost-from']}, dB")
    lines, bands = {}, {}
    for how, kind in itertools.product(("drop", "rehome"), ("lost", "never")):
        name = f"{how}, {'lost' if kind == 'lost' else 'never there'}"
        lines[name], bands[name] = curve([run.msd for run in found["hybrid", f"{how} {kind}"]])
    x = np.arange(1, making["rounds"] + 1)
    plot = curves(x, lines, y_label=MSD, bands=bands)  # a title would be under the mark's words
    making.plot(mark(plot, making["lost-from"], text=f"{making['lost']} servers lost"))
    apart = max(abs(row["difference"]) for row in rows)
    words = (
        f"{making['lost']} of {making['servers']} servers stop: the others end within {apart:.2f} "
        "dB of a federation that never had them, with every method"
    )
    good = apart <= ON_PAR
    why = "" if good else f"a method loses {apart:.1f} dB by it"
    return [Finding("failures", words, "reproduced" if good else "partly", why, len(making.seeds))]


def removable(graph: Topology, count: int) -> tuple[int, ...]:
    """Return the first ``count`` servers whose loss leaves the others connected."""
    for lost in itertools.combinations(range(graph.servers), count):
        kept = np.delete(np.arange(graph.servers), lost)
        if len(components(graph.adjacency[np.ix_(kept, kept)])) == 1:
            return lost
    raise ValueError(f"no {count} servers of {graph.graph} can go without parting the others")
