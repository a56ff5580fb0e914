"""Markdown of the repository as Markdown of the site.

Links between files of the repository become links between pages; a file that is no page is copied
beside them as text; a folder that is none is named without a link. What GitHub takes for a list or
a table, though a line stands right above it, gets the empty line that others ask for.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

from .sources import SOURCE, Sources

# What is told of the past keeps its words; its links lead where pages are now.
HISTORY = "changelog.md"
MOVED = {"deploy": "devices", "graph": "graph-of-servers", "tuning": "choosing-settings"}

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_HTML = re.compile(
    r"(?P<before><(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=\")(?P<target>[^\"]+)"
)
_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^(?:[-*+]|\d+\.) ")
_ROW = re.compile(r"^\|.*\|\s*$")
_PICTURES = (".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp")


@dataclass
class Rewriter:
    """Rewrites pages, and remembers which files they need beside them.

    Attributes
    ----------
    copies : of every file that has to be copied, by its name in the site, where it is
    """

    sources: Sources
    copies: dict[str, str] = field(default_factory=dict)

    def page(self, name: str, text: str) -> str:
        """Return the Markdown of a page of the site, by its name there."""
        parts = re.split(r"(^(?:```|~~~).*?^(?:```|~~~)[^\n]*$)", text, flags=re.M | re.S)
        return "".join(
            part if _FENCE.match(part) else self._linked(name, spaced(part)) for part in parts
        )

    def _linked(self, name: str, text: str) -> str:
        def link(match: re.Match[str]) -> str:
            target = self.target(name, match["target"])
            if target is None:
                return match["text"]
            return f"{match['image']}[{match['text']}]({target})"

        def tag(match: re.Match[str]) -> str:
            found = self.target(name, match["target"])
            if found is None:
                return match[0]
            # mkdocs leaves tags alone: they lead from the page's html file, not from its source.
            return match["before"] + re.sub(r"(README)?\.md(?=#|$)", _html, found)

        return _HTML.sub(tag, _LINK.sub(link, text))

    def target(self, name: str, target: str) -> str | None:
        """Return where a link of a page leads in the site; None where there is nothing.

        ``page:STEM`` is the page whose file has that name, wherever it is.
        """
        if re.match(r"(?:https?|mailto|data):|#", target):
            return target
        path, hash_, anchor = target.partition("#")
        if path.startswith("page:"):
            found = self.sources.by_stem(path.removeprefix("page:"))
        else:
            found = self._found(name, path)
        if found is None:
            return None
        return posixpath.relpath(found, posixpath.dirname(name) or ".") + hash_ + anchor

    def _found(self, name: str, path: str) -> str | None:
        origin = self.sources.pages.get(name)
        if origin is None:  # made, not written: its links are the site's own
            return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        if (place := self.sources.place_of(whole)) is not None:
            return place
        file = self.sources.root / whole
        if file.is_dir():
            return None
        if name == HISTORY and not file.exists():
            stem = posixpath.splitext(posixpath.basename(whole))[0]
            return self.sources.by_stem(MOVED.get(stem, stem))
        if whole.startswith("docs/"):
            return whole.removeprefix("docs/")
        if not file.is_file():
            return whole  # mkdocs says that it is not there
        plain = file.suffix in _PICTURES or file.suffix == ".txt"
        copy = f"{SOURCE}/{whole}" + ("" if plain else ".txt")
        self.copies[copy] = whole
        return copy


def _html(match: re.Match[str]) -> str:
    return "index.html" if match[1] else ".html"


def spaced(text: str) -> str:
    """Return Markdown with an empty line before each list and table."""
    lines: list[str] = []
    for line in text.split("\n"):
        last = lines[-1] if lines else ""
        for kind in (_ITEM, _ROW):
            if kind.match(line) and last.strip() and not kind.match(last) and not last[0].isspace():
                lines.append("")
                break
        lines.append(line)
    return "\n".join(lines)
