"""Areas under the ROC curve on synthetic networks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Job, Outcome, by_row

from .areas import KEPT, STUDY, along, areas, deviation, draw_rocs, rocs, standing

Rows = list[dict[str, Any]]
METHODS = ("group", "fused", "glasso")


def table_auc(making: Making) -> list[Finding]:
    """Write the areas of three generators, three methods and three kinds of data."""
    # Kendall's tau on Gaussian margins too: that it does not see the margins is a claim.
    expected = {tuple(row[:3]): row[3:] for row in making["expected"]}
    kinds = [*expected, *((kind, "kendall", "gaussian") for kind in {k: 0 for k, *_ in expected})]
    jobs = [
        Job(
            STUDY,
            along(making, method, generator=kind, correlation=measure, margins=margins),
            seed,
            (kind, measure, margins, method),
            KEPT,
        )
        for (kind, measure, margins), method in itertools.product(kinds, METHODS)
        for seed in making.seeds
    ]
    outcomes = by_row(making.sweep(jobs))
    rows: Rows = []
    for setting in kinds:
        for method, wanted in zip(METHODS, expected.get(setting, [np.nan] * 3), strict=True):
            found = areas(outcomes[(*setting, method)])
            rows.append(
                dict(zip(("generator", "correlation", "margins"), setting, strict=True))
                | {"method": "alone" if method == "glasso" else method, "auc": found.mean()}
                | {"spread": deviation(found), "expected": wanted}
            )
    count = len(making.seeds)
    making.table(rows, show=f"Area under TPR over FPR, mean of {count} seeds")
    for kind in dict.fromkeys(setting[0] for setting in expected):
        lines = {
            f"{measure}, {margins}": rocs(outcomes[(k, measure, margins, "group")])
            for k, measure, margins in expected
            if k == kind
        }
        draw_rocs(making, lines, kind, f"{kind} networks, group penalty")
    known = [row for row in rows if not np.isnan(row["expected"])]
    return [
        _within(known, making["within"], count),
        _same_for_all_margins(outcomes, kinds, count),
        _joint_or_alone(outcomes, kinds, count),
    ]


def _within(rows: Rows, within: float, seeds: int) -> Finding:
    """Hold areas against those of an independent implementation."""
    off = [abs(row["auc"] - row["expected"]) for row in rows]
    near = sum(value <= within for value in off)
    found = f"{near} of {len(off)} areas within {within:g}, the farthest off by {max(off):.3f}"
    if near == len(off):
        return Finding("auc-table", found, "reproduced", seeds=seeds)
    why = f"{len(off) - near} areas are farther off than {within:g}"
    return Finding("auc-table", found, "partly" if near else "refuted", why, seeds)


def _same_for_all_margins(
    outcomes: Mapping[tuple[Any, ...], Sequence[Outcome]], kinds: Sequence[Any], seeds: int
) -> Finding:
    """See whether Kendall's tau gives the same areas whatever the margins are."""
    generators = list(dict.fromkeys(kind for kind, *_ in kinds))
    pairs = [
        (areas(outcomes[(g, "kendall", "gaussian", m)]), areas(outcomes[(g, "kendall", n, m)]))
        for g, m, n in itertools.product(generators, METHODS, ("nonparanormal",))
    ]
    worst = max(float(np.max(np.abs(a - b))) for a, b in pairs)
    found = (
        f"the same latent samples under Gaussian and under bent margins give areas that differ by "
        f"at most {worst:.1e}"
    )
    if worst <= 1e-9:
        return Finding("margins-do-not-matter", found, "reproduced", seeds=seeds)
    why = "areas change with the margins by more than rounding"
    return Finding("margins-do-not-matter", found, "refuted", why, seeds)


def _joint_or_alone(
    outcomes: Mapping[tuple[Any, ...], Sequence[Outcome]], kinds: Sequence[Any], seeds: int
) -> Finding:
    """See whether joint learning beats each client alone, on the same correlations."""
    gains, clear = [], []
    for setting in kinds:
        alone = areas(outcomes[(*setting, "glasso")])
        for method in ("group", "fused"):
            joint = areas(outcomes[(*setting, method)])
            gains.append(float(np.mean(joint - alone)))
            clear.append(standing(joint, alone))
    ahead = sum(value > 0 for value in clear)
    found = (
        f"joint minus alone, same correlations: {min(gains):+.3f} to {max(gains):+.3f} of the "
        f"area, clearly ahead in {ahead} of {len(clear)} settings"
    )
    if ahead == len(clear):
        return Finding("joint-beats-alone", found, "reproduced", seeds=seeds)
    why = f"in {len(clear) - ahead} settings the gain is within two standard errors, or a loss"
    return Finding("joint-beats-alone", found, "partly" if ahead else "refuted", why, seeds)
