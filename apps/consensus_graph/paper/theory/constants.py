"""The paper's constants (Sec. V-A5): do they do what it says, on raw and on normalised weights.

C = 25 belongs to raw weights, beta = 1.5 and eta_w = 0.0005 to weights normalised to trace d. With
c the raw mean degree, z' = c z and w' = w / c: see `sensitivity`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making

from ...config import ConsensusGraphConfig
from ...data import synthetic_table, synthetic_truth
from ...problem import Vector, degrees, statistic
from ...solver import solve
from ..algorithm import ALPHA, Constants, exact_rounds, plain_rounds, statistics_of
from ..judging import number, outcome
from ..points import settings
from .bounds import smoothness

RAW, NORMALISED = "raw weights", "normalised weights"

Item = tuple[int, int, int, float, Constants, Constants]


def constants_at(item: Item) -> dict[str, float]:
    """Return what the paper's C, eta_w, K and T do on one draw, in both units."""
    signals, nodes, seed, clip, raw, normalised = item
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    weights = synthetic_truth(config, seed).weights
    scale = float(np.mean([degrees(w, nodes).mean() for w in weights]))
    z = statistics_of(config, seed)
    single = np.array(
        [
            np.linalg.norm(statistic(x[None, :]))
            for i in range(config.clients)
            for x in synthetic_table(config, seed, i).values
        ]
    )
    found: dict[str, float] = {"mean degree": scale}
    for name, unit, known in ((RAW, 1.0, raw), (NORMALISED, scale, normalised)):
        found[f"signals clipped, {name}"] = float(np.mean(unit * single > clip))
        course = plain_rounds(unit * z, known)
        best = exact_rounds(unit * z, replace(known, rounds=200), settled=1e-7)
        away = np.linalg.norm(course.weights[-1] - best.weights[-1])
        found[f"distance from the minimiser, {name}"] = float(
            away / np.linalg.norm(best.weights[-1])
        )
        smallest = min(
            course.extrapolated,
            min(float(degrees(w, nodes).min()) for ws in course.weights for w in ws),
        )
        pull = known.rho * float(course.gamma.max())
        bound = smoothness(known, pull, nodes, smallest) if smallest > 0.0 else np.inf
        found[f"step times L_i, {name}"] = known.step * bound
    # w*(c z, alpha, c^2 beta) = w*(z, alpha, beta) / c
    plain = solve(z[0], ALPHA, raw.beta).w
    scaled = solve(scale * z[0], ALPHA, scale**2 * raw.beta).w
    law = np.linalg.norm(scale * scaled - plain) / np.linalg.norm(plain)
    return {**found, "scale law, relative difference": float(law)}


def _typical(values: Vector) -> str:
    """Return the mean and its error, or the median where a run has left the domain."""
    if np.all(np.isfinite(values)):
        return spread(values)
    return f"median {np.median(values):.3g}"


def constants(making: Making) -> list[Finding]:
    """Measure clipping, step, convergence and the scale law over seeds."""
    how = {
        "step": making["step"],
        "local_steps": making["local-steps"],
        "rounds": making["rounds"],
    }
    raw = Constants.of(settings("fedgl", 0.5, making["signals"]), **how)
    printed = Constants(ALPHA, making["beta"], making["rho"], making["lambda"], **how)
    items = [
        (making["signals"], making["nodes"], seed, making["clip"], raw, printed)
        for seed in making.seeds
    ]
    found = making.on_all_cores(constants_at, items)
    making.table([{"seed": item[2], **one} for item, one in zip(items, found, strict=True)])
    values = {name: np.array([one[name] for one in found]) for name in found[0]}
    seeds = len(found)

    def judged(claim: str, what: str, limit: float, reason: str, every: bool = False) -> Finding:
        tested = {unit: values[f"{what}, {unit}"] for unit in (RAW, NORMALISED)}
        sides = {
            f"on {unit}": 1 if (v.max() if every else v.mean()) <= limit else -1
            for unit, v in tested.items()
        }
        verdict, why = outcome(sides, reason, lost="not")
        text = ", ".join(
            f"{_typical(v)} on {unit} (at most {limit:g} with {np.mean(v <= limit):.0%} of seeds)"
            for unit, v in tested.items()
        )
        return Finding(claim, f"{what}: {text}", verdict, why, seeds)

    law = float(values["scale law, relative difference"].max())
    return [
        judged(
            "constants-clip",
            "signals clipped",
            making["few"],
            f"C = {making['clip']:g} belongs to raw weights; on those that beta and the step "
            "belong to it clips nearly all",
        ),
        judged(
            "constants-step",
            "step times L_i",
            1.0,
            "an extrapolated graph comes near the edge of the logarithm's domain",
            every=True,
        ),
        judged(
            "constants-converged",
            "distance from the minimiser",
            making["close"],
            "the step belongs to normalised weights; on raw ones, to which C belongs, the same "
            f"would be {np.mean(values['mean degree'] ** 2):.0f} times longer",
        ),
        Finding(
            "constants-scale",
            f"relative difference of the two sides at most {number(law)}",
            "reproduced" if law < 1e-4 else "refuted",
            "" if law < 1e-4 else "the minimisers differ",
            seeds,
        ),
    ]
