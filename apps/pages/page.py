"""What an HTML report is built of: sections of paragraphs, tables and figures.

A block says what is shown; the template of its name in `apps.pages.templates` how. What comes from
data is escaped there: client names, variables and errors are text, never markup. A page refers to
nothing outside itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trellis.apps.pages.templates import render

if TYPE_CHECKING:
    from markupsafe import Markup

_TALL_TABLE = 30  # rows; a longer table scrolls in a box of its own, and prints in full
_SHORT_TEXT, _LONG_TEXT = 18, 30  # characters


class Block:
    """Anything that can stand in a section; the class has a template of its name."""

    def html(self) -> str:
        """Return the block as HTML, all data escaped."""
        return render(type(self).__name__, block=self)

    def __html__(self) -> str:
        # By this name Jinja2 asks a value for its markup: blocks can stand in other blocks.
        return self.html()


@dataclass(frozen=True)
class Section(Block):
    """A part of the report under its own heading."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Return the section's id in the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


@dataclass(frozen=True)
class Paragraph(Block):
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Heading(Block):
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Notice(Block):
    """A warning nobody must miss."""

    text: str


@dataclass(frozen=True)
class Code(Block):
    """Something to copy: a command, a line of Python."""

    text: str


@dataclass(frozen=True)
class Link(Block):
    """A table cell that leads to another file, by an address relative to the page."""

    text: str
    address: str


@dataclass(frozen=True)
class Badge(Block):
    """A table cell or header that shows a status in colour; ``kind`` is good, bad or empty."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Facts(Block):
    """A list of terms and what they are."""

    items: Mapping[str, object]


@dataclass(frozen=True)
class Table(Block):
    """A table; the first column names the row, numbers are set right.

    ``stack`` turns every row into a small card where the screen is narrow; other tables scroll.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    stack: bool = False

    @property
    def name(self) -> str:
        """Return what a screen reader calls the table."""
        return self.caption or " / ".join(self.headers)

    @property
    def tall(self) -> bool:
        """Return whether the table scrolls in a box of its own."""
        return len(self.rows) > _TALL_TABLE and not self.stack

    @property
    def columns(self) -> list[tuple[str, str | None]]:
        """Return the header and the CSS class of every column."""
        return [(name, self._style(column)) for column, name in enumerate(self.headers)]

    @property
    def lines(self) -> list[list[tuple[tuple[str, str | None], object]]]:
        """Return the rows, every value with its column's header and class."""
        columns = self.columns
        return [list(zip(columns, row, strict=True)) for row in self.rows]

    def _style(self, column: int) -> str | None:
        """Return a column's class: numbers, words that must not wrap, text that needs room."""
        cells = [row[column] for row in self.rows]
        if any(isinstance(value, (int, float)) for value in cells):
            return "num"
        longest = max((len(str(value)) for value in cells if isinstance(value, str)), default=0)
        if longest > _LONG_TEXT:
            return "long"
        return "short" if 0 < longest <= _SHORT_TEXT else None


@dataclass(frozen=True)
class FigureBlock(Block):
    """A figure with its title and caption; ``svg`` is what `apps.pages.plots.svg` returned."""

    title: str
    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Picture(Block):
    """A picture that leads to the page it is of; ``source`` holds all of it, as a data address."""

    source: str
    shows: str
    title: str
    address: str


@dataclass(frozen=True)
class Gallery(Block):
    """Figures side by side where the screen is wide enough."""

    figures: Sequence[FigureBlock | Picture]
