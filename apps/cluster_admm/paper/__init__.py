"""The paper's experiments, by one command each: ``trellis paper cluster-admm [FIGURE ...]``.

Regression is in `synthetic`, noisy sums in `private`, clusters to be found in `clusters`, `images`
by the data of `image_data`.
"""

from __future__ import annotations

# Name of a figure -> module:function; read by `apps.experiments.figures`, so nothing heavy here.
FIGURES: dict[str, str] = {
    "table-nmsd": "synthetic:table_nmsd",
    "fig1": "synthetic:figure_1",
    "fig2": "synthetic:figure_2",
    "fig3": "synthetic:figure_3",
    "fig4": "synthetic:figure_4",
    "fig5": "synthetic:figure_5",
    "fig6": "synthetic:figure_6",
    "fig7": "synthetic:figure_7",
    "mixing": "synthetic:mixing",
    "clusters": "clusters:found_clusters",
    "choose-q": "clusters:choose_q",
    "private": "private:private",
    "break-even": "private:break_even",
    "hidden-choice": "hidden:hidden_choice",
    "fig8": "images:figure_8",
    "fig9": "images:figure_9",
    "fig10": "images:figure_10",
    "fig11": "images:figure_11",
    "fig12": "images:figure_12",
}
ON_REQUEST: dict[str, str] = {}
