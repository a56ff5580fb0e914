"""Algorithm 1 without messages is what clients and server do with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trellis.apps.common.runner import run
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.paper.algorithm import (
    MOMENTUM,
    Constants,
    exact_rounds,
    guarded_rounds,
    plain_rounds,
    statistics_of,
)
from trellis.apps.consensus_graph.paper.noise import CLIP, printed_noise
from trellis.apps.consensus_graph.problem import gradient

STUDY = "consensus-graph"
KNOWN = Constants(alpha=2.0, beta=0.05, rho=1.0, lambda_=0.3, step=0.01, local_steps=4, rounds=3)
SETTINGS = {
    "signals": "30",
    "nodes": 20,
    "local-steps": 4,
    "step": 0.01,
    "rounds": 3,
    "tolerance": 0.0,
}


@pytest.fixture
def z():
    return statistics_of(ConsensusGraphConfig(signals="30", nodes=20), 5)


def test_with_noise_it_ends_at_the_same_bits_as_messages():
    result = run(STUDY, {**SETTINGS, "privacy": "paper", "epsilon": 3.0, "clip": CLIP}, seed=5)
    z = statistics_of(ConsensusGraphConfig(signals="30", nodes=20), 5, CLIP)
    course = guarded_rounds(z, KNOWN, printed_noise(z, 30, 3.0, 3, 4, 5))
    assert np.array_equal(course.weights[-1], result.arrays["weights"])
    assert np.array_equal(course.consensus[-1], result.arrays["consensus"])
    assert np.array_equal(course.gamma[-1], result.arrays["gamma"])


def test_solved_exactly_it_ends_where_rounds_by_messages_end(z):
    result = run(STUDY, {**SETTINGS, "local-steps": 0, "rounds": 6}, seed=5)
    course = exact_rounds(z, replace(KNOWN, rounds=6), tolerance=1e-12, settled=0.0)
    assert course.consensus.shape[0] == 7
    assert course.weights[-1] == pytest.approx(result.arrays["weights"], abs=1e-9)


def test_exact_rounds_stop_where_the_consensus_has_settled(z):
    course = exact_rounds(z, replace(KNOWN, rounds=500), settled=1e-4)
    assert 2 < len(course.consensus) < 500
    last, before = course.consensus[-1], course.consensus[-2]
    assert np.linalg.norm(last - before) <= 1e-4 * np.linalg.norm(before)


def test_one_plain_step_is_that_of_the_paper(z):
    course = plain_rounds(z, replace(KNOWN, local_steps=2, rounds=1))
    start = course.weights[0, 0]
    first = np.maximum(start - 0.01 * gradient(start, z[0], 2.0, 0.05), 0.0)
    ahead = first + MOMENTUM * (first - start)
    slope = gradient(ahead, z[0], 2.0, 0.05) + 0.2 * (ahead - start)  # gamma = 1 / 5 at the start
    assert course.weights[1, 0] == pytest.approx(np.maximum(ahead - 0.01 * slope, 0.0), abs=1e-14)


def test_a_plain_course_ends_before_it_leaves_the_domain(z):
    course = plain_rounds(z, replace(KNOWN, step=5.0, rounds=50, local_steps=25))
    assert course.extrapolated <= 0.0
    assert len(course.weights) < 51
    assert np.all(np.isfinite(course.weights))


def test_without_a_pull_clients_learn_alone(z):
    alone = replace(KNOWN, rho=0.0, rounds=4)
    course = guarded_rounds(z, alone)
    single = guarded_rounds(z[2:3], alone)
    assert np.array_equal(course.weights[-1, 2], single.weights[-1, 0])
    assert np.array_equal(course.consensus[0], course.consensus[-1])
