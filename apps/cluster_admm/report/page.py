"""What the cluster-admm study shows of a run: clusters' models, servers, methods, privacy.

Reads the arrays that `outcome` names, and the rounds' ``change``, ``tau``, ``nmsd-servers``
(synthetic data), and ``moved`` and ``right`` (clusters that were found). What is missing is left
out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages import plots
from trellis.apps.pages.network import network_sections
from trellis.apps.pages.report import (
    Block,
    Code,
    FigureBlock,
    Gallery,
    Notice,
    Paragraph,
    Section,
    Table,
    number,
)

from ..config import ClusterAdmmConfig
from ..data import synthetic_truth
from .clusters import METHODS, clusters, method_of, servers
from .compare import affordable, compare
from .export import export_graphs
from .outcome import Array, Outcome
from .privacy import privacy
from .sums import summed
from .words import NMSD, WORDING

__all__ = ["export_graphs", "sections"]

FEWEST_ROUNDS = 20
_ROUNDS_BESIDE_SUMS = 100
_TOO_LARGE = (
    "Left out: with so many clients or samples it would take longer than the report. To compare, "
    "run the methods one by one, then"
)
_CROSSES = (
    "Here it has the server's models, one a cluster, made of what its clients of that cluster "
    "sent: a neighbour sees them as they are. Where a server has a single client of a cluster, "
    "that tells what this client sent."
)


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `trellis.apps.pages.report.write_report`."""
    outcome = Outcome.of(result)
    found = []
    if outcome is None:
        text = "The run ended before a model was there."
        if "models" in result.arrays:
            text = "The run's arrays do not fit together, so its models cannot be shown."
        found.append(Section("The clusters' models", [Paragraph(text)]))
    else:
        found += [clusters(result, outcome), *servers(result, outcome)]
    found += network_sections(result, _CROSSES)
    if figures := _curves(result):
        found.append(Section("Learning over the rounds", [Gallery(figures)]))
    if outcome is not None and outcome.truth is not None and not result.data:
        found.append(_side_by_side(result, outcome.truth))
    return [*found, *summed(result, outcome), privacy(result, outcome)]


def _curves(result: RunResult) -> list[FigureBlock]:
    """Return what the rounds tell: deviation or change, tau, clients that moved or are right."""
    rows = result.metrics
    if len(rows) < 2:
        return []
    x = [row.get("round", k + 1.0) for k, row in enumerate(rows)]
    first = "nmsd-servers" if any("nmsd-servers" in row for row in rows) else "change"
    found = []
    for name in (first, "tau", "right", "moved"):
        at = [(n, row[name]) for n, row in zip(x, rows, strict=True) if name in row]
        finite = [(n, value) for n, value in at if np.isfinite(value)]
        if len(finite) < 2 or (name == "tau" and len({value for _, value in finite}) == 1):
            continue
        place, values = (list(column) for column in zip(*finite, strict=True))
        title = WORDING.label(name)
        log = name == "change" and max(values) > 0.0
        figure = plots.curves(place, {title: values}, y_label=title, log_y=log)
        text = f"From {number(values[0])} to {number(values[-1])}; "
        text += f"least {number(min(values))}, most {number(max(values))}."
        svg = plots.svg(figure, f"{title} against the round. {text}")
        found.append(FigureBlock(title[0].upper() + title[1:], svg, text))
    return found


def _side_by_side(result: RunResult, truth: Array) -> Section:
    """Return the methods on this run's data, by simulation with its seed."""
    title = "The methods side by side"
    try:
        config = ClusterAdmmConfig.from_settings(result.config)
        given = config
        if config.privacy == "dp":  # beside it, the methods without privacy
            given = config.as_method("pgfl", rounds=_ROUNDS_BESIDE_SUMS)
        given = replace(given, clusters=str(len(truth)))
        if not np.array_equal(synthetic_truth(given, result.seed).models, truth):
            return Section(title, [Paragraph("Left out: the data cannot be made again from seed.")])
        ran = len(result.metrics)
        # Clients alone need one round.
        whole = config.privacy == "dp" or method_of(result) == "local"
        asked = given.rounds if whole else min(ran, config.rounds)
        given = replace(given, rounds=max(asked, 1))
        rounds = affordable(given)
        if rounds < min(FEWEST_ROUNDS, asked) or not ran:
            return Section(title, [Paragraph(_TOO_LARGE), Code("trellis compare DIR DIR ...")])
        found = compare(replace(given, rounds=rounds), result.seed)
    except (ConfigError, ValueError, OSError) as error:
        return Section(title, [Paragraph(f"Left out: {error}")])
    text = f"The same data, clients and seed for all, {rounds:,} rounds. "
    if rounds < asked and not config.sums:
        text += f"The run itself had {asked:,}, so its numbers differ. "
    if config.finds_clusters:
        text += "Clusters are given here; the run had to find them. "
    if config.sums:
        text += "Without privacy: what the run's noisy sums are to be measured by."
    elif config.privacy != "none":
        text += f"With the noise of privacy = {config.privacy}, but for local, which sends nothing."
    blocks: list[Block] = [Paragraph(text.strip())]
    blocks += [Notice(f"No numbers for {name}: {why}") for name, why in found.missing.items()]
    rows = [
        [
            name,
            round(float(one.nmsd[-1]), 2),
            round(float(one.nmsd_servers[-1]), 2),
            float(one.took_part.sum(axis=1).mean()),
            METHODS[name],
        ]
        for name, one in found.found.items()
    ]
    lines = {name: one.nmsd_servers for name, one in found.found.items()}
    if lines and rounds > 1:
        figure = plots.curves(np.arange(1, rounds + 1), lines, y_label=NMSD)
        ends = ", ".join(f"{row[0]} {number(row[2])}" for row in rows)
        caption = f"Of the models that clients have from their servers. In the end: {ends} dB."
        svg = plots.svg(figure, f"NMSD against the round, by method. {caption}")
        blocks.append(FigureBlock("NMSD by method", svg, caption))
    headers = ["method", "NMSD of clients' own models, dB", "NMSD of servers' models, dB"]
    headers += ["clients a round", "what it learns"]
    caption = "In the last round. A client's own model is its last solution of (4), before noise."
    return Section(title, [*blocks, Table(headers, rows, caption)])
