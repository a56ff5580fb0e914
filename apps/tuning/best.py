"""``best.toml``: the chosen settings as ``trellis run STUDY --config best.toml`` takes them."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from trellis.apps.common.results import write_atomically

from .outcome import Tuning, cost_in_words, in_words


def text(tuning: Tuning) -> str:
    """Return the file: how the settings were found as comments, then the settings."""
    plan = tuning.plan
    lines = [f"Settings of {plan.study}, found by trellis tune.", *in_words(tuning)]
    over = "; ".join(f"{space.key}: {_tried(space)}" for space in plan.spaces)
    lines += [f"Tried: {over}.", *cost_in_words(tuning)]
    comments = [f"# {line}" for words in lines for line in textwrap.wrap(words, 96)]
    settings = [f"{key} = {_toml(value)}" for key, value in tuning.best.items()]
    return "\n".join([*comments, "", f"[{plan.study}]", *settings, ""])


def write(tuning: Tuning, path: Path) -> Path:
    """Write the file, whole or not at all."""
    write_atomically(path, text(tuning).encode())
    return path


def _tried(space: Any) -> str:
    if space.is_range:
        return f"from {space.low:g} to {space.high:g}"
    return ", ".join(str(value) for value in space.values)


def _toml(value: Any) -> str:
    """Return a setting as TOML: for text, numbers and truth values JSON is written the same way."""
    return json.dumps(value, ensure_ascii=False)
