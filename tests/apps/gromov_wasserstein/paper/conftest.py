from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Do all jobs in this process, where what is replaced for a test is replaced; few clients."""
    from trellis.apps.experiments.making import Making
    from trellis.apps.gromov_wasserstein.paper import model

    few = {name: {**settings, "clients": 3} for name, settings in model.MODELS.items()}
    monkeypatch.setattr(model, "MODELS", few)

    def in_turn(self, function, items, title=""):
        return [function(item) for item in items]

    monkeypatch.setattr(Making, "on_all_cores", in_turn)
