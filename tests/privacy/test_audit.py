"""The audit accuses nobody who keeps a claim, and finds out who does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from trellis.privacy.audit import Finding, audit, ceiling, clopper_pearson, gaussian_audit
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon, gaussian_sigma


def gaussian(sigma):
    def sample(data, count, rng):
        return data + sigma * rng.standard_normal((count, data.size))

    return sample


def laplace(scale):
    def sample(data, count, rng):
        return data + rng.laplace(scale=scale, size=(count, data.size))

    return sample


def bounds(sample, shift, repetitions=30, **options):
    """Lower bounds of repeated audits of 0 against ``shift``, each with its own seed."""
    shift = np.atleast_1d(np.asarray(shift, dtype=float))
    options = {"trials": 20_000, "delta": 0.0, **options}
    return np.array(
        [
            audit(
                sample, np.zeros_like(shift), shift, rng=np.random.default_rng(s), **options
            ).epsilon_lower
            for s in range(repetitions)
        ]
    )


@pytest.mark.parametrize("count", [7, 1000])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_clopper_pearson_agrees_with_scipy(count, confidence):
    successes = np.unique([0, 1, 3, count // 2, count - 1, count])
    low, high = clopper_pearson(successes, count, confidence)
    for k, left, right in zip(successes, low, high, strict=True):
        expected = binomtest(int(k), count).proportion_ci(confidence, method="exact")
        assert left == pytest.approx(expected.low, abs=1e-12)
        assert right == pytest.approx(expected.high, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (3.0, 1e-3), (5.0, 1e-2)])
def test_a_gaussian_bound_is_below_the_truth_and_not_far(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta, 1.0)
    found = bounds(gaussian(sigma), 1.0, delta=delta)
    assert np.sum(found <= epsilon) >= 27
    assert np.median(found) > 0.5 * epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_a_laplace_bound_is_below_the_truth_and_not_far(epsilon):
    found = bounds(laplace(1.0 / epsilon), 1.0)
    assert np.sum(found <= epsilon) >= 27
    assert np.median(found) > 0.5 * epsilon


def test_the_direction_is_found_among_many_entries():
    shift = np.zeros(40)
    shift[[3, 17]] = 1.0, -1.0
    sigma = gaussian_sigma(4.0, 1e-3, math.sqrt(2.0))
    found = bounds(gaussian(sigma), shift, 10, delta=1e-3)
    given = bounds(gaussian(sigma), shift, 10, delta=1e-3, direction=shift)
    ratio = bounds(gaussian(sigma), shift, 10, delta=1e-3, direction=lambda block: block @ shift)
    np.testing.assert_array_equal(given, ratio)
    assert max(found.max(), given.max()) < 4.0
    assert np.median(found) > 2.0


def test_noise_a_tenth_of_what_is_claimed_is_caught():
    for epsilon in (0.5, 1.0, 2.0):
        sigma = 0.1 * gaussian_sigma(epsilon, 1e-5, 1.0)
        assert bounds(gaussian(sigma), 1.0, 5, delta=1e-5).min() > 1.5 * epsilon


def test_no_noise_shows_all_that_can_be_shown():
    found = bounds(lambda data, count, rng: np.tile(data, (count, 1)), [0.0, 2.0], 1)
    assert found[0] == pytest.approx(ceiling(20_000, delta=0.0))


def test_identical_data_show_nothing():
    assert bounds(gaussian(1.0), 0.0, 20).max() == 0.0
    assert bounds(lambda data, count, rng: np.zeros((count, 2)), [0.0, 0.0], 1)[0] == 0.0


def test_an_event_that_speaks_for_the_first_data_set_is_found_too():
    # Randomised: the first data set alone ever says 1, the second never; no reverse evidence.
    def sample(data, count, rng):
        return (rng.random((count, 1)) < data[0]).astype(float)

    result = audit(
        sample,
        np.array([0.01]),
        np.array([0.0]),
        trials=20_000,
        delta=0.0,
        rng=np.random.default_rng(0),
    )
    assert result.swapped
    assert result.false_positive == 0
    assert result.epsilon_lower > 2.5


def test_the_ceiling_is_what_the_number_of_trials_allows():
    for trials in (1_000, 100_000, 1_000_000):
        expected = math.log(0.5 * trials / -math.log(0.025))
        assert ceiling(trials, delta=0.0) == pytest.approx(expected, abs=0.02)


def test_more_delta_shows_less():
    sigma = gaussian_sigma(4.0, 1e-3, 1.0)
    found = [bounds(gaussian(sigma), 1.0, 3, delta=d).mean() for d in (0.0, 1e-2, 1e-1)]
    assert found[0] >= found[1] > found[2]


def test_the_exact_epsilon_of_two_gaussians():
    assert gaussian_audit([3.0, 4.0], 2.0, 1e-5) == gaussian_epsilon(2.0, 1e-5, 5.0)
    assert gaussian_audit(-1.5, 2.0, 1e-5) == gaussian_epsilon(2.0, 1e-5, 1.5)
    assert gaussian_audit(0.0, 2.0, 1e-5) == 0.0


def test_a_finding_compares_the_bound_with_the_claim():
    result = audit(
        gaussian(0.2),
        np.zeros(1),
        np.ones(1),
        trials=5_000,
        delta=1e-5,
        rng=np.random.default_rng(0),
    )
    assert Finding("m", 0.1, "", result).verdict == "the claim is false"
    assert Finding("m", 99.0, "", result).verdict == "consistent with the claim"


@pytest.mark.parametrize(
    ("options", "key"),
    [({"trials": 10}, "trials=10"), ({"delta": 1.0}, "delta=1"), ({"delta": -0.1}, "delta=-0.1"),
     ({"confidence": 1.0}, "confidence=1")],
)  # fmt: skip
def test_a_bad_argument_is_named(options, key):
    with pytest.raises(ValueError, match=key):
        bounds(gaussian(1.0), 1.0, 1, **options)


def test_a_sampler_of_the_wrong_shape_is_named():
    with pytest.raises(ValueError, match="sample returned shape"):
        bounds(lambda data, count, rng: np.zeros(count), 1.0, 1)
