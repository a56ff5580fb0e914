"""What the tests of this report share."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from tests.apps.joint_precision.report.results import page
from tests.apps.pages.pages import leave_out_pictures
from trellis.apps.joint_precision.report import clients as report_clients
from trellis.apps.joint_precision.report import graphs as report_graphs


@pytest.fixture
def told(monkeypatch, tmp_path):
    """Return what reads a report without its pictures."""
    leave_out_pictures(monkeypatch)
    monkeypatch.setattr(report_graphs, "connectome", lambda *_, **__: Figure())
    monkeypatch.setattr(report_clients, "connectomes", lambda *_, **__: Figure())
    return lambda result: page(result, tmp_path)
