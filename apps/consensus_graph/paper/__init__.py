"""The paper's experiments, by one command each: ``trellis paper consensus-graph [FIGURE ...]``.

Synthetic graphs are in `synthetic`, students and pictures of objects in `real_data`; what
privacy costs, and from how many clients on it pays, in `private`.
"""

from __future__ import annotations

# Name of a figure -> module:function; read by `apps.experiments.figures`, so nothing heavy here.
FIGURES: dict[str, str] = {
    "table-mcc": "synthetic:table_mcc",
    "fig2": "synthetic:figure_2",
    "fig3": "synthetic:figure_3",
    "table1": "synthetic:table_1",
    "fig5": "synthetic:figure_5",
    "fig6": "synthetic:figure_6",
    "private": "private:private",
    "break-even": "private:break_even",
    "fig7": "real_data:figure_7",
    "table2": "real_data:table_2",
    "fig9": "real_data:figure_9",
}
ON_REQUEST: dict[str, str] = {
    "tune": "synthetic:tune",
}
