"""Federations whose clients never hold a correlation matrix, against those that do."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import trellis
from trellis.apps import run
from trellis.apps.joint_precision import config as config_module
from trellis.apps.joint_precision import server_app
from trellis.apps.joint_precision.config import STREAM_FROM, JointPrecisionConfig
from trellis.strategies.joint_precision.blocks import Blocks

SETTINGS = {
    "variables": 60,
    "blocks": 12,
    "samples": "90,150,120",
    "correlation": "pearson",
    "lambda1": 0.25,
    "lambda2": 0.05,
    "tolerance": 1e-9,
}


@pytest.fixture
def streaming(monkeypatch):
    """Take 60 variables for very many."""
    for module in (config_module, server_app):
        monkeypatch.setattr(module, "STREAM_FROM", 50)


@pytest.mark.parametrize("method", ["group", "fused", "glasso"])
@pytest.mark.parametrize("more", [{}, {"path": 3}])
def test_streamed_federation_learns_the_same(method, more, monkeypatch, tmp_path):
    settings = {**SETTINGS, **more, "method": method}
    if method == "glasso":  # whose blocks are those of three clients together
        settings = {k: v for k, v in settings.items() if k != "lambda2"} | {"lambda1": 0.4}
    dense = run("joint-precision", settings)
    for module in (config_module, server_app):
        monkeypatch.setattr(module, "STREAM_FROM", 50)
    found = run("joint-precision", settings, out=tmp_path / "run", report=True)
    blocks = Blocks(found.arrays["blocks"])
    assert 1 < max(group.size for group in blocks.members) < 60
    assert "sparse" not in found.arrays
    for packed, whole in (("packed_sparse", "sparse"), ("packed_precision", "precision")):
        built = blocks.unpack(found.arrays[packed])
        np.testing.assert_allclose(built, dense.arrays[whole], rtol=0, atol=1e-4)
    for name in ("edges", "common-edges", "lambda1"):
        assert found.headline[name] == dense.headline[name]
    with (tmp_path / "run" / "graphs" / "partial-correlations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == round(3 * found.headline["edges"])
    assert "stand alone" in (tmp_path / "run" / "report.html").read_text()


def test_result_names_its_graphs(streaming):
    result = trellis.run("joint-precision", **SETTINGS)
    common = result.graph("common")
    assert common.to_frame().shape[0] == result.headline["common-edges"]


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("correlation", ["kendall", "spearman"])
def test_indefinite_blocks_are_projected_or_refused(correlation):
    settings = {**SETTINGS, "correlation": correlation, "samples": "12", "lambda1": 0.5}
    result = run("joint-precision", settings)
    assert result.headline["gap"] <= 1e-9
    if np.min(result.arrays["smallest_eigenvalue"]) < 0.0:
        with pytest.raises(Exception, match="not positive semidefinite"):
            run("joint-precision", {**settings, "indefinite": "refuse"})


def test_when_correlations_are_streamed():
    def streams(variables=STREAM_FROM + 1, **settings):
        return JointPrecisionConfig(**settings).streams(variables)

    assert streams()
    assert streams(method="fused")
    assert streams(method="glasso")
    assert not streams(variables=STREAM_FROM)
    assert not streams(privacy="dp")
    assert not streams(screening=False)
    assert not streams(method="clime")
    assert not streams(method="pooled")
    assert not streams(method="one-shot")
    assert not streams(path=3, subsamples=2, choose="stability")
