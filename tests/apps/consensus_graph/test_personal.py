"""Graphs made at home: never much worse than alone, better where the consensus is good."""

from __future__ import annotations

import time

import numpy as np
import pytest

from trellis.apps.common.node import Node
from trellis.apps.common.tables import Table
from trellis.apps.consensus_graph.paper.private import Federation, at_home, pooled_statistic
from trellis.apps.consensus_graph.private import personal, pooled, score
from trellis.apps.consensus_graph.private.personal import choose, errors_allowed, personal_graph
from trellis.apps.consensus_graph.problem import statistic
from trellis.apps.consensus_graph.solver import solve

SIMULATED = Node("x", 0, None, None, True)


def test_alone_is_13_on_the_raw_statistic():
    signals = np.random.default_rng(0).normal(size=(49, 6)) @ np.diag([1, 2, 1, 3, 1, 1.0])
    found = personal_graph(signals, None, 0.0, 2.0)
    z = statistic(signals)
    beta = 3.0 / 7.0 * z.mean() ** 2 / 2.0
    assert found.beta == pytest.approx(beta, rel=1e-9)
    np.testing.assert_allclose(found.weights, solve(z, 2.0, beta).w, rtol=1e-5, atol=1e-9)
    assert found.pull == 0.0


def test_the_graph_is_13_with_the_consensus_in_the_client_s_unit():
    rng = np.random.default_rng(3)
    signals = rng.normal(size=(30, 6))
    consensus = 1e7 * rng.random(15)
    found = personal_graph(signals, consensus, 1e-3, 2.0)
    assert found.pull > 0.0
    z = statistic(signals)
    # c minimises 2 c z'w - alpha d log c + 2 beta c^2 |w|^2; by a fine search here.
    factors = np.geomspace(1e-9, 1e-5, 400_001)
    values = (
        2.0 * factors * np.sum(z * consensus)
        - 2.0 * 6 * np.log(factors)
        + 2.0 * found.beta * factors**2 * np.sum(consensus**2)
    )
    target = factors[np.argmin(values)] * consensus
    pull = 4.0 * found.beta * found.pull
    w = solve(z, 2.0, found.beta, pull, target).w
    np.testing.assert_allclose(found.weights, w, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-150, 1e-3, 1.0, 1e3, 1e150])
def test_any_unit_gives_the_same_choice(unit):
    federation = Federation.of(5, 30, 1)
    consensus = federation.truth.consensus
    plain = personal_graph(federation.signals[0], consensus, 0.01, 2.0)
    found = personal_graph(unit * federation.signals[0], 7.0 * consensus, 0.01, 2.0)
    assert found.pull == plain.pull
    assert found.gain == pytest.approx(plain.gain, rel=1e-6)
    largest = found.weights.max()
    if 0.0 < largest < 1e300:
        np.testing.assert_allclose(
            found.weights / largest, plain.weights / plain.weights.max(), atol=1e-6
        )
    assert np.all(np.isfinite(found.weights))


def test_likelihood_is_the_gaussian_one():
    rng = np.random.default_rng(1)
    w, signals = rng.random(10), rng.normal(size=(8, 5))
    precision = personal.laplacian_of(w)
    values, vectors = np.linalg.eigh(precision)
    basis = vectors[:, 1:]  # signals without a mean
    scale = 4.0 / np.mean(np.sum(signals @ precision * signals, axis=1))
    inside = np.diag(values[1:]) * scale
    expected = [
        0.5 * np.log(np.linalg.det(inside)) - 0.5 * (x @ basis) @ inside @ (basis.T @ x)
        for x in signals
    ]
    np.testing.assert_allclose(personal.log_likelihood(w, signals), expected, rtol=1e-9)


def test_the_choice_leans_to_who_knows_more():
    scores = np.zeros((4, 50))
    rng = np.random.default_rng(0)
    for row, mean in enumerate((-0.3, 0.0, -0.02, -0.2)):
        scores[row] = mean + 0.3 * rng.normal(size=50)
    best = int(np.argmax(scores.sum(axis=1)))
    assert choose(scores, 0.0) == best
    assert choose(scores, 2.0) >= best
    assert choose(scores, -2.0) <= best
    # However many errors are allowed, never what is less likely than alone.
    for errors in (0.5, 2.0, 100.0):
        assert scores[choose(scores, errors)].sum() >= scores[0].sum()
    assert errors_allowed(1e-4, 20) == 2.0
    assert errors_allowed(10.0, 20) == -2.0
    assert abs(errors_allowed(1e-4, 100_000)) < 0.01


def test_a_good_consensus_helps_and_a_bad_one_does_little_harm():
    gains, harms = [], []
    for seed in (1, 2, 3, 4, 5, 6):
        federation = Federation.of(60, 50, seed)
        small = Federation(federation.config, seed, federation.truth, federation.signals[:60])
        alone = small.mean_mcc(at_home(small, None)[1])
        known = pooled_statistic(small, 3.0)
        gains.append(small.mean_mcc(at_home(small, known)[1]) - alone)
        hopeless = pooled_statistic(small, 0.02)
        harms.append(small.mean_mcc(at_home(small, hopeless)[1]) - alone)
    assert np.mean(gains) > 0.08
    assert np.mean(harms) > -0.015


def test_a_client_unlike_all_others_is_not_dragged_along():
    lost = []
    for seed in (1, 2, 3):
        crowd, stranger = Federation.of(100, 50, seed), Federation.of(10, 50, seed + 100)
        known = pooled_statistic(crowd, 1.0)
        with_crowd = stranger.mean_mcc(at_home(stranger, known)[1])
        lost.append(stranger.mean_mcc(at_home(stranger, None)[1]) - with_crowd)
    assert np.mean(lost) < 0.06


def test_it_is_quick():
    federation = Federation.of(4, 50, 1)
    consensus = federation.truth.consensus
    began = time.process_time()
    for signals in federation.signals:
        personal_graph(signals, consensus, 0.01, 2.0)
    assert (time.process_time() - began) / 4 < 0.3


@pytest.mark.parametrize("signals", [np.zeros((4, 5)), np.ones((2, 5)), 1e308 * np.ones((3, 5))])
def test_signals_that_say_nothing_leave_the_consensus(signals):
    consensus = np.arange(10.0)
    found = personal_graph(signals, consensus, 0.1, 2.0)
    np.testing.assert_array_equal(found.weights, consensus)
    assert np.all(personal_graph(signals, None, 0.0, 2.0).weights == 0.0)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_few_signals_are_enough(count):
    rng = np.random.default_rng(count)
    found = personal_graph(rng.normal(size=(count, 5)), rng.random(10), 0.01, 2.0)
    assert np.all(np.isfinite(found.weights))
    sparse = rng.normal(size=(count, 5))
    sparse[1:] = 0.0  # whole folds without a difference
    assert np.all(np.isfinite(personal_graph(sparse, rng.random(10), 0.01, 2.0).weights))


# --- the held-out score --------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "share", "held"), [(50, 0.2, 10), (2, 0.5, 0), (7, 0.9, 5)])
def test_a_declared_number_is_held_out(count, share, held):
    table = Table(np.arange(count)[:, None] * np.ones(3), ("a", "b", "c"), "x")
    learned, out = score.split(table, share, SIMULATED, 1)
    learning = learned.values
    assert score.held_out_count(count, share) == len(out) == held
    assert sorted([*learning[:, 0], *out[:, 0]]) == list(range(count))


def test_one_record_moves_one_count_by_one_at_most():
    federation = Federation.of(3, 20, 1)
    signals, consensus = federation.signals[0], federation.truth.consensus

    def scores(values):
        table = Table(values, tuple(map(str, range(20))), "x")
        learning, held = score.split(table, 0.3, SIMULATED, 1)
        return score.scores(learning.values, held, consensus, 0.01, 2.0)

    base = scores(signals)
    rng = np.random.default_rng(0)
    moved = set()
    for row in range(20):
        for other in (np.zeros(20), 1e200 * rng.normal(size=20), 0.1 * signals[row] + 3.0):
            changed = signals.copy()
            changed[row] = other
            found = scores(changed)
            moved.add(float(np.linalg.norm(found - base)))
    assert max(moved) <= score.SENSITIVITY
    assert moved == {0.0, 1.0}


def test_the_advantage_is_of_directions_and_tells_good_from_random():
    federation = Federation.of(20, 50, 1)
    truth = federation.truth.consensus
    rng = np.random.default_rng(0)
    signals = np.vstack(federation.signals)
    np.testing.assert_allclose(
        score.advantage(signals, truth), score.advantage(1e3 * signals, 9.0 * truth), rtol=1e-9
    )
    good = np.mean(score.advantage(signals, truth) > 0.0)
    random = np.mean(score.advantage(signals, rng.permutation(truth)) > 0.0)
    assert good > 0.6
    assert random < 0.45
    # Against itself a graph that knows nothing has no advantage.
    np.testing.assert_allclose(score.advantage(signals, np.ones(190)), 0.0, atol=1e-9)
    assert not np.any(score.advantage(np.ones((3, 20)), truth))


def test_pooled_names_are_used():
    assert pooled.sensitivity(0.0) == pytest.approx(np.sqrt(2.0 * 1.04))
