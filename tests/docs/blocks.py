"""The code blocks of the pages: where they stand, what they are, and whether they are run.

A block is fenced, or indented by four columns after a blank line. A comment right before it says
that it is not run, and why::

    <!-- not run: needs a Ray cluster; tests/flower/test_ray_jobs.py -->
    <!-- options checked: takes two minutes -->

The second kind has its commands parsed, and their settings and figures looked up. Python after a
line that ends with "file `name.py`:" is written to that file, for the commands that follow.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^\s*(`{3,})\s*([\w-]*)\s*$")
MARK = re.compile(r"^\s*<!-- (not run|options checked): (.+?) -->$")
FILE = re.compile(r"\bfile `(\w+\.py)`:$")
LIST_ITEM = re.compile(r"^(\s*)(?:[-*]|\d+\.)\s+")
# Pages that a test of their own runs.
OTHERWISE = {"docs/extend.md": "tests/docs/test_extend.py"}
# Fences that hold neither commands nor Python.
TEXT = ("text", "toml", "csv", "mermaid", "json")


@dataclass(frozen=True)
class Block:
    """One code block of a page."""

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    reason: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def python(self) -> bool:
        """Whether it is Python."""
        return self.language == "python" or bool(self.file)

    def commands(self) -> list[str]:
        """Return its commands; a here-document, and lines that are continued, are one."""
        if self.python or self.language in TEXT:
            return []
        found: list[str] = []
        end = ""
        for line in self.text.replace("\\\n", " ").splitlines():
            if end:
                found[-1] += f"\n{line}"
                end = "" if line == end else end
            elif line.strip() and not line.lstrip().startswith("#"):
                found.append(line.strip())
                opened = re.search(r"<<'?(\w+)'?", line)
                end = opened.group(1) if opened else ""
        return found


def pages() -> list[Path]:
    """Return the pages whose blocks are looked at."""
    found = [
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("apps/*/README.md")),
        *sorted(ROOT.glob("privacy/*.md")),
    ]
    return [page for page in found if page.relative_to(ROOT).as_posix() not in OTHERWISE]


def blocks(page: Path) -> list[Block]:
    """Return a page's code blocks in order."""
    return list(_blocks(page, page.read_text().splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    mark = reason = file = ""
    indent = 4  # what makes a block: four columns beyond the text of a list
    at = 0
    blank = True
    while at < len(lines):
        line = lines[at]
        if found := FENCE.match(line):
            end = at + 1
            while not lines[end].strip().startswith(found.group(1)):
                end += 1
            text = textwrap.dedent("\n".join(lines[at + 1 : end]))
            yield Block(page, at + 1, found.group(2), text, mark, reason, file)
            at = end
        elif blank and line.strip() and line.startswith(" " * indent):
            end = at
            while end < len(lines) and lines[end][:indent].strip() == "":
                end += 1
            text = textwrap.dedent("\n".join(lines[at:end])).rstrip()
            yield Block(page, at + 1, "", text, mark, reason, file)
            at = end - 1
        elif found := MARK.match(line):
            mark, reason = found.groups()
            indent = indent if line.startswith(" ") else 4
            at += 1
            blank = True
            continue
        elif item := LIST_ITEM.match(line):
            indent = 4 + len(item.group(0))
        elif line.strip() and not line.startswith(" "):
            indent = 4
        if lines[at].strip():
            mark = reason = ""
            named = FILE.search(line)
            file = named.group(1) if named else ""
        blank = not lines[at].strip()
        at += 1
