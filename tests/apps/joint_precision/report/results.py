"""Results of joint-precision made by hand, and their pages."""

from __future__ import annotations

import numpy as np

from tests.apps.pages.pages import Page
from trellis.apps.common.results import RunResult
from trellis.apps.joint_precision.report.page import sections
from trellis.apps.joint_precision.report.words import WORDING
from trellis.apps.pages.report import write_report
from trellis.apps.pages.wording import number


def symmetric(rng, clients, p, density):
    half = np.triu(rng.uniform(-0.3, 0.3, (clients, p, p)), 1)
    half *= rng.random((clients, p, p)) < density
    matrices = half + half.swapaxes(1, 2)
    matrices[:, range(p), range(p)] = 1.0 + np.abs(matrices).sum(axis=1)
    return matrices


def partials(matrices):
    scale = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    found = -matrices / (scale[:, :, None] * scale[:, None, :])
    found[:, range(matrices.shape[1]), range(matrices.shape[1])] = 1.0
    return found


def run(p=8, clients=3, truth=True, path=True, density=0.4, **changes) -> RunResult:
    rng = np.random.default_rng(5)
    sparse = symmetric(rng, clients, p, density)
    # Some edges that all have, whatever chance says.
    sparse[:, 0, 1] = sparse[:, 1, 0] = [0.4] + [0.5] * (clients - 1)
    sparse[:, 2, 3] = sparse[:, 3, 2] = [0.2] + [-0.2] * (clients - 1)
    arrays = {
        "precision": sparse + 1e-9 * rng.normal(size=sparse.shape),
        "sparse": sparse,
        "partial": partials(sparse),
        "smallest_eigenvalue": np.linspace(-0.045, 0.02, clients),
        "blocks": np.arange(p) * 3 // p,
        "answered": np.full(clients, 12),
    }
    if truth:
        arrays["truth"] = symmetric(rng, clients, p, 0.3)
    if path:
        points, pairs = 5, p * (p - 1) // 2
        arrays |= {
            "path_lambda1": np.geomspace(0.6, 0.1, points),
            "path_lambda2": np.geomspace(0.3, 0.05, points),
            "path_gap": np.full(points, 5e-7),
            "path_edges": np.tile(np.arange(points)[:, None] * 3, clients),
            "path_ebic": np.array([210.0, 205.5, 201.25, 203.0, 209.0]),
            "path_instability": np.linspace(0.0, 0.1, points),
            "path_chosen": np.array(2),
            "path_support": np.zeros((points, clients, -(-pairs // 8)), dtype=np.uint8),
        }
    if path and truth:
        arrays["path_tpr"] = np.array([0.0, 0.3, 0.5, 0.7, 0.9])
        arrays["path_fpr"] = np.array([0.0, 0.0625, 0.125, 0.25, 0.375])
        arrays["path_ppv"] = np.array([np.nan, 0.9, 0.8, 0.7, 0.6])
    config = {"method": "group", "privacy": "none", "tolerance": 1e-6, "correlation": "kendall"}
    values = {
        "config": {**config, "lambda1": 0.1, "lambda2": 0.05, "screening": True, "choose": "ebic"},
        "arrays": arrays,
        "clients": [{"name": f"site {k}", "count": 10 + k} for k in range(clients)],
        "variables": [f"gene{k}" for k in range(p)],
        "headline": {"rounds": 12.0, "gap": 2.5e-7, "lambda1": 0.245, "auc": 0.84, "aupr": 0.71},
        "status": "completed",
        "started": "2025-01-01T00:00:00Z",
    }
    return RunResult("joint-precision", 1, "local", **{**values, **changes})


def configured(**settings) -> RunResult:
    result = run()
    result.config |= settings
    return result


def page(result, folder) -> Page:
    path = folder / "report.html"
    found = Page.read(write_report(result, sections(result), path, WORDING))
    found.assert_private()
    return found


def support(result):
    ends = np.triu_indices(result.arrays["sparse"].shape[1], 1)
    return result.arrays["sparse"][:, ends[0], ends[1]] != 0.0


def row(*fields):
    return " ".join(number(field) for field in fields)
