"""The section of a report on how good the result is on records that nobody has learned from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.common.evaluation.scores import TRIVIAL, better_than_alone, is_lower
from trellis.apps.common.results import RunResult
from trellis.apps.pages.clients.chosen import shown, table_of
from trellis.apps.pages.figure import INK, PRIVATE, QUIET, SHARED, plain, short, style, svg
from trellis.apps.pages.page import Block, FigureBlock, Notice, Paragraph, Section, Table
from trellis.apps.pages.wording import counted, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How good it is on data it has not seen"
_MOST_LINES = 40  # clients that a picture has room for


def held_out_section(result: RunResult) -> Section | None:
    """Return the section; None where nothing was held out."""
    scores = result.scores
    if not scores:
        share = float(result.config.get("held-out", 0.0) or 0.0)
        if not share or result.status != "completed":
            return None
        text = (
            "Clients scored the result on records that they held out, and keep what they found: it "
            "is on their owners' pages (trellis device result)."
        )
        return Section(TITLE, [Notice(text)])
    main = str(scores["main"])
    blocks: list[Block] = [Paragraph(in_words(scores))]
    rows = [[name, *values] for name, values in scores["mean"].items()]
    caption = "Means over all clients, each counting by how many of its records were held out."
    blocks.append(Table(["", *scores["measures"]], rows, caption=caption))
    blocks.append(_by_client(scores, main))
    if len(scores["clients"]) > 1 and ALONE in scores["mean"]:
        figure = beside_alone(scores)
        title = f"{main}, client by client"
        text = "Blue: this result; orange: learning alone. Best for each client at the top."
        blocks.append(FigureBlock(title.capitalize(), svg(figure, f"{title}. {text}"), text))
    return Section(TITLE, blocks)


def in_words(scores: dict[str, Any]) -> str:
    """Return what the scores say, in sentences: how good, how sure, better than alone or not."""
    main, place = str(scores["main"]), scores["measures"].index(scores["main"])
    count = sum(client["count"] for client in scores["clients"])
    mean = scores["mean"]
    text = (
        f"On {counted(count, 'held-out record')} of {counted(len(scores['clients']), 'client')}: "
        f"{main} {number(mean[THIS][place])}"
    )
    alone = mean.get(ALONE, [None] * len(scores["measures"]))[place]
    if alone is not None:
        text += f"; learning alone {number(alone)}"
    for name in TRIVIAL:
        if name in mean and mean[name][place] is not None:
            text += f"; {name} {number(mean[name][place])}"
    text += f" ({'less' if is_lower(scores, main) else 'more'} is better). "
    if alone is None:
        return text.strip()
    better, equal, worse = better_than_alone(scores)
    text += (
        f"The federation is better than learning alone for {counted(better, 'client')}, as good "
        f"for {equal:,} and worse for {worse:,}. "
    )
    gains = _gains(scores, place)
    if len(gains) > 2:
        error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
        gain = round(float(np.mean(gains)), 12)  # equal but for rounding is equal
        sure = "more than chance explains" if abs(gain) > 2.0 * error else "within chance"
        text += (
            f"A client gains {number(gain)} on average, give or take {number(error)} (one standard "
            f"error over clients): {sure}."
        )
    return text.strip()


def _gains(scores: dict[str, Any], place: int) -> list[float]:
    sign = -1.0 if is_lower(scores, str(scores["main"])) else 1.0
    pairs = [_pair(client, place) for client in scores["clients"]]
    return [sign * (ours - alone) for ours, alone in pairs if None not in (ours, alone)]


def _pair(client: dict[str, Any], place: int) -> tuple[Any, Any]:
    nothing = [None] * (place + 1)
    return tuple(client["rows"].get(name, nothing)[place] for name in (THIS, ALONE))


def _by_client(scores: dict[str, Any], main: str) -> Table:
    place = scores["measures"].index(main)
    names = [name for name in scores["mean"] if name in (THIS, ALONE, *TRIVIAL)]
    clients = scores["clients"]
    columns: dict[str, list[object]] = {
        "client": [c["name"] for c in clients],
        "held-out records": [c["count"] for c in clients],
    }
    nothing = [None] * (place + 1)
    for name in names:
        columns[name] = [c["rows"].get(name, nothing)[place] for c in clients]
    caption = f"{main.capitalize()}, by client."
    sign = -1.0 if is_lower(scores, main) else 1.0
    pairs = [_pair(client, place) for client in clients]
    if ALONE in names:
        gains = [np.nan if None in pair else sign * (pair[0] - pair[1]) for pair in pairs]
        ends = ("that gained most over learning alone", "that gained least, or lost")
    else:
        gains = [np.nan if ours is None else sign * ours for ours, _ in pairs]
        ends = ("for whom it is best", "for whom it is worst")
    return table_of(columns, shown(gains), caption, ends, "scores.csv")


@style()
def beside_alone(scores: dict[str, Any]) -> Figure:
    """Draw every client's score beside what it reaches alone; of many clients, a cloud."""
    from matplotlib.figure import Figure

    main, place = str(scores["main"]), scores["measures"].index(scores["main"])
    found = [(str(c["name"]), *_pair(c, place)) for c in scores["clients"]]
    known = [(name, ours, alone) for name, ours, alone in found if None not in (ours, alone)]
    ours = np.array([entry[1] for entry in known], dtype=np.float64)
    alone = np.array([entry[2] for entry in known], dtype=np.float64)
    if len(known) > _MOST_LINES:
        figure = Figure(figsize=(4.0, 3.8))
        axes = figure.add_subplot()
        ends = [min(ours.min(), alone.min()), max(ours.max(), alone.max())]
        axes.plot(ends, ends, color=QUIET, linewidth=0.9)
        axes.plot(alone, ours, "o", color=SHARED, markersize=3.5, alpha=0.6)
        axes.set_xlabel(plain(f"{main}, learning alone"))
        axes.set_ylabel(plain(f"{main}, this result"))
        return figure
    order = np.argsort(-ours if is_lower(scores, main) else ours, kind="stable")
    figure = Figure(figsize=(4.8, 1.1 + 0.2 * len(known)))
    axes = figure.add_subplot()
    height = np.arange(len(known))
    axes.hlines(height, alone[order], ours[order], color=INK, linewidth=0.8)
    axes.plot(alone[order], height, "o", color=PRIVATE, markersize=4.5, label="learning alone")
    axes.plot(ours[order], height, "o", color=SHARED, markersize=4.5, label="this result")
    axes.set_yticks(height, [plain(short(known[k][0])) for k in order])
    axes.set_xlabel(plain(main))
    figure.legend(loc="outside lower center", ncols=2, fontsize=8.5)
    return figure
