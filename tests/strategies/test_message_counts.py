"""How many messages a device gets in a whole run, and that fewer of them end at the same result.

Counts are deterministic. The table is that of docs/explanation/messages.md.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from trellis.apps import run
from trellis.sim import grid

GRAPH = {"nodes": 12, "signals": "40"}
PRECISION = {"variables": 18, "blocks": 3, "samples": "80"}
ONE_SHOT = {**PRECISION, "method": "one-shot"}
FUSED = {"method": "fused", "penalty": "group"}
SUM = {"privacy": "dp", "clients": 4}

# study, settings, what makes it as it was, messages now, messages as it was
TABLE = [
    ("consensus-graph", {**GRAPH, "method": "one-shot"}, {"method": "fedgl"}, 2, 19),
    ("joint-precision", ONE_SHOT, {"method": "group"}, 2, 13),
    ("joint-precision", {**ONE_SHOT, "penalty": "fused"}, FUSED, 2, 15),
    ("joint-precision", {**ONE_SHOT, "path": 4}, {"method": "group"}, 2, 32),
]
# Where the result is, and what brings plain rounds so close to the optimum that they stand for it.
RESULT = {
    "consensus-graph": (("consensus", "weights"), {"tolerance": 1e-9, "rounds": 500}),
    "joint-precision": (("sparse", "precision"), {"tolerance": 1e-11, "rounds": 2000}),
}


@pytest.fixture
def counted(monkeypatch):
    """Return a function that runs a study and tells the most messages that one device got."""
    counts: Counter[int] = Counter()
    push = grid.LocalGrid.push_messages

    def counting(self, messages):
        messages = list(messages)
        counts.update(message.metadata.dst_node_id for message in messages)
        return push(self, messages)

    monkeypatch.setattr(grid.LocalGrid, "push_messages", counting)

    def counted_run(study, settings):
        counts.clear()
        return run(study, settings), max(counts.values())

    return counted_run


@pytest.mark.parametrize(("study", "settings", "plain", "now", "before"), TABLE)
def test_half_the_messages_end_as_close_to_the_optimum(
    study, settings, plain, now, before, counted
):
    found, messages = counted(study, settings)
    expected, as_it_was = counted(study, {**settings, **plain})
    assert messages == now
    # The change of the last round before may be just above or below the tolerance: by the BLAS.
    assert abs(as_it_was - before) <= 1
    names, tight = RESULT[study]
    optimum = run(study, {**settings, **plain, **tight})
    tolerance = float(found.config["tolerance"])
    for name in names:
        exact = optimum.arrays[name]

        def away(array, exact=exact):
            return np.linalg.norm(array - exact) / max(np.linalg.norm(exact), 1e-12)

        assert away(found.arrays[name]) <= max(away(expected.arrays[name]), tolerance), name


@pytest.mark.parametrize("settings", [{**GRAPH, **SUM}, {**GRAPH, **SUM, "method": "fedavg"}])
def test_one_noisy_sum_takes_seven_messages_at_most(settings, counted):
    assert counted("consensus-graph", settings)[1] <= 7


def test_one_noisy_sum_of_concordances_takes_seven_messages_at_most(counted):
    assert counted("joint-precision", {**PRECISION, **SUM})[1] <= 7
