"""Areas under the ROC curve on synthetic networks: the table of all, and what noise costs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Job, Outcome, by_row
from trellis.apps.pages.plots import curves

from ..config import JointPrecisionConfig
from ..release import forecast
from .areas import KEPT, STUDY, Array, along, areas, band, deviation, draw_rocs, rocs, standing

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


def table_privacy(making: Making) -> list[Finding]:
    """Write the areas with and without noise on each client's tau, and the forecast before."""
    expected = {(int(n), float(e)): (plain, noisy) for n, e, plain, noisy in making["expected"]}
    jobs = [
        Job(STUDY, _private(making, n, epsilon if noisy else None), seed, (n, epsilon, noisy))
        for n, epsilon in expected
        for noisy in (False, True)
        for seed in making.seeds
    ]
    outcomes = by_row(making.sweep(jobs))
    rows: Rows = []
    lines: dict[str, list[Array]] = {"without noise": [], "with noise": []}
    for (n, epsilon), wanted in expected.items():
        row: dict[str, Any] = {"samples": n, "epsilon": epsilon}
        for noisy, name in enumerate(lines):
            found = areas(outcomes[(n, epsilon, bool(noisy))])
            lines[name].append(found)
            row |= {name: found.mean(), f"{name}, spread": deviation(found)}
            row[f"{name}, expected"] = wanted[noisy]
        config = JointPrecisionConfig.from_settings(_private(making, n, epsilon))
        row["forecast"] = forecast(config, 54, [n])
        rows.append(row)
    making.table(rows)
    names = ("samples", "epsilon", *(k for k in rows[0] if k.startswith("with")))
    shown = [{k: row[k] for k in names if "spread" not in k} for row in rows]
    title = "Area under the ROC curve with sound privacy, p = 54, group, Kendall"
    making.table(shown, "means", show=title)
    for row in rows:
        making.console.print(row["forecast"], soft_wrap=True)
    sizes = [row["samples"] for row in rows]
    plot = curves(
        sizes,
        {name: [found.mean() for found in line] for name, line in lines.items()},
        x_label="samples per client (epsilon 10, 5 and 1)",
        y_label="area under the ROC curve",
        log_x=True,
        bands={name: band(np.array(line).T) for name, line in lines.items()},
        points={f"expected {k}": (sizes, [row[f"{k}, expected"] for row in rows]) for k in lines},
    )
    making.plot(plot)
    lost = [float(a.mean() - b.mean()) for a, b in zip(*lines.values(), strict=True)]
    words = "; ".join(
        f"n = {row['samples']}, epsilon = {row['epsilon']:g}: {row['without noise']:.2f} to "
        f"{row['with noise']:.2f} (expected {row['with noise, expected']:g})"
        for row in rows
    )
    off = max(abs(row["with noise"] - row["with noise, expected"]) for row in rows)
    seeds = len(making.seeds)
    if off <= making["within"] and min(lost) > 0.0:
        return [Finding("noise-on-each", words, "reproduced", seeds=seeds)]
    why = f"an area is {off:.2f} from the expected one, more than {making['within']:g}"
    return [Finding("noise-on-each", words, "partly" if min(lost) > 0.0 else "refuted", why, seeds)]


def _private(making: Making, samples: int, epsilon: float | None) -> dict[str, Any]:
    """Return the settings of one cell, each tau noised; none where epsilon is None."""
    private = {} if epsilon is None else {"privacy": "sound", "release": "each", "epsilon": epsilon}
    return along(making, "group", samples=str(samples)) | private
