"""Links between pages lead to headings that are there; pictures are there and small."""

from __future__ import annotations

import re

import pytest

from .blocks import FENCE, ROOT, pages

PAGES = [*pages(), ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\]\(([^)\s#:]*)#([\w-]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LARGEST = 150_000  # bytes; a repository keeps every version


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub, and mkdocs as we set it up, give to headings."""
    found = set()
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(FENCE.match(line))
        if not fenced and (heading := re.match(r"#+ (.+)", line)):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_are_there(page):
    text = page.read_text()
    wrong = []
    for path, anchor in LINK.findall(text):
        target = page.parent / path if path else page
        if target.suffix == ".md" and target.exists() and anchor not in anchors(target.read_text()):
            wrong.append(f"{path}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_say_what_they_show_and_are_small(page):
    for words, path in PICTURE.findall(page.read_text()):
        assert len(words) > 10, path
        if path != "pictures/growth.svg":  # make bench writes it
            assert (page.parent / path).stat().st_size < LARGEST, path


def test_the_first_page_is_short_and_shows_what_it_must():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    assert len(PICTURE.findall(text)) == 3
    for command in ("    make run ", "    make test "):
        assert command in text
    for part in ("tutorial.md", "how-to/", "explanation/", "tour.ipynb", "privacy/README.md"):
        assert part in text
