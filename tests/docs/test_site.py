"""The documentation as a site: it builds strictly, loads nothing from elsewhere, and is whole."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pytest

from trellis import apps
from trellis.apps.command.info.described import settings
from trellis.apps.command.info.site.links import Rewriter, spaced
from trellis.apps.command.info.site.navigation import navigation, part_of
from trellis.apps.command.info.site.notebooks import as_markdown
from trellis.apps.command.info.site.sources import Sources, sources

ROOT = Path(__file__).parents[2]
# What a browser loads by itself; a link that a reader may follow is none of it.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """What a page loads, where it leads, and which ids it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {key: value or "" for key, value in attrs}
        if tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        self.ids |= {given[key] for key in ("id", "name") if key in given}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as ``make docs`` builds it: a broken link raises."""
    pytest.importorskip("mkdocs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.fixture(scope="module")
def pages(site):
    found = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {name: Page(path.read_text()) for name, path in found.items() if name != "404.html"}


def test_nothing_is_loaded_from_elsewhere(site, pages):
    outside = {url for page in pages.values() for url in page.loads if "//" in url}
    assert outside == set()
    for path in site.rglob("*.css"):
        text = path.read_text()
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text), path
    assert all("assets/iframe-worker.js" in " ".join(page.loads) for page in pages.values())


def test_every_link_leads_somewhere(site, pages):
    broken = []
    for name, page in pages.items():
        for link in page.leads + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            here = site / name
            there = (here.parent / unquote(parts.path)).resolve() if parts.path else here
            there = there / "index.html" if there.is_dir() else there
            inside = there.relative_to(site.resolve()).as_posix() if parts.path else name
            if not there.is_file():
                broken.append((name, link))
            elif parts.fragment and not parts.fragment.startswith("__") and inside in pages:
                known = pages[inside].ids
                if unquote(parts.fragment) not in known:
                    broken.append((name, link))
    assert broken == []
    assert sum(len(page.leads) for page in pages.values()) > 1000


@pytest.mark.parametrize("study", apps.STUDIES)
def test_every_setting_of_every_study_is_in_the_reference(study, site, pages):
    page = pages[f"reference/settings/{study}.html"]
    assert {one.name for one in settings(study)} <= page.ids
    text = (site / f"reference/settings/{study}.html").read_text()
    assert all(f">{one.name}<" in text for one in settings(study))


def test_every_page_of_the_repository_is_in_the_site_and_in_its_navigation(site, pages):
    wanted = [
        *(path for path in ROOT.glob("docs/**/*.md")),
        *(path for path in ROOT.glob("docs/*.ipynb")),
        *(
            ROOT / package.removeprefix("trellis.").replace(".", "/") / "README.md"
            for package in apps.STUDIES.values()
        ),
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
        *(ROOT / "privacy" / name for name in ("README.md", "POLICY.md")),
    ]
    found = sources(ROOT)
    assert {path.relative_to(ROOT).as_posix() for path in wanted} == set(found.pages.values())
    for name in found.pages:
        html = re.sub(r"(?:README|index)\.md$", "index.md", name).removesuffix(".md") + ".html"
        assert html in pages
    text = (site / "index.html").read_text()
    for part in ("Tutorial", "How-to", "Reference", "Explanation"):
        assert re.search(rf"md-tabs__link\">\s*{part}\s*<", text), part
    assert text.count("__palette_") >= 2


def test_search_finds_settings_without_a_server(site):
    text = (site / "search" / "search_index.js").read_text()
    entries = json.loads(text.partition("=")[2].strip().rstrip(";"))["docs"]
    assert "reference/settings/consensus-graph.html#rho" in {entry["location"] for entry in entries}


def test_pages_that_are_not_there_yet_and_new_ones_find_their_place():
    few = ["index.md", "how-to/own-data.md", "how-to/something-new.md", "explanation/another.md"]
    found = {part: pages for entry in navigation(few, []) for part, pages in entry.items()}
    assert found == {
        "Home": "index.md",
        "How-to": ["how-to/own-data.md", "how-to/something-new.md"],
        "Explanation": ["explanation/another.md"],
    }
    assert part_of("tutorial.md") == "Tutorial"
    assert part_of("extend.md") == part_of("deploy.md") == part_of("unheard-of.md") == "How-to"
    assert part_of("data.md") == part_of("papers.md") == "Reference"
    assert part_of("glossary.md") == part_of("explanation/glossary.md") == "Explanation"


def test_links_of_the_repository_become_links_of_the_site(tmp_path):
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "one.py").write_text("x = 1\n")
    known = Sources(
        tmp_path,
        {
            "index.md": "README.md",
            "changelog.md": "CHANGELOG.md",
            "a/b.md": "docs/a/b.md",
            "c.md": "docs/c.md",
        },
    )
    rewriter = Rewriter(known)

    def shown(name: str, text: str) -> str:
        return rewriter.page(name, text)

    assert shown("index.md", "[b](docs/a/b.md#x)") == "[b](a/b.md#x)"
    assert shown("a/b.md", "[r](../../README.md) [c](../c.md)") == "[r](../index.md) [c](../c.md)"
    assert shown("index.md", "![p](docs/pictures/p.svg)") == "![p](pictures/p.svg)"
    assert shown("index.md", '<img src="docs/pictures/p.svg">') == '<img src="pictures/p.svg">'
    assert shown("index.md", "the [rooms](strategies)") == "the rooms"
    assert shown("index.md", "[w](https://flower.ai) [h](#x)") == "[w](https://flower.ai) [h](#x)"
    assert shown("changelog.md", "[b](docs/b.md) [z](docs/z.md)") == "[b](a/b.md) z"
    assert shown("reference/x.md", "[c](page:c#y) [z](page:zzz)") == "[c](../c.md#y) z"
    assert shown("index.md", "```\n[b](docs/a/b.md)\n```") == "```\n[b](docs/a/b.md)\n```"
    assert shown("a/b.md", "[s](../../strategies/one.py)") == "[s](../source/strategies/one.py.txt)"
    assert rewriter.copies == {"source/strategies/one.py.txt": "strategies/one.py"}


def test_lists_and_tables_that_stand_close_get_their_empty_line():
    assert spaced("a:\n- b\n  more\n- c\n\nd\n| e |\n|---|") == (
        "a:\n\n- b\n  more\n- c\n\nd\n\n| e |\n|---|"
    )


def test_a_notebook_is_shown_with_what_it_showed(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "More."]},
        {
            "cell_type": "code",
            "source": "draw()",
            "outputs": [
                {"output_type": "stream", "text": ["said\n"]},
                {"output_type": "display_data", "data": {"image/png": "aGk="}},
                {
                    "output_type": "execute_result",
                    "data": {"text/html": "<style>x</style><b>1</b>"},
                },
                {"output_type": "execute_result", "data": {"text/plain": "{'a': 1}"}},
            ],
        },
    ]
    path = tmp_path / "tour.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    text, pictures = as_markdown(path, str.upper)
    assert text.startswith("# TITLE\n\n!!! note")
    assert "MORE." in text
    for part in ("```python\ndraw()\n```", "```text\nsaid\n```", "(tour-1.png)", "{'a': 1}"):
        assert part in text
    assert '<div class="shown"><b>1</b></div>' in text
    assert pictures == {"tour-1.png": b"hi"}
    assert PurePosixPath("../tour.ipynb").name in text
