"""One look for all figures, and figures as files or as text inside a page.

``pyplot`` is never imported and the caller's settings are neither read nor changed, so the same
numbers give the same bytes in a script, a notebook and a server.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.results import write_atomically
from trellis.apps.pages.templates import own_markup
from trellis.install import pip_install

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by every common kind of colour vision, and in grey print.
SHARED, PRIVATE = "#0072B2", "#D55E00"
PALETTE = (SHARED, PRIVATE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
INK, QUIET = "#2b2f36", "#8a919c"

_PLACES = re.compile(r"<(?:path|use) [^>]*>")
_DIGITS = re.compile(r"(\d\.\d\d)\d+")

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # text stays text: smaller, searchable, set in the reader's font
    "svg.hashsalt": "trellis",
    "pdf.fonttype": 42,
}


_inside = False


@contextmanager
def style() -> Iterator[None]:
    """Draw in Trellis' style whatever the caller's own settings are, and leave those alone."""
    global _inside
    if _inside:  # one set-up for all that is drawn inside another's
        yield
        return
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(f"figures need matplotlib: {pip_install('laptop')}") from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A name in a script our font lacks: a browser has the glyph, the warning helps nobody.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        _inside = True
        try:
            yield
        finally:
            _inside = False


def placed(width: float, height: float) -> Figure:
    """Return a figure, in inches, whose parts' places are known: no layout engine looks for them.

    One would draw everything twice, and differently where a figure is written a second time. (With
    ``layout="none"`` a figure forgets that it has none when it is written.)
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import PlaceHolderLayoutEngine

    kept = PlaceHolderLayoutEngine(adjust_compatible=True, colorbar_gridspec=True)
    return Figure(figsize=(width, height), layout=kept)


def plain(text: str) -> str:
    """Return text that means itself: matplotlib reads what stands between dollars as formulas."""
    return text.replace("$", r"\$")


def short(name: str, length: int = 16) -> str:
    """Return a name that takes no more than ``length`` characters."""
    return name if len(name) <= length else name[: length - 1] + "…"


@style()
def svg(figure: Figure, label: str = "") -> Markup:
    """Return the figure as an ``<svg>`` element to stand inside an HTML page.

    ``label`` is what a screen reader says. The same figure gives the same text: no date, no random
    ids. Ids carry a prefix made from figure and label, so several figures can share a page.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", dpi=144, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    # A hundredth of a point is more than a screen shows.
    text = _PLACES.sub(lambda places: _DIGITS.sub(r"\1", places.group()), text)
    prefix = "f" + hashlib.sha256(f"{label}\n{text}".encode()).hexdigest()[:8]
    seen: dict[str, int] = {}

    def count(identity: re.Match[str]) -> str:
        # matplotlib names a picture by its content: two equal ones in a figure share a name.
        name = identity.group(1)
        seen[name] = seen.get(name, 0) + 1
        return f' id="{name}"' if seen[name] == 1 else f' id="{name}-{seen[name]}"'

    def rename(tag: re.Match[str]) -> str:
        unique = re.sub(r' id="([^"]*)"', count, tag.group())
        return re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}-", unique)

    # Inside tags only: a variable may well be called ` id="x`.
    text = re.sub(r"<[^>]+>", rename, text)
    opening = own_markup('<svg role="img" aria-label="{}"').format(label)  # escapes the label
    return own_markup(text.replace("<svg", opening, 1))


def save_svg(picture: Markup, path: Path) -> Path:
    """Write what `svg` returned as a file of its own: it is drawn once for page and folder."""
    write_atomically(path, f'<?xml version="1.0" encoding="utf-8"?>\n{picture}\n'.encode())
    return path


@style()
def save(figure: Figure, path: Path) -> Path:
    """Write the figure to ``path``, as ``.png``, ``.svg`` or ``.pdf`` by its suffix."""
    suffix = path.suffix.lower().lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    if suffix not in metadata:
        raise ValueError(f"{path} ends neither in .png, .svg nor .pdf")
    buffer = io.BytesIO()
    # Of PNG a third of the time is compression: its strongest levels gain a few per cent of size.
    packing: Any = {"pil_kwargs": {"compress_level": 3}} if suffix == "png" else {}
    figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata[suffix], **packing)
    write_atomically(path, buffer.getvalue())
    return path
