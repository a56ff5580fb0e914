"""Table 1 as a picture: our accuracies with their errors, the paper's beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.pages.figure import PALETTE, plain, style

from .table_verdicts import PAPER, Line

CONTROLS = ("majority", "number of nodes", "number of nodes, halves")


@style()
def dots(lines: Mapping[tuple[str, str], Line], sets: Sequence[str]) -> Any:
    """Draw one panel a data set: controls, then the paper's rows; bars are two standard errors.

    The paper's crosses have the deviation that it prints, which is over folds.
    """
    from matplotlib.figure import Figure

    names = [*CONTROLS, *PAPER]
    figure = Figure(figsize=(2.4 + 2.3 * len(sets), 0.32 * len(names) + 1.0), layout="constrained")
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    places = np.arange(len(names))[::-1]
    for axes, data in zip(panels, sets, strict=True):
        for place, name in zip(places, names, strict=True):
            line = lines[data, name]
            error = 2.0 * np.nan_to_num(line.error)
            look: Any = {
                "color": PALETTE[0],
                "markersize": 4,
                "label": "ours, two standard errors over seeds",
            }
            axes.errorbar(line.mean, place + 0.12, xerr=error, fmt="o", **look)
            if data in PAPER.get(name, {}):
                mean, deviation = PAPER[name][data]
                look = {
                    "color": PALETTE[1],
                    "markersize": 5,
                    "label": "paper, with the ± it prints",
                }
                axes.errorbar(mean, place - 0.18, xerr=deviation, fmt="x", **look)
        axes.set_title(plain(data), fontsize=9)
        axes.set_xlabel("accuracy in per cent")
    panels[0].set_yticks(places, [plain(name) for name in names], fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    figure.legend(
        list(once.values()), list(once), loc="outside lower center", ncols=2, fontsize=8.5
    )
    return figure
