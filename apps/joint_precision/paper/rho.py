"""What rho does to Algorithm 1: when it stops, how far from the minimum, with which graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.metrics import matthews
from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

from ..config import JointPrecisionConfig
from ..correlation import correlation, to_positive_semidefinite
from ..data import synthetic_table, synthetic_truth
from .areas import band
from .printed import algorithm_1

Array = NDArray[np.float64]
NEAR = 1e-4  # certified distance from the minimum that counts as solved
LAMBDA1, LAMBDA2 = 0.1, 0.05
_LABEL = "rho, in units of the number of samples"


def figure_rho(making: Making) -> list[Finding]:
    """Write rounds, gaps and graphs over rho, as Algorithm 1 stops and where it is solved."""
    values = [float(rho) for rho in making["rhos"]]
    items = [(rho, seed) for rho in values for seed in making.seeds]
    work = partial(
        _run, variables=making["variables"], rounds=making["rounds"], epsilon=making["epsilon"]
    )
    found = dict(zip(items, making.on_all_cores(work, items), strict=True))
    names = list(found[items[0]])
    by_name = {
        name: np.array([[found[rho, seed][name] for rho in values] for seed in making.seeds])
        for name in names
    }
    rows = [
        {"rho": rho}
        | {name: float(np.mean(line[:, k])) for name, line in by_name.items()}
        | {f"{name} spread": float(np.std(line[:, k])) for name, line in by_name.items()}
        for k, rho in enumerate(values)
    ]
    making.table(rows)
    shown = [{key: v for key, v in row.items() if not key.endswith("spread")} for row in rows]
    title = f"Algorithm 1, mean of {len(making.seeds)} seeds, at most {making['rounds']} rounds"
    making.table(shown, "means", show=title)
    _draw(making, values, by_name, ("rounds to stop", "rounds to solve"), "rounds", "rounds")
    _draw(making, values, by_name, ("gap at stop",), "gap", "certified distance from the minimum")
    graphs = ("MCC at stop", "MCC at the end")
    _draw(making, values, by_name, graphs, "graphs", "Matthews correlation of the edges", log=False)
    seeds, most = len(making.seeds), making["rounds"]
    return [
        _faster(values, by_name, most, seeds),
        _worse(values, by_name, seeds),
        _stops(values, by_name, making["epsilon"], seeds),
        _converges(values, by_name, most, seeds),
    ]


def _run(item: tuple[float, int], variables: int, rounds: int, epsilon: float) -> dict[str, float]:
    """Run Algorithm 1 until it has stopped and is solved, or the rounds are used up."""
    rho, seed = item
    config = JointPrecisionConfig(variables=variables)
    truth = synthetic_truth(config, seed).edges()
    matrices = np.array(
        [
            to_positive_semidefinite(
                correlation(synthetic_table(config, seed, k).values, "kendall")
            )[0]
            for k in range(config.clients)
        ]
    )
    upper = np.triu_indices(variables, 1)
    found: dict[str, float] = {"rounds to stop": rounds, "rounds to solve": rounds}
    found |= {"gap at stop": np.nan, "MCC at stop": np.nan}
    for number, step in enumerate(
        islice(algorithm_1(matrices, LAMBDA1, LAMBDA2, rho), rounds), start=1
    ):
        graphs = [
            matthews(np.abs(a[upper]), fact, 0.0) for a, fact in zip(step.psi, truth, strict=True)
        ]
        quality = float(np.mean(graphs))
        last = number == rounds
        if np.isnan(found["MCC at stop"]) and (step.change < epsilon or last):
            gap = step.gap if np.isfinite(step.gap) else np.nan
            found |= {"rounds to stop": number, "gap at stop": gap, "MCC at stop": quality}
        found |= {"MCC at the end": quality, "gap at the end": step.gap}
        if step.gap <= NEAR:
            found["rounds to solve"] = number
            if not np.isnan(found["MCC at stop"]):
                break
    return found


def _draw(
    making: Making,
    values: Sequence[float],
    found: dict[str, Array],
    names: Sequence[str],
    part: str,
    label: str,
    *,
    log: bool = True,
) -> None:
    lines = {name: found[name] for name in names}
    plot = curves(
        list(values),
        {name: line.mean(axis=0) for name, line in lines.items()},
        x_label=_LABEL,
        y_label=label,
        log_x=True,
        log_y=log,
        bands={name: band(line) for name, line in lines.items()},
    )
    making.plot(plot, part)


def _faster(values: Sequence[float], found: dict[str, Array], most: int, seeds: int) -> Finding:
    """See whether a large rho needs fewer rounds, to stop and to be solved."""
    stop, solve = (found[name].mean(axis=0) for name in ("rounds to stop", "rounds to solve"))
    best = int(np.argmin(solve))
    more, then = (f"more than {most}" if n >= most else f"{n:.0f}" for n in (solve[-1], stop[-1]))
    words = (
        f"solved to {NEAR:g} in {solve[best]:.0f} rounds at rho = {values[best]:g} n, in {more} at "
        f"{values[-1]:g} n; line 10 stops there after {then} rounds"
    )
    if np.all(np.diff(solve) <= 0.0):
        return Finding("rho-faster", words, "reproduced", seeds=seeds)
    why = "a large rho only makes steps small, so the rule stops early, far from the minimum"
    sooner = stop[-1] < stop[best]
    why = why if sooner else "beyond the best rho more rounds are needed, not fewer"
    return Finding("rho-faster", words, "partly" if sooner else "refuted", why, seeds)


def _worse(values: Sequence[float], found: dict[str, Array], seeds: int) -> Finding:
    """See whether graphs are worse with a large rho, where it stops and where it is solved."""
    stop, end = found["MCC at stop"], found["MCC at the end"]
    solved = found["gap at the end"].max(axis=0) <= NEAR
    same = end[:, solved].mean(axis=0) if solved.any() else end.mean(axis=0)
    best = int(np.argmax(stop.mean(axis=0)))
    words = (
        f"MCC where it stops: {spread(stop[:, best], 2)} at rho = {values[best]:g} n, "
        f"{spread(stop[:, -1], 2)} at {values[-1]:g} n; where it is solved {same.min():.3f} to "
        f"{same.max():.3f} over all rho"
    )
    worse = stop[:, -1].mean() < stop[:, best].mean() - 0.02
    if worse and np.ptp(same) > 0.02:
        return Finding("rho-worse", words, "reproduced", seeds=seeds)
    if worse:
        why = "only because it stops too early: the minimum does not depend on rho"
        return Finding("rho-worse", words, "partly", why, seeds)
    return Finding("rho-worse", words, "refuted", "graphs are as good with a large rho", seeds)


def _stops(values: Sequence[float], found: dict[str, Array], epsilon: float, seeds: int) -> Finding:
    """See how far from the minimum line 10 stops."""
    gaps = np.nan_to_num(found["gap at stop"], nan=np.inf).max(axis=0)
    worst = int(np.argmax(gaps))
    far = [rho for rho, gap in zip(values, gaps, strict=True) if gap > 100.0 * NEAR]
    size = f"{gaps[worst]:.2g}" if np.isfinite(gaps[worst]) else "infinite (Psi is not positive)"
    words = (
        f"with epsilon = {epsilon:g} it stops within {gaps.min():.1e} of the minimum at best; the "
        f"largest distance is {size}, at rho = {values[worst]:g} n"
    )
    if not far:
        return Finding("stop-rule", words, "reproduced", seeds=seeds)
    rhos = ", ".join(f"{rho:g}" for rho in far)
    why = f"small steps pass for convergence: more than {100 * NEAR:g} off at rho = {rhos} n"
    return Finding(
        "stop-rule", words, "partly" if len(far) < len(values) else "refuted", why, seeds
    )


def _converges(values: Sequence[float], found: dict[str, Array], most: int, seeds: int) -> Finding:
    """See whether the certified gap vanishes, at every rho."""
    gaps = found["gap at the end"].max(axis=0)
    solved: list[Any] = [rho for rho, gap in zip(values, gaps, strict=True) if gap <= NEAR]
    left = ", ".join(
        f"{gap:.1e} at {rho:g} n" for rho, gap in zip(values, gaps, strict=True) if gap > NEAR
    )
    words = (
        f"within {NEAR:g} of the minimum, certified, at {len(solved)} of {len(values)} rho in at "
        f"most {most} rounds" + (f"; left: {left}" if left else "")
    )
    if len(solved) == len(values):
        return Finding("converges", words, "reproduced", seeds=seeds)
    why = "at the other rho it would take more rounds than were run"
    return Finding("converges", words, "partly" if solved else "refuted", why, seeds)
