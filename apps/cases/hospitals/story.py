"""What the hospitals' runs say: sentences that choose their words by the numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from trellis.apps.common.evaluation.measures import ACCURACY, ALONE, THIS
from trellis.apps.common.results import RunResult
from trellis.apps.pages.page import Block, Heading, Notice, Paragraph
from trellis.apps.pages.wording import counted

from .. import evidence
from ..blocks import (
    Ways,
    clients_blocks,
    privacy_facts,
    ways_figure,
    ways_table,
    with_error,
)
from ..case import Runs, Story
from ..evidence import BETTER, CHANCE, UNKNOWN, WORSE, Estimate
from .learned import graph_blocks, model_blocks
from .ways import ALIKE, BARELY, GRAPHS, HELPED, MODELS, OPEN, STRONG, WEAK, WORDS

_RIGHT = "tumours told right"
_LIKELIHOOD = "log likelihood of a new patient"


def tell(runs: Runs) -> Story:
    """Return the story of the case from its runs."""
    models = {WORDS[way]: runs[f"model-{way}"] for way in MODELS}
    graphs = {WORDS[way]: runs[f"graph-{way}"] for way in GRAPHS}
    return Story(
        answer=_answer(runs),
        learned=[*model_blocks(runs[f"model-{OPEN}"]), *graph_blocks(runs[f"graph-{ALIKE}"])],
        sure=_sure(models, graphs),
        cost=_cost(runs),
        better=_better(models, graphs, runs),
        careful=_careful(runs),
        numbers=_numbers(runs),
    )


def gains(runs: Runs, kind: str) -> dict[str, Estimate]:
    """Return what each way gains over learning alone; ``kind`` is ``model`` or ``graph``.

    Alone is what the open runs know: there a hospital has the exact units of its measurements.
    """
    found = {}
    for way in WORDS:
        several = runs.get(f"{kind}-{way}")
        measured = several and evidence.gain(several, runs[f"{kind}-{OPEN}"])
        if measured:
            found[way] = measured
    return found


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _reached(runs: Sequence[RunResult], row: str = THIS) -> float:
    found = evidence.score(runs, row)
    return math.nan if found is None else found.mean


def _against(one: Estimate) -> str:
    """Return how a model compares with alone, in words that fit behind its number."""
    less = "less" if one.mean < 0.0 else "more"
    return {
        BETTER: "better than alone",
        CHANCE: f"{less} than alone, but within chance",
        WORSE: "worse than alone",
        UNKNOWN: "which one split cannot compare with alone",
    }[one.verdict]


def _answer(runs: Runs) -> str:
    """Return the answer: one paragraph on the open model, the private one, the graph."""
    model, graph = gains(runs, "model"), gains(runs, "graph")
    opened = runs[f"model-{OPEN}"]
    first = {
        BETTER: "Yes, if they trust those who run the servers.",
        CHANCE: "Perhaps, if they trust those who run the servers: more splits would tell.",
        WORSE: "No, not even if they trust those who run the servers.",
        UNKNOWN: "One split cannot say.",
    }[model[OPEN].verdict]
    first += (
        f" Together they tell {_percent(_reached(opened))} of new tumours right, each by itself "
        f"{_percent(_reached(opened, ALONE))}."
    )
    reached = {way: _percent(_reached(runs[f"model-{way}"])) for way in (WEAK, STRONG, HELPED)}
    second = (
        "With a promise of privacy to every patient, and with all that the software chooses by "
        f"itself, it is {reached[WEAK]} at epsilon 3, {_against(model[WEAK])}, and "
        f"{reached[STRONG]} at epsilon 1, {_against(model[STRONG])}. Epsilon is how much a "
        "patient's data may give away, less is stricter. With one server for all, and the usual "
        f"values of the measurements known beforehand, it is {reached[HELPED]} at epsilon 1, "
        f"{_against(model[HELPED])}."
    )
    third = (
        "The other question is which measurements go together. Learned openly, with hospitals "
        f"taken to be alike, the answer foresees new patients {_foresees(graph[ALIKE])}; with "
        f"privacy, {_foresees(graph[WEAK])} at epsilon 3 and {_foresees(graph[STRONG])} at epsilon "
        "1."
    )
    return "\n".join([first, second, third])


def _foresees(one: Estimate) -> str:
    less = "less well" if one.mean < 0.0 else "better"
    return {
        BETTER: "better than a hospital's own answer does",
        CHANCE: f"{less} than a hospital's own, but within chance,",
        WORSE: "less well than a hospital's own",
        UNKNOWN: "in a way that one split cannot compare",
    }[one.verdict]


def _numbers(runs: Runs) -> dict[str, object]:
    opened = runs[f"model-{OPEN}"]
    return {
        "told right, each hospital alone": _percent(_reached(opened, ALONE)),
        "told right, together": _percent(_reached(opened)),
        "private, epsilon 3": _percent(_reached(runs[f"model-{WEAK}"])),
        "private, epsilon 1": _percent(_reached(runs[f"model-{STRONG}"])),
        "private, epsilon 1, helped": _percent(_reached(runs[f"model-{HELPED}"])),
    }


def _sure(models: Ways, graphs: Ways) -> list[Block]:
    first, graph = next(iter(models.values())), next(iter(graphs.values()))
    held = [sum(c["count"] for c in runs[0].scores["clients"]) for runs in (first, graph)]
    text = (
        f"Everything was done {counted(len(first), 'time')}, each time with other patients of "
        f"every hospital kept out of learning, to judge by: {held[0]} for the model, {held[1]} for "
        "the graph. Dots are means, the lines say how far the truth may lie from them (95 %), with "
        "an allowance for the splits sharing patients. A difference is called 'within chance' "
        "where its own such line crosses zero; alone and together are judged on the same patients, "
        "so that it can be surer than the two lines look."
    )
    likely = (
        "How good a graph is shows in how likely it makes patients that it has not seen: their log "
        "likelihood, where 0.1 more means about 10 % more likely."
    )
    return [
        Paragraph(text),
        ways_figure(models, ACCURACY, percent=True, called=_RIGHT, client="hospital"),
        Paragraph(likely),
        ways_figure(graphs, called=_LIKELIHOOD, client="hospital"),
    ]


def _cost(runs: Runs) -> list[Block]:
    several = [[f"model-{WEAK}", f"graph-{WEAK}"], [f"model-{STRONG}", f"graph-{STRONG}"]]
    weak, strong = (max(evidence.epsilon_spent(runs[n]) or 0.0 for n in names) for names in several)
    opened = (
        "Open means: no noise. In the model's runs every server sees its hospitals' updates one by "
        "one; for the graph the server can work out every hospital's table of correlations. No "
        "patient's row is sent, but what is sent may tell of single patients. It is for hospitals "
        "that trust those who run the servers."
    )
    private = (
        "Private means: noise is added at the hospitals before anything leaves, and a server sees "
        "sums over its hospitals only. Epsilon says how much these sums can give away: whoever "
        "knows all patients but one, and sees everything that was sent, can become surer of "
        "something about that one by a factor of e to the power of epsilon at most. That is "
        f"{math.exp(strong):.1f} at {strong:.3g} and {math.exp(weak):.0f} at {weak:.3g}, the most "
        "that the ledgers of these runs have (but for a chance of 1 in 100,000, delta). Every run "
        "spends it anew: a hospital that takes part in both questions spends twice. In earnest one "
        "would make one run of each, not one per split as here, and the scores on this page would "
        "stay in the hospitals: they were gathered as this is a rehearsal."
    )
    helped = (
        "'Helped' takes one server, so that one noisy sum covers all hospitals in place of four "
        "that cover three each, and takes the usual values of the measurements from a table "
        "(scales.csv) in place of spending a tenth of epsilon on finding them. Here the table has "
        "the mean and deviation of these very patients with one digit, as a stand-in for a "
        "handbook; it must come from somewhere else, or the promise does not cover it."
    )
    return [
        Paragraph(opened),
        Paragraph(private),
        Paragraph(helped),
        Heading("The model's ledger, epsilon 3, in its own words"),
        privacy_facts(runs[f"model-{WEAK}"]),
        Heading("The graph's ledger, epsilon 3, in its own words"),
        privacy_facts(runs[f"graph-{WEAK}"]),
    ]


def _better(models: Ways, graphs: Ways, runs: Runs) -> list[Block]:
    blocks: list[Block] = [
        Heading("Telling tumours apart"),
        Paragraph(_gain_in_words(gains(runs, "model"))),
        ways_table(models, ACCURACY, percent=True, called=_RIGHT, client="hospital"),
    ]
    if forecast := _forecasts(runs):
        blocks.append(Paragraph(forecast))
    blocks += clients_blocks(runs[f"model-{OPEN}"], ACCURACY, client="hospital", percent=True)
    return [
        *blocks,
        Heading("Which measurements go together"),
        ways_table(graphs, called=_LIKELIHOOD, client="hospital"),
        Paragraph(_about_graphs(runs, gains(runs, "graph"))),
    ]


def _gain_in_words(model: dict[str, Estimate]) -> str:
    parts = []
    for way in MODELS:
        one = model[way]
        error = "" if not math.isfinite(one.error) else f" ± {100.0 * one.error:.1f}"
        parts.append(f"{WORDS[way]}: {100.0 * one.mean:+.1f}{error} ({one.verdict})")
    return (
        "Tumours of 100 that are told right more than by a hospital alone, split by split, with "
        f"the standard error: {'; '.join(parts)}."
    )


def _forecasts(runs: Runs) -> str:
    """Return from which epsilon on private models pay off, as the runs themselves foretell."""
    found = {}
    for way in (STRONG, HELPED):
        notes = " ".join(runs[f"model-{way}"][0].notes)
        if epsilon := re.search(r"from about epsilon=([\d.]*\d)", notes):
            found[way] = epsilon[1]
    if len(found) < 2:
        return ""
    return (
        "Before a private run the software tells, from the number of hospitals, patients and "
        f"measurements alone, from where on it pays off: epsilon {found[STRONG]} with the servers "
        f"that it chooses, {found[HELPED]} with one server. That leaves out what it costs to find "
        "the measurements' usual values."
    )


def _about_graphs(runs: Runs, graph: dict[str, Estimate]) -> str:
    text = ""
    if graph[ALIKE].mean > graph[OPEN].mean:
        text += (
            "What the software chooses by itself (method group) shares which pairs go together and "
            "leaves it to every hospital how strongly; 'taken to be alike' (method fused) shares "
            "that as well, which suits hospitals whose patients are of one kind. "
        )
    used = {way: _mean_use(runs[f"graph-{way}"]) for way in (WEAK, STRONG)}
    text += (
        "In the private way every hospital gets one common, noisy picture and uses it for a graph "
        "of its own where that helps on patients it has set aside, as "
        f"{used[WEAK]:.0%} of the hospitals did at epsilon 3 and {used[STRONG]:.0%} at epsilon 1."
    )
    noise = evidence.gain(runs[f"graph-{BARELY}"], runs[f"graph-{WEAK}"], THIS)
    if noise is not None:
        text += (
            f" With hardly any noise the gain over alone would be {with_error(graph[BARELY])} "
            f"({graph[BARELY].verdict}); at epsilon 3 it is {with_error(graph[WEAK])}."
        )
    return text


def _mean_use(runs: Sequence[RunResult]) -> float:
    return sum(run.headline["using-consensus"] for run in runs) / len(runs)


def _careful(runs: Runs) -> list[Block]:
    patients = sum(int(client["count"]) for client in runs[f"model-{OPEN}"][0].clients)
    text = [
        "The hospitals are made up. Patients were dealt at random, so all hospitals see the same "
        "kind of patient and differ in size only. Real ones differ in their patients and devices, "
        "which makes learning together harder, and common models less fitting.",
        f"{patients} patients of one clinic, measured by one program on images of around 1990, say "
        "little on others. Nothing here is a medical device.",
        "All splits are of these patients: however many there are, they know nothing of the next "
        f"{patients}. Settings are those that the software chooses by itself, but where a way says "
        "otherwise; tuning may change the order.",
        "Everything ran in one process. In such a rehearsal noise comes from the seed and protects "
        "nobody; the ledgers say what real devices would spend.",
    ]
    return [Notice(text[0]), *map(Paragraph, text[1:])]
