"""What the subcommands of ``trellis device`` share: where to look, and who asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def there(state: Path) -> None:
    """Refuse a state folder that is not there."""
    if not state.is_dir():
        raise ValueError(f"{state}: no such folder; give the device's state-path")


def config_of(path: Path) -> dict[str, Any]:
    """Return the keys of a policy file, or those that were last in force in a state folder."""
    from trellis.privacy.device.policy_file import whole_config
    from trellis.privacy.device.state import kept_policy

    return kept_policy(path) if path.is_dir() else whole_config({"policy": str(path.resolve())})


def asker(line: dict[str, Any]) -> str:
    """Return the owner's name for the server that an entry is about, as an ending; or nothing."""
    return f", asked by {line['server']}" if line.get("server") else ""
