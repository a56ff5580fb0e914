"""Fig. 3 and Fig. 4: graphs that share more or less, in numbers and in pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import edges
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import Outcome

from ..problem import Vector
from .judging import mean_and_error, ordered
from .pictures import graphs_in_a_grid
from .points import AS_PRINTED, LABELS, METRICS, Scores, all_lines, compared

FEDGL, IGL, FEDAVG = (LABELS[m] + AS_PRINTED for m in ("fedgl", "igl", "fedavg"))


def figure_3(making: Making) -> list[Finding]:
    """Draw MCC and RE over the share of common edges, N = 50."""
    shares = making["overlaps"]
    scores = Scores.of(compared(making, {q: (q, 50) for q in shares}))
    making.table(scores.rows("share of common edges", shares, all_lines(), list(METRICS)))
    for metric in METRICS:
        plot = scores.plot(shares, all_lines(), metric, x_label="share of common edges, q")
        making.plot(plot, metric)
    first, last = shares[0], shares[-1]
    seeds = len(making.seeds)

    def fall(line: str) -> Vector:
        return scores.at(line, last, "mcc") - scores.at(line, first, "mcc")

    alone = {
        f"{metric.upper()} at q = {q:g}": (
            sign * scores.at(FEDGL, q, metric),
            sign * scores.at(IGL, q, metric),
        )
        for metric, sign in (("mcc", 1.0), ("re", -1.0))
        for q in shares
    }
    best = {
        f"at q = {last:g}, {line.removesuffix(AS_PRINTED)}": (
            scores.at(FEDAVG, last, "mcc"),
            scores.at(line, last, "mcc"),
        )
        for line in (FEDGL, IGL)
    }
    return [
        ordered("fig3-fedavg-best", "MCC of FedAvg, as printed", best, seeds=seeds),
        ordered(
            "fig3-fedavg-falls",
            f"loss of MCC from q = {last:g} to {first:g}, FedAvg against FedGL, as printed",
            {"": (fall(FEDAVG), fall(FEDGL))},
            seeds=seeds,
        ),
        ordered(
            "fig3-above-igl",
            "clients' graphs of FedGL against learning alone, as printed",
            alone,
            "where clients share few edges there is little to borrow",
            seeds=seeds,
        ),
    ]


def found_edges(outcome: Outcome) -> dict[str, float]:
    """Return which part of the common and of clients' own edges were found, and how many wrong.

    Clients' own edges are counted against their own truth: of all clients together.
    """
    learned = edges(outcome.arrays["weights"])
    true = outcome.arrays["truth"] != 0.0
    common = np.broadcast_to(outcome.arrays["truth_consensus"] != 0.0, true.shape)
    own = true & ~common
    return {
        "common edges found": float(learned[common].mean()),
        "own edges found": float(learned[own].mean()),
        "found edges that are wrong": float((~true)[learned].mean()),
    }


def figure_4(making: Making) -> list[Finding]:
    """Draw the graphs that one seed's first clients learn, and count what all seeds find."""
    size, q = making["signals"], making["overlap"]
    kept = ("weights", "truth", "truth_consensus")
    outcomes = compared(making, {size: (q, size)}, kept)
    parts: dict[str, dict[str, list[float]]] = {}
    for outcome in outcomes:
        for name, value in found_edges(outcome).items():
            parts.setdefault(outcome.job.row[0], {}).setdefault(name, []).append(value)
    rows: list[dict[str, Any]] = []
    for line, numbers in parts.items():
        row: dict[str, Any] = {"method": line}
        for name, values in numbers.items():
            row[name], row[f"{name} standard error"] = mean_and_error(values)
        rows.append(row)
    making.table(rows, show=f"Edges found at q = {q:g}, {size} signals")
    making.plot(_picture(outcomes, making["drawn"]), "graphs")
    found = {line: {k: np.array(v) for k, v in numbers.items()} for line, numbers in parts.items()}
    scores = Scores.of(outcomes)
    seeds = len(making.seeds)
    return [
        ordered(
            "fig4-fedavg-worst",
            "MCC against FedAvg, as printed",
            {
                line.removesuffix(AS_PRINTED): (
                    scores.at(line, size, "mcc"),
                    scores.at(FEDAVG, size, "mcc"),
                )
                for line in (FEDGL, IGL)
            },
            seeds=seeds,
        ),
        ordered(
            "fig4-own",
            "part of clients' own edges found, FedGL against FedAvg, as printed",
            {"": (found[FEDGL]["own edges found"], found[FEDAVG]["own edges found"])},
            seeds=seeds,
        ),
        ordered(
            "fig4-common",
            "part of common edges found, FedGL against learning alone, as printed",
            {"": (found[FEDGL]["common edges found"], found[IGL]["common edges found"])},
            seeds=seeds,
        ),
        _fails(found[IGL]["common edges found"], seeds),
    ]


def _fails(part: NDArray[np.float64], seeds: int) -> Finding:
    """Judge whether learning alone fails to find common edges: fewer than half."""
    mean, error = mean_and_error(part)
    text = f"learning alone finds {mean:.3f} ± {error:.2g} of the common edges, as printed"
    if mean < 0.5:
        return Finding("fig4-igl-fails", text, "reproduced", seeds=seeds)
    why = "it finds more than half of them; it finds fewer than FedGL, which is another matter"
    return Finding("fig4-igl-fails", text, "refuted", why, seeds)


def _picture(outcomes: Sequence[Outcome], drawn: int) -> Any:
    seed = outcomes[0].job.seed
    first = {o.job.row[0]: o.arrays for o in outcomes if o.job.seed == seed}
    some = next(iter(first.values()))
    panels: dict[tuple[str, str], Vector] = {}
    for client in range(min(drawn, len(some["truth"]))):
        column = f"client {client + 1}"
        panels[("truth", column)] = some["truth"][client]
        for line in (FEDGL, IGL, FEDAVG):
            name = line.removesuffix(AS_PRINTED).removesuffix(" clients")
            panels[(name, column)] = first[line]["weights"][client]
    return graphs_in_a_grid(
        _in_rows(panels),
        some["truth_consensus"] != 0.0,
        ("edge of the true common graph", "edge of the client's own, or wrong"),
    )


def _in_rows(panels: Mapping[tuple[str, str], Vector]) -> dict[tuple[str, str], Vector]:
    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    return {(row, column): panels[(row, column)] for row in rows for column in columns}
