"""What the gromov-wasserstein study shows of a run: distances, pictures, accuracies, privacy.

Reads the arrays that `outcome` names, ``codes`` for the length of a row, the draws of the
controls (``svm-from-constant``, ...), the headline's accuracies, and the rounds' ``loss`` and
``train-``, ``validation-``, ``test-accuracy``. What is missing is left out.
"""

from __future__ import annotations

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.pages import plots
from trellis.apps.pages.page import FigureBlock, Gallery, Paragraph, Section, Table
from trellis.apps.pages.wording import number

from .distances import DISTANCES, distances_section, picture_section
from .export import export_graphs
from .learning import learning_section
from .outcome import Outcome
from .privacy import privacy
from .words import HOME, SPLITS

__all__ = ["export_graphs", "sections"]

TRAINING = "Training the shared model"
AT_HOME = "What stays with the clients"


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `trellis.apps.pages.report.write_report`."""
    outcome = Outcome.of(result)
    found: list[Section] = []
    if outcome is None:
        text = "The run ended before embeddings were released."
        if "sizes" in result.arrays:
            text = "The run's arrays do not fit together, so its graphs cannot be shown."
        found.append(Section(DISTANCES, [Paragraph(text)]))
    else:
        found += [distances_section(result, outcome), *picture_section(result, outcome)]
        found += learning_section(result, outcome)
    return [*found, *_training(result), *_at_home(result), privacy(result, outcome)]


def _training(result: RunResult) -> list[Section]:
    """Return the curves of the rounds: the loss, and the accuracies of the three splits."""
    figures = [*_figure(result, "Loss", ["loss"], "mean over labelled items")]
    what = "graphs" if result.config.get("task", "node") == "graph" else "nodes"
    names = [f"{split}-accuracy" for split in SPLITS]
    note = f"Accuracy in telling labels of {what}, of the weights that a round began with."
    longest = "in lengths of the longest gradient"
    figures += _figure(result, "Noise of the mean gradient", ["noise"], longest)
    figures += _figure(result, "Accuracy", names, f"share of {what} that are right", note)
    return [Section(TRAINING, [Gallery(figures)])] if figures else []


def _at_home(result: RunResult) -> list[Section]:
    """Return how the models do that clients keep for themselves; nothing where none was told."""
    told = {
        what: result.headline[f"home-{name}-accuracy"]
        for name, what in HOME.items()
        if f"home-{name}-accuracy" in result.headline
    }
    if not told:
        return []
    what = "graphs" if result.config.get("task", "node") == "graph" else "nodes of graphs"
    rows: list[list[object]] = [[name, round(100.0 * value, 1)] for name, value in told.items()]
    text = "Every client makes a model of its own from its raw graphs and the shared weights, and "
    text += "keeps the one that does best on its own graphs. It is sent to nobody, so it costs no "
    text += "privacy. These accuracies are of simulated clients, gathered for evaluation."
    caption = f"Accuracy in per cent on {what} of the clients that no model was trained with."
    return [Section(AT_HOME, [Paragraph(text), Table(["model", "accuracy"], rows, caption)])]


def _figure(
    result: RunResult, title: str, names: list[str], y_label: str, note: str = ""
) -> list[FigureBlock]:
    """Return one figure with the columns of the metrics that have two numbers or more."""
    x: dict[str, list[float]] = {}
    y: dict[str, list[float]] = {}
    for name in names:
        rows = [
            (row.get("round", k + 1.0), row[name])
            for k, row in enumerate(result.metrics)
            if np.isfinite(row.get(name, np.nan))
        ]
        if len(rows) > 1:
            short = name.removesuffix("-accuracy")
            x[short], y[short] = ([one[k] for one in rows] for k in (0, 1))
    if not y:
        return []
    ends = [f"{name} {number(line[0])} to {number(line[-1])}" for name, line in y.items()]
    text = f"First to last round: {', '.join(ends)}. {note}".strip()
    figure = plots.curves(x, y, y_label=y_label)
    return [FigureBlock(title, plots.svg(figure, f"{title} against the round. {text}"), text)]
