"""Sweeps over one setting of the regression experiment: Figs 4 to 7."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves
from trellis.privacy.accounting.zcdp import (
    decaying_total,
    decaying_total_of,
    paper_decaying_total,
    zcdp_epsilon,
)

from .judging import Gap, above, judged
from .setting import (
    DELTA,
    NMSD,
    NO_LIMIT,
    PAPER,
    SITUATIONS,
    Vector,
    columns,
    curves_of,
    drawn,
    ends,
    job,
    level,
    simulated,
)
from .synthetic import draw_rounds

NEAR = 0.5  # dB, "near-identical"
START = 10  # the iteration by which the beginning is judged
FALLING = "tau 0.4 x 0.98^n"
TAUS = {"tau 0": (0.0, 1.0), "tau 0.4": (0.4, 1.0), FALLING: (0.4, 0.98)}


def figure_4(making: Making) -> list[Finding]:
    """Draw the NMSD after 200 iterations over tau."""
    taus, rounds = list(map(float, making["taus"])), making["rounds"]
    cells = list(itertools.product(SITUATIONS, taus))
    jobs = [job(kind, {"tau": tau}, rounds) for kind, tau in cells]
    found = dict(zip(cells, simulated(making, jobs), strict=True))
    lines = {
        kind: np.array([ends(found[kind, tau]) for tau in taus]).T for kind in SITUATIONS
    }  # (seeds, taus)
    rows = [{"tau": tau, **row} for tau, row in zip(taus, columns(lines), strict=True)]
    making.table(rows, show=f"NMSD, dB, at iteration {rounds}, {len(making.seeds)} seeds")
    levels, bands = drawn(lines)
    label = f"NMSD at iteration {rounds}, dB"
    x_label = "tau, how much clusters learn from each other"
    making.plot(curves(taus, levels, x_label=x_label, y_label=label, bands=bands))
    line = lines["scheduled, noise"]
    base = line[:, taus.index(0.0)]
    inside = {tau: Gap.of(base - line[:, i]) for i, tau in enumerate(taus) if 0.1 <= tau <= 0.5}
    best = {kind: taus[int(np.argmin(values))] for kind, values in levels.items()}
    small = min(taus, key=lambda tau: abs(tau - 0.2))  # not chosen by these numbers
    largest = Gap.of(line[:, -1] - line[:, taus.index(small)])
    worse = Gap.of(line[:, -1] - base)
    seeds = len(making.seeds)
    return [
        judged(
            "fig4-gain",
            "less than tau 0: "
            + ", ".join(f"{gap.told()} at {tau:g}" for tau, gap in inside.items())
            + f"; best tau {best['scheduled, noise']:g} ("
            + ", ".join(f"{kind} {tau:g}" for kind, tau in best.items() if "noise" not in kind)
            + ")",
            {f"tau {tau:g} is better than 0": gap.sign for tau, gap in inside.items()},
            seeds,
            "the gain is largest at about 0.1 to 0.2 and falls from there",
        ),
        judged(
            "fig4-too-large",
            f"tau {taus[-1]:g} is {largest.told()} above tau {small:g}, {worse.told()} above tau 0",
            {f"worse than tau {small:g}": largest.sign, "worse than tau 0": worse.sign},
            seeds,
        ),
    ]


def figure_5(making: Making) -> list[Finding]:
    """Draw the NMSD over the iterations at low similarity: tau 0, tau 0.4, tau falling."""
    both: dict[str, dict[str, Vector]] = {}
    for part, kind in (("", "scheduled, noise"), ("quiet", "all clients")):
        jobs = [
            job(kind, {"similarity": 0.5, "tau": tau, "tau-decay": decay}, making["rounds"])
            for tau, decay in TAUS.values()
        ]
        runs = simulated(making, jobs, f"fig5, {kind}")
        both[kind] = {name: curves_of(one) for name, one in zip(TAUS, runs, strict=True)}
        draw_rounds(making, both[kind], f"similarity 0.5, {kind}", part)
    lines = both["scheduled, noise"]
    first = {name: line[:, min(START, line.shape[1]) - 1] for name, line in lines.items()}
    last = {name: line[:, -1] for name, line in lines.items()}
    harm = Gap.of(last["tau 0.4"] - last["tau 0"])
    head = Gap.of(first["tau 0"] - first["tau 0.4"])
    start, end = first[FALLING] - first["tau 0.4"], last[FALLING] - last["tau 0"]
    seeds = len(making.seeds)
    return [
        judged(
            "fig5-fixed-tau",
            f"tau 0.4 is {head.told()} better than tau 0 at iteration {START} and "
            f"{harm.told()} worse in the end",
            {"better at the beginning": head.sign, "worse in the end": harm.sign},
            seeds,
        ),
        judged(
            "fig5-falling-tau",
            f"{FALLING} less tau 0.4 at iteration {START}: {Gap.of(start).told()}; less tau 0 in "
            f"the end: {Gap.of(end).told()}",
            {
                f"begins within {NEAR:g} dB of tau 0.4": above(NEAR - np.abs(start)),
                f"ends within {NEAR:g} dB of tau 0": above(NEAR - np.abs(end)),
            },
            seeds,
        ),
    ]


def figure_6(making: Making) -> list[Finding]:
    """Draw the NMSD after 200 iterations over phi_0, with what is spent."""
    return _privacy_sweep(making, "phi0", "phi_0, zCDP of the first round", -1.0)


def figure_7(making: Making) -> list[Finding]:
    """Draw the same over zeta."""
    return _privacy_sweep(making, "zeta", "zeta, what is left of the noise's variance a round", 1.0)


def _privacy_sweep(making: Making, key: str, words: str, sign: float) -> list[Finding]:
    """Draw and judge one sweep; ``sign`` is how the claim has the NMSD move with the setting."""
    values, rounds = list(map(float, making["values"])), making["rounds"]
    cells = list(itertools.product(values, (0.4, 0.0)))
    jobs = [
        job("scheduled, noise", {key: value, "tau": tau, "epsilon": NO_LIMIT}, rounds)
        for value, tau in cells
    ]
    found = dict(zip(cells, simulated(making, jobs), strict=True))
    lines = {
        f"tau {tau:g}": np.array([ends(found[value, tau]) for value in values]).T
        for tau in (0.4, 0.0)
    }
    rows: list[dict[str, Any]] = []
    for value, row in zip(values, columns(lines), strict=True):
        terms = {**PAPER, key: value}
        phi0, zeta = float(terms["phi0"]), float(terms["zeta"])
        spent = [
            decaying_total_of(phi0, zeta, np.flatnonzero(took_part) + 1)
            for run in found[value, 0.4]
            for took_part in run.took_part.T
        ]
        told = {key: value, **row}
        told["zCDP in all, by the paper"] = paper_decaying_total(phi0, zeta, rounds)
        told["of a client in every round"] = decaying_total(phi0, zeta, rounds)
        told |= {"of the mean client": float(np.mean(spent)), "of the busiest": max(spent)}
        rows.append({**told, "epsilon of the busiest": zcdp_epsilon(max(spent), DELTA)})
    making.table(rows, show=f"NMSD, dB, at iteration {rounds}; totals in zCDP as if C = bound held")
    making.console.print(
        "mean client, busiest: of the rounds clients did take part in. No data has gradients "
        "within C = bound: the totals bound nothing."
    )
    levels, bands = drawn(lines)
    plot = curves(values, levels, x_label=words, y_label=NMSD, log_x=key == "phi0", bands=bands)
    making.plot(plot)
    steps = {
        name: [Gap.of(sign * gap) for gap in np.diff(line, axis=1).T]
        for name, line in lines.items()
    }
    told_ends = "; ".join(
        f"{name}: {level(line)[0]:.1f} dB at {values[0]:g} to {level(line)[-1]:.1f} at "
        f"{values[-1]:g}"
        for name, line in lines.items()
    )
    statements = {
        f"{name} from {values[i]:g} to {values[i + 1]:g}": gap.sign
        for name, gaps in steps.items()
        for i, gap in enumerate(gaps)
    }
    name = making.name
    return [judged(f"{name}-trade-off", told_ends, statements, len(making.seeds))]
