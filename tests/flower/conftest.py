"""What the tests that start Flower share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from trellis.sim import flower


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "flower: starts Flower's own processes (slow)")


@pytest.fixture(autouse=True)
def _all_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give back the threads that tests do without: the same bits are promised with them."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threadpool_limits(os.cpu_count(), "blas"):
        yield


class Borrowed:
    """A session that is open already, and stays so when `simulate` leaves it."""

    def __init__(self, session: flower.FlowerSession) -> None:
        self.run = session.run

    def __enter__(self) -> Borrowed:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start_superlink(self, *options: str) -> None:
        assert options == ("--simulation",)


@pytest.fixture(scope="session")
def superlink() -> Iterator[flower.FlowerSession]:
    with flower.FlowerSession() as session:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("OMP_NUM_THREADS", raising=False)
            session.start_superlink("--simulation")
        yield session


@pytest.fixture
def one_superlink(superlink: flower.FlowerSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let simulations share a SuperLink: its start and its end take seconds, and are not theirs."""
    monkeypatch.setattr(flower, "FlowerSession", lambda: Borrowed(superlink))


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
