"""All methods on given statistics, without messages, and the search for each method's settings.

The rule, for real data: a method's settings are those of a grid with the best mean score on tuning
draws, which share nothing with those of the figure; each method by itself, without noise. With
noise a method runs with what was found without.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from trellis.apps.experiments.making import Making

from ...problem import Matrix
from ..algorithm import Constants, Course, Noise, exact_rounds, guarded_rounds

IGL, FEDAVG, FEDGL = "IGL", "FedAvg", "FedGL"
Draw = TypeVar("Draw")


def run_method(
    method: str, z: Matrix, known: Constants, noise: Noise | None = None, exact: bool = False
) -> Course:
    """Return the course of a method on clients' statistics (I, p); FedAvg's is of one graph.

    ``exact`` solves local problems exactly, as many rounds as it takes up to ``known.rounds``.
    """
    if method == FEDAVG:
        z = z.mean(axis=0, keepdims=True)  # (36), clients of one size
    if exact:
        return exact_rounds(z, known)
    return guarded_rounds(z, known, noise)


def grid_of(making: Making, method: str) -> list[dict[str, float]]:
    """Return the settings to try: beta; for FedGL also rho and lambda."""
    if method != FEDGL:
        return [{"beta": beta} for beta in making["betas"]]
    product = itertools.product(making["betas"], making["rhos"], making["lambdas"])
    return [{"beta": b, "rho": rho, "lambda": sparsity} for b, rho, sparsity in product]


def constants_of(making: Making, tuned: Mapping[str, float]) -> Constants:
    """Return a method's constants, steps and rounds as the figure says."""
    return Constants.of(
        tuned, step=making["step"], local_steps=making["local-steps"], rounds=making["rounds"]
    )


def search(
    making: Making,
    score: Callable[[tuple[str, Constants, Draw]], float],
    draws: Sequence[Draw],
    methods: Sequence[str] = (IGL, FEDAVG, FEDGL),
) -> dict[str, dict[str, float]]:
    """Return every method's settings of the best mean score over the tuning draws."""
    tries = [(method, given) for method in methods for given in grid_of(making, method)]
    items: list[tuple[str, Constants, Draw]] = [
        (method, constants_of(making, given), draw) for method, given in tries for draw in draws
    ]
    found = making.on_all_cores(score, items, f"{making.name}: tuning")
    best: dict[str, tuple[float, dict[str, float]]] = {}
    for k, (method, given) in enumerate(tries):
        mean = float(np.mean(found[k * len(draws) : (k + 1) * len(draws)]))
        if method not in best or mean > best[method][0]:
            best[method] = (mean, given)
    return {method: given for method, (_, given) in best.items()}


def told(tuned: Mapping[str, Mapping[str, float]]) -> str:
    """Return the settings in words, for a finding."""
    words = [
        f"{method} {', '.join(f'{name} {value:g}' for name, value in given.items())}"
        for method, given in tuned.items()
    ]
    return "; ".join(words)


def setting_rows(tuned: Mapping[Any, Mapping[str, Mapping[str, float]]], axis: str) -> list[Any]:
    """Return a table of the settings that were found, a row a point and method."""
    return [
        {
            axis: point,
            "method": method,
            **{n: given.get(n, np.nan) for n in ("beta", "rho", "lambda")},
        }
        for point, by_method in tuned.items()
        for method, given in by_method.items()
    ]
