from __future__ import annotations

import pytest
from markupsafe import Markup

from trellis.apps.pages import plots


@pytest.fixture
def drawn():
    """Ask for pictures as they are in a report."""


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Leave out the drawing of lines, which takes most of the time, where no test looks at it."""
    if "drawn" not in request.fixturenames:
        stub = Markup('<svg aria-label="{}">')
        monkeypatch.setattr(plots, "svg", lambda figure, label="": stub.format(label))
