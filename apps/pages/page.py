"""What an HTML report is built of: sections of paragraphs, tables and figures.

Every block renders itself with `html` and escapes what comes from data: client names, variables and
errors are text, never markup. A page refers to nothing outside itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

from apps.pages.style import CSS
from apps.pages.wording import number

_TALL_TABLE = 30  # rows; a longer table scrolls in a box of its own, and prints in full
_SHORT_TEXT, _LONG_TEXT = 18, 30  # characters
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Block(Protocol):
    """Anything that can stand in a section."""

    def html(self) -> str:
        """Return the block as HTML, all data escaped."""


@dataclass(frozen=True)
class Section:
    """A part of the report under its own heading."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Return the section's id in the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"

    def html(self) -> str:
        """Return the section as HTML."""
        body = "\n".join(block.html() for block in self.blocks)
        return f'<section id="{self.anchor}">\n<h2>{escape(self.title)}</h2>\n{body}\n</section>'


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str

    def html(self) -> str:
        """Return the paragraph as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str

    def html(self) -> str:
        """Return the heading as HTML."""
        return f"<h3>{escape(self.text)}</h3>"


@dataclass(frozen=True)
class Notice:
    """A warning nobody must miss."""

    text: str

    def html(self) -> str:
        """Return the warning as HTML."""
        return f'<div class="notice" role="note"><p>{escape(self.text)}</p></div>'


@dataclass(frozen=True)
class Code:
    """Something to copy: a command, a line of Python."""

    text: str

    def html(self) -> str:
        """Return the text as HTML."""
        return f"<pre><code>{escape(self.text)}</code></pre>"


@dataclass(frozen=True)
class Link:
    """A table cell that leads to another file, by an address relative to the page."""

    text: str
    address: str


@dataclass(frozen=True)
class Badge:
    """A table cell or header that shows a status in colour; ``kind`` is good, bad or empty."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Facts:
    """A list of terms and what they are."""

    items: Mapping[str, object]

    def html(self) -> str:
        """Return the list as HTML."""
        rows = (
            f"<div><dt>{escape(term)}</dt><dd>{cell(value)}</dd></div>"
            for term, value in self.items.items()
        )
        return f'<dl class="facts">{"".join(rows)}</dl>'


@dataclass(frozen=True)
class Table:
    """A table; the first column names the row, numbers are set right.

    ``stack`` turns every row into a small card where the screen is narrow; other tables scroll.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    stack: bool = False

    def html(self) -> str:
        """Return the table as HTML."""
        style = [self._style(column) for column in range(len(self.headers))]
        head = "".join(
            f'<th scope="col"{css}>{escape(name)}</th>'
            for name, css in zip(self.headers, style, strict=True)
        )
        caption = f"<caption><span>{escape(self.caption)}</span></caption>" if self.caption else ""
        body = "\n".join(self._row(row, style) for row in self.rows)
        kind = ' class="stack"' if self.stack else ""
        tall = len(self.rows) > _TALL_TABLE and not self.stack
        box = "scroll tall" if tall else "scroll"
        # A region that scrolls must be reachable by keyboard and have a name.
        name = escape(self.caption or " / ".join(self.headers))
        return (
            f'<div class="{box}" tabindex="0" role="region" aria-label="{name}">'
            f"<table{kind}>{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
            "</table></div>"
        )

    def _style(self, column: int) -> str:
        """Return a column's class: numbers, words that must not wrap, text that needs room."""
        cells = [row[column] for row in self.rows]
        if any(isinstance(value, (int, float)) for value in cells):
            return ' class="num"'
        longest = max((len(str(value)) for value in cells if isinstance(value, str)), default=0)
        if longest > _LONG_TEXT:
            return ' class="long"'
        return ' class="short"' if 0 < longest <= _SHORT_TEXT else ""

    def _row(self, row: Sequence[object], style: Sequence[str]) -> str:
        cells = [f'<th scope="row"{style[0]}>{cell(row[0])}</th>']
        for name, value, css in zip(self.headers[1:], row[1:], style[1:], strict=True):
            label = f' data-label="{escape(name)}"' if self.stack else ""
            cells.append(f"<td{css}{label}>{cell(value)}</td>")
        return f"<tr>{''.join(cells)}</tr>"


@dataclass(frozen=True)
class FigureBlock:
    """A figure with its title and caption; ``svg`` is what `apps.pages.plots.svg` returned."""

    title: str
    svg: str
    caption: str = ""

    def html(self) -> str:
        """Return the figure as HTML."""
        title = f"<strong>{escape(self.title)}.</strong>" if self.title else ""
        text = " ".join(part for part in (title, escape(self.caption)) if part)
        caption = f"<figcaption>{text}</figcaption>" if text else ""
        return f'<figure><div class="sheet">{self.svg}</div>{caption}</figure>'


@dataclass(frozen=True)
class Gallery:
    """Figures side by side where the screen is wide enough."""

    figures: Sequence[FigureBlock]

    def html(self) -> str:
        """Return the figures as HTML."""
        body = "\n".join(figure.html() for figure in self.figures)
        return f'<div class="gallery">\n{body}\n</div>'


def cell(value: object) -> str:
    """Return any value as HTML: numbers for people, links, everything else as escaped text."""
    if isinstance(value, Link):
        return f'<a href="{escape(value.address)}">{escape(value.text)}</a>'
    if isinstance(value, Badge):
        return f'<span class="badge {escape(value.kind)}">{escape(value.text)}</span>'
    return escape(number(value))


def document(title: str, body: str) -> str:
    """Return a whole page that opens from disk and loads nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="Trellis">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
