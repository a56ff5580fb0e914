"""The paper's experiments, by one command each: ``trellis paper joint-precision [FIGURE ...]``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

FIGURES: dict[str, Callable[[Path, Console], None]] = {}
ON_REQUEST: dict[str, Callable[[Path, Console], None]] = {}
