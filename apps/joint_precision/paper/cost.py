"""Seconds of 10 iterations over the number of samples, for every number of variables (Fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import show_rows
from trellis.apps.pages.plots import curves

from .clock import CLIENTS, METHODS, Clocked, clocked
from .listening import BITS_A_SECOND

Rows = list[dict[str, Any]]
Item = tuple[int, int, str, int]
SUBNETWORKS = 10
CLEARLY = 1.3  # times; growth that differs by less differs from run to run
SENDING = {"FEDJEM": "FEDJEM with sending", "JGL": "JGL with sending"}


def figure_8(making: Making) -> list[Finding]:
    """Write the seconds of 10 iterations over the number of samples."""
    grid = {int(p): list(samples) for p, samples in making["grid"].items()}
    work = partial(_clocked, rounds=making["rounds"], most=making["clime-seconds"])
    quick = [
        (p, n, name, seed)
        for p, samples in sorted(grid.items(), reverse=True)
        for n in samples[::-1]
        for name in METHODS[:3]
        for seed in making.seeds
    ]
    found: dict[Item, Clocked] = dict(zip(quick, making.on_all_cores(work, quick), strict=True))
    found |= _clime(making, grid, work)
    rows = [
        _row(p, n, name, [f for key, f in found.items() if key[:3] == (p, n, name)])
        for p, samples in grid.items()
        for n in samples
        for name in METHODS
    ]
    rows += [
        _row(p, n, "CLIME", [found[p, n, "CLIME", making.seeds[0]]])
        for p, n in making["clime-points"]
    ]
    making.table(rows)
    _show(making, grid, rows)
    for p, samples in grid.items():
        _draw(making, samples, [row for row in rows if row["variables"] == p], p)
    return [
        _fastest(making, rows),
        _over_n(grid, rows),
        _over_p(grid, rows),
        _no_clime(rows, making["clime-seconds"]),
        _sent(rows),
    ]


def _clocked(item: Item, rounds: int, most: float) -> Clocked:
    p, n, name, seed = item
    limit = most if name == "CLIME" else 0.0
    return clocked(name, p, n, blocks=SUBNETWORKS, rounds=rounds, most=limit, seed=seed)


def _clime(making: Making, grid: dict[int, list[int]], work: Any) -> dict[Item, Clocked]:
    """Run CLIME with ever more variables, and no more where it was too slow with fewer."""
    found: dict[Item, Clocked] = {}
    seed = making.seeds[0]
    for p, samples in sorted(grid.items()):
        slow = {key[1] for key, cost in found.items() if cost.note.startswith(("more", "not run"))}
        items: list[Item] = [(p, n, "CLIME", seed) for n in samples if n not in slow]
        costs = making.on_all_cores(work, items, f"CLIME, p = {p}") if items else []
        found |= dict(zip(items, costs, strict=True))
        left = Clocked(note="not run: too slow with fewer variables")
        found |= {(p, n, "CLIME", seed): left for n in samples if n in slow}
    more: list[Item] = [(p, n, "CLIME", seed) for p, n in making["clime-points"]]
    return found | dict(zip(more, making.on_all_cores(work, more, "CLIME"), strict=True))


def _row(p: int, n: int, name: str, costs: Sequence[Clocked]) -> dict[str, Any]:
    """Return the median over seeds, with the least and the most."""
    seconds = np.array([cost.elapsed for cost in costs])
    setup = np.array([max(cost.setup, default=np.nan) for cost in costs])
    link = 8.0 * float(np.median([cost.sent for cost in costs])) / BITS_A_SECOND
    middle = float(np.median(seconds))
    return {
        "variables": p, "samples": n, "method": name, "seconds": middle,
        "least": float(np.min(seconds)), "most": float(np.max(seconds)),
        "of-it-correlations": float(np.median(setup)) if name != "JGL" else np.nan,
        "bytes": link * BITS_A_SECOND / 8.0, "link": link, "with-sending": middle + link,
        "note": costs[0].note,
    }  # fmt: skip


def _show(making: Making, grid: dict[int, list[int]], rows: Rows) -> None:
    shown = []
    for p, samples in grid.items():
        for n in samples:
            own = {r["method"]: r for r in rows if (r["variables"], r["samples"]) == (p, n)}
            cells: dict[str, Any] = {"variables": p, "samples": n}
            cells |= {
                name: own[name]["note"].split(":")[0] or own[name]["seconds"] for name in METHODS
            }
            cells |= {words: own[name]["with-sending"] for name, words in SENDING.items()}
            shown.append(cells)
    texts = [
        {k: f"{v:.3g}" if isinstance(v, float) else str(v) for k, v in row.items()} for row in shown
    ]
    title = f"CPU seconds of {making['rounds']} iterations, {CLIENTS} clients side by side"
    show_rows(texts, f"{title}; with sending: over 5 Mbit/s", making.console)


def _draw(making: Making, samples: Sequence[int], rows: Rows, p: int) -> None:
    lines: dict[str, list[float]] = {}
    bands = {}
    for name in METHODS:
        own = [row for row in rows if row["method"] == name]
        for label, extra in ((name, 0.0), (SENDING.get(name), 1.0)):
            if label is None:
                continue
            lines[label] = [r["seconds"] + extra * r["link"] for r in own]
            ends = [[r[end] + extra * r["link"] for r in own] for end in ("least", "most")]
            bands[label] = (ends[0], ends[1])
    plot = curves(
        list(samples), lines, x_label="samples of a client", y_label="seconds of 10 iterations",
        log_x=True, log_y=True, bands=bands, title=f"{p} variables",
    )  # fmt: skip
    making.plot(plot, str(p))


def _others(rows: Rows, row: dict[str, Any], column: str) -> list[float]:
    """Return what the other methods take at the same point; for ever where they do not end."""
    same = ("variables", "samples")
    return [
        np.inf if r["note"] else r[column]
        for r in rows
        if all(r[k] == row[k] for k in same) and r["method"] != row["method"]
        if r["note"] != "infeasible"
    ]


def _fastest(making: Making, rows: Rows) -> Finding:
    """Count where FEDJEM is the fastest, with sending and without."""
    ours = [row for row in rows if row["method"] == "FEDJEM"]
    alone = sum(row["seconds"] < min(_others(rows, row, "seconds")) for row in ours)
    sending = sum(row["with-sending"] < min(_others(rows, row, "with-sending")) for row in ours)
    jgl = [r for r in rows if r["method"] == "JGL"]
    than = sum(a["with-sending"] < b["with-sending"] for a, b in zip(ours, jgl, strict=True))
    found = (
        f"of {len(ours)} points FEDJEM is the fastest at {alone} by arithmetic alone and at "
        f"{sending} with sending over 5 Mbit/s; faster than JGL at {than} with sending"
    )
    seeds = len(making.seeds)
    if sending == len(ours):
        return Finding("fig8-fastest", found, "reproduced", seeds=seeds)
    why = (
        "it is JGL with a dearer correlation, side by side on three devices, and sends matrices "
        "every round where JGL sends its data once and GLasso nothing"
    )
    verdict: Verdict = "partly" if 2 * max(alone, sending) > len(ours) else "refuted"
    return Finding("fig8-fastest", found, verdict, why, seeds)


def _over_n(grid: dict[int, list[int]], rows: Rows) -> Finding:
    """Hold the growth with n of FEDJEM against JGL's, both with sending."""
    words, least, steady, alone = [], [], [], 0.0
    for p in [p for p, samples in grid.items() if len(samples) > 1]:
        ours, theirs = (
            [r for r in rows if (r["variables"], r["method"]) == (p, name)]
            for name in ("FEDJEM", "JGL")
        )
        growth, other = (own[-1]["with-sending"] / own[0]["with-sending"] for own in (ours, theirs))
        alone = max(alone, ours[-1]["seconds"] / ours[0]["seconds"])
        words.append(
            f"p = {p}, n = {ours[0]['samples']} to {ours[-1]['samples']}: FEDJEM {growth:.3g} "
            f"times, JGL {other:,.0f} times"
        )
        least.append(growth < other)
        steady.append(growth < 2.0)
    found = (
        f"time with sending, {'; '.join(words)}; FEDJEM's arithmetic alone grows by up to "
        f"{alone:.0f} times"
    )
    if all(least) and all(steady) and alone < 2.0:
        return Finding("fig8-n", found, "reproduced")
    if all(least):
        why = "so it is, but only because sending hides how Kendall's matrix grows with n"
        return Finding("fig8-n", found, "partly", why)
    return Finding("fig8-n", found, "refuted", "JGL does not grow more than FEDJEM everywhere")


def _over_p(grid: dict[int, list[int]], rows: Rows) -> Finding:
    """Hold the growth with p of FEDJEM against the others', at samples that all sizes have."""
    first, *_, last = sorted(grid) if len(grid) > 1 else [*grid, *grid]
    n = max(set(grid[first]) & set(grid[last]) - {10000}, default=grid[first][0])
    growth = {}
    for name in METHODS:
        own = {r["variables"]: r for r in rows if (r["samples"], r["method"]) == (n, name)}
        if not own[first]["note"] and not own[last]["note"]:
            growth[name] = own[last]["seconds"] / own[first]["seconds"]
    words = ", ".join(f"{name} {value:.3g} times" for name, value in growth.items())
    found = f"arithmetic from p = {first} to {last} at n = {n}: {words}"
    ours = growth.pop("FEDJEM")
    less = [name for name, value in growth.items() if CLEARLY * ours < value]
    if len(less) == len(growth):
        return Finding("fig8-d", found, "reproduced")
    why = (
        "the same eigendecompositions grow alike in FEDJEM, JGL and GLasso (less than "
        f"{CLEARLY:g} times apart)"
    )
    return Finding("fig8-d", found, "partly" if less else "refuted", why)


def _no_clime(rows: Rows, most: float) -> Finding:
    """See whether CLIME ends with the most variables."""
    mine = [row for row in rows if row["method"] == "CLIME"]
    last = max(row["variables"] for row in mine)
    notes = {row["samples"]: row for row in mine if row["variables"] == last}
    words = ", ".join(
        f"n = {n}: {row['note'] or format(row['seconds'], '.3g') + ' s'}"
        for n, row in notes.items()
    )
    ended = [n for n, row in notes.items() if not row["note"]]
    found = f"p = {last}, given up after {most:g} s of CPU: {words}"
    if not ended:
        return Finding("fig8-clime", found, "reproduced")
    samples = " and ".join(f"{n:,}" for n in ended)
    why = f"with {samples} samples it ends: one path of pivots serves every column (see `clime`)"
    return Finding("fig8-clime", found, "refuted", why)


def _sent(rows: Rows) -> Finding:
    """Hold the bytes of 10 rounds against those of the raw data."""
    ours = [r for r in rows if r["method"] == "FEDJEM"]
    raw = [r for r in rows if r["method"] == "JGL"]
    less = sum(a["bytes"] < b["bytes"] for a, b in zip(ours, raw, strict=True))
    even = {r["variables"]: r["bytes"] / (8.0 * CLIENTS * r["variables"]) for r in ours}
    words = ", ".join(f"{n:,.0f} samples at p = {p}" for p, n in even.items())
    found = (
        f"FEDJEM sends less than the raw data at {less} of {len(ours)} points; 10 rounds weigh as "
        f"much as {words}"
    )
    if less == len(ours):
        return Finding("sent-less", found, "reproduced")
    why = "matrices every round are fewer bytes only where samples are many times the variables"
    return Finding("sent-less", found, "partly" if less else "refuted", why)
