"""What mkdocs is told by Trellis: pages beside the code, the reference, notebooks and the order.

`trellis.apps.command.info.site` does the work; mkdocs calls the functions below by their names.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from trellis.apps.command.info.pages import pages as reference_pages
from trellis.apps.command.info.site.links import Rewriter
from trellis.apps.command.info.site.navigation import navigation
from trellis.apps.command.info.site.notebooks import as_markdown
from trellis.apps.command.info.site.sources import NOTEBOOKS, REFERENCE, sources

# The first page leads to all parts by itself.
_NO_SIDEBAR = "---\nhide:\n  - navigation\n---\n\n"
ROOT = Path(__file__).resolve().parents[1]
_rewriter = Rewriter(sources(ROOT))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Find the pages that there are, and put them in order."""
    global _rewriter
    _rewriter = Rewriter(sources(ROOT))
    made = [f"{REFERENCE}/{name}" for name in reference_pages()]
    config.nav = navigation([*_rewriter.sources.pages, *made], made)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not stand in docs/: pages beside the code, the reference, notebooks."""
    for name, text in reference_pages().items():
        place = f"{REFERENCE}/{name}"
        files.append(File.generated(config, place, content=_rewriter.page(place, text)))
    for name, path in _rewriter.sources.pages.items():
        source = ROOT / path
        if name.startswith(f"{NOTEBOOKS}/"):
            text, pictures = as_markdown(source, partial(_rewriter.page, name))
            for picture, content in pictures.items():
                files.append(File.generated(config, f"{NOTEBOOKS}/{picture}", content=content))
            files.append(File.generated(config, name, content=text))
            continue
        text = _rewriter.page(name, source.read_text(encoding="utf-8"))
        if path.startswith("docs/"):
            continue  # mkdocs has it; `on_page_markdown` rewrites it
        front = _NO_SIDEBAR if name == "index.md" else ""
        files.append(File.generated(config, name, content=front + text))
    for name, path in _rewriter.copies.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rewrite the links of pages that mkdocs found in docs/ by itself."""
    if page.file.generated_by is not None:
        return markdown  # rewritten already
    return _rewriter.page(page.file.src_uri, markdown)
