"""Fig. 5: what lambda and rho do, in the paper's own units and in ours.

The paper's beta = 1.5 and eta_w = 0.0005 belong to graphs whose weights are normalised to trace d,
a mean degree of 1: with c the raw mean degree (about 5 here), z' = c z, w' = w / c, and (8) is the
same problem with beta / c^2, rho / c, lambda / c and a step of c^2 eta_w: 0.058 and 0.013 of raw
weights. So the first variant has the paper's constants on normalised weights, Algorithm 1 as
printed, and the second our tuned ones on raw weights, solved exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trellis.apps.common.metrics import matthews, relative_error
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making

from ..config import ConsensusGraphConfig
from ..data import synthetic_truth
from ..problem import Vector, degrees
from .algorithm import ALPHA, Constants, exact_rounds, guarded_rounds, statistics_of
from .judging import number, ordered, outcome
from .points import Scores, settings

LOCAL, SHARED = "clients' graphs", "consensus"
NORMALISED, RAW = "paper", "raw"
_WORDS = {
    NORMALISED: "the paper's constants, normalised weights, as printed",
    RAW: "tuned constants, raw weights, exact solve",
}

Item = tuple[str, Constants, int, int, int]


def scores_of(item: Item) -> dict[str, float]:
    """Return MCC and RE of clients' graphs (mean) and of the consensus after the last round."""
    variant, known, signals, nodes, seed = item
    config = ConsensusGraphConfig(signals=str(signals), nodes=nodes)
    truth = synthetic_truth(config, seed)
    z = statistics_of(config, seed)
    scale = 1.0
    if variant == NORMALISED:
        scale = float(np.mean([degrees(w, nodes).mean() for w in truth.weights]))
    rounds = guarded_rounds if variant == NORMALISED else exact_rounds
    course = rounds(scale * z, known)
    pairs = list(zip(course.weights[-1], truth.weights / scale, strict=True))
    consensus, common = course.consensus[-1], truth.consensus / scale
    return {
        f"mcc {LOCAL}": float(np.mean([matthews(w, t) for w, t in pairs])),
        f"re {LOCAL}": float(np.mean([relative_error(w, t) for w, t in pairs])),
        f"mcc {SHARED}": matthews(consensus, common),
        f"re {SHARED}": relative_error(consensus, common),
    }


def figure_5(making: Making) -> list[Finding]:
    """Draw MCC and RE over lambda and over rho, N = 100, q = 0.5."""
    printed = Constants(
        ALPHA,
        making["beta"],
        making["rho"],
        making["lambda"],
        making["step"],
        making["local-steps"],
        making["rounds"],
    )
    tuned = Constants.of(
        settings("fedgl", 0.5, 100), step=0.0, local_steps=0, rounds=making["exact-rounds"]
    )
    sweeps = {"lambda": ("lambda_", making["lambdas"]), "rho": ("rho", making["rhos"])}
    items: dict[tuple[str, str, float, int], Item] = {}
    for variant, known in ((NORMALISED, printed), (RAW, tuned)):
        for name, (attribute, values) in sweeps.items():
            for value in values:
                changed = replace(known, **{attribute: value})
                for seed in making.seeds:
                    item = (variant, changed, making["signals"], making["nodes"], seed)
                    items[variant, name, value, seed] = item
    found = dict(zip(items, making.on_all_cores(scores_of, list(items.values())), strict=True))
    tables: dict[tuple[str, str], Scores] = {}
    for variant in _WORDS:
        for name, (_, values) in sweeps.items():
            scores = _gathered(making, found, variant, name, values)
            tables[variant, name] = scores
            rows = scores.rows(name, values, (LOCAL, SHARED), ("mcc", "re"))
            making.table(rows, f"{name}-{variant}")
            for metric in ("mcc", "re"):
                plot = scores.plot(
                    values,
                    (LOCAL, SHARED),
                    metric,
                    x_label=f"{name}: {_WORDS[variant]}",
                    log_x=True,
                )
                making.plot(plot, f"{name}-{metric}-{variant}")
    return _judged(making, tables, {name: values for name, (_, values) in sweeps.items()})


def _gathered(
    making: Making, found: dict[Any, dict[str, float]], variant: str, name: str, values: Any
) -> Scores:
    gathered = {}
    for value in values:
        mine = [found[variant, name, value, seed] for seed in making.seeds]
        for key in mine[0]:
            metric, _, line = key.partition(" ")
            gathered[line, value, metric] = np.array([one[key] for one in mine])
    return Scores(gathered)


def _range(scores: Scores, line: str, values: Any, metric: str = "mcc") -> Vector:
    """Return by how much a score varies over the values, seed by seed."""
    table = np.array([scores.at(line, value, metric) for value in values])
    return np.asarray(np.ptp(table, axis=0))


def _best(scores: Scores, line: str, values: Any, metric: str) -> float:
    means = {v: float(scores.at(line, v, metric).mean()) for v in values}
    pick = max if metric == "mcc" else min
    return pick(means, key=lambda v: means[v])


def _judged(
    making: Making, tables: dict[tuple[str, str], Scores], values: dict[str, Any]
) -> list[Finding]:
    seeds = len(making.seeds)
    findings = []
    for name, claim in (("lambda", "fig5-lambda-local"), ("rho", "fig5-rho-consensus")):
        points = {
            _WORDS[variant]: tuple(
                _range(tables[variant, name], line, values[name]) for line in (SHARED, LOCAL)
            )
            for variant in _WORDS
        }
        what = f"range of MCC over {name}, consensus against clients' graphs"
        findings.append(ordered(claim, what, points, seeds=seeds))  # type: ignore[arg-type]
    inside, text = {}, []
    for variant, words in _WORDS.items():
        for metric in ("mcc", "re"):
            best = _best(tables[variant, "lambda"], SHARED, values["lambda"], metric)
            ends = (values["lambda"][0], values["lambda"][-1])
            inside[f"with {words}, {metric.upper()}"] = 1 if best not in ends else -1
            text.append(f"{metric.upper()} best at lambda = {number(best)} ({words})")
    verdict, why = outcome(inside, lost="the best lambda is at an end of the range")
    findings.append(Finding("fig5-lambda-best", "; ".join(text), verdict, why, seeds))
    same, text = {}, []
    for variant, words in _WORDS.items():
        local, shared = (
            _best(tables[variant, "rho"], line, values["rho"], "mcc") for line in (LOCAL, SHARED)
        )
        same[f"with {words}"] = 1 if local == shared else -1
        text.append(f"rho = {number(local)} and {number(shared)} ({words})")
    verdict, why = outcome(same, lost="they differ")
    best_text = f"best MCC of clients' graphs and of the consensus at {'; '.join(text)}"
    findings.append(Finding("fig5-rho-best", best_text, verdict, why, seeds))
    return findings
