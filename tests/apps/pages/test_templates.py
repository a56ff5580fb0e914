"""The templates: whatever data says is text, and every block has a template that renders."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import jinja2
import jinja2.meta
import numpy as np
import pytest

from tests.apps.pages.pages import Page, leave_out_pictures
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import run
from trellis.apps.pages.page import (
    Badge,
    Block,
    Code,
    Facts,
    FigureBlock,
    Gallery,
    Heading,
    Link,
    Notice,
    Paragraph,
    Picture,
    Section,
    Table,
)
from trellis.apps.pages.report import write_index, write_report
from trellis.apps.pages.templates import TEMPLATES, environment, own_markup, render

# Closes an attribute, a cell and a style sheet; a template's own signs are text too.
EVIL = """'"></td></style><script>alert("x")</script><b onclick='x'>&amp;{{ 7 * 7 }}{% raw %}{#"""
TAME = "A" * len(EVIL)  # of the same length: a column's class depends on it
PAGES = {"layout", "style", "report", "titled", "index"}


def blocks(text: str) -> list[Block]:
    """Return every kind of block with the text in every field that takes one."""
    figure = FigureBlock(text, text, text)
    cells = [text, 1.5, Link(text, text), Badge(text, text)]
    rows, headers = [cells, [text, None, text, True]], [text, "n", text, text]
    return [
        Section(text, [Paragraph(text), Section(text, [Notice(text)])]),
        Paragraph(text),
        Heading(text),
        Notice(text),
        Code(text),
        Link(text, text),
        Badge(text, text),
        Facts({text: text, "link": Link(text, text), "n": 3}),
        Table(headers, rows, text),
        Table(headers, rows * 20, stack=True),
        figure,
        Gallery([figure, figure]),
        Picture(text, text, text, text),
    ]


def bare(kind: type[Block]) -> Block:
    """Return a block that has no more than it must have."""
    least = {Section: ("s", []), Facts: ({},), Table: ([], []), Gallery: ([],), Link: ("l", "a")}
    least[Picture] = ("data:,", "", "p", "a")
    least[FigureBlock] = ("", own_markup("<svg></svg>"))
    return kind(*least.get(kind, ("",)))


def outline(page: Page) -> list[tuple[str, list[str]]]:
    """Return the elements of a page and the names of their attributes."""
    return [(tag, list(attributes)) for tag, attributes in page.elements]


def told(page: Page, text: str) -> int:
    """Return how often a page has a text, as a reader sees it or in an attribute."""
    values = [str(v) for _, attributes in page.elements for v in attributes.values()]
    return sum(part.count(text) for part in [*values, "".join(page.text)])


KINDS = Block.__subclasses__()


def test_every_block_is_tried_here_and_has_a_template():
    assert {type(block) for block in blocks("")} == {*KINDS}
    assert {kind.__name__ for kind in KINDS} == TEMPLATES.keys() - PAGES


@pytest.mark.parametrize(
    ("evil", "tame"),
    list(zip(blocks(EVIL), blocks(TAME), strict=True)),
    ids=[type(block).__name__ for block in blocks("")],
)
def test_a_block_s_text_is_never_markup(evil, tame):
    page, quiet = Page(evil.html()), Page(tame.html())
    assert outline(page) == outline(quiet)
    assert told(page, EVIL) == told(quiet, TAME) > 0


def hostile(text: str, **changes) -> RunResult:
    """Return a run with the text wherever a server, a device or a user can put one."""
    event = {"mechanism": text, "what": text, "sigma": 1.0}
    client = {"name": text, "epsilon": 1.0, "rho": 0.1, "events": [event]}
    terms = dict.fromkeys(("claim", "neighbouring", "adversary", "not_covered"), text)
    values = {
        "study": text,
        "seed": 1,
        "engine": text,
        "config": {text: text, "tolerance": 0.1},
        "data": text,
        "arrays": {text: np.ones(2)},
        "metrics": [{"round": t, text: t / 7, "change": 1.0 / t} for t in (1.0, 2.0)],
        "clients": [{"name": text, "count": 3, text: text, "last_failure": text}],
        "ledger": {"mode": "dp", "epsilon": 1.0, "clients": [client], **terms},
        "headline": {text: 1.0},
        "notes": [text, text],
        "started": text,
        "status": text,
        "versions": {text: text},
    }
    return RunResult(**{**values, **changes})


@pytest.mark.parametrize(
    "changes", [{}, {"status": "failed"}, {"ledger": {"mode": "<i>"}}, {"metrics": []}]
)
def test_a_run_s_text_is_never_markup(tmp_path, monkeypatch, changes):
    leave_out_pictures(monkeypatch)
    path = tmp_path / "report.html"
    page, quiet = (
        Page.read(write_report(hostile(text, **changes), blocks(text)[:1], path))
        for text in (EVIL, TAME)
    )
    assert outline(page) == outline(quiet)
    # In the commands that repeat the run, the shell's quotation marks stand around the text.
    assert told(page, EVIL) >= 20


def test_the_index_s_text_is_never_markup(tmp_path):
    path = tmp_path / "index.html"
    folder = tmp_path / EVIL.replace("/", "")
    folder.mkdir()
    (folder / "report.html").touch()
    pages = []
    for text in (EVIL, TAME):
        kept = [hostile(text, folder=folder), hostile(text), hostile(text, status="failed")]
        pages.append(Page.read(write_index(kept, path)))
    page, quiet = pages
    page.assert_private()
    assert outline(page) == outline(quiet)
    assert told(page, EVIL) == told(quiet, TAME) >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_needs_nothing_but_its_block(kind):
    assert environment().undefined is jinja2.StrictUndefined
    tree = environment().parse(TEMPLATES[kind.__name__])
    assert jinja2.meta.find_undeclared_variables(tree) == {"block"}
    Page(bare(kind).html())


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_unknown_name_is_an_error(name):
    template = environment().get_template(name)
    if name == "style":
        assert template.render() == TEMPLATES["style"]  # nothing in it is a template's sign
    else:
        with pytest.raises((jinja2.UndefinedError, jinja2.TemplateRuntimeError)):
            template.render()


def test_escaping_is_on_and_figures_alone_are_markup_of_ours():
    assert environment().autoescape is True
    for name, text in TEMPLATES.items():
        assert not re.search(r"\bsafe\b|autoescape|Markup", text), name
    root = Path(apps.__file__).parent
    sources = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}
    users = {name for name, text in sources.items() if "own_markup" in text}
    assert users == {"pages/figure.py", "pages/templates.py"}
    by_hand = re.compile(r"\bMarkup\(|html\.escape|from html import|xml\.sax\.saxutils")
    # GraphML is a file of its own, in no page.
    assert {name for name, text in sources.items() if by_hand.search(text)} == {
        "pages/graphs.py",
        "pages/templates.py",
    }


def test_blocks_are_rendered_in_place_and_in_order():
    page = Page(Section("One & two", [Heading("a"), Paragraph("b"), Code("c\n  d")]).html())
    assert [tag for tag, _ in page.elements] == ["section", "h2", "h3", "p", "pre", "code"]
    assert page.tags("section") == [{"id": "one-two"}]
    assert "c\n  d" in page.text  # what is to be copied keeps its lines
    assert render("Badge", block=Badge("x", "good")) == '<span class="badge good">x</span>'


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("jinja2", "reports need jinja2: pip install '.[laptop]' in a clone of the project"),
        (
            "matplotlib",
            "figures need matplotlib: pip install '.[laptop]' in a clone of the project",
        ),
    ],
)
def test_a_run_without_the_packages_says_what_to_install(
    tmp_path, monkeypatch, caplog, package, message
):
    monkeypatch.setitem(sys.modules, package, None)
    environment.cache_clear()
    with caplog.at_level(logging.WARNING, "trellis.run"):
        result = run("consensus-graph", {"rounds": 2}, out=tmp_path)
    assert f"no report: {message}; then: trellis report {tmp_path}" in caplog.text
    assert result.status == "completed"
    assert (tmp_path / "result.npz").is_file()
    assert not (tmp_path / "report.html").exists()


def test_a_missing_jinja2_is_named_by_every_door(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    environment.cache_clear()
    doors = (
        lambda: write_report(hostile("a", metrics=[]), [], tmp_path / "report.html"),
        lambda: write_index([], tmp_path / "index.html"),
        lambda: own_markup("<svg>"),
    )
    for door in doors:
        with pytest.raises(ImportError, match=r"reports need jinja2: pip install '\.\[lap"):
            door()
    assert list(tmp_path.iterdir()) == []
