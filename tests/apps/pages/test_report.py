"""The report: complete, escaped, self-contained and the same every time."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from tests.apps.pages.pages import Page, leave_out_pictures
from trellis.apps.common.results import RunResult
from trellis.apps.pages import plots
from trellis.apps.pages.page import Table
from trellis.apps.pages.repeat import command, flower_command
from trellis.apps.pages.report import (
    FigureBlock,
    Gallery,
    Paragraph,
    Section,
    Wording,
    write_index,
    write_report,
)
from trellis.apps.pages.wording import duration, number, size

EVIL = '<script>alert("x")</script>'
SVG = "{http://www.w3.org/2000/svg}"


def run(**changes) -> RunResult:
    rows = [
        {
            "round": float(t),
            "seconds": 0.1,
            "clients": 2.0,
            "failed": float(t == 2),
            "bytes-up": 200.0,
            "bytes-down": 300.0,
            "objective": -4.25 - t,
            "change": 10.0**-t,
            "mcc": 0.1 * t,
            "spectral-gap": 0.5,
        }
        for t in range(1, 6)
    ]
    values = {
        "study": "consensus-graph",
        "seed": 7,
        "engine": "local",
        "config": {"rho": 0.3, "tolerance": 1e-4, "method": "fedgl", "signals": "20, 40"},
        "arrays": {"weights": np.ones((2, 3))},
        "metrics": rows,
        "clients": [
            {"name": "north", "count": 20, "rounds": 5, "failures": 0},
            {"name": EVIL, "count": 4321, "rounds": 4, "failures": 1},
        ],
        "variables": ["a", "b", "c"],
        "headline": {"mcc": 0.5},
        "notes": [f"round 2: {EVIL} failed"],
        "bytes_up": 1000,
        "bytes_down": 1_500_000,
        "seconds": 75.0,
        "started": "2025-01-01T00:00:00Z",
        "status": "completed",
        "versions": {"python": "3.11.0", "trellis": "0.1.0"},
    }
    return RunResult(**{**values, **changes})


LEDGER = {
    "mode": "dp",
    "claim": "noised once",
    "neighbouring": "one signal replaced",
    "adversary": "the server",
    "not_covered": "the number of signals",
    "epsilon": 1.5,
    "delta": 1e-5,
    "clients": [
        {
            "name": EVIL,
            "epsilon": 1.5,
            "delta": 1e-5,
            "events": [
                {"mechanism": "gaussian", "what": "mean", "round": t, "sigma": 0.25 * (t + 1)}
                for t in range(3)
            ],
        },
        {"name": "south"},
    ],
}


def section() -> Section:
    figure = plots.curves([1, 2], {EVIL: [1.0, 2.0], "$x$": [2.0, 3.0]}, title="50 $ or 60 $")
    block = FigureBlock("Findings", plots.svg(figure, EVIL), EVIL)
    table = Table([EVIL, "n"], [[EVIL, 3]], EVIL)
    return Section("What was learned", [Paragraph(EVIL), Gallery([block]), table])


def test_the_report_is_complete_and_self_contained(tmp_path):
    result = run(ledger=LEDGER)
    result.save(tmp_path)
    page = Page.read(write_report(result, [section()], tmp_path / "report.html"))
    page.assert_private()
    assert page.headings == [
        "consensus-graph",
        "To know before using this result",
        "What was learned",
        "How it converged",
        "What was sent",
        "What privacy was spent",
        "How to repeat it",
        "Files beside this report",
    ]
    for text in (
        "5 rounds with 2 clients in 1 min 15 s",
        "clients' MCC (threshold 0.2) 0.5",
        "Converged: the last change, 1e-05, is within the tolerance of 0.0001",
        "1.5 MB",
        "1,500,000",
        "failed or rejected: 1.",
        "4,321",
        "one signal replaced",
        "0.25 to 0.75",
        "trellis run consensus-graph --seed 7 --engine local",
        "metrics.csv",
        "2 x 3",
    ):
        assert text in page.words, text
    links = {attributes["href"] for attributes in page.tags("a")}
    assert {"run.json", "metrics.csv", "result.npz", "report.html"} <= links


def test_data_is_text_never_markup(tmp_path):
    result = run(ledger=LEDGER, study="a<b", headline={EVIL: 1.0}, engine=EVIL, status=EVIL)
    path = write_report(result, [section()], tmp_path / "report.html")
    assert "<script" not in path.read_text()
    page = Page.read(path)
    page.assert_private()
    # note, client, ledger, header, status, headline, and paragraph, legend, caption, table
    assert page.words.count(EVIL) >= 10
    assert "50 $ or 60 $" in page.words
    write_index([result, run(status="failed", notes=[EVIL])], tmp_path / "index.html")
    assert "<script" not in (tmp_path / "index.html").read_text()


def test_the_same_result_gives_the_same_bytes(tmp_path):
    path = tmp_path / "report.html"
    first = write_report(run(), [section()], path).read_bytes()
    # A second writing, with the first one in place and the caller's own style set.
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30.0}):
        assert write_report(run(), [section()], path).read_bytes() == first


@pytest.mark.parametrize(
    ("ledger", "config", "texts"),
    [
        ({}, {}, ["Nothing was noised", "none: not noised", "The server sees every reply"]),
        ({"mode": "none", "claim": "None at all."}, {}, ["Nothing was noised", "None at all."]),
        ({"mode": "paper", "claim": "NOT PRIVATE."}, {}, ["nothing was noised", "NOT PRIVATE."]),
        ({"mode": "paper", "epsilon": 2.0}, {}, ["not a guarantee", "= 2 (the paper's claim)"]),
        ({}, {"privacy": "dp"}, ["recorded no ledger"]),
        ({"clients": [{"name": "n", "epsilon": 3.0}]}, {"privacy": "dp"}, ["= 3 (dp)"]),
    ],
)
def test_privacy_is_told_plainly(tmp_path, ledger, config, texts):
    result = run(ledger=ledger, config=config, metrics=[])
    page = Page.read(write_report(result, [], tmp_path / "report.html"))
    for text in texts:
        assert text in page.words, text


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [(1e-9, "Not converged: the last change"), (0.0, "No tolerance was set"), (None, "5 rounds")],
)
def test_the_report_says_whether_it_converged(tmp_path, monkeypatch, tolerance, text):
    leave_out_pictures(monkeypatch)
    result = run(config={"tolerance": tolerance})
    assert text in Page.read(write_report(result, [], tmp_path / "r.html")).words


@pytest.mark.parametrize(
    ("gaps", "tolerance", "text"),
    [
        ([np.nan, 5.0, 4e-7], 1e-6, "Converged: the duality gap, 4e-07, is within the tolerance"),
        ([np.nan, 5.0, 4e-5, np.nan], 1e-6, "Not converged: the duality gap, 4e-05, exceeds the"),
        ([np.nan, np.nan], 1e-6, "No duality gap was certified"),
        ([np.nan, np.inf], 1e-6, "No duality gap was certified"),
        ([3.0, 0.5], 0.0, "No tolerance was set; the duality gap, 0.5, bounds"),
        ([4e-7], 1e-6, "1 round in 1 min 15 s. Converged: the duality gap, 4e-07"),
    ],
)
def test_where_rounds_have_a_gap_it_decides(tmp_path, gaps, tolerance, text):
    rows = [{"round": k + 1.0, "gap": gap, "change": 0.0} for k, gap in enumerate(gaps)]
    result = run(metrics=rows, config={"tolerance": tolerance})
    path = write_report(result, [], tmp_path / "r.html")
    page = Page.read(path)
    page.assert_private()
    assert text in page.words
    assert "the last change" not in page.words
    figures = " ".join(str(picture["aria-label"]) for picture in page.tags("svg"))
    drawn = len(gaps) > 1 and bool(np.any(np.isfinite(gaps)))
    assert ("Duality gap against the round" in figures) == drawn
    assert (">tolerance</text>" in path.read_text()) == (drawn and tolerance > 0.0)


def test_a_study_has_words_of_its_own(tmp_path, monkeypatch):
    leave_out_pictures(monkeypatch)
    wording = Wording({"mcc": "agreement"}, headline=("edges", "mcc"))
    result = run(headline={"rounds": 5.0, "mcc": 0.5, "edges": 7.0, "re": 0.1})
    words = Page.read(write_report(result, [], tmp_path / "r.html", wording)).words
    assert "agreement 0.5" in words
    assert "clients' relative error 0.1" in words
    assert "threshold 0.2" not in words
    assert "rounds 5" in words
    index = {"consensus-graph": wording}
    words = Page.read(write_index([result], tmp_path / "index.html", index)).words
    assert "completed edges: 7; agreement: 0.5 5 1 min 15 s" in words
    words = Page.read(write_index([result], tmp_path / "index.html")).words
    assert (
        "clients' MCC (threshold 0.2): 0.5; edges: 7; clients' relative error: 0.1 5 1 min" in words
    )


def test_a_run_that_failed_at_once_still_has_a_report(tmp_path):
    result = RunResult("server-graph", 1, "flower", {}, status="failed", notes=["ValueError: no"])
    page = Page.read(write_report(result, [], tmp_path / "report.html"))
    page.assert_private()
    assert "What went wrong" in page.headings
    assert "No round was recorded." in page.words


def test_the_commands_repeat_the_run():
    assert command(run()).replace("\\\n   ", "").split("  ")[0].startswith("trellis run")
    assert "--set 'signals=20, 40'" in command(run())
    assert flower_command(run(config={"method": "fedgl", "rho": 1e-5, "on": True})) == (
        "flwr run . --stream --federation-config "
        "'num-supernodes=2 client-resources-num-cpus=1' \\\n"
        '    --run-config \'study="consensus-graph" seed=7 '
        'consensus-graph.method="fedgl" consensus-graph.rho=1e-05 consensus-graph.on=true\''
    )


def test_the_index_links_the_reports_and_shows_what_failed(tmp_path):
    good, bad = run(ledger=LEDGER, notes=[]), run(study="joint-precision", status="failed")
    bad.notes = ["ValueError: lambda1=-1"]
    good.save(tmp_path / "consensus graph")
    write_report(good, [], tmp_path / "consensus graph" / "report.html")
    page = Page.read(write_index([good, bad], tmp_path / "index.html"))
    page.assert_private()
    assert [a["href"] for a in page.tags("a")] == ["consensus%20graph/report.html"]
    assert page.headings == ["Studies", "What failed", "joint-precision (seed 7, local)"]
    assert "1 of 2 runs without failure" in page.words
    assert "ValueError: lambda1=-1" in page.words
    assert "\u03b5 = 1.5 (dp)" in page.words


def drawn_lines(figure) -> dict[int, int]:
    """Return how many lines were drawn, by the place of their colour in the palette."""
    found: dict[int, int] = {}
    for lines in figure.axes[0].collections:
        if lines.get_zorder() != 2:
            continue
        for path, colour in zip(lines.get_paths(), lines.get_edgecolor(), strict=True):
            place = plots.PALETTE.index(mpl.colors.to_hex(colour).upper())
            found[place] = found.get(place, 0) + int(np.sum(path.codes == path.MOVETO))
    return found


@pytest.mark.parametrize("shared", [None, np.array([True, False, False, True, False, True])])
def test_every_edge_is_drawn_once_in_its_colour(shared):
    weights = np.array([1.0, 0.5, 0.1, 0.0, 0.3, 0.7])  # at threshold 0.2: edges 0, 1, 4 and 5
    figure = plots.two_colour_graph(weights, list("abcd"), shared, title="client")
    assert drawn_lines(figure) == ({0: 4} if shared is None else {0: 2, 1: 2})
    text = plots.svg(figure, "a graph")
    root = ElementTree.fromstring(text)
    groups = [g for g in root.iter(f"{SVG}g") if "PathCollection" in g.get("id", "")]
    # One path per width and colour, with a line in it per edge.
    paths = [p.get("d", "") for g in groups[:1] for p in g.iter(f"{SVG}path")]
    assert sum(path.count("M ") for path in paths) == 4
    words = {"".join(t.itertext()) for t in root.iter(f"{SVG}text")}
    assert {"a", "b", "c", "d", "client"} <= words
    assert ("shared (4)" if shared is None else "private (2)") in words


def test_a_large_graph_is_cut_to_its_strongest_edges_and_says_so():
    weights = np.random.default_rng(0).uniform(0.5, 1.0, 60 * 59 // 2)
    figure = plots.two_colour_graph(weights, [str(k) for k in range(60)], max_edges=50)
    assert drawn_lines(figure) == {0: 50}
    text = plots.svg(figure)
    assert text.count("<path") < 20  # not one per edge
    assert "the 50 strongest of 1,770 edges are drawn" in text
    assert "shared (1,770)" in text


def test_graphs_without_edges_or_with_unlinked_nodes_are_drawn():
    assert "<svg" in plots.svg(plots.two_colour_graph(np.zeros(3), list("abc")))
    weights = np.zeros(50 * 49 // 2)
    weights[:3] = 1.0
    place = plots.spring(weights, 50)
    assert np.isfinite(place).all()
    np.testing.assert_array_equal(place, plots.spring(weights, 50))
    np.testing.assert_allclose(np.linalg.norm(place[4:], axis=1), 1.25)


def test_heat_maps_share_one_scale_and_keep_single_edges():
    small, large = np.zeros((4, 4)), np.zeros((600, 600))
    small[0, 1], large[17, 401] = -0.5, 2.0
    figure = plots.heat_maps([small, large], ["small", "large"])
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert {image.get_clim() for image in images} == {(-2.0, 2.0)}
    assert images[1].get_array().shape[0] <= plots.HEAT_CELLS
    assert images[1].get_array().max() == 2.0
    assert len(plots.svg(figure)) < 200_000


def test_equal_figures_and_equal_matrices_share_no_id(tmp_path):
    figure = plots.heat_maps([np.eye(3), np.eye(3), np.ones((2, 2))], ["a", "b", "c"])
    blocks = [FigureBlock("", plots.svg(figure, label)) for label in ("first", "second")]
    path = write_report(run(), [Section("Two", blocks)], tmp_path / "report.html")
    Page.read(path).assert_private()
    assert path.read_text().count("<image") == 8  # three matrices and a colour bar, twice


def test_curves_leave_gaps_where_nothing_can_be_drawn():
    figure = plots.curves([0, 1, 2, 3], {"y": [1.0, 0.0, np.nan, 1e-3]}, log_x=True, log_y=True)
    drawn = figure.axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(np.isnan(drawn), [True, True, True, False])
    assert plots.svg(figure) == plots.svg(figure)


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures_are_saved_by_suffix(tmp_path, suffix, magic):
    figure = plots.heat_map(np.eye(3), ["a", "b", "$c$"])
    path = plots.save(figure, tmp_path / f"f.{suffix}")
    assert path.read_bytes().startswith(magic)
    with pytest.raises(ValueError, match=r"neither in \.png"):
        plots.save(figure, tmp_path / "f.gif")


def test_pyplot_and_the_callers_settings_are_left_alone():
    code = (
        "import sys, matplotlib; matplotlib.rcParams['font.size'] = 31.0\n"
        "from trellis.apps.pages import plots; plots.svg(plots.curves([1], {'a': [1]}))\n"
        "assert matplotlib.rcParams['font.size'] == 31.0\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_report_is_imported_without_what_draws_and_writes_it():
    code = (
        "import sys, trellis.apps.pages.report, trellis.apps.pages.graphs\n"
        "assert not {'jinja2', 'markupsafe', 'matplotlib', 'networkx'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        (float("nan"), "\u2013"),
        (float("inf"), "\u221e"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (24.0, "24"),
        (0.123456, "0.1235"),
        (1e-5, "1e-05"),
        (12345.678, "12,345.7"),
        ("text", "text"),
    ],
)
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


def test_sizes_and_times_are_written_for_people():
    assert [size(0), size(999), size(1600), size(2.5e9)] == ["0 B", "999 B", "1.6 kB", "2.5 GB"]
    assert [duration(0.5), duration(75), duration(7260)] == ["0.5 s", "1 min 15 s", "2 h 1 min"]


def test_the_commands_name_the_data():
    made = run(data="/some where/data")
    assert "--data '/some where/data'" in command(made)
    assert 'data="/some where/data"' in flower_command(made)
