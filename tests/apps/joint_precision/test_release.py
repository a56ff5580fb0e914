"""The one noisy release of joint-precision: sensitivity, noise, ledger, forecast."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from tests.apps.joint_precision.overhearing import SOUND, STUDY, released, upper_tau
from trellis.apps import run
from trellis.apps.common import release as shared
from trellis.apps.common.node import Node
from trellis.apps.common.tables import Table
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.data import synthetic_table
from trellis.apps.joint_precision.kendall import kendall
from trellis.apps.joint_precision.release import forecast, release_correlation, sensitivity
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.mechanisms.gaussian import gaussian_sigma

# --- sound: the sensitivity ----------------------------------------------------------------------


def moved(values: np.ndarray, row: int, other: np.ndarray) -> float:
    after = values.copy()
    after[row] = other
    return float(np.linalg.norm(upper_tau(values) - upper_tau(after)))


def test_the_statistic_is_tau_a_with_ties_counting_nothing():
    values = np.random.default_rng(0).integers(0, 3, size=(12, 5)).astype(float)
    table = kendall(values, variant="a")
    np.testing.assert_allclose(table[np.triu_indices(5, 1)], upper_tau(values), atol=1e-15)


def test_what_is_noised_is_that_statistic(monkeypatch):
    monkeypatch.setattr(shared.Release, "apply", lambda self, values, source: values)
    values = np.random.default_rng(1).integers(0, 3, size=(60, 5)).astype(float)
    config = JointPrecisionConfig.from_settings(SOUND)
    table = Table(values, tuple("abcde"), "ties")
    known = release_correlation(config, 1, Node("a", 0, None, None, True), table, Policy())
    expected = np.sin(np.pi / 2 * upper_tau(values))
    np.testing.assert_allclose(known.matrix[np.triu_indices(5, 1)], expected, atol=1e-14)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "p"), [(2, 2), (3, 4), (6, 5), (9, 8)])
def test_no_replaced_sample_moves_tau_farther_than_the_sensitivity(n, p, ties):
    rng = np.random.default_rng(n * p)
    bound = sensitivity(p, n)
    assert bound == 2.0 * p / n
    largest = 0.0
    for _ in range(400):
        values = rng.integers(0, 3, size=(n, p)) if ties else rng.normal(size=(n, p))
        values = values.astype(float)
        if rng.random() < 0.5:  # an outlier in some columns, to the other side in others
            values[0] = 10.0 * rng.choice([-1.0, 0.5, 1.0], size=p)
        other = rng.integers(-1, 4, size=p).astype(float)
        if rng.random() < 0.5:
            other = values[0] * rng.choice([-1.0, 1.0], size=p)
        largest = max(largest, moved(values, 0, other))
    assert largest <= bound + 1e-12
    assert largest > 0.5 * bound


@pytest.mark.parametrize(("n", "p"), [(2, 2), (5, 4), (7, 10), (40, 6)])
def test_an_outlier_turned_in_half_of_the_columns_moves_it_exactly_so_far(n, p):
    values = np.random.default_rng(1).normal(size=(n, p))
    values[0] = 100.0
    other = np.full(p, 100.0)
    other[: p // 2] = -100.0
    assert moved(values, 0, other) == pytest.approx(sensitivity(p, n), abs=1e-9)


def test_a_search_over_replacements_finds_nothing_worse():
    # Every order of the new sample among three others, in four columns: 7^4 places, ties included.
    base = np.random.default_rng(2).permuted(np.tile([1.0, 2.0, 3.0], (4, 1)), axis=1).T
    places = np.stack(np.meshgrid(*[np.arange(0.5, 4.0, 0.5)] * 4), axis=-1).reshape(-1, 4)
    taus = np.array([upper_tau(np.vstack([place, base])) for place in places[::3]])
    distances = np.linalg.norm(taus[:, None] - taus[None], axis=-1)
    assert distances.max() <= sensitivity(4, 4) + 1e-12


# --- sound: the noise ----------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_the_noise_on_tau_has_the_deviation_that_the_budget_asks_for(monkeypatch, noise):
    settings = {**SOUND, "variables": 20, "samples": "30", "noise": noise}
    drawn, events = released(monkeypatch, settings, range(30))
    expected = gaussian_sigma(2.0, 1e-6, 2.0 * 20 / 30)
    if noise == "gaussian":
        assert events[0].sigma == pytest.approx(expected, rel=1e-12)
    else:  # through zCDP, and with a thousandth more sensitivity for the grid: 7 % more noise here
        assert expected < events[0].sigma < 1.1 * expected
    assert events[0].sensitivity == pytest.approx(40 / 30, rel=2e-3)
    standard = drawn.ravel() / events[0].sigma
    assert standard.size == 30 * 190
    assert abs(standard.mean()) < 4.0 / np.sqrt(standard.size)
    assert standard.std() == pytest.approx(1.0, abs=0.04)  # four standard errors
    assert scipy.stats.kstest(standard, "norm").pvalue > 1e-3
    # Independent between entries and between draws.
    rows = np.corrcoef(drawn) - np.eye(30)
    assert np.abs(rows).max() < 6.0 / np.sqrt(190)
    if noise == "discrete":
        clean = upper_tau(
            synthetic_table(JointPrecisionConfig.from_settings(settings), 0, 1).values
        )
        steps = (drawn[0] + clean) * 2.0**20
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)


@pytest.mark.parametrize(
    "extra",
    [{}, {"rounds": 2}, {"path": 4, "rounds": 30}, {"method": "glasso"}, {"method": "fused"}],
)
def test_one_noise_draw_a_client_whatever_the_rounds_and_points(monkeypatch, extra):
    drawn = []
    original = shared.generator

    def counting(seed, purpose, partition=0, server_round=0):
        drawn.append((purpose, partition))
        return original(seed, purpose, partition, server_round)

    monkeypatch.setattr(shared, "generator", counting)
    result = run(STUDY, {**SOUND, **extra})
    assert sorted(drawn) == [("release", 0), ("release", 1), ("release", 2)]
    for entry in result.ledger["clients"]:
        assert len(entry["events"]) == 1
        assert entry["epsilon"] == pytest.approx(2.0, abs=1e-6)


def test_the_ledger_of_the_run_says_what_was_spent_on_what(tmp_path):
    run(STUDY, {**SOUND, "samples": "50,60,90"}, out=tmp_path, report=False)
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    assert ledger["mode"] == "sound"
    assert "noised once" in ledger["claim"]
    assert ledger["epsilon"] == pytest.approx(2.0, abs=1e-6)
    for entry, count in zip(ledger["clients"], (50, 60, 90), strict=True):
        (event,) = entry["events"]
        assert event["what"] == f"Kendall's tau of 6 variables, {count} samples"
        assert event["sensitivity"] == pytest.approx(12.0 / count)
        assert event["sigma"] == pytest.approx(gaussian_sigma(2.0, 1e-6, 12.0 / count), rel=1e-12)
        assert event["mechanism"] == "gaussian"


# --- the forecast --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "epsilon", "verdict"),
    [
        (10_000, 5.0, "useful graphs can be expected"),
        (1000, 5.0, "the strong edges only"),
        (150, 10.0, "will mostly show noise"),
    ],
)
def test_the_forecast_says_what_noise_will_leave(count, epsilon, verdict):
    config = JointPrecisionConfig(privacy="sound", release="each", epsilon=epsilon)
    text = forecast(config, 54, [2 * count, count])
    noise = gaussian_sigma(epsilon, config.delta, 2.0 * 54 / count)
    assert f"n = {count} samples of p = 54" in text
    assert f"epsilon = {epsilon:g}" in text
    assert f"standard deviation {noise:.2g}" in text
    assert verdict in text
    needed = int(np.ceil(50 * 54 * gaussian_sigma(epsilon, config.delta, 1.0)))
    assert f"{needed:,} is needed" in text


def test_the_forecast_is_made_before_the_run_and_kept(caplog):
    result = run(STUDY, SOUND)
    assert any(
        note.startswith("Forecast for privacy='sound': with n = 50") for note in result.notes
    )
    forecasts = [i for i, r in enumerate(caplog.records) if "Forecast" in r.getMessage()]
    rounds = [i for i, r in enumerate(caplog.records) if r.getMessage().startswith("round ")]
    assert forecasts
    assert not rounds or forecasts[0] < rounds[0]
    assert not any("recover every client" in note for note in result.notes)


def test_the_sampling_deviation_in_the_forecast_is_kendalls():
    text = forecast(JointPrecisionConfig(privacy="sound", release="each"), 6, [50])
    rng = np.random.default_rng(0)
    taus = [upper_tau(rng.normal(size=(50, 2)))[0] for _ in range(2000)]
    stated = float(text.split("sampling alone has ")[1].split(")")[0])
    assert stated == pytest.approx(np.std(taus), rel=0.06)
