"""What the tests that start Flower share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sim import flower


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "flower: starts Flower's own processes (slow)")


@pytest.fixture
def tiny_app() -> Path:
    return Path(__file__).parent / "tiny_app"


@pytest.fixture
def homes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The temporary homes of the sessions that this test opened."""
    seen: list[Path] = []
    enter = flower.FlowerSession.__enter__

    def noted(session: flower.FlowerSession) -> flower.FlowerSession:
        enter(session)
        seen.append(session.home)
        return session

    monkeypatch.setattr(flower.FlowerSession, "__enter__", noted)
    return seen


@pytest.fixture
def processes_of() -> Callable[[Path], list[str]]:
    """The processes that name a home, found in another way than the code under test finds them."""

    def find(home: Path) -> list[str]:
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                command = (folder / "cmdline").read_bytes()
                mentions = str(home).encode() in command + (folder / "environ").read_bytes()
            except OSError:
                continue
            if mentions:
                found.append(f"{folder.name} {command.decode(errors='replace')[:100]}")
        return found

    if not Path("/proc/self/environ").exists():
        pytest.skip("this check needs Linux's /proc")
    return find
