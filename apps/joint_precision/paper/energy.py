"""What the methods cost in energy, and what the server learns of the data (Table 3).

Joules are read from the machine's own counters (RAPL, as CodeCarbon does) where they can be read,
of all processes together; otherwise seconds of CPU stand in for them, and the table says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.pages.figure import PALETTE, style

from .clock import CLIENTS, METHODS, Clocked, clocked
from .listening import quiet, recovery_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTERS = Path("/sys/class/powercap")
MARGINS = ("gaussian", "nonparanormal")  # the paper does not say which it measured
CLEARLY = 1.1  # times
ByData = dict[str, dict[str, dict[str, Any]]]


class Spent(NamedTuple):
    """What a method took, and joules where there are counters."""

    cost: Clocked
    joules: float


class Counters:
    """The energy counters of the machine's processors; none where they cannot be read."""

    def __init__(self, folder: Path = COUNTERS) -> None:
        self.files = []
        # One counter a processor; those with two numbers are parts of one.
        for package in sorted(folder.glob("intel-rapl:*")):
            if package.name.count(":") == 1 and _readable(package / "energy_uj"):
                self.files.append(package)

    def read(self) -> list[int]:
        """Return every counter, in microjoules."""
        return [int((package / "energy_uj").read_text()) for package in self.files]

    def joules_since(self, before: Sequence[int]) -> float:
        """Return the joules since a reading, a counter's turning over included; NaN of none."""
        if not self.files:
            return np.nan
        total = 0
        for package, then, now in zip(self.files, before, self.read(), strict=True):
            whole = int((package / "max_energy_range_uj").read_text())
            total += now - then if now >= then else now - then + whole
        return total / 1e6


def _readable(path: Path) -> bool:
    try:
        int(path.read_text())
    except (OSError, ValueError):
        return False
    return True


def table_3(making: Making) -> list[Finding]:
    """Write what the methods cost, what raw data they send, and what the server can recover."""
    p, n = making["variables"], making["samples"]
    numbers = {"variables": p, "samples": n, "blocks": making["blocks"]}
    numbers |= {"rounds": 1000, "tolerance": making["tolerance"], "most": making["clime-seconds"]}
    # One after the other: counters know nothing of processes. CLIME, long, with one seed.
    spent = {
        (name, margins): [
            making.on_all_cores(
                partial(_spent, **numbers), [(name, margins, seed)], f"table3, {name}"
            )[0]
            for seed in (making.seeds[:1] if name == "CLIME" else making.seeds)
        ]
        for margins in MARGINS
        for name in METHODS
    }
    overheard = partial(_recovered, variables=p, blocks=making["blocks"], samples=n)
    errors = making.on_all_cores(overheard, list(making.seeds), "table3, recovery")
    matrix = 8.0 * CLIENTS * p * (p - 1) / 2
    measured = not np.isnan(spent["FEDJEM", MARGINS[0]][0].joules)
    unit = "joules" if measured else "CPU seconds (no energy counter can be read here)"
    rows: list[dict[str, Any]] = []
    for (name, margins), found in spent.items():
        joules, cpu = ([f.joules for f in found], [f.cost.in_all for f in found])
        rows.append(
            {"method": name, "data": margins, "paper-joules": _PRINTED[name]}
            | {"joules": float(np.mean(joules))}
            | {"cpu-seconds": float(np.mean(cpu)), "cpu-spread": float(np.std(cpu))}
            | {"rounds": float(np.mean([f.cost.rounds for f in found]))}
            | {"raw-bytes": 8.0 * CLIENTS * n * p if name == "JGL" else 0.0}
            | {"recoverable-bytes-of-S": matrix if name in ("FEDJEM", "JGL") else np.nan}
            | {"bytes-sent": found[0].cost.sent, "note": found[0].cost.note}
        )
    rows[0]["recovery-error"] = max(errors)
    making.table(rows)
    names = ("method", "data", "paper-joules", "joules", "cpu-seconds", "rounds", "note")
    title = f"Table 3, p = {p}, n = {n}, {CLIENTS} clients; energy in {unit}"
    making.table([{k: row[k] for k in names} for row in rows], "energy", show=title)
    key = "joules" if measured else "cpu-seconds"
    by_data = {
        margins: {row["method"]: row for row in rows if row["data"] == margins}
        for margins in MARGINS
    }
    making.plot(_ratios(by_data, key))
    return [
        _order(by_data, key, unit, len(making.seeds)),
        _danger(errors, matrix, rows[0]["bytes-sent"], len(making.seeds)),
        _raw(),
    ]


# Printed in Table 3; CLIME's is a lower bound.
_PRINTED = {"FEDJEM": 738.09, "JGL": 1801.59, "GLasso": 11966.27, "CLIME": 40000.0}
_PRINTED_MEGABYTES = 18.397
_PRINTED_VARIABLES, _PRINTED_SAMPLES = 768, 150


def _spent(item: tuple[str, str, int], most: float, **numbers: Any) -> Spent:
    """Return what one method took; joules with the drawing of its data, which is little."""
    name, margins, seed = item
    counters = Counters()
    before = counters.read()
    limit = most if name == "CLIME" else 0.0
    cost = clocked(name, **numbers, most=limit, seed=seed, margins=margins)
    return Spent(cost, counters.joules_since(before))


def _recovered(seed: int, variables: int, blocks: int, samples: int) -> float:
    """Return the largest error of a client's S that the server recovers from one message."""
    settings = {"variables": variables, "blocks": blocks, "samples": str(samples)}
    plain = {"rounds": 2, "tolerance": 1e-3, "screening": False}
    with quiet():
        return recovery_error({**settings, **plain}, seed=seed)


def _order(by_data: ByData, key: str, unit: str, seeds: int) -> Finding:
    """Hold the order of the methods' energy against the paper's, on both kinds of data."""
    words, least, ordered = [], [], []
    for margins, rows in by_data.items():
        # What did not end took more than what did.
        values = [np.inf if rows[name]["note"] else rows[name][key] for name in METHODS]
        told = ", ".join(
            f"{name} {rows[name]['note'] or format(value, '.3g')}"
            + (f" in {rows[name]['rounds']:.0f} rounds" if rows[name]["rounds"] else "")
            for name, value in zip(METHODS, values, strict=True)
        )
        words.append(f"{margins} data: {told}")
        least.append(values[0] * CLEARLY < min(values[1:]))
        ordered.append(values == sorted(values))
    found = f"{'; '.join(words)}; in {unit}; paper: JGL 2.4 times FEDJEM, GLasso 16 times"
    if all(least) and all(ordered):
        return Finding("table3-energy", found, "reproduced", seeds=seeds)
    if any(least):
        where = " and ".join(m for m, good in zip(by_data, least, strict=True) if good)
        why = (
            f"only on {where} data does FEDJEM clearly take the least, by needing fewer rounds to "
            "the same gap; a round costs the same, and Kendall's matrix more than Pearson's"
        )
        return Finding("table3-energy", found, "partly", why, seeds)
    why = "FEDJEM takes JGL's steps, and Kendall's matrix is dearer than Pearson's"
    return Finding("table3-energy", found, "refuted", why, seeds)


def _danger(errors: Sequence[float], matrix: float, sent: float, seeds: int) -> Finding:
    """See whether the server knows the clients' correlations from one message each."""
    worst = max(errors)
    found = (
        f"from one message a client the server recovers its correlation matrix to {worst:.0e}, "
        f"{matrix / 1e6:.3g} MB of three clients; {sent / 1e6:.3g} MB are sent in all"
    )
    if worst > 1e-3:
        return Finding("table3-danger", found, "reproduced", seeds=seeds)
    why = "no raw row is sent, but every correlation of the data is known to the server exactly"
    return Finding("table3-danger", found, "refuted", why, seeds)


def _raw() -> Finding:
    """Hold the bytes of the paper's raw data against the bytes that it prints."""
    count = CLIENTS * _PRINTED_SAMPLES * _PRINTED_VARIABLES
    raw, each = 8.0 * count / 1e6, _PRINTED_MEGABYTES * 1e6 / count
    found = (
        f"{CLIENTS} x {_PRINTED_SAMPLES} x {_PRINTED_VARIABLES} numbers of 8 bytes are {raw:.3f} "
        f"MB; {_PRINTED_MEGABYTES} MB would be {each:.0f} bytes a number"
    )
    if abs(raw / _PRINTED_MEGABYTES - 1.0) < 0.1:
        return Finding("table3-jgl", found, "reproduced")
    why = "JGL does send all raw data, but they are not that many bytes in any common format"
    return Finding("table3-jgl", found, "partly", why)


@style()
def _ratios(by_data: ByData, key: str) -> Figure:
    """Draw every method's energy over FEDJEM's, ours beside the paper's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 2.9))
    axes = figure.add_subplot()
    places = np.arange(len(METHODS))
    unit = key.replace("cpu-", "CPU ")
    for k, (margins, rows) in enumerate(by_data.items()):
        ours = [rows[name][key] / rows["FEDJEM"][key] for name in METHODS]
        label = f"ours, {margins} data, by {unit}"
        axes.scatter(places + 0.12 * k - 0.06, ours, color=PALETTE[k], s=40, label=label)
    theirs = [_PRINTED[name] / _PRINTED["FEDJEM"] for name in METHODS]
    look: Any = {"marker": "x", "color": PALETTE[3], "s": 40, "zorder": 3}
    axes.scatter(places, theirs, label="paper, by joules (CLIME: more)", **look)
    notes = by_data[MARGINS[0]]
    axes.set_xticks(places, [f"{name}\n{notes[name]['note']}".strip() for name in METHODS])
    axes.set_yscale("log")
    axes.set_ylabel("energy, times FEDJEM's")
    axes.legend(fontsize=8)
    return figure
