"""What the tests of this report share: two runs, and pictures left out where nobody looks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.cluster_admm.report.reading import run, undrawn
from trellis.apps.common.results import RunResult
from trellis.apps.pages import plots


@pytest.fixture
def drawn():
    """Ask for pictures as they are in a report."""


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Leave out the drawing of lines, which takes most of the time, where no test looks at it."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(plots, "svg", undrawn)


@pytest.fixture(scope="session")
def pgfl() -> RunResult:
    return run(tau_decay=0.9)


@pytest.fixture(scope="session")
def paper() -> RunResult:
    return run(privacy="paper", sample=2, phi0=0.01, zeta=0.9, epsilon=1e4)


@pytest.fixture
def own(tmp_path) -> RunResult:
    """Four files of one feature's name each, two servers, two clusters."""
    rng = np.random.default_rng(5)
    for k in range(4):
        X = rng.standard_normal((9, 2))
        rows = "\n".join(
            ",".join(map(repr, row.tolist())) for row in np.column_stack([X, X.sum(1)])
        )
        (tmp_path / f"site-{k}.csv").write_text(f"age,<dose>,y\n{rows}\n")
    lines = [f"site-{k},{k // 2},{k % 2}" for k in range(4)]
    (tmp_path / "assignment.csv").write_text("client,server,cluster\n" + "\n".join(lines) + "\n")
    return run(data=tmp_path, clients=4, servers=2, clusters="2", rounds=5)
