"""Noise has the deviation it claims; no neighbouring data set moves a model by more than Delta."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellis.apps.cluster_admm.release import (
    bounded,
    gradient_bound,
    permit_losses,
    projected,
    release_model,
    round_event,
    sensitivity,
    statement,
    total_rho,
    warnings,
)

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.steps import primal_step
from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.ledger import Ledger
from trellis.privacy.accounting.totals import total_rho as events_rho

SMALL = {"clip_features": 0.5, "clip_target": 1.0, "clip_model": 2.0, "ridge": 0.2}


def config(privacy="sound", **options) -> ClusterAdmmConfig:
    paper = {"phi0": 0.001, "rounds": 300, "epsilon": 100.0}
    return ClusterAdmmConfig(**{"privacy": privacy, "release": "each"} | paper | options)


def simulated(partition=0) -> Node:
    return Node("client", partition, None, None, True)


def moved(settings_, X, y, record, v, rho, share, at=0):
    """Return how far replacing sample ``at`` by ``record`` moves the projected model."""
    other_X, other_y = X.copy(), y.copy()
    other_X[at], other_y[at] = record
    first, second = (
        projected(
            primal_step(
                settings_.loss, *bounded(settings_, *table), settings_.ridge, share, rho
            ).solve(v),
            settings_.clip_model,
        )
        for table in ((X, y), (other_X, other_y))
    )
    return float(np.linalg.norm(first - second))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**20), st.integers(1, 5), st.integers(1, 4), st.sampled_from([0.3, 2.0, 20.0]),
    st.floats(-2, 4), st.sampled_from([0.1, 1.0, 100.0]), st.sampled_from(["ridge", "logistic"]),
)  # fmt: skip
def test_no_neighbour_moves_the_model_further_than_claimed(
    seed, count, features, rho, log_v, size, loss
):
    chosen = config(loss=loss, **SMALL)
    rng = np.random.default_rng(seed)

    def draw(shape):  # as large as the settings let them be used, or larger
        y = rng.choice([-1.0, 1.0], shape)
        return size * rng.normal(size=(shape, features)), y * (1.0 if loss == "logistic" else size)

    X, y = draw(count)
    new_X, new_y = draw(1)
    v = 10.0**log_v * rng.normal(size=features)
    distance = moved(chosen, X, y, (new_X[0], new_y[0]), v, rho, 0.5)
    assert distance <= sensitivity(chosen, count, rho, 0.5) * (1.0 + 1e-9) + 1e-12


def worst_found(chosen, rho, outside=False):
    """Return the largest move found for one sample in one dimension and two, by brute force."""
    B, Y, W = chosen.clip_features, chosen.clip_target, chosen.clip_model
    worst = 0.0
    angles = np.linspace(0.0, np.pi, 9)
    records = [(B * np.array([np.cos(a), np.sin(a)]), s * Y) for a in angles for s in (-1, 1)]
    for length in np.array([0.0, 0.5, 1.0, 1.05, 2.0, 50.0]) * rho * W:
        if outside and length <= rho * W:
            continue
        for x, y in records[:6]:
            for record in [*records, (np.zeros(2), 0.0)]:
                v = np.array([length, 0.0])
                found = moved(chosen, x[None, :], np.array([y]), record, v, rho, 0.0)
                worst = max(worst, found)
    return worst


def test_the_worst_neighbour_comes_near_the_claim_and_not_above():
    chosen = config(**SMALL)
    for rho in (5.0, 50.0):
        claim = sensitivity(chosen, 1, rho, 0.0)
        assert claim < 2.0 * chosen.clip_model
        assert 0.4 * claim < worst_found(chosen, rho) <= claim
        # also where both models lie outside the ball before the projection
        assert worst_found(chosen, rho, outside=True) <= claim


def test_without_clipping_or_projection_the_claim_would_be_false():
    chosen = config(**SMALL)
    claim = sensitivity(chosen, 1, 50.0, 0.0)
    X, y, v = np.array([[0.5, 0.0]]), np.array([1.0]), np.array([5000.0, 0.0])
    plain = config("none", **SMALL)
    solutions = [
        primal_step("ridge", table, y, 0.2, 0.0, 50.0).solve(v) for table in (X, np.zeros((1, 2)))
    ]
    assert np.linalg.norm(solutions[0] - solutions[1]) > claim  # not projected
    far = moved(plain, X, y, (np.array([30.0, 0.0]), 100.0), np.zeros(2), 50.0, 0.0)
    assert far > claim  # not clipped


def test_the_claim_is_what_the_module_derives():
    ridge = config(**SMALL)
    assert gradient_bound(ridge) == 2 * 0.5 * (0.5 * 2.0 + 1.0)
    assert sensitivity(ridge, 4, 3.0, 0.25) == pytest.approx(2 * 2.0 / (4 * (3.0 + 0.1)))
    assert sensitivity(config(), 2, 3.0, 0.1) == 20.0  # the ball's diameter is less
    logistic = config(loss="logistic", **SMALL)
    assert sensitivity(logistic, 4, 3.0, 0.25) == pytest.approx(2 * 0.5 / (4 * 3.1), rel=1e-6)
    assert sensitivity(logistic, 4, 3.0, 0.25) > 2 * 0.5 / (4 * 3.1)
    printed = config("paper", bound=0.1, ridge=5.0)
    assert sensitivity(printed, 5, 3.0, 1.0) == pytest.approx(2 * 0.1 / (5 * 3.0))


def test_sound_bounds_rows_and_targets_and_other_modes_leave_them():
    X, y = np.array([[30.0, 40.0], [0.3, 0.0]]), np.array([-9.0, 0.5])
    short, small = bounded(config(**SMALL), X, y)
    np.testing.assert_allclose(short, [[0.3, 0.4], [0.3, 0.0]])
    np.testing.assert_array_equal(small, [-1.0, 0.5])
    for privacy in ("none", "paper"):
        same_X, same_y = bounded(config(privacy), X, y)
        assert same_X is X
        assert same_y is y
    labels = np.array([-1.0, 1.0])
    half = config(loss="logistic", clip_target=0.5)
    np.testing.assert_array_equal(bounded(half, X, labels)[1], labels)


@pytest.mark.parametrize("privacy", ["paper", "sound"])
def test_the_noise_has_the_variance_of_12(privacy):
    chosen, size = config(privacy, **SMALL), 40_000
    w = np.zeros(size)
    for n in (1, 100):
        sent, (event,) = release_model(chosen, 1, simulated(), w, n, 4, 3.0, 0.25)
        distance = sensitivity(chosen, 4, 3.0, 0.25)
        if privacy == "sound":  # rounding, of the model and in computing it, is counted
            assert distance < event.sensitivity < distance * 1.003
            distance = event.sensitivity
        variance = 0.99**n * distance**2 / (2 * 0.001)
        assert event.sigma**2 == pytest.approx(variance)
        assert sent.var() == pytest.approx(variance, rel=0.04)  # 5.7 standard errors
        assert abs(sent.mean()) < 5 * np.sqrt(variance / size)
        assert event.rho == pytest.approx(0.001 / 0.99**n)
        assert (event.name, event.round) == (f"round-{n}", n)


def test_simulated_noise_is_the_client_s_and_the_round_s():
    chosen, w = config(), np.ones(3)

    def sent(seed, partition, n):
        return release_model(chosen, seed, simulated(partition), w, n, 4, 3.0, 0.1)[0]

    np.testing.assert_array_equal(sent(1, 2, 3), sent(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not np.any(sent(*other) == sent(1, 2, 3))


def test_without_privacy_the_model_is_sent_as_it_is():
    w = np.full(3, 1e6)
    sent, events = release_model(config("none"), 1, simulated(), w, 1, 4, 3.0, 0.1)
    assert sent is w
    assert events == ()


def test_sound_projects_before_it_adds_noise():
    chosen = config(phi0=1e12, epsilon=1e16, **SMALL)  # hardly any noise
    sent, _ = release_model(chosen, 1, simulated(), np.array([30.0, 40.0]), 1, 4, 3.0, 0.1)
    np.testing.assert_allclose(sent, [1.2, 1.6], atol=3e-4)  # the grid
    sent, _ = release_model(chosen, 1, simulated(), np.array([1.0, 1.0]), 1, 4, 3.0, 0.1)
    np.testing.assert_allclose(sent, [1.0, 1.0], atol=3e-4)


def test_totals_are_of_the_rounds_a_client_took_part_in():
    chosen = config()
    assert total_rho(chosen, range(1, 301)) == pytest.approx(1.939, abs=5e-4)
    some = [1, 7, 300]
    expected = sum(0.001 / 0.99**n for n in some)
    assert total_rho(chosen, some) == pytest.approx(expected)
    assert total_rho(chosen, []) == 0.0
    # The run's ledger comes to the same, however many samples a client has.
    ledger = Ledger("sound", chosen.delta)
    for name, count, rounds in (("all", 2, range(1, 301)), ("some", 9, some)):
        for n in rounds:
            ledger.commit(name, round_event(chosen, n, count, 60, 3.0, 1 / 15))
    assert events_rho(ledger.events("all")) == pytest.approx(1.939, abs=5e-4)
    assert events_rho(ledger.events("some")) == pytest.approx(expected)
    assert 0.0 < ledger.total("some")[0] < ledger.total("all")[0]
    assert ledger.total("never") == (0.0, 0.0)


def test_a_round_that_is_not_in_the_run_is_refused():
    for n in (0, -1, 301):
        with pytest.raises(ValueError, match="the run's rounds are 1 to 300"):
            round_event(config(), n, 4, 3, 3.0, 0.1)


@pytest.fixture
def device(tmp_path) -> Node:
    return Node("ward", -1, tmp_path / "ward.csv", tmp_path / "state", False)


def test_on_a_device_every_answer_is_a_release_of_its_own_in_its_ledger(device):
    sent = [release_model(config(), 1, device, np.zeros(3), n, 4, 3.0, 0.1) for n in (1, 2, 2)]
    assert not np.any(sent[1][0] == sent[2][0])  # not the seed's
    entered = DeviceLedger(device.state_path).events()
    assert entered == [event for _, events in sent for event in events]
    assert len({event.name for event in entered}) == 3
    assert events_rho(entered) == pytest.approx(0.001 / 0.99 + 2 * 0.001 / 0.99**2)


def test_a_device_stops_at_its_budget_and_counts_other_runs(device):
    policy = Policy(max_epsilon=0.5, require_privacy=True)

    def release(n):
        return release_model(config(), 1, device, np.zeros(3), n, 4, 3.0, 0.1, policy)

    with pytest.raises(PrivacyRefused, match=r"above this device's max-epsilon 0\.5"):
        [release(n) for n in range(1, 301)]
    ledger = DeviceLedger(device.state_path, policy)
    made = len(ledger.events())
    assert 1 < made < 50
    assert ledger.spent() <= 0.5
    with pytest.raises(PrivacyRefused):  # another run, another seed, other samples
        release_model(config(), 2, device, np.ones(3), made, 9, 3.0, 0.1, policy)


def test_a_device_that_requires_privacy_takes_no_other_mode(device):
    policy = Policy(require_privacy=True)
    for privacy in ("none", "paper"):
        with pytest.raises(PrivacyRefused, match="requires privacy='sound'"):
            release_model(config(privacy), 1, device, np.zeros(3), 1, 4, 3.0, 0.1, policy)
    # What bounds nothing is not entered as if it did.
    release_model(config("paper"), 1, device, np.zeros(3), 1, 4, 3.0, 0.1)
    assert DeviceLedger(device.state_path).events() == []


def test_a_device_without_a_folder_releases_nothing():
    node = Node("ward", -1, None, None, False)
    with pytest.raises(DataError, match="set state-path"):
        release_model(config(), 1, node, np.zeros(3), 1, 4, 3.0, 0.1)


def test_losses_are_told_only_where_no_privacy_is_claimed():
    for privacy in ("none", "paper"):
        permit_losses(config(privacy, clusters="auto:3"))
    with pytest.raises(PrivacyRefused, match="losses, which have no noise"):
        permit_losses(config(clusters="auto:3"))


def test_the_run_says_what_it_claims_and_warns_of_what_it_does_not():
    assert "not a bound" in statement(config("paper"))["claim"]
    assert "NOT PRIVATE" in statement(config("paper"))["claim"]
    assert "enrolment" in statement(config())["not_covered"]
    assert "cluster" in statement(config())["enrolment"]
    assert warnings(config("none"), range(1, 301)) == []
    assert warnings(config(), [1, 2]) == []
    assert "1.939-zCDP" in warnings(config(), range(1, 301))[0]
    assert "bound=0.1" in warnings(config("paper"), [1])[0]
