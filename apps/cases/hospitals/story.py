"""What the hospitals' runs say: sentences that choose their words by the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from apps.common.evaluation.measures import ACCURACY, ALONE, THIS
from apps.common.results import RunResult
from apps.joint_precision.report.named import named_graphs
from apps.pages.named import NamedGraph
from apps.pages.page import Block, FigureBlock, Heading, Notice, Paragraph, Table
from apps.pages.plots import svg, two_colour_graph
from apps.pages.wording import counted

from .. import evidence
from ..blocks import (
    Ways,
    clients_blocks,
    edges_table,
    privacy_facts,
    ways_figure,
    ways_table,
)
from ..case import Runs, Story
from ..evidence import BETTER, CHANCE, UNKNOWN, WORSE, Estimate
from .ways import BARELY, GRAPHS, HELPED, MODELS, OPEN, STRONG, WEAK, WORDS

_RIGHT = "tumours told right"
_LIKELIHOOD = "log likelihood of a new patient"
_FEATURES = 8


def tell(runs: Runs) -> Story:
    """Return the story of the case from its runs."""
    models = {WORDS[way]: runs[f"model-{way}"] for way in MODELS}
    graphs = {WORDS[way]: runs[f"graph-{way}"] for way in GRAPHS}
    return Story(
        answer=_answer(runs),
        learned=[*_learned_model(runs[f"model-{OPEN}"]), *_learned_graph(runs[f"graph-{WEAK}"])],
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


def _answer(runs: Runs) -> str:
    model, graph = gains(runs, "model"), gains(runs, "graph")
    opened = runs[f"model-{OPEN}"]
    alone, together = _reached(opened, ALONE), _reached(opened)
    text = {
        BETTER: "Yes, where the hospitals trust the servers",
        CHANCE: "That cannot be said for sure, even where the hospitals trust the servers",
        WORSE: "No, not even where the hospitals trust the servers",
        UNKNOWN: "One split cannot say",
    }[model[OPEN].verdict]
    text += (
        f": together they tell {_percent(together)} of new tumours right, alone {_percent(alone)}. "
    )
    text += _private_model(runs, model)
    text += {
        BETTER: " For the other question, which measurements go together, the private way pays "
        "off: its picture foresees new patients better than a hospital's own",
        CHANCE: " For the other question, which measurements go together, the private way is "
        "within chance of what a hospital finds alone",
        WORSE: " For the other question, which measurements go together, the private way is worse "
        "than what a hospital finds alone",
        UNKNOWN: " For the other question, which measurements go together, there are too few "
        "splits as well",
    }[graph[STRONG].verdict]
    return f"{text}, at epsilon 1, the stricter of the two promises that were tried."


def _private_model(runs: Runs, model: dict[str, Estimate]) -> str:
    reached = {way: _percent(_reached(runs[f"model-{way}"])) for way in (WEAK, STRONG)}
    numbers = f"{reached[WEAK]} at epsilon 3 and {reached[STRONG]} at epsilon 1"
    verdicts = {model[WEAK].verdict, model[STRONG].verdict}
    if verdicts == {BETTER}:
        return f"With a promise of privacy to every patient that is still so: {numbers}."
    if UNKNOWN in verdicts:
        return f"With a promise of privacy to every patient it is {numbers}."
    if verdicts == {WORSE}:
        return (
            f"With a promise of privacy to every patient it is not worth it at this size: {numbers}"
            ", less than alone."
        )
    if BETTER in verdicts:
        return (
            f"With a promise of privacy to every patient it depends on how strict that is: "
            f"{numbers}."
        )
    return (
        f"With a promise of privacy to every patient nothing is gained at this size: {numbers}, no "
        "better than alone."
    )


def _numbers(runs: Runs) -> dict[str, object]:
    opened = runs[f"model-{OPEN}"]
    return {
        "patients": sum(int(client["count"]) for client in opened[0].clients),
        "told right, each hospital alone": _percent(_reached(opened, ALONE)),
        "told right, together": _percent(_reached(opened)),
        "together and private, epsilon 3": _percent(_reached(runs[f"model-{WEAK}"])),
        "together and private, epsilon 1": _percent(_reached(runs[f"model-{STRONG}"])),
    }


def _learned_model(runs: Sequence[RunResult]) -> list[Block]:
    """Return the measurements that the model goes by, and how steadily."""
    names = runs[0].variables
    weights = np.array([run.arrays["centroid"][: len(names)] for run in runs])
    mean = weights.mean(axis=0)
    order = np.argsort(-np.abs(mean))[:_FEATURES]
    rows = [
        [
            names[k],
            "malignant" if mean[k] > 0.0 else "benign",
            float(mean[k]),
            f"{int(np.sum(np.sign(weights[:, k]) == np.sign(mean[k])))} of {len(runs)}",
        ]
        for k in order
    ]
    text = (
        "A model that tells malignant from benign tumours by 30 measurements of cell nuclei, "
        "learned without privacy. Each patient's nuclei have a mean, a standard error and a worst "
        "value (the mean of the three largest) of ten properties. Measurements were left in their "
        "own units; the hospitals found a common scale by themselves, and weights are on it."
    )
    caption = f"The {len(rows)} measurements that weigh most, mean of the splits."
    headers = ["a larger", "speaks for", "weight", "same sign in splits"]
    return [Heading("Which tumours are malignant"), Paragraph(text), Table(headers, rows, caption)]


def _learned_graph(runs: Sequence[RunResult]) -> list[Block]:
    """Return the graph that the servers have of a private run, and how steady its edges are."""
    graphs = [named_graphs(run)["consensus"]() for run in runs]
    edges = evidence.stability(graphs)
    always = [edge for edge in edges if edge.times == len(runs)]
    text = (
        "Which of the ten mean measurements go together once all others are known, learned with "
        f"privacy (epsilon 3). {counted(len(edges), 'pair')} of 45 were found in some split, "
        f"{len(always)} in every one. A strength of 1 would be lockstep, 0 nothing in common; "
        "below 0, one falls as the other rises."
    )
    steady = {edge.ends for edge in always}
    drawn = _picture(graphs[0], steady)
    return [
        Heading("Which measurements go together"),
        Paragraph(text),
        FigureBlock("The graph of the first split", drawn, _DRAWN),
        edges_table(edges, len(runs), most=15),
    ]


_DRAWN = (
    "Dots are measurements, a line joins two that go together, thick where they do strongly. Blue "
    "lines came back in every split, orange ones did not."
)


def _picture(graph: NamedGraph, steady: set[tuple[str, str]]) -> object:
    d = len(graph.nodes)
    weights, always = np.zeros((d, d)), np.zeros((d, d), dtype=bool)
    for (u, v), weight in zip(graph.pairs.tolist(), graph.weights.tolist(), strict=True):
        first, second = sorted((graph.nodes[u], graph.nodes[v]))
        weights[u, v], always[u, v] = abs(weight), (first, second) in steady
    upper = np.triu_indices(d, 1)
    names = [name.removeprefix("mean ") for name in graph.nodes]
    legend = ("in every split", "not in every split")
    figure = two_colour_graph(weights[upper], names, always[upper], legend=legend, threshold=0.0)
    return svg(figure, _DRAWN)


def _sure(models: Ways, graphs: Ways) -> list[Block]:
    first = next(iter(models.values()))
    held = sum(client["count"] for client in first[0].scores["clients"])
    text = (
        f"Everything was done {counted(len(first), 'time')}, each time with another fifth of every "
        f"hospital's patients ({held} in all) kept out of learning, to be judged by. The lines in "
        "the pictures say how far the truth may lie from the dots (95 %), with an allowance for "
        "the splits sharing patients. Where the line of a difference crosses zero we say 'within "
        "chance'."
    )
    likely = (
        "How good a graph is shows in how likely it makes patients that it has not seen: their log "
        "likelihood, where 0.1 more means about 10 % more likely."
    )
    return [
        Paragraph(text),
        ways_figure(models, ACCURACY, percent=True, called=_RIGHT),
        Paragraph(likely),
        ways_figure(graphs, called=_LIKELIHOOD),
    ]


def _cost(runs: Runs) -> list[Block]:
    spent = {
        way: max(
            evidence.epsilon_spent(runs[f"{kind}-{way}"]) or 0.0 for kind in ("model", "graph")
        )
        for way in (WEAK, STRONG)
    }
    opened = (
        "Open means: no noise. In the model's runs every server sees its hospitals' updates one by "
        "one; for the graph the server can work out every hospital's table of correlations. No "
        "patient's row is sent, but what is sent may tell of single patients. It is for hospitals "
        "that trust those who run the servers."
    )
    private = (
        "Private means: noise is added at the hospitals before anything leaves, and the servers see "
        "sums over hospitals only. Epsilon says how much these sums can give away: whoever knows "
        "all patients but one, and sees everything that was sent, can become more certain about "
        "that one by a factor of e to the power of epsilon at most, "
        f"{math.exp(spent[STRONG]):.1f} at {spent[STRONG]:.2g} and "
        f"{math.exp(spent[WEAK]):.0f} at {spent[WEAK]:.2g}, which is what the ledgers say was spent "
        "(but for a chance of 1 in 100,000, delta). Each question and each run spends it anew: a "
        "hospital that answers both questions spends twice, and one would make one run of each, "
        "not one per split as here."
    )
    return [
        Paragraph(opened),
        Paragraph(private),
        Heading("The model's ledger, epsilon 3, in its own words"),
        privacy_facts(runs[f"model-{WEAK}"]),
        Heading("The graph's ledger, epsilon 3, in its own words"),
        privacy_facts(runs[f"graph-{WEAK}"]),
    ]


def _better(models: Ways, graphs: Ways, runs: Runs) -> list[Block]:
    model, graph = gains(runs, "model"), gains(runs, "graph")
    blocks: list[Block] = [
        Heading("Telling tumours apart"),
        Paragraph(_gain_in_words(model)),
        ways_table(models, ACCURACY, percent=True, called=_RIGHT, alone="every hospital alone"),
        *clients_blocks(runs[f"model-{OPEN}"], ACCURACY, client="hospital", percent=True),
    ]
    forecast = [_forecast(runs[f"model-{way}"][0]) for way in (WEAK, STRONG)]
    if any(forecast):
        text = "What the software says before such a private run, by its settings alone: "
        blocks.append(Paragraph(text + " ".join(filter(None, forecast))))
    blocks += [
        Heading("Which measurements go together"),
        ways_table(graphs, called=_LIKELIHOOD, alone="every hospital alone"),
        Paragraph(_why_private_graphs(runs, graph)),
    ]
    return blocks


def _gain_in_words(model: dict[str, Estimate]) -> str:
    parts = []
    for way in (OPEN, WEAK, STRONG):
        one = model[way]
        points = f"{100.0 * one.mean:+.1f} points of 100"
        error = "" if not math.isfinite(one.error) else f" ± {100.0 * one.error:.1f}"
        parts.append(f"{WORDS[way]}: {points}{error} ({one.verdict})")
    return (
        "Against every hospital alone, split by split, with its standard error: "
        f"{'; '.join(parts)}."
    )


def _forecast(run: RunResult) -> str:
    found = (note for note in run.notes if note.startswith("Forecast"))
    return next(found, "")


def _why_private_graphs(runs: Runs, graph: dict[str, Estimate]) -> str:
    over = evidence.gain(runs[f"graph-{WEAK}"], runs[f"graph-{OPEN}"], THIS)
    noise = evidence.gain(runs[f"graph-{BARELY}"], runs[f"graph-{WEAK}"], THIS)
    text = ""
    if over is not None and over.mean > 0.0:
        text = (
            "The private way beats the open one here, and not because noise helps: they are two "
            "methods. The open one, of the paper, shares which pairs go together and lets every "
            "hospital find how strongly from its own few patients. The private one makes a common "
            "picture first, which every hospital then blends with its own patients at home, as far "
            "as that helps on patients it has set aside. Where hospitals are alike, as here, that "
            "is the better idea. "
        )
    if noise is not None:
        text += (
            f"What the noise itself costs at epsilon 3 is {noise.mean:.2g} in log likelihood, the "
            f"distance to the same with hardly any noise; what is gained over alone is "
            f"{graph[WEAK].mean:.2g}."
        )
    return text


def _careful(runs: Runs) -> list[Block]:
    text = [
        "The hospitals are made up. Patients were dealt at random, so all hospitals see the same "
        "kind of patient and differ in size only. Real ones differ in their patients and devices, "
        "which makes learning together harder, and common models less fitting.",
        "569 patients of one clinic, measured by one program on images of around 1990, say little "
        "on other patients. Nothing here is a medical device.",
        "All splits are of these patients, so that even five of them know nothing of the next "
        "569. Settings were those that the software chooses by itself; tuning may change the order.",
        "Everything ran in one process. In such a rehearsal noise comes from the seed and protects "
        "nobody; the ledgers say what real devices would spend.",
    ]
    return [Notice(text[0]), *map(Paragraph, text[1:])]
