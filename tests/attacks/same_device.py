"""Neighbouring data on the same device: with the same secret, so that all draws are the same."""

from __future__ import annotations

import json
from pathlib import Path


def with_secret(node):
    """Give a device that is new a known secret; return its node config."""
    state = Path(node["state-path"])
    if not state.exists():
        state.mkdir(parents=True)
        (state / "ledger.json").write_text(json.dumps({"version": 1, "entries": {}}))
        (state / "secret").write_bytes(b"s" * 32)
    return node
