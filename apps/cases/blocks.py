"""Tables and figures that cases share: ways of learning side by side, clients, edges, privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.common.results import RunResult
from trellis.apps.pages.figure import INK, PRIVATE, SHARED, plain, style, svg
from trellis.apps.pages.held_out import beside_alone
from trellis.apps.pages.page import Badge, Block, Facts, FigureBlock, Table
from trellis.apps.pages.wording import counted, number, plural

from . import evidence
from .evidence import BETTER, UNKNOWN, WORSE, Edge, Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "knowing nothing"

# A way of learning, in words -> its runs, one per split.
Ways = Mapping[str, Sequence[RunResult]]


def with_error(one: Estimate | None, percent: bool = False) -> str:
    """Return a mean and its standard error as people read them: 0.93 ± 0.01, or 93 % ± 1."""
    if one is None:
        return number(None)
    factor, unit = (100.0, " %") if percent else (1.0, "")
    mean, error = factor * one.mean, factor * one.error
    if not math.isfinite(error) or error == 0.0:
        return f"{mean:.1f}{unit}" if percent else number(mean)
    # Two digits of an error are all that it is worth, and the mean has no more places.
    places = 1 if percent else max(0, 1 - math.floor(math.log10(error)))
    return f"{mean:.{places}f}{unit} ± {error:.{places}f}"


def against_alone(one: Estimate | None) -> Badge | str:
    """Return better, worse or within chance as a badge."""
    if one is None or one.verdict == UNKNOWN:
        return number(None)
    return Badge(one.verdict, {BETTER: "good", WORSE: "bad"}.get(one.verdict, ""))


def ways_table(
    ways: Ways,
    measure: str = "",
    *,
    percent: bool = False,
    called: str = "",
    client: str = "client",
    alone: str = "",
) -> Table:
    """Return a row per way of learning, knowing nothing and learning alone first.

    Learning alone is that of the first way's runs, for all ways: a private run may have no more
    than rough units of the measurements, and alone a client has its own.
    """
    first = next(iter(ways.values()))
    measure = measure or evidence.main_measure(first)
    nothing = with_error(evidence.knowing_nothing(first, measure), percent)
    by_itself = with_error(evidence.score(first, ALONE, measure), percent)
    rows: list[list[object]] = [
        [NOTHING, nothing, None, None],
        [alone or f"every {client} alone", by_itself, None, None],
    ]
    for words, runs in ways.items():
        gains = evidence.client_gains(runs, first, measure)
        better, _, _ = evidence.wins(gains)
        who = f"{better} of {len(gains)}" if gains else number(None)
        reached = with_error(evidence.score(runs, measure=measure), percent)
        rows.append(
            [words, reached, against_alone(evidence.gain(runs, first, measure=measure)), who]
        )
    splits = counted(len(first), "split")
    more = "less" if measure in first[0].scores["lower"] else "more"
    caption = (
        f"{(called or measure).capitalize()} on records that nobody had learned from, mean of "
        f"{splits} and standard error; {more} is better."
    )
    return Table(
        ["", called or measure, "than alone", f"{plural(client)} that gain"], rows, caption
    )


def ways_figure(
    ways: Ways,
    measure: str = "",
    *,
    percent: bool = False,
    called: str = "",
    client: str = "client",
    alone: str = "",
) -> Block:
    """Return the picture of `ways_table`: a dot and its 95 % interval per way of learning."""
    first = next(iter(ways.values()))
    measure = measure or evidence.main_measure(first)
    named = {
        NOTHING: evidence.knowing_nothing(first, measure),
        (by_itself := alone or f"every {client} alone"): evidence.score(first, ALONE, measure),
        **{words: evidence.score(runs, measure=measure) for words, runs in ways.items()},
    }
    known = {name: one for name, one in named.items() if one is not None}
    what = called or measure
    reached = "; ".join(f"{name} {with_error(one, percent)}" for name, one in known.items())
    text = "Dots are means over the splits, lines what they leave open (95 %)."
    figure = svg(_dots(known, by_itself, what, percent), f"{what}: {reached}")
    return FigureBlock(what.capitalize(), figure, text)


@style()
def _dots(named: Mapping[str, Estimate], alone: str, label: str, percent: bool) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    upwards = list(named.items())[::-1]
    figure = Figure(figsize=(6.0, 0.75 + 0.34 * len(named)))
    axes = figure.add_subplot()
    for height, (name, one) in enumerate(upwards):
        colour = {NOTHING: INK, alone: PRIVATE}.get(name, SHARED)
        reach = one.reach if math.isfinite(one.reach) else 0.0
        axes.errorbar([one.mean], [height], xerr=[reach], fmt="o", color=colour, capsize=2.5)
    axes.set_yticks(range(len(named)), [plain(name) for name, _ in upwards])
    axes.set_ylim(-0.6, len(named) - 0.4)
    axes.set_xlabel(plain(label))
    if percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


def clients_blocks(
    runs: Sequence[RunResult], measure: str = "", *, client: str = "client", percent: bool = False
) -> list[Block]:
    """Return what every client gains over learning alone, drawn and as a table."""
    scores = evidence.mean_scores(runs)
    measure = measure or str(scores["main"])
    scores["main"] = measure
    place = scores["measures"].index(measure)
    gains = evidence.client_gains(runs, measure=measure)
    records = {str(one["name"]): one["count"] for one in runs[0].clients}
    rows: list[list[object]] = []
    for one in scores["clients"]:
        name = str(one["name"])
        values = [one["rows"].get(row, [None] * (place + 1))[place] for row in (THIS, ALONE)]
        shown = [f"{100 * v:.1f} %" if percent and v is not None else v for v in values]
        rows.append([name, records.get(name), *shown, against_alone(gains.get(name))])
    caption = f"{measure.capitalize()}, {client} by {client}, means over the splits."
    text = "Blue: together; orange: alone."
    figure = svg(beside_alone(scores), f"{caption} {text}")
    headers = [client, "its records", "together", "alone", "together is"]
    return [FigureBlock(caption.rstrip("."), figure, text), Table(headers, rows, caption)]


def edges_table(
    edges: Sequence[Edge], splits: int, most: int = 25, weight: str = "strength"
) -> Table:
    """Return the edges that come back most often, and in how many splits."""
    rows = [
        [*edge.ends, round(edge.weight, 2), f"{edge.times} of {splits}"] for edge in edges[:most]
    ]
    caption = f"The {len(rows)} of {counted(len(edges), 'edge')} that come back most often."
    if len(edges) <= most:
        caption = f"All {counted(len(edges), 'edge')} that any split found."
    return Table(["", "goes with", weight, "found in splits"], rows, caption)


def privacy_facts(runs: Sequence[RunResult]) -> Facts:
    """Return what the ledger of the first run says, in its own words, and the most that was spent.

    Epsilon is per run: who makes all of them with the same records spends their sum.
    """
    ledger = runs[0].ledger
    terms = {
        "claim": "What is claimed",
        "neighbouring": "What one change is",
        "adversary": "Against whom",
        "trusted": "What is trusted",
        "not_covered": "Not covered",
    }
    spent = evidence.epsilon_spent(runs)
    facts: dict[str, object] = (
        {} if spent is None else {"Spent per run, at most": f"ε = {spent:.3g}"}
    )
    if ledger.get("delta") is not None and spent is not None:
        facts["Delta"] = float(ledger["delta"])
    facts |= {
        text: ledger[key] for key, text in terms.items() if ledger.get(key, "-") not in ("", "-")
    }
    return Facts(facts)
