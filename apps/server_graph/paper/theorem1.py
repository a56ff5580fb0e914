"""Theorem 1 measured: how levels scale with the step, ``trellis paper server-graph theorem1``.

Every case runs without noise, with hybrid and with iid noise, on the same data, clients and
batches. A run walks step * rounds = ``walk``; levels are of its second half. What noise does is
also measured directly: the power of the difference between the centroids with it and without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from ..config import ServerGraphConfig
from ..simulate import Simulation, simulate
from .second_order import shift, variances
from .setting import MSD, Vector, decibel, error, exponent, of_size, powers, slope

METHODS = ("none", "hybrid", "iid")
NAMES = {"none": "no privacy", "hybrid": "hybrid noise", "iid": "iid noise"}
LOGISTIC, DIFFERENT, COMMON = "logistic", "quadratic", "quadratic-one-hessian"
CASES: dict[str, dict[str, Any]] = {
    LOGISTIC: {},
    DIFFERENT: {"loss": "least-squares"},
    # All samples of all clients, whose Hessians are made equal: nothing but noise is drawn.
    COMMON: {"loss": "least-squares", "spread": 0.0, "batch": 0, "sample": 0},
}
TITLES = {
    LOGISTIC: "Logistic loss, the paper's data",
    DIFFERENT: "Quadratic loss, servers' Hessians differ",
    COMMON: "Quadratic loss, one Hessian for all",
}
PROPORTIONAL = 0.75  # an exponent from here on counts as O(mu)
NOTHING = 1e-20  # of a centroid's power: rounding
Found = dict[str, float]


def measure(item: tuple[str, tuple[tuple[str, Any], ...], int]) -> Found:
    """Return the levels of one case with one step and seed."""
    case, settings, seed = item
    config = ServerGraphConfig.of_method(dict(settings))
    runs = {
        method: simulate(ServerGraphConfig.of_method({**dict(settings), "method": method}), seed)
        for method in METHODS
    }
    half = slice(config.rounds // 2, None)
    quiet = runs["none"]
    found = {name: float(powers([run.msd], half)[0]) for name, run in runs.items()}
    for name in METHODS[1:]:
        moved = runs[name].centroids[half] - quiet.centroids[half]
        found[f"{name} moved"] = float(np.mean(np.sum(moved**2, axis=1)))
    if case == LOGISTIC:
        each = variances(quiet.topology.weights, config.sigma)
        b, eigenvalue = shift(config, seed, quiet.truth, each)
        found["predicted"] = float(b @ b)
        found["rate"] = _rate(quiet, found["none"])
        found["rate predicted"] = float(-20.0 * np.log10(1.0 - config.step * eigenvalue))
    return found


def _rate(run: Simulation, floor: float) -> float:
    """Return dB a round on the way from 10 dB below the start to 10 dB above the floor."""
    start = decibel(float(np.sum(run.truth**2)))
    below = np.flatnonzero(run.msd < start - 10.0)
    low = np.flatnonzero(run.msd < decibel(floor) + 10.0)
    if not below.size or not low.size or low[0] - below[0] < 3:
        return float("nan")
    way = slice(below[0], low[0])
    return float(-np.polyfit(np.arange(low[0] - below[0]), run.msd[way], 1)[0])


def theorem_1(making: Making) -> list[Finding]:
    """Write and draw levels over steps for three losses; judge the exponents."""
    steps = [float(step) for step in making["steps"]]
    seeds, items = list(making.seeds), []
    for case, changes in CASES.items():
        for seed in seeds:
            for step in steps:
                rounds = round(making["walk" if case == LOGISTIC else "quadratic-walk"] / step)
                more = {"clients": making["clients"] // 10} if case == COMMON else {}
                settings = {**of_size(making), **changes, **more, "sigma": making["sigma"]}
                settings |= {"step": step, "rounds": rounds}
                items.append((case, tuple(sorted(settings.items())), seed))
    # Longest first: the last process to end is then a short one.
    items.sort(key=lambda item: -dict(item[1])["rounds"])
    values = dict(zip(items, making.on_all_cores(measure, items), strict=True))
    found: dict[str, dict[str, Vector]] = {}
    for case in CASES:
        table = {
            (dict(settings)["step"], seed): value
            for (name, settings, seed), value in values.items()
            if name == case
        }
        kinds = next(iter(table.values()))
        found[case] = {
            kind: np.array([[table[step, seed][kind] for step in steps] for seed in seeds])
            for kind in kinds
        }
    _write(making, steps, found)
    return _verdicts(making, steps, found)


def _write(making: Making, steps: list[float], found: Mapping[str, Mapping[str, Vector]]) -> None:
    rows: list[dict[str, Any]] = []
    for case, kinds in found.items():
        for place, step in enumerate(steps):
            row: dict[str, Any] = {"case": case, "step": step}
            for kind in (*METHODS, "hybrid moved", "iid moved", "predicted"):
                column = kinds[kind][:, place] if kind in kinds else np.full(1, np.nan)
                row[f"{kind}, dB"] = 10.0 * np.log10(max(column.mean(), 1e-300))
                row[f"{kind} error, dB"] = error(column)
            if "predicted" not in kinds:
                row |= {"predicted, dB": np.nan, "predicted error, dB": np.nan}
            rows.append(row)
        lines, bands = {}, {}
        for method in METHODS:
            level = np.array([decibel(v) for v in kinds[method].mean(axis=0)])
            wide = np.array([error(column) for column in kinds[method].T])
            lines[NAMES[method]] = level
            bands[NAMES[method]] = (level - wide, level + wide)
        points = {}
        if "predicted" in kinds:
            floor = [decibel(value) for value in kinds["predicted"].mean(axis=0)]
            points = {"predicted for hybrid": (steps, floor)}
        plot = curves(
            steps,
            lines,
            x_label="step size mu",
            y_label=MSD,
            title=TITLES[case],
            log_x=True,
            bands=bands,
            points=points,
        )
        making.plot(plot, case)
    making.table(rows)


def _verdicts(
    making: Making, steps: list[float], found: Mapping[str, Mapping[str, Vector]]
) -> list[Finding]:
    seeds = len(making.seeds)
    fits = {
        (case, kind): slope(steps, kinds[kind])
        for case, kinds in found.items()
        for kind in (*METHODS, "hybrid moved", "iid moved")
    }
    plain = fits[LOGISTIC, "none"]
    return [
        _scales("theorem1-none", "the level without noise goes as mu^", plain, 1.0, seeds),
        _iid(fits[LOGISTIC, "iid moved"], fits[DIFFERENT, "iid moved"], seeds),
        _inverse(fits[LOGISTIC, "hybrid moved"], seeds),
        _hybrid(steps, found, fits, seeds),
        _common(found[COMMON], seeds),
        _exponentially(found[LOGISTIC], steps, seeds),
    ]


def _scales(claim: str, words: str, fit: tuple[float, float], due: float, seeds: int) -> Finding:
    good = abs(fit[0] - due) <= 1.0 - PROPORTIONAL
    verdict: Verdict = "reproduced" if good else "partly" if fit[0] * due > 0.0 else "refuted"
    why = "" if good else f"the exponent is not {due:g}"
    return Finding(claim, f"{words}{exponent(fit)}", verdict, why, seeds)


def _iid(logistic: tuple[float, float], quadratic: tuple[float, float], seeds: int) -> Finding:
    """Judge the 1 / mu; the flat logistic loss forgets noise slowly, so its fit is wide."""
    words = (
        f"what iid noise adds to the centroid goes as mu^{exponent(quadratic)} for the quadratic "
        f"and as mu^{exponent(logistic)} for the logistic loss"
    )
    near = abs(quadratic[0] + 1.0) <= 1.0 - PROPORTIONAL
    good = near and abs(logistic[0] + 1.0) <= max(0.25, 2.0 * float(np.nan_to_num(logistic[1])))
    verdict: Verdict = "reproduced" if good else "partly" if logistic[0] < 0.0 else "refuted"
    why = "" if good else "the exponents are not both -1"
    return Finding("theorem1-iid", words, verdict, why, seeds)


def _inverse(fit: tuple[float, float], seeds: int) -> Finding:
    good = fit[0] > PROPORTIONAL - 1.0
    words = f"what hybrid noise adds to the centroid goes as mu^{exponent(fit)}, not as 1/mu"
    why = "" if good else "it grows where the step falls"
    verdict: Verdict = "reproduced" if good else "refuted"
    return Finding("theorem1-hybrid-inverse", words, verdict, why, seeds)


def _hybrid(
    steps: Sequence[float],
    found: Mapping[str, Mapping[str, Vector]],
    fits: Mapping[tuple[str, str], tuple[float, float]],
    seeds: int,
) -> Finding:
    """Judge the O(mu) of hybrid: for a theorem on convex losses one counter-example is enough."""
    logistic, quadratic = fits[LOGISTIC, "hybrid moved"], fits[DIFFERENT, "hybrid moved"]
    least = int(np.argmin(steps))
    level = decibel(float(found[LOGISTIC]["hybrid moved"][:, least].mean()))
    predicted = decibel(float(found[LOGISTIC]["predicted"][:, least].mean()))
    words = (
        f"logistic: mu^{exponent(logistic)}; quadratic with different Hessians: "
        f"mu^{exponent(quadratic)}. At mu = {steps[least]:g} hybrid noise moves the logistic "
        f"centroid by {level:.1f} dB, by the second order {predicted:.1f} dB"
    )
    if logistic[0] >= PROPORTIONAL:
        return Finding("theorem1-hybrid", words, "reproduced", seeds=seeds)
    verdict: Verdict = (
        "refuted" if logistic[0] + 2.0 * np.nan_to_num(logistic[1]) < 0.5 else "partly"
    )
    why = (
        "noise in the servers' models does not shrink with the step, and a loss that is not "
        "quadratic turns it into a bias of the centroid of order sigma_g^2 whatever mu"
    )
    return Finding("theorem1-hybrid", words, verdict, why, seeds)


def _common(kinds: Mapping[str, Vector], seeds: int) -> Finding:
    largest = float(kinds["hybrid moved"].max())
    good = largest < NOTHING
    words = f"with one Hessian for all, hybrid noise moves the centroid by {largest:.1e} in power"
    why = "" if good else "that is more than rounding"
    verdict: Verdict = "reproduced" if good else "refuted"
    return Finding("theorem1-quadratic", words, verdict, why, seeds)


def _exponentially(kinds: Mapping[str, Vector], steps: Sequence[float], seeds: int) -> Finding:
    ratio = kinds["rate"] / kinds["rate predicted"]
    known = ratio[np.isfinite(ratio)]
    if not known.size:
        why = "runs are too short to tell a rate"
        return Finding("theorem1-rate", "no rate", "not testable", why, seeds)
    words = (
        f"the error falls by a constant factor a round, {spread(known)} times the rate of the "
        f"flattest direction, (1 - mu lambda)^2, over steps {min(steps):g} to {max(steps):g}"
    )
    good = abs(float(known.mean()) - 1.0) < 0.3
    why = "" if good else "the way down is not that of the flattest direction alone"
    return Finding("theorem1-rate", words, "reproduced" if good else "partly", why, seeds)
