"""The path and its convergence in the report, and what did not go as it should."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.joint_precision.report.results import row, run
from trellis.apps.pages.wording import number


def rounds(gaps):
    rows = [{"round": k + 1.0, "gap": gap, "change": np.nan} for k, gap in enumerate(gaps)]
    return [{**row, "lambda1": 0.1} for row in rows]


@pytest.mark.parametrize(
    ("path_gaps", "text"),
    [
        ([9e-7, 2e-7], "Converged at all 2 points: the largest duality gap, 9e-07, is within"),
        ([9e-7, 2e-5], "Not converged at 1 of 2 points: the largest duality gap, 2e-05, exceeds"),
        ([np.nan, 2e-7], "Not converged at 1 of 2 points: no duality gap was certified there"),
    ],
)
def test_a_path_has_converged_where_all_its_points_have(told, path_gaps, text):
    result = run(metrics=rounds([np.nan, 1.0, 9e-7, np.inf, path_gaps[-1]]))
    result.arrays["path_gap"] = np.array(path_gaps)
    result.config["subsamples"] = 4
    for name in ("lambda1", "lambda2", "ebic", "instability", "edges", "tpr", "fpr", "ppv"):
        result.arrays[f"path_{name}"] = result.arrays[f"path_{name}"][:2]
    result.arrays["path_chosen"] = np.array(1)
    words = told(result).words
    assert "for 2 points of a path, which was run again on 4 parts of the data." in words
    assert text in words


def test_lost_clients_are_named(told):
    result = run()
    assert "Lost" not in told(result).words
    result.arrays["answered"] = np.array([12, 0, 7])
    words = told(result).words
    assert "Lost before the last round (12): site 1 never answered; site 2 last answered" in words
    assert "in round 7" in words
    result.config["sample"] = 2
    words = told(result).words
    assert "Lost before the last round (12): site 1 never answered. " in words
    result.config |= {"sample": 0, "method": "glasso"}
    result.arrays["answered"] = np.array([1, 2, 3])
    assert "Lost" not in told(result).words


def test_projected_correlations_are_told_with_their_number(told):
    result = run()
    result.arrays["smallest_eigenvalue"] = np.array([-0.045, 0.005, -1e-12])
    words = told(result).words
    assert "2 of 3 correlation matrices were not positive semidefinite" in words
    assert "site 0 (-0.045), site 2 (-1e-12)." in words
    assert row("site 0", -0.045, "projected") in words
    assert row("site 1", 0.005, "as it is") in words
    result.arrays["smallest_eigenvalue"] = np.full(3, 0.1)
    assert "not positive semidefinite" not in told(result).words


def test_the_path_shows_the_chosen_point(told):
    result = run()
    found = told(result)
    chosen = float(result.arrays["path_lambda1"][2])
    second = float(result.arrays["path_lambda2"][2])
    assert f"chosen by extended BIC: lambda1 = {number(chosen)}, lambda2 = {number(second)}" in (
        found.words
    )
    fields = [chosen, second, 6.0, 201.25, 0.05, 0.5, 0.125, 0.8, 5e-7]
    assert row("chosen", *fields) in found.words
    labels = [str(picture["aria-label"]) for picture in found.tags("svg")]
    for start in ("Extended BIC", "Instability", "Edges"):
        assert any(f"{start}; the chosen point is at {number(chosen)}." in text for text in labels)
    assert any("ROC curve; the chosen point is at (0.125, 0.5)" in text for text in labels)
    assert any("recall; the chosen point is at (0.5, 0.8)" in text for text in labels)
    assert "Area under the curve: 0.84" in found.words
    assert "last of the path" not in found.words
    assert "stopped with a duality gap" not in found.words


def test_a_path_that_ends_too_early_or_did_not_converge_is_told(told):
    result = run()
    result.arrays["path_chosen"] = np.array(4)
    result.arrays["path_gap"] = np.array([1e-7, 1e-7, 3e-5, 1e-7, 2e-4])
    del result.arrays["path_instability"]
    result.config["choose"] = "stability"
    words = told(result).words
    assert "chosen point is the last of the path" in words
    assert "2 of 5 points stopped with a duality gap above the tolerance of 1e-06" in words
    assert "at most 0.0002" in words
    assert "chosen by stability" in words
    assert "Instability" not in words


def test_a_gap_above_the_tolerance_is_told(told):
    result = run()
    assert "the objective is at most that above its minimum." in told(result).words
    result.headline["gap"] = 0.37
    assert "more than the tolerance of 1e-06" in told(result).words
