"""cluster-admm's clients alone: each its own solution."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.cluster_admm.separated import TINY as ALL
from tests.apps.cluster_admm.separated import config_of, run
from trellis.apps.cluster_admm.simulate import client_tables, simulate
from trellis.apps.common.settings import ConfigError
from trellis.sim.faults import Raise

TINY = {k: v for k, v in ALL.items() if k not in ("servers", "topology", "assign-every")}


@pytest.mark.parametrize("clusters", ["3", "auto:3"])
def test_clients_alone_have_their_own_ridge_solutions(clusters):
    settings = {**TINY, "method": "local", "samples": "2-9", "clusters": clusters}
    result, config = run(settings, 3), config_of(settings)
    for k, (X, y) in enumerate(client_tables(config, 3)):
        gram = X.T @ X / len(y) + config.ridge * np.eye(config.features)
        alone = np.linalg.solve(gram, X.T @ y / len(y))
        np.testing.assert_allclose(result.arrays["clients"][k], alone, atol=1e-6)
    assert len(result.metrics) == 1


def test_clients_alone_have_the_numbers_of_the_arithmetic():
    settings = {**TINY, "method": "local", "clusters": "3"}
    result, expected = run(settings), simulate(config_of(settings), 1)
    for name in ("models", "clients", "homes"):
        np.testing.assert_allclose(result.arrays[name], getattr(expected, name), atol=1e-6)
    assert result.headline["nmsd"] == pytest.approx(expected.nmsd[-1], abs=1e-6)


def test_clients_alone_without_ridge_take_the_shortest_solution():
    settings = {**TINY, "method": "local", "clusters": "3", "ridge": 0.0, "samples": "2"}
    result, expected = run(settings), simulate(config_of(settings), 1)
    np.testing.assert_allclose(result.arrays["clients"], expected.clients, atol=1e-5)


def test_a_client_alone_that_fails_is_asked_again_and_then_left_at_zero():
    settings = {**TINY, "method": "local", "clusters": "3"}
    late = run(settings, faults={2: Raise(category="train", at=frozenset({1}))})
    np.testing.assert_array_equal(late.arrays["models"], run(settings).arrays["models"])
    assert [row["clients"] for row in late.metrics] == [8.0, 1.0]
    never = run(settings, faults={2: Raise(category="train")})
    assert len(never.metrics) == 3
    np.testing.assert_array_equal(never.arrays["clients"][2], np.zeros(4))
    assert any("left out of 3 rounds" in note for note in never.notes)


def test_clients_alone_have_no_noise_of_the_paper():
    with pytest.raises(ConfigError, match="method='local'"):
        run({**TINY, "method": "local", "clusters": "3", "privacy": "paper"})
