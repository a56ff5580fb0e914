"""The paper's experiments, by one command each: ``trellis paper server-graph [FIGURE ...]``.

The paper's setting is in `synthetic`; `speed` takes real runs apart.
"""

from __future__ import annotations

# Name of a figure -> module:function; read by `apps.experiments.figures`, so nothing heavy here.
FIGURES: dict[str, str] = {
    "private": "private:private",
    "break-even": "private:break_even",
    "speed": "speed:speed",
}
ON_REQUEST: dict[str, str] = {}
