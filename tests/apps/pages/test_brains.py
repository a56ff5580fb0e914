"""Connectomes: every edge is drawn where its nodes stand, in the colour of its kind."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.path import Path
from matplotlib.text import Text

from trellis.apps.pages import plots
from trellis.apps.pages.brains.connectome import connectome, connectomes
from trellis.apps.pages.figure import PRIVATE, SHARED


def graph(p=12, density=0.3, seed=0):
    rng = np.random.default_rng(seed)
    half = np.triu(rng.normal(0.0, 0.2, (p, p)) * (rng.random((p, p)) < density), 1)
    return half + half.T


def head(p=12):
    return np.random.default_rng(1).normal(size=(p, 3)) * [60.0, 80.0, 50.0]


def lines(axes):
    """Return what was drawn as edges: ends (n, 2, 2), colours (n, 3), widths (n,)."""
    (found,) = (
        c for c in axes.collections if isinstance(c, PathCollection) and c.get_zorder() == 2
    )
    # A path has all lines of one width and colour.
    begins = [np.flatnonzero(path.codes == Path.MOVETO) for path in found.get_paths()]
    step = 2 if Path.LINETO in found.get_paths()[0].codes else 3
    ends = [
        path.vertices[[k, k + step - 1]]
        for path, places in zip(found.get_paths(), begins, strict=True)
        for k in places
    ]
    counts = [places.size for places in begins]
    colours = np.repeat(found.get_edgecolor()[:, :3], counts, axis=0)
    return np.array(ends), colours, np.repeat(np.asarray(found.get_linewidth()), counts)


def dots(axes):
    """Return where nodes were drawn, colours beside them."""
    return [
        (place, to_rgb(found.get_facecolor()[0]))
        for found in axes.collections
        if found.get_zorder() == 3
        for place in np.asarray(found.get_offsets())
    ]


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def is_colour(found, name):
    return np.all(np.isclose(found, to_rgb(name)), axis=-1)


def test_every_nonzero_pair_is_one_line_between_its_nodes_however_weak():
    partials, places = graph(), head()
    partials[0, 1] = partials[1, 0] = 1e-12
    figure = connectome(partials, places)
    first, second = np.nonzero(np.triu(partials, 1))
    assert len(figure.axes) == 3
    for axes, (x, y) in zip(figure.axes, ((0, 1), (1, 2), (0, 2)), strict=True):
        ends, colours, widths = lines(axes)
        drawn = {tuple(np.round(line.ravel(), 9)) for line in ends}
        wanted = {
            tuple(np.round(places[[a, b]][:, [x, y]].ravel(), 9))
            for a, b in zip(first, second, strict=True)
        }
        assert drawn == wanted
        # Light lines come first, so that heavy ones lie above them.
        values = partials[first, second]
        assert np.all(np.diff(widths) >= 0.0)
        flat = {tuple(np.round(line.ravel(), 9)): k for k, line in enumerate(ends)}
        for a, b, value in zip(first, second, values, strict=True):
            k = flat[tuple(np.round(places[[a, b]][:, [x, y]].ravel(), 9))]
            assert is_colour(colours[k], SHARED) == (value > 0.0)
    assert legend(figure) == [
        f"positive ({np.sum(values > 0)})",
        f"negative ({np.sum(values < 0)})",
    ]


def test_the_head_holds_all_nodes_even_where_they_lie_in_a_plane():
    for places in (head(), head() * [1.0, 1.0, 0.0], np.zeros((12, 3))):
        for axes in connectome(graph(), places).axes:
            (outline,) = axes.patches
            radius = np.array([outline.width, outline.height]) / 2.0
            for place, _ in dots(axes):
                assert np.linalg.norm((place - outline.center) / radius) < 1.0


def test_classes_of_edges_take_the_place_of_signs():
    partials = graph()
    common = np.abs(partials) > 0.2
    figure = connectome(partials, common=common)
    _, colours, _ = lines(figure.axes[0])
    count = np.count_nonzero(np.triu(common, 1))
    assert np.sum(is_colour(colours, SHARED)) == count
    rest = np.count_nonzero(np.triu(partials, 1)) - count
    assert np.sum(is_colour(colours, PRIVATE)) == rest
    assert legend(figure) == [f"common to all clients ({count})", f"not common ({rest})"]


def test_on_a_circle_groups_stand_together_and_edges_bend_inwards():
    groups = ["b", "a", "", "b", "a", None, "b", "a", "b", "a", "b", "a"]
    figure = connectome(graph(), groups=groups)
    (axes,) = figure.axes
    colour = {}
    for place, found in dots(axes):
        angle = (np.pi / 2 - np.arctan2(place[1], place[0])) % (2.0 * np.pi)
        colour[round(float(angle), 6)] = found
        assert np.linalg.norm(place) == pytest.approx(1.0)
    around = [colour[angle] for angle in sorted(colour)]
    assert len(around) == 12
    assert [around.count(found) for found in dict.fromkeys(around)] == [5, 5, 2]
    changes = sum(a != b for a, b in pairwise(around))
    assert changes == 2
    assert legend(figure)[2:] == ["b", "a"]
    (edges,) = (c for c in axes.collections if c.get_zorder() == 2)
    for path in edges.get_paths():
        assert list(path.codes[:3]) == [Path.MOVETO, Path.CURVE3, Path.CURVE3]
        for start, bend, end in path.vertices.reshape(-1, 3, 2):
            assert np.linalg.norm(bend) <= np.linalg.norm((start + end) / 2.0) + 1e-12


def test_the_strongest_edges_are_drawn_and_the_rest_is_told():
    partials, places = graph(30, 1.0), head(30)
    figure = connectome(partials, places, max_edges=40)
    first, second = np.triu_indices(30, 1)
    best = np.argsort(np.abs(partials[first, second]))[-40:]
    wanted = np.stack([places[first[best], :2], places[second[best], :2]], axis=1)
    drawn = lines(figure.axes[0])[0]
    order = [np.lexsort(ends.reshape(-1, 4).T) for ends in (drawn, wanted)]
    np.testing.assert_allclose(drawn[order[0]], wanted[order[1]])
    assert "the 40 strongest of 435 edges" in words(figure)
    assert sum(int(text.split("(")[1][:-1]) for text in legend(figure)) == 435


@pytest.mark.parametrize("title", ["", "client $1"])
def test_the_note_on_edges_left_out_touches_no_name_and_no_title(title):
    names = [f"node{k}" for k in range(54)]
    figure = connectome(graph(54, 1.0), None, names, title, max_edges=40)
    figure.draw_without_rendering()
    texts = {text.get_text(): text.get_window_extent() for text in figure.axes[0].texts}
    note = texts.pop("the 40 strongest of 1,431 edges")
    assert len(texts) == 54
    assert not any(note.overlaps(name) for name in texts.values())
    assert figure.bbox.fully_contains(note.x0, note.y1)
    assert (title != "") == figure.get_suptitle().startswith("client")


def test_several_graphs_share_one_scale_of_widths():
    partials = graph()
    figure = connectomes([partials, 0.5 * partials], ["a", "b"])
    wide, narrow = (lines(axes)[2] for axes in figure.axes)
    assert narrow.max() < 0.6 * wide.max()


@pytest.mark.parametrize(("places", "panels"), [(None, 8), (head(), 24)])
def test_truth_stands_beside_what_was_learned(places, panels):
    learned, true = [graph(seed=k) for k in range(4)], [graph(seed=9 + k) for k in range(4)]
    both = np.array([(a != 0) & (b != 0) for a, b in zip(learned, true, strict=True)])
    figure = connectomes(learned, list("abcd"), places, truth=true, common=both)
    assert len(figure.axes) == panels
    titles = {axes.get_label() for axes in figure.axes}
    assert titles == {f"{k}, {kind}" for k in "abcd" for kind in ("true", "learned")}
    written = {text.get_text() for text in figure.findobj(Text)}
    assert titles <= written
    for axes in figure.axes:
        name, kind = axes.get_label().split(", ")
        k = "abcd".index(name)
        matrix = (learned if kind == "learned" else true)[k]
        _, colours, _ = lines(axes)
        assert len(colours) == np.count_nonzero(np.triu(matrix, 1))
        assert np.sum(is_colour(colours, SHARED)) == np.count_nonzero(np.triu(both[k], 1))


def test_names_are_text_and_never_a_formula_or_markup():
    evil = ["$\\frac{$", "<b>\"'&", "50 $ to 60 $", *(f"n{k}" for k in range(9))]
    text = plots.svg(connectome(graph(), None, evil, "$x$ <i>", evil), "label")
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "<i>" not in text
    assert "$x$" in text
    plots.svg(connectomes([graph()], ["$\\frac{$"], None, evil, evil))


def test_names_are_left_out_where_they_could_not_be_read():
    assert len(words(connectome(graph(60), names=[f"n{k}" for k in range(60)]))) == 60
    assert not words(connectome(graph(61), names=[f"n{k}" for k in range(61)]))


def test_an_empty_graph_and_a_single_node_are_drawn():
    for size in (1, 2, 12):
        figure = connectome(np.zeros((size, size)))
        assert len(dots(figure.axes[0])) == size
        assert legend(figure) == ["positive (0)", "negative (0)"]


def test_more_groups_than_looks_are_grey_not_an_error():
    figure = connectome(graph(40), groups=[f"g{k}" for k in range(40)])
    assert legend(figure)[2:] == [f"g{k}" for k in range(12)]
    assert len({colour for _, colour in dots(figure.axes[0])}) == 5


def test_what_does_not_fit_is_refused_with_a_reason():
    with pytest.raises(ValueError, match=r"shape \(11, 3\); 12 nodes need \(12, 3\)"):
        connectome(graph(), head(11))
    with pytest.raises(ValueError, match="finite"):
        connectome(graph(), np.full((12, 3), np.nan))
    with pytest.raises(ValueError, match="2 groups for 12 nodes"):
        connectome(graph(), groups=["a", "b"])


def test_the_same_graph_gives_the_same_bytes():
    texts = {plots.svg(connectome(graph(), head(), groups=["a", "b"] * 6)) for _ in range(2)}
    assert len(texts) == 1
