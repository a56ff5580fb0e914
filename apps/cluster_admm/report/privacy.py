"""What the rounds of a run cost in privacy, as they go: zCDP of the client that spent most.

Round n costs a client that takes part phi_n = phi_0 / zeta^n, since its noise's variance falls by
zeta a round; the total is over the rounds that it took part in. The paper's total (48) has zeta^n
in place of zeta^-n. Totals are from the ledger's events, Delta^2 / (2 sigma^2) each, which is what
was sent, not what was planned. An interrupted run has no ledger: then only what a client that took
part in every round would have spent can be told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages import plots
from trellis.apps.pages.page import Block, Facts, FigureBlock, Notice, Paragraph, Section
from trellis.apps.pages.wording import number
from trellis.privacy.accounting.series import every, releases
from trellis.privacy.accounting.zcdp import (
    decaying_rho,
    decaying_total,
    paper_decaying_total,
    zcdp_epsilon,
)
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon

from ..config import ClusterAdmmConfig
from ..server_app import statement
from ..simulate import client_tables
from .compare import MOST_NUMBERS
from .outcome import Outcome

Array = NDArray[np.float64]

TITLE = "Privacy as the rounds go"
_LOSSES = (
    "To find clusters, clients told their losses under the clusters' models, without noise: no "
    "total counts them."
)
_TERMS = {
    "claim": "What is claimed",
    "neighbouring": "Neighbouring data",
    "adversary": "Against whom",
    "not_covered": "Not covered",
}


def privacy(result: RunResult, outcome: Outcome | None) -> Section:
    """Return the section: the zCDP over the rounds, in the end, and what it rests on."""
    try:
        config = ClusterAdmmConfig.from_settings(result.config)
    except ConfigError as error:
        return Section(TITLE, [Paragraph(f"Not known; the settings are not this study's: {error}")])
    losses: list[Block] = [Notice(_LOSSES)] if config.searches else []
    if config.privacy == "none":
        text = statement(config)["not_covered"]
        return Section(TITLE, [Paragraph(f"Nothing was noised, no total is told. {text}"), *losses])
    if not config.has_noise:
        told = (
            [] if result.ledger else [Facts({t: statement(config)[k] for k, t in _TERMS.items()})]
        )
        text = "Clients learned alone: nothing computed from their data was sent."
        if config.sums:
            text = "Noise was in secure sums; the ledger has all of them, as devices reported them."
        return Section(TITLE, [Paragraph(text), *told])
    rounds = len(result.metrics)
    if not rounds:
        return Section(TITLE, [Paragraph("No round was recorded: no total can be told."), *losses])
    blocks = [*_not_a_bound(config, result, outcome), *_totals(config, result, rounds), *losses]
    if not result.ledger:
        blocks.append(Facts({term: statement(config)[key] for key, term in _TERMS.items()}))
    return Section(TITLE, blocks)


def spent_by_round(entry: Mapping[str, Any], rounds: int) -> Array:
    """Return the zCDP (rounds + 1,) that a client of the ledger has spent after each round.

    Every event is 1/2 (sensitivity / sigma)^2; place 0 is before the first round.
    """
    spent = np.zeros(rounds + 1)
    for event in every(entry.get("events") or ()):
        spent[min(max(event.round, 0), rounds)] += 0.5 * event.noise_ratio**2
    return np.cumsum(spent)


def longest_gradient(tables: Sequence[tuple[Array, Array]], models: Array) -> float:
    """Return the longest gradient 2 |x| |y - x'w| of any sample at its client's model (K, d)."""
    return float(
        max(
            np.max(2.0 * np.linalg.norm(X, axis=1) * np.abs(y - X @ w))
            for (X, y), w in zip(tables, models, strict=True)
        )
    )


def _totals(config: ClusterAdmmConfig, result: RunResult, rounds: int) -> list[Block]:
    """Return the picture of the totals, and where they end."""
    x = np.arange(1, rounds + 1)
    whole = np.array([decaying_total(config.phi_start, config.zeta, int(n)) for n in x])
    printed = np.array([paper_decaying_total(config.phi_start, config.zeta, int(n)) for n in x])
    known = [
        (str(entry.get("name", "?")), spent_by_round(entry, rounds), releases(entry["events"]))
        for entry in result.ledger.get("clients") or ()
        if entry.get("events")
    ]
    lines: dict[str, Array] = {"a client in every round": whole, "the paper's (48)": printed}
    blocks: list[Block] = []
    if known:
        who, line, made = max(known, key=lambda one: one[1][-1])
        lines = {"the client that spent most": line[1:], **lines}
        total, least = float(line[-1]), min(float(one[1][-1]) for one in known)
        about: dict[str, object] = {
            "Client that spent most": f"{who}, {made:,} releases in {rounds:,} rounds",
            "Its total": f"{number(total)}-zCDP",
            "The least of a client": f"{number(least)}-zCDP",
        }
    else:
        total = float(whole[-1])
        blocks.append(
            Notice(
                "The run has no ledger of releases. The totals are those of a client that took "
                "part in every round: no client has spent more."
            )
        )
        about = {"A client in every round": f"{number(total)}-zCDP"}
    told = f"{number(zcdp_epsilon(total, config.delta))} by zCDP"
    told += f", {number(_exact(total, config.delta))} exactly, all noise being Gaussian"
    about |= {
        f"Epsilon at delta {config.delta:g}": told,
        "The paper's total (48)": f"{number(float(printed[-1]))}-zCDP, which bounds nothing: "
        f"every round, it counts zeta^n phi_0 where less noise costs phi_0 / zeta^n. Corrected, "
        f"all {rounds:,} rounds are {number(float(whole[-1]))}-zCDP",
        "phi_0 and zeta": f"{number(config.phi_start)} and {number(config.zeta)}; round {rounds:,} "
        f"alone is {number(decaying_rho(config.phi_start, config.zeta, rounds))}-zCDP",
    }
    composed = result.ledger.get("epsilon")
    if composed is not None:
        about["The ledger's epsilon"] = (
            f"{number(float(composed))}: composed from the rounds' own epsilons, which is looser"
        )
    ends = ", ".join(f"{name} {number(float(line[-1]))}" for name, line in lines.items())
    text = f"In the end: {ends}."
    svg = plots.svg(
        plots.curves(x, lines, y_label="zCDP, total", log_y=True),
        f"Total zCDP against the round. {text}",
    )
    return [*blocks, FigureBlock("Total zCDP over the rounds", svg, text), Facts(about)]


def _exact(total: float, delta: float) -> float:
    """Return the epsilon of Gaussian releases that are ``total``-zCDP together."""
    finite = 0.0 < total < math.inf
    return gaussian_epsilon(1.0, delta, math.sqrt(2.0 * total)) if finite else total


def _not_a_bound(
    config: ClusterAdmmConfig, result: RunResult, outcome: Outcome | None
) -> list[Block]:
    """Return what C is: nothing enforces it."""
    C = number(config.bound)
    text = f"C = {C} was taken as given and is not a bound: nothing limits a sample's gradient"
    longest = None if outcome is None else _longest(config, result, outcome)
    if longest is not None:
        text += f"; at the learned models the longest is {number(longest)}"
    return [Notice(f"{text}. The totals below hold only for data for which C does.")]


def _longest(config: ClusterAdmmConfig, result: RunResult, outcome: Outcome) -> float | None:
    """Return the longest gradient of the run's samples, where they can be made again."""
    count, size = outcome.clients.shape
    places = [int(client.get("partition", -1)) for client in result.clients]
    if (
        outcome.truth is None
        or result.data
        or config.loss != "ridge"
        or size != config.features
        or config.clients * config.sample_range()[1] * size > MOST_NUMBERS
        or len(places) != count
        or not all(0 <= place < config.clients for place in places)
    ):
        return None
    tables = client_tables(config, result.seed)
    return longest_gradient([tables[place] for place in places], outcome.clients)
