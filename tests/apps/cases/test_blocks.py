"""Numbers with their errors as people read them."""

from __future__ import annotations

import math

import pytest

from trellis.apps.cases.blocks import edges_table, with_error
from trellis.apps.cases.evidence import Edge, Estimate


@pytest.mark.parametrize(
    ("one", "percent", "shown"),
    [
        (Estimate(0.9754, 0.0101, 5), True, "97.5 % ± 1.0"),
        (Estimate(-0.8754, 0.2312, 5), False, "-0.88 ± 0.23"),
        (Estimate(12.3456, 0.00345, 5), False, "12.3456 ± 0.0034"),
        (Estimate(1234.5, 56.0, 5), False, "1234 ± 56"),
        (Estimate(-4.0, 0.0, 5), False, "-4"),
        (Estimate(0.5, math.nan, 1), True, "50.0 %"),
        (None, False, "\N{EN DASH}"),
    ],
)
def test_a_mean_has_no_more_places_than_its_error(one, percent, shown):
    assert with_error(one, percent) == shown


def test_edges_say_of_how_many_they_are():
    edges = [Edge(("a", "b"), 3, 0.123), Edge(("a", "c"), 1, -0.5)]
    assert edges_table(edges, 3).caption == "All 2 edges that any split found."
    table = edges_table(edges, 3, most=1)
    assert table.caption == "The 1 of 2 edges that come back most often."
    assert list(table.rows) == [["a", "b", 0.12, "3 of 3"]]
