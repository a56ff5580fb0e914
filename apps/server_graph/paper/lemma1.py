"""Lemma 1 measured: how far servers' models are from their centroid.

    1/P sum_p E |w_c,i - w_p,i|^2 <= 2 E |w^o - w_c,i-1|^2 + O(mu) sigma_s^2 + O(sigma_g^2)     (20)

Expectations are means over seeds and over tenths of the rounds. The second order (`second_order`)
says what the last constant is for the hybrid scheme: M / P sum (1 - l) / (1 + l) over A's
eigenvalues l below 1.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from trellis.apps.experiments.finding import Finding, Verdict, standard_error
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from ..config import ServerGraphConfig
from ..data import synthetic_table
from ..losses import loss_by_name
from ..simulate import simulate
from .second_order import disagreement
from .setting import Vector, exponent, of_size, slope

PARTS = 10
CLOSE = 0.1  # of the minimiser's length: what one would call close
Found = dict[str, Any]


def measure(item: tuple[tuple[tuple[str, Any], ...], tuple[float, ...], int]) -> Found:
    """Return disagreement and MSD in tenths of the rounds, without noise (sigma 0) and with it."""
    settings, sigmas, seed = item
    found: Found = {}
    for sigma in (0.0, *sigmas):
        method = {"method": "hybrid", "sigma": sigma} if sigma else {"method": "none"}
        config = ServerGraphConfig.of_method({**dict(settings), **method})
        run = simulate(config, seed)
        before = np.concatenate([[np.sum(run.truth**2)], 10.0 ** (run.msd[:-1] / 10.0)])
        found[f"apart {sigma:g}"] = _parts(run.disagreement)
        found[f"msd {sigma:g}"] = _parts(before)
    loss, squares = loss_by_name(config.loss), []
    for k in range(config.clients):
        table = synthetic_table(config, seed, k)
        squares.append(np.mean(np.sum(loss.gradients(run.truth, table.X, table.y) ** 2, axis=1)))
    found["sigma_s^2"] = 2.0 * float(np.mean(squares))  # (21)
    found["constant"] = disagreement(run.topology.weights, 1.0, run.truth.size)
    found["length"] = float(np.linalg.norm(run.truth))
    return found


def _parts(values: Vector) -> Vector:
    return np.array([part.mean() for part in np.array_split(values, PARTS)])


def lemma_1(making: Making) -> list[Finding]:
    """Write and draw the disagreement over noise and step; judge (20) and its constants."""
    steps, sigmas = [float(s) for s in making["steps"]], [float(s) for s in making["sigmas"]]
    seeds, items = list(making.seeds), []
    for step, seed in itertools.product(steps, seeds):
        settings = {**of_size(making), "step": step, "rounds": round(making["walk"] / step)}
        items.append((tuple(sorted(settings.items())), tuple(sigmas), seed))
    values = making.on_all_cores(measure, items)
    by_cell = dict(zip(itertools.product(steps, seeds), values, strict=True))
    rows, needed = [], []
    late = slice(PARTS // 2, None)
    apart: dict[tuple[float, float], Vector] = {}
    for step, sigma in itertools.product(steps, (0.0, *sigmas)):
        runs = [by_cell[step, seed] for seed in seeds]
        each = np.array([run[f"apart {sigma:g}"] for run in runs])
        msd = np.array([run[f"msd {sigma:g}"] for run in runs])
        noise = float(np.mean([run["sigma_s^2"] for run in runs]))
        apart[step, sigma] = each[:, late].mean(axis=1)
        # What both constants would have to be at least, in the tenth that asks most of them.
        over = np.max(each.mean(axis=0) - 2.0 * msd.mean(axis=0))
        needed.append(max(0.0, float(over)) / (step * noise + sigma**2))
        predicted = sigma**2 * float(np.mean([run["constant"] for run in runs]))
        rows.append(
            {
                "step": step,
                "sigma": sigma,
                "disagreement": float(apart[step, sigma].mean()),
                "error": float(standard_error(apart[step, sigma])),
                "second order, noise alone": predicted,
                "twice the centroid's deviation": float(2.0 * msd[:, late].mean()),
                "constants needed": needed[-1],
            }
        )
    making.table(rows, show="mean squared distance of servers' models to their centroid")
    _draw(making, rows, steps, sigmas)
    length = float(np.mean([run["length"] for run in values]))
    return [
        _bound(making, steps, sigmas, apart, rows, needed),
        _closeness(rows, sigmas, length, len(seeds)),
    ]


def _draw(
    making: Making, rows: list[dict[str, Any]], steps: list[float], sigmas: list[float]
) -> None:
    lines, bands = {}, {}
    for sigma in (0.0, *sigmas):
        name = f"noise {sigma:g}" if sigma else "no noise"
        here = [row for row in rows if row["sigma"] == sigma]
        level = np.array([row["disagreement"] for row in here])
        wide = np.array([row["error"] for row in here])
        lines[name], bands[name] = level, (level - wide, level + wide)
    predicted = [row["second order, noise alone"] for row in rows if row["sigma"]]
    places = [row["step"] for row in rows if row["sigma"]]
    plot = curves(
        steps,
        lines,
        x_label="step size mu",
        y_label="squared distance to the centroid",
        title="How far servers' models are apart, hybrid noise",
        log_x=True,
        log_y=True,
        bands=bands,
        points={"by the second order": (places, predicted)},
    )
    making.plot(plot)


def _bound(
    making: Making,
    steps: list[float],
    sigmas: list[float],
    apart: dict[tuple[float, float], Vector],
    rows: list[dict[str, Any]],
    needed: list[float],
) -> Finding:
    quiet = slope(steps, np.array([apart[step, 0.0] for step in steps]).T)
    by_noise = slope(sigmas, np.array([apart[steps[-1], sigma] for sigma in sigmas]).T)
    by_step = slope(steps, np.array([apart[step, sigmas[-1]] for step in steps]).T)
    ratios = [
        row["disagreement"] / row["second order, noise alone"] for row in rows if row["sigma"]
    ]
    words = (
        f"without noise the distance goes as mu^{exponent(quiet)}; with hybrid noise as "
        f"sigma_g^{exponent(by_noise)} and mu^{exponent(by_step)}, {min(ratios):.2f} to "
        f"{max(ratios):.2f} times its closed form; (20) holds with both constants "
        f"{max(needed):.2g}"
    )
    constants = [
        row["second order, noise alone"] / row["sigma"] ** 2 for row in rows if row["sigma"]
    ]
    good = (
        quiet[0] > 0.75
        and abs(by_noise[0] - 2.0) < 0.2
        and abs(by_step[0]) < 0.2
        and max(needed) < 2.0 * max(1.0, *constants)
    )
    verdict: Verdict = "reproduced" if good else "partly"
    why = "" if good else "one of these exponents or constants is not what (20) allows"
    return Finding("lemma1", words, verdict, why, len(making.seeds))


def _closeness(
    rows: list[dict[str, Any]], sigmas: list[float], length: float, seeds: int
) -> Finding:
    shares = {
        sigma: max(np.sqrt(row["disagreement"]) for row in rows if row["sigma"] == sigma) / length
        for sigma in (0.0, *sigmas)
    }
    words = ", ".join(f"{share:.1%} at sigma_g {sigma:g}" for sigma, share in shares.items())
    words = f"a server's model is off the centroid by, of the minimiser's length: {words}"
    far = [sigma for sigma, share in shares.items() if share > CLOSE]
    if not far:
        return Finding("lemma1-close", words, "reproduced", seeds=seeds)
    why = (
        f"from sigma_g {min(far):g} on the distance is above {CLOSE:.0%}, and a smaller step does "
        "not lessen it: who uses one server's model has its noise"
    )
    return Finding(
        "lemma1-close", words, "refuted" if len(far) > len(sigmas) else "partly", why, seeds
    )
