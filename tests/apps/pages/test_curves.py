"""Curves and what points at their values."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.pages import plots


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def labels(axis):
    """Return the texts beside an axis that fall inside its span, of large and small ticks."""
    low, high = axis.get_view_interval()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [
        t.label1.get_text() for t in ticks if low <= t.get_loc() <= high and t.label1.get_text()
    ]


def test_a_mark_is_a_line_at_x_or_a_ring_at_a_point():
    x = np.geomspace(0.1, 0.6, 5)
    figure = plots.mark(plots.curves(x, {"y": x}, log_x=True), float(x[2]))
    assert list(figure.axes[0].lines[-1].get_xdata()) == [x[2], x[2]]
    assert words(figure) == ["chosen"]
    figure = plots.mark(plots.curves(x, {"y": x}), 0.1, 0.2, "here $")
    assert [list(d) for d in figure.axes[0].lines[-1].get_data()] == [[0.1], [0.2]]
    assert words(figure) == ["here \\$"]


@pytest.mark.parametrize("low", [0.11, 0.02, 0.01])
def test_a_short_logarithmic_axis_has_labels_between_the_powers_of_ten(low):
    x = np.geomspace(low, 0.6, 5)
    figure = plots.curves(x, {"y": x}, log_x=True, log_y=True)
    figure.draw_without_rendering()
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        found = labels(axis)
        assert {"0.2", "0.5"} <= set(found)
        assert len(found) <= 7


def test_a_long_logarithmic_axis_has_whole_powers_of_ten_only():
    x = np.geomspace(1e-7, 50.0, 5)
    figure = plots.curves(x, {"y": x}, log_x=True)
    figure.draw_without_rendering()
    assert all(text.startswith("10") for text in labels(figure.axes[0].xaxis))


def test_a_level_is_a_named_line_across():
    curve = {"gap": [np.nan, 10.0, 1e-7]}
    figure = plots.level(plots.curves([1, 2, 3], curve, log_y=True), 1e-6, "tolerance")
    assert list(figure.axes[0].lines[-1].get_ydata()) == [1e-6, 1e-6]
    assert words(figure) == ["tolerance"]
    figure = plots.level(plots.curves([1, 2, 3], curve, log_y=True), 0.0, "tolerance")
    assert words(figure) == []


@pytest.mark.parametrize(("x", "y"), [(np.nan, None), (0.0, None), (0.2, np.nan)])
def test_a_point_that_cannot_be_drawn_is_not_marked(x, y):
    figure = plots.mark(plots.curves([0.1, 0.2], {"y": [1.0, 2.0]}, log_x=True), x, y)
    assert len(figure.axes[0].lines) == 1


def test_a_curve_like_another_has_its_colour_and_is_dashed():
    x = np.arange(3.0)
    figure = plots.curves(x, {"a": x, "b": x, "b again": x}, like={"b again": "b"})
    first, second, again = figure.axes[0].lines
    assert again.get_color() == second.get_color() != first.get_color()
    assert (second.get_linestyle(), again.get_linestyle()) == ("-", "--")


def test_the_name_of_an_axis_has_room_beside_the_labels_that_are_drawn():
    """A taller figure, which many curves make, has more labels, and longer ones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    lines = {f"method {k}": [-15.7, -0.4 - k] for k in range(6)}
    figure = plots.curves([1, 300], lines, y_label="deviation, dB")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.axes[0].yaxis.label.get_window_extent(canvas.get_renderer())
    assert box.x0 >= 0.0
