"""What the tests that start whole federations share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .site import Site, site, write_table


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "deploy: starts a whole federation on loopback (very slow)")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table per device of `four`."""
    folder = tmp_path_factory.mktemp("tables")
    for seed, name in enumerate(("clinic", "hospital", "lab", "ward")):
        write_table(folder / f"{name}.csv", seed)
    return folder


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory, tables: Path) -> Iterator[Site]:
    """Clinic, hospital, lab and ward over TLS; a test leaves them as it found them."""
    with site(tmp_path_factory.mktemp("four"), tables, "--tls") as found:
        yield found
