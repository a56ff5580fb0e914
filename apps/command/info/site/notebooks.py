"""Notebooks as Markdown: text, code, and what the code showed when the notebook was last run."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


def as_markdown(path: Path, linked: Callable[[str], str]) -> tuple[str, dict[str, bytes]]:
    """Return a notebook's Markdown, and its pictures by the names it gives them.

    Parameters
    ----------
    path : an ``.ipynb`` file
    linked : makes the links of a notebook's own text those of the site
    """
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = _text(cell["source"]).strip("\n")
        if cell["cell_type"] == "markdown":
            parts.append(linked(source))
        elif cell["cell_type"] == "code" and source:
            parts.append(f"```python\n{source}\n```")
            parts += [
                shown
                for output in cell.get("outputs", [])
                if (shown := _shown(output, path.stem, pictures))
            ]
    title, *rest = parts
    where = (
        f'!!! note "A notebook"\n    [Download it](../{path.name}) and open it in Jupyter, or read '
        "on: below is what it showed when it was last run."
    )
    heading, _, more = title.partition("\n")
    return "\n\n".join([heading, where, more.strip(), *rest]), pictures


def _shown(output: dict[str, Any], stem: str, pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return _block(_text(output["text"]))
    data = output.get("data", {})
    for kind, suffix in (("image/svg+xml", "svg"), ("image/png", "png")):
        if kind in data:
            name = f"{stem}-{len(pictures) + 1}.{suffix}"
            text = _text(data[kind])
            pictures[name] = text.encode() if suffix == "svg" else base64.b64decode(text)
            return f"![What the cell above draws]({name})"
    if "text/html" in data:
        # Its own styles are for light pages; the site has some for both.
        html = re.sub(r"<style.*?</style>", "", _text(data["text/html"]), flags=re.DOTALL)
        html = re.sub(r' border="1"| class="dataframe"| style="text-align: \w+;"', "", html)
        lines = [line.strip() for line in html.splitlines() if line.strip()]
        return f'<div class="shown">{"".join(lines)}</div>'
    return _block(_text(data["text/plain"])) if "text/plain" in data else ""


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)
