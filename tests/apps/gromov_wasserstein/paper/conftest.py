from __future__ import annotations

import pytest


def here(function, items, console, title, longest_chunk=16):
    return [function(item) for item in items]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Train small models, in this process."""
    from apps.gromov_wasserstein.paper import epsilon, model, removals, subgraphs, table

    from .samples import SMALL_MODELS

    monkeypatch.setattr(model, "MODELS", SMALL_MODELS)
    for module in (table, epsilon, subgraphs):
        monkeypatch.setattr(module, "on_all_cores", here)
        monkeypatch.setattr(module, "MODELS", SMALL_MODELS)
    monkeypatch.setattr(removals, "on_all_cores", here)
