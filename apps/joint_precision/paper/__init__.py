"""The paper's experiments, by one command each: ``trellis paper joint-precision [FIGURE ...]``.

Synthetic networks are in `synthetic`, time and bytes in `timing` and `cost`, brain scans in
`real_data`, noise in sums in `private`; ``abide`` is fig9 under the name of its data.
"""

from __future__ import annotations

# Name of a figure -> module:function; read by `apps.experiments.figures`, so nothing heavy here.
FIGURES: dict[str, str] = {
    "table-auc": "synthetic:table_auc",
    "fig5": "timing:figure_5",
    "fig6": "synthetic:figure_6",
    "fig7": "synthetic:figure_7",
    "fig8": "cost:figure_8",
    "table3": "cost:table_3",
    "table-privacy": "synthetic:table_privacy",
    "private": "private:table_private",
    "break-even": "private:figure_break_even",
    "fig9": "real_data:figure_9",
    "abide-sites": "real_data:abide_sites",
}
ON_REQUEST: dict[str, str] = {
    "abide": "real_data:figure_9",
}
