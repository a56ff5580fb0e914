"""Words on a terminal, whoever wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def say(console: Console, text: str) -> None:
    """Print a text as it is, whoever wrote it."""
    # Texts from a run are data: no markup, no colours of theirs, no control characters.
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    console.print(shown, markup=False, highlight=False, soft_wrap=True)
