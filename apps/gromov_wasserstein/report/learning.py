"""The part of a gromov-wasserstein report on what the distances are good for, beside controls.

An accuracy alone says nothing: one that does not exceed every control in `controls` is no
evidence that the embeddings told anything. Controls of classifier t, from the headline:

    t-from-sizes      the same classifier on the differences of the numbers of nodes
    t-from-constant   the same encoder on a constant embedding, mean of several draws
    majority          the commonest class;   chance: one over the number of classes
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.pages.page import Block, Heading, Notice, Paragraph, Section, Table
from trellis.apps.pages.wording import counted, number

from ..downstream.tasks import OUTLIER_NEIGHBOUR
from .distances import rank_correlation
from .outcome import Array, Integers, Outcome, numbers_of
from .pictures import NAMED_CLASSES

LEARNING = "What can be learned from the distances"
SIZES, CONSTANT = "the numbers of nodes alone", "a constant embedding"
MAJORITY, CHANCE = "the commonest class", "chance"
MOST_ANOMALOUS = 10
# Accuracies of the shared model and of clients' own, which are no classifiers on distances.
_MODELS = ("train", "validation", "test", "held-out")
_HOME = "home-"


@dataclass(frozen=True)
class Score:
    """An accuracy of one classifier, its controls by name, and the constant embedding's draws."""

    title: str
    ours: float
    controls: Mapping[str, float]
    draws: Array


def learning_section(result: RunResult, outcome: Outcome | None) -> list[Section]:
    """Return accuracies with their controls, clusters and anomalies; nothing where none is."""
    if outcome is None or outcome.solved is None:
        return []
    blocks: list[Block] = []
    found = scores(result, outcome)
    if found:
        blocks += [_accuracies(found), *_verdicts(result, outcome, found)]
    elif not outcome.classes:
        text = "No graph has a label that the server knows, so no accuracy can be told."
        blocks.append(Paragraph(text))
    else:
        blocks.append(Paragraph("No classifier was asked for, or none could be trained."))
    blocks += _clusters(result, outcome)
    mean, fifth = "The mean distance of a graph to the others", "A graph's distance to its "
    fifth += f"nearest graph number {OUTLIER_NEIGHBOUR}"
    blocks += _farthest(outcome, outcome.anomaly, "Anomalies", mean)
    blocks += _farthest(outcome, outcome.outliers, "Outliers", fifth)
    return [Section(LEARNING, blocks)]


def scores(result: RunResult, outcome: Outcome) -> list[Score]:
    """Return the accuracies of the headline, each with the controls that were computed."""
    headline, found = result.headline, []
    for name, value in headline.items():
        title = name.removesuffix("-accuracy")
        of_model = title in _MODELS or title.startswith(_HOME)
        if title == name or of_model or not math.isfinite(value):
            continue
        draws = numbers_of(result.arrays.get(f"{title}-from-constant"))
        told = {
            SIZES: headline.get(f"{title}-from-sizes"),
            CONSTANT: float(draws.mean()) if draws.size else headline.get(f"{title}-from-constant"),
            MAJORITY: headline.get("majority"),
            CHANCE: 1.0 / len(outcome.classes) if outcome.classes else None,
        }
        controls = {k: v for k, v in told.items() if v is not None and math.isfinite(v)}
        found.append(Score(_classifier(title), value, controls, draws))
    return found


def verdict(score: Score, graphs: int, encoded: bool) -> tuple[bool, str]:
    """Return whether an accuracy beats its controls, and the sentences that say so.

    It does where it is above each of them, and above every draw of the constant embedding. The
    standard error is sqrt(p (1 - p) / N), of N graphs: what another sample of graphs would do.
    """
    needed = [SIZES, CONSTANT, MAJORITY] if encoded else [SIZES, MAJORITY]
    missing = [name for name in needed if name not in score.controls]
    lost = {name: value for name, value in score.controls.items() if score.ours <= value}
    text = f"{score.title}, {_per_cent(score.ours)}:"
    if lost:
        names = ", ".join(f"{name} ({_per_cent(value)})" for name, value in lost.items())
        text = f"{text} does not beat {names}. It is no evidence that the distances tell more."
        return False, text + _uncompared(missing)
    if not score.controls:
        return False, f"{text} no control was computed, so it shows nothing."
    as_good = int(np.count_nonzero(score.draws >= score.ours))
    if as_good:
        text = f"{text} above the mean of {CONSTANT}, but {as_good} of its {len(score.draws)} "
        text += "draws did as well or better. It is no evidence that the distances tell more."
        return False, text + _uncompared(missing)
    nearest = max(score.controls, key=lambda name: score.controls[name])
    lead = score.ours - score.controls[nearest]
    text = f"{text} above every control that was computed, the best of them {nearest}, by "
    text += f"{100.0 * lead:.1f} points."
    if graphs:
        error = math.sqrt(score.ours * (1.0 - score.ours) / graphs)
        text += f" Its standard error, of {counted(graphs, 'graph')}, is about "
        text += f"{100.0 * error:.1f} points"
        text += "; the lead is not more than two of these." if lead <= 2.0 * error else "."
    if encoded and score.draws.size > 1:
        text += " The embedding was encoded once, and another encoding would move the accuracy: "
        text += f"that of {CONSTANT} has a standard deviation of "
        text += f"{100.0 * float(score.draws.std(ddof=1)):.1f} points over its draws."
    return not missing, text + _uncompared(missing)


def _uncompared(missing: list[str]) -> str:
    return f" Not compared with {', '.join(missing)}, which the run does not have." * bool(missing)


def _accuracies(found: list[Score]) -> Table:
    """Return a row a classifier: its accuracy and all its controls."""
    rows: list[list[object]] = []
    for score in found:
        cells = {name: _tenth(value) for name, value in score.controls.items()}
        constant: object = cells.get(CONSTANT)
        if score.draws.size > 1:
            spread = 100.0 * float(score.draws.std(ddof=1))
            constant = f"{100.0 * score.controls[CONSTANT]:.1f} ± {spread:.1f}"
            constant += f" ({score.draws.size} draws)"
        controls = [cells.get(SIZES), constant, cells.get(MAJORITY), cells.get(CHANCE)]
        rows.append([score.title, _tenth(score.ours), *controls])
    headers = ["classifier", "from the distances", f"from {SIZES}", f"from {CONSTANT}"]
    caption = "Accuracy, cross-validated, in per cent, and what proves nothing. "
    caption += "± is the standard deviation over draws of the encoder."
    return Table([*headers, MAJORITY, CHANCE], rows, caption)


def _verdicts(result: RunResult, outcome: Outcome, found: list[Score]) -> list[Block]:
    encoded = result.config.get("privacy", "none") != "none"
    graphs = int(np.count_nonzero(outcome.known))
    told = [verdict(score, graphs, encoded) for score in found]
    blocks: list[Block] = [Paragraph(text) if good else Notice(text) for good, text in told]
    if not encoded:
        text = f"Nothing was encoded, so there is no control of the encoder on {CONSTANT}."
        blocks.append(Paragraph(text))
    return blocks


def _clusters(result: RunResult, outcome: Outcome) -> list[Block]:
    """Return how clusters agree with labels, and what is in them."""
    if not outcome.clusters:
        return []
    agreement: list[list[object]] = []
    inside: list[Block] = []
    for name, groups in outcome.clusters.items():
        counts = np.unique(groups, return_counts=True)[1]
        scored = [result.headline.get(f"{name}-{what}") for what in ("ari", "purity")]
        agreement.append([name, len(counts), int(counts.max()), *scored])
        inside.append(_contents(outcome, name, groups))
    caption = "Clusters beside labels. An adjusted Rand index of 0 is what chance gives, 1 is "
    caption += "agreement. Purity is never below the share of the commonest class"
    most = result.headline.get("majority")
    caption += "." if most is None else f", {most:.3f} here."
    headers = ["method", "clusters", "graphs in the largest", "adjusted Rand index", "purity"]
    return [Heading("Clusters"), Table(headers, agreement, caption), *inside]


def _contents(outcome: Outcome, name: str, groups: Integers) -> Table:
    """Return a row a cluster: its graphs, their mean size, their classes."""
    classes = outcome.classes if len(outcome.classes) <= NAMED_CLASSES else []
    rows: list[list[object]] = []
    for cluster in np.unique(groups).tolist():
        mine = groups == cluster
        held = [int(np.count_nonzero(outcome.labels[mine] == one)) for one in classes]
        size = float(outcome.sizes[mine].mean())
        rows.append([f"cluster {cluster}", int(mine.sum()), size, *held])
    headers = ["", "graphs", "nodes, mean", *(f"class {one}" for one in classes)]
    return Table(headers, rows, f"The clusters of {name}, with their graphs in all and by class.")


def _farthest(outcome: Outcome, score: Array | None, title: str, meaning: str) -> list[Block]:
    """Return the graphs that are farthest from others by a score; nothing where there is none."""
    if score is None:
        return []
    order = np.argsort(-score, kind="stable")[:MOST_ANOMALOUS].tolist()
    median = float(np.median(score))
    names, owners = outcome.names, outcome.owners
    rows: list[list[object]] = [
        [
            names[k],
            owners[k],
            int(outcome.sizes[k]),
            int(outcome.labels[k]) if outcome.known[k] else None,
            float(score[k]),
            float(score[k]) / median if median > 0.0 else None,
        ]
        for k in order
    ]
    text = f"{meaning}; its median is {number(median)}."
    sizes = outcome.sizes.astype(np.float64)
    middle = np.abs(sizes - np.median(sizes))
    found = rank_correlation(score, middle)
    if found is not None:
        text += " Rank correlation with how far a graph's number of nodes is from the median: "
        text += f"{found:.2f}."
    headers = ["graph", "owner", "nodes", "label", "score", "times the median"]
    caption = "The most anomalous graphs: an order to look at them in, not a test."
    return [Heading(title), Paragraph(text), Table(headers, rows, caption)]


def _classifier(name: str) -> str:
    if name == "svm":
        return "SVM on exp(-gamma D)"
    nearest = re.fullmatch(r"knn(\d+)", name)
    return f"{nearest.group(1)} nearest graphs" if nearest else name


def _per_cent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _tenth(share: float) -> float:
    return round(100.0 * share, 1)
