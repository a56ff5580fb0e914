"""Several gradient steps between two messages: ``trellis paper server-graph local-steps``.

Runs with E local steps make as many gradient steps in all, in E times fewer rounds. What clients'
drift alone leaves is the level of runs without any draw: all clients, all their samples, no noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import show_rows
from trellis.apps.pages.plots import curves

from ..config import ServerGraphConfig
from ..simulate import simulate
from .setting import MSD, Vector, decibel, error, exponent, of_size, powers, slope, told

NOISE, HYBRID, DRIFT, SMALL = "no privacy", "hybrid noise", "drift alone", "drift, small federation"
SQUARE = 1.5  # an exponent from here on counts as going to 2
NEAR = 0.15  # mu times local steps, on which drift depends: beyond it mu is not small
# Nothing but drift is in the small federation, so that small steps can be run to their end.
FEW: dict[str, Any] = {"clients": 50, "servers": 10, "samples": "40"}
QUIET: dict[str, Any] = {"method": "none", "sample": 0, "batch": 0}
KINDS: dict[str, dict[str, Any]] = {
    NOISE: {"method": "none"},
    HYBRID: {"method": "hybrid", "sigma": 0.2},
    DRIFT: QUIET,
    SMALL: {**FEW, **QUIET},
}


def measure(item: tuple[str, tuple[tuple[str, Any], ...], int]) -> tuple[float, float]:
    """Return the power of the centroid's and of single servers' deviation at the end of a run."""
    kind, settings, seed = item
    config = ServerGraphConfig.from_settings(dict(settings))
    run = simulate(config, seed)
    late = slice(-1, None) if kind in (DRIFT, SMALL) else slice(config.rounds // 2, None)
    return float(powers([run.msd], late)[0]), float(powers([run.msd_servers], late)[0])


def local_steps(making: Making) -> list[Finding]:
    """Write and draw levels by the number of local steps; judge what drift leaves."""
    counts = [int(count) for count in making["local-steps"]]
    small = [float(step) for step in making["small-steps"]]
    seeds, step = list(making.seeds), float(making["step"])
    cells = [(kind, count, step) for kind in (NOISE, HYBRID, DRIFT) for count in counts]
    cells += [(SMALL, count, mu) for count in counts for mu in small]
    items = []
    for kind, count, mu in cells:
        walk = making["small-walk" if kind == SMALL else "walk"]
        settings = {**of_size(making), **KINDS[kind], "step": mu, "local-steps": count}
        settings["rounds"] = max(2, round(walk / (mu * count)))
        items += [(kind, tuple(sorted(settings.items())), seed) for seed in seeds]
    values = making.on_all_cores(measure, items)
    found: dict[tuple[str, int, float], Vector] = {}
    rows: list[dict[str, Any]] = []
    for place, cell in enumerate(cells):
        mine = np.array(values[place * len(seeds) : (place + 1) * len(seeds)])
        found[cell] = mine[:, 0]
        kind, count, mu = cell
        rows.append(
            {
                "run": kind,
                "local-steps": count,
                "step": mu,
                "rounds": dict(items[place * len(seeds)][1])["rounds"],
                "centroid, dB": decibel(float(mine[:, 0].mean())),
                "its error, dB": error(mine[:, 0]),
                "single server, dB": decibel(float(mine[:, 1].mean())),
            }
        )
    making.table(rows)
    brief = [row for row in rows if row["run"] != SMALL]
    show_rows(brief, "levels by local steps, as many gradient steps in all", making.console)
    _draw(making, counts, step, found)
    return [
        _square(counts, small, found, len(seeds)),
        _dominated(counts, step, found, len(seeds)),
    ]


def _draw(
    making: Making, counts: list[int], step: float, found: dict[tuple[str, int, float], Vector]
) -> None:
    lines, bands = {}, {}
    for kind in (NOISE, HYBRID, DRIFT):
        level = np.array([decibel(float(found[kind, c, step].mean())) for c in counts])
        wide = np.array([error(found[kind, c, step]) for c in counts])
        lines[kind], bands[kind] = level, (level - wide, level + wide)
    plot = curves(
        counts,
        lines,
        x_label="local steps per round",
        y_label=MSD,
        title="Local steps, as many gradient steps in all",
        log_x=True,
        bands=bands,
    )
    making.plot(plot)


def _square(
    counts: list[int], small: list[float], found: dict[tuple[str, int, float], Vector], seeds: int
) -> Finding:
    """Judge the exponent between the two smallest steps, where it is nearest to its limit."""
    two = sorted(small)[:2]
    fits = {c: slope(two, np.array([found[SMALL, c, mu] for mu in two]).T) for c in counts}
    words = ", ".join(f"mu^{exponent(fit)} with {count}" for count, fit in fits.items())
    words = (
        f"between mu = {two[1]:g} and {two[0]:g} what drift leaves goes as, by local steps: {words}"
    )
    judged = [count for count in counts if count * two[0] <= NEAR] or counts[:1]
    low = [count for count in judged if fits[count][0] < SQUARE]
    if not low:
        return Finding("local-steps", words, "reproduced", seeds=seeds)
    verdict: Verdict = "partly" if len(low) < len(judged) else "refuted"
    why = f"with {', '.join(map(str, low))} local steps the exponent is not near 2"
    return Finding("local-steps", words, verdict, why, seeds)


def _dominated(
    counts: list[int], step: float, found: dict[tuple[str, int, float], Vector], seeds: int
) -> Finding:
    said, worst = [], -np.inf
    for count in counts:
        noise, drift = found[NOISE, count, step], found[DRIFT, count, step]
        worst = max(worst, decibel(float(drift.mean())) - decibel(float(noise.mean())))
        said.append(f"{count} local steps: {told(noise)}, of it drift {told(drift)}")
    good = worst < -3.0
    why = "" if good else "drift is not far below the level that gradient noise leaves"
    verdict: Verdict = "reproduced" if good else "partly" if worst < 0.0 else "refuted"
    return Finding("local-steps-noise", "; ".join(said), verdict, why, seeds)
