"""The section on servers that are apart, in words, pictures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.pages import plots
from trellis.apps.pages.page import Block, FigureBlock, Paragraph, Section, Table
from trellis.apps.pages.wording import counted, number

from .drawing import COLUMNS, letter_strip, network_map
from .links import Links, Matrix, by_edge, marks, name_of, names_of, row_names

TITLE = "What this server saw"
TITLE_OF_ALL = "What the servers saw of each other"
CROSSES = (
    "What crosses an edge is one letter a round, sealed for the neighbour that it is for. What "
    "clients send stays at their own server."
)


def network_sections(result: RunResult, crosses: str) -> list[Section]:
    """Return the section; none where all servers were in one process.

    ``crosses`` says what a letter of the study tells a neighbour.
    """
    network = result.network
    if not network:
        return []
    links = Links.of(result)
    blocks: list[Block] = [Paragraph(_who(network)), Paragraph(f"{CROSSES} {crosses}".strip())]
    blocks.append(_map(network, links))
    if links is None:
        blocks.append(Paragraph("The run ended before a letter was used, or had no neighbours."))
    else:
        blocks += [_strip(network, links), _link_table(result, links)]
    return [Section(TITLE if "server" in network else TITLE_OF_ALL, [*blocks, *_events(network)])]


def _who(network: Mapping[str, Any]) -> str:
    """Return whose result this is, in words."""
    names, stale = names_of(network), network.get("max_staleness")
    run = f"Run {network.get('run', '')} has {counted(len(names), 'server')}, each with a SuperLink"
    run += " and clients of its own. "
    if "server" in network:
        near = [name_of(network, other) for other in network.get("neighbours", ())]
        run += f"This is the result of {name_of(network, network['server'])}, which hears "
        run += f"{', '.join(near) or 'nobody'}. It knows its own model only: those of the others "
        run += "are unknown here, and trellis merge gathers them."
    else:
        here = [str(name) for name in network.get("merged", ())]
        run += f"Gathered: {', '.join(here)}. "
        away = [name for name in names if name not in here]
        run += f"Not gathered, so unknown: {', '.join(away)}." if away else "These are all of them."
    if stale is None:
        return run
    if not stale:
        return f"{run} Servers went in step: every round waited for its neighbours' letters."
    old = counted(int(stale), "round")
    return f"{run} Servers did not go in step: a letter could be up to {old} old."


def _map(network: Mapping[str, Any], links: Links | None) -> FigureBlock:
    """Return the graph with its servers, and what went over its edges."""
    of_one = "server" in network
    text = "This server is blue, its neighbours are dark, the others pale. " if of_one else ""
    text = text or "Servers that are gathered are blue, the others pale. "
    told = []
    if links is not None:
        text += "A line is as wide as letters were used on it; beside it, how many, and how many "
        text += "rounds the oldest was old. Thin and pale: not known here. "
        for (a, b), (count, age) in by_edge(links).items():
            ends = f"{name_of(network, a)} and {name_of(network, b)}"
            told.append(f"{ends}: {_used(count, age)}")
    svg = plots.svg(network_map(network, links), f"The graph of servers. {text}{'; '.join(told)}.")
    return FigureBlock("The servers and their letters", svg, text.strip())


def _used(count: int, age: float) -> str:
    letters = counted(count, "letter")
    return letters if np.isnan(age) else f"{letters}, the oldest {counted(int(age), 'round')} old"


def _strip(network: Mapping[str, Any], links: Links) -> FigureBlock:
    """Return which letter every round used, a row a link."""
    rows = row_names(network, links)
    text = "Each column is a round, each row a neighbour; the colour is the age of the letter that "
    text += "the round used, 0 for this round's own. Grey: none was used. "
    if np.any(links.used < 0):
        text += "Empty: the server had no such round. "
    if (together := -(-len(links.at) // COLUMNS)) > 1:
        text += f"{together} rounds stand in one column, with the worst of them. "
    if happened := marks(network, links):
        text += (
            f"Dashed lines: {counted(len(happened), 'round')} with an event of the table below. "
        )
    found = zip(rows, links.letters.tolist(), links.rounds.tolist(), links.oldest, strict=True)
    told = "; ".join(
        f"{name}: {_used(n, age)}, in {counted(r, 'round')}" for name, n, r, age in found
    )
    svg = plots.svg(letter_strip(network, links), f"Letters used, by round. {text}{told}.")
    return FigureBlock("Which letter every round used", svg, text.strip())


def _link_table(result: RunResult, links: Links) -> Table:
    """Return a row a link: how many letters, how old, how heavy, when the last came."""
    used = links.used > 0
    ages = np.where(used, links.ages, 0.0).sum(axis=0) / np.maximum(links.letters, 1)
    columns: dict[str, Sequence[object]] = {
        "neighbour" if "server" in result.network else "link": row_names(result.network, links),
        "letters used": links.letters.tolist(),
        "of rounds": links.rounds.tolist(),
        "mean age, rounds": np.where(links.letters > 0, ages, np.nan).tolist(),
        "largest age": links.oldest.tolist(),
    }
    weights = np.asarray(result.arrays.get("link_weights", ()), dtype=np.float64)
    if weights.shape == used.shape:
        columns["mean weight"] = _over(weights, used, np.mean)
    came = np.asarray(result.arrays.get("link_seconds", ()), dtype=np.float64)
    if came.shape == used.shape:
        columns["last came, seconds"] = _over(came, used & np.isfinite(came), np.max)
    rows = list(zip(*columns.values(), strict=True))
    caption = "Letters by link. Seconds are since the run began, by the clock of who used them."
    return Table(list(columns), rows, caption)


def _over(values: Matrix, chosen: NDArray[np.bool_], what: Any) -> list[object]:
    """Return one number a column of its chosen values; None where none is."""
    pairs = zip(values.T, chosen.T, strict=True)
    return [float(what(column[where])) if where.any() else None for column, where in pairs]


def _events(network: Mapping[str, Any]) -> list[Block]:
    """Return what happened between servers, in words."""
    events = network.get("events", ())
    if not events:
        return [Paragraph("Nothing happened between the servers that is worth a word.")]
    several = any("of" in event for event in events)
    rows = [
        [
            str(event.get("round", "")),
            number(float(event.get("seconds", np.nan))),
            *([str(event.get("of", ""))] if several else []),
            name_of(network, event.get("server", "")),
            str(event.get("what", "")),
        ]
        for event in events
    ]
    headers = ["round", "seconds", *(["noted by"] if several else []), "server", "what"]
    caption = "What happened. Seconds are since the run began, by the clock of who noted it."
    return [Table(headers, rows, caption)]
