"""The held-out score and the forecast."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.private.forecast import (
    RATIOS,
    clients_for,
    epsilon_for,
    error_ratio,
    forecast,
    noise_of_tau,
    verdict,
)
from trellis.apps.joint_precision.private.score import SENSITIVITY, right_signs

SHARES = {"delta": 1e-5, "dropout": 0.1, "colluding": 0.1}


def test_a_pair_counts_the_signs_that_the_consensus_predicts():
    # Variables 1 and 2 go together, 3 stands alone: half of it counts.
    precision = np.array([[1.2, -0.5, 0.0], [-0.5, 1.2, 0.0], [0.0, 0.0, 1.0]])
    together = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 5.0]])
    apart = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 5.0]])
    assert right_signs(together, precision) == pytest.approx(2.5 / 3)
    assert right_signs(apart, precision) == pytest.approx(0.5 / 3)
    assert right_signs(np.vstack([together, apart]), precision) == pytest.approx(1.0)
    assert right_signs(together[:1], precision) == 0.0


def test_one_sample_moves_the_score_by_one_at_most():
    rng = np.random.default_rng(0)
    moved = []
    for _ in range(300):
        precision = rng.normal(size=(5, 5))
        values = rng.normal(size=(7, 5))
        other = values.copy()
        other[rng.integers(7)] = rng.normal(size=5) * 100.0
        moved.append(abs(right_signs(values, precision) - right_signs(other, precision)))
    assert 0.5 < max(moved) <= SENSITIVITY


def test_more_clients_and_more_budget_mean_less_noise():
    def noise(clients, epsilon, **more):
        return noise_of_tau(clients, clients * 150, 54, epsilon=epsilon, **SHARES, **more)

    assert noise(200, 1.0) == pytest.approx(noise(100, 1.0) / 2.0)
    assert noise(100, 3.0) < noise(100, 1.0) / 2.0
    assert noise(100, 1.0, part=0.9) == pytest.approx(noise(100, 1.0) / math.sqrt(0.9))


def test_the_forecast_names_the_epsilon_and_the_clients_that_it_takes():
    shares = {"dropout": 0.1, "colluding": 0.1}
    epsilon = epsilon_for(0.5, 100, 15_000, 54, 150, 1e-5, **shares)
    noise = noise_of_tau(100, 15_000, 54, epsilon=epsilon, **SHARES)
    assert error_ratio(noise, 15_000, 150) == pytest.approx(0.5, rel=0.1)
    clients = clients_for(0.5, 54, 150, epsilon=1.0, **SHARES)
    noise = noise_of_tau(clients, clients * 150, 54, epsilon=1.0, **SHARES)
    assert error_ratio(noise, clients * 150, 150) <= 0.5
    # Three clients cannot halve the error of one, whatever the budget.
    assert epsilon_for(0.5, 3, 450, 54, 150, 1e-5, **shares) == math.inf


@pytest.mark.parametrize(
    ("clients", "words"),
    [(5, "do without"), (40, "some help for the devices"), (300, "more exact than any client")],
)
def test_the_forecast_says_what_to_expect(clients, words):
    config = JointPrecisionConfig(privacy="dp", clients=clients)
    text = forecast(config, 54, [150] * clients)
    assert words in text
    assert "inf" not in text
    assert text.startswith(f"Forecast: {clients} clients with {clients * 150:,}")


def test_verdicts_are_in_order():
    assert [verdict(r) for r in (0.1, 1.0, 5.0)] == ["good", "some", "none"]
    assert RATIOS[0][0] < RATIOS[1][0]
