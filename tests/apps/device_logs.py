"""What a device told its owner and nobody else."""

from __future__ import annotations

from pathlib import Path

from trellis.privacy.device import log


def reasons(state: Path) -> list[str]:
    """Return the texts of refusals and errors in the log of a state folder, oldest first."""
    lines = log.read(state)
    return [str(line.get("reason", line.get("error"))) for line in lines if line["what"] in
            ("refused", "error")]  # fmt: skip
