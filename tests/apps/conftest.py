from __future__ import annotations

import pytest
from rich.console import Console


@pytest.fixture
def console() -> Console:
    return Console(quiet=True)
