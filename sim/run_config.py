"""A Flower run or node config as TOML, checked before Flower sees it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trellis.sim.processes import FlowerRunError

Scalar = str | int | float | bool


def check_run_config(app: Path, run_config: Mapping[str, Scalar]) -> None:
    """Refuse settings that the app does not have; Flower would, without naming them."""
    path = app / "pyproject.toml"
    if not path.is_file():
        raise FlowerRunError(f"{app} is no Flower app: {path} is missing")
    project = tomllib.loads(path.read_text(encoding="utf-8"))
    known = _flat_keys(project.get("tool", {}).get("flwr", {}).get("app", {}).get("config", {}))
    if unknown := sorted(set(run_config) - known):
        raise FlowerRunError(
            f"{', '.join(unknown)}: not in [tool.flwr.app.config] of {path}; "
            "a run config can only replace what stands there"
        )


def toml(settings: Mapping[str, Scalar]) -> str:
    """Return ``settings`` as TOML, one line a key.

    Raises
    ------
    TypeError
        For a value that is not a string, an integer, a float or a bool.
    """
    lines = []
    for key, value in settings.items():
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int):
            text = int.__repr__(value)
        elif isinstance(value, float):
            text = float.__repr__(value)  # also for numpy's float64, which prints its type
        elif isinstance(value, str):
            text = _quoted(value)
        else:
            raise TypeError(
                f"{key}={value!r}: a Flower setting is a string, an integer, a float or a bool, "
                f"not {type(value).__name__}"
            )
        lines.append(f"{_quoted(key)} = {text}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which only TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _flat_keys(table: Mapping[str, Any], prefix: str = "") -> set[str]:
    keys: set[str] = set()
    for key, value in table.items():
        keys |= _flat_keys(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return keys
