"""What the tests that start whole federations share."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deploy: starts a whole federation on loopback (very slow)")
