"""Private runs with and without training: budgets, settings, what is scored and what is kept."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

from trellis.apps import run
from trellis.apps.common.settings import ConfigError
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.data import Split
from trellis.apps.gromov_wasserstein.forecast import noise_length
from trellis.apps.gromov_wasserstein.model.gnn import build_model, weights
from trellis.apps.gromov_wasserstein.model.home import at_home
from trellis.apps.gromov_wasserstein.simulate import Noisy, noisy_weights
from trellis.apps.gromov_wasserstein.synthetic import CLASSES, synthetic_graphs
from trellis.privacy.accounting.sampled import spent
from trellis.strategies.gromov_wasserstein.descent import MOMENTUM, Descent

STUDY = "gromov-wasserstein"
SMALL = {
    "clients": 4, "graphs": 40, "rounds": 3, "downstream": "none", "privacy": "dp",
    "epsilon": 4.0,
}  # fmt: skip
TRAINED = {**SMALL, "method": "fedavg", "task": "graph"}


def config(**settings):
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    return GromovWassersteinConfig.from_settings({"privacy": "dp", **named})


# Settings


def test_nothing_is_trained_under_sound_privacy_unless_it_is_asked_for():
    assert config().method == "untrained"
    assert not config().sums
    assert config(privacy="none").method == config(privacy="paper").method == "fedavg"
    assert config().must_release
    assert config(method="fedavg").must_release
    assert config(method="fedavg").sums
    assert not config(method="fedavg").clear_updates
    assert not config().clear_updates
    assert config().at_home
    assert not config(privacy="none").at_home


@pytest.mark.parametrize("held_out", [0.0, 0.2])
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_the_parts_of_epsilon_are_all_of_it(held_out, share):
    found = config(method="fedavg", epsilon=2.0, held_out=held_out, training_share=share)
    parts = found.training_epsilon, found.score_epsilon, found.bits_epsilon
    assert sum(parts) == pytest.approx(2.0)
    assert parts[0] == pytest.approx(2.0 * share)
    assert (parts[1] > 0.0) == (held_out > 0.0)
    assert parts[2] > 0.0
    assert spent(found.training_ratio, found.rounds, found.delta) == pytest.approx(parts[0])
    assert config(epsilon=2.0).bits_epsilon == 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "fedprox"}, "'dp' has method=untrained or fedavg"),
        ({"release": "each"}, "release: unknown setting"),
        ({"personal": "server"}, "personal: unknown setting"),
        ({"method": "fedavg", "clients": 2}, "needs three at least"),
        ({"method": "fedavg", "sample": 3}, "sample has no effect with method='fedavg'"),
        ({"method": "fedavg", "norm_bound": 1.0}, "norm-bound has no effect"),
        ({"method": "fedavg", "release_every": 2}, "release-every has no effect"),
        ({"release_every": 2}, "release-every has no effect"),
        ({"held_out": 0.2}, "no model to score"),
        ({"norm_bound": 1.0}, "norm-bound has no effect with method='untrained'"),
        ({"training_share": 0.9}, "training-share=0.9"),
        ({"gradient_bound": 0.0}, "gradient-bound=0.0"),
        ({"method": "fedavg", "robust": "median"}, "robust has no effect"),
        ({"method": "fedavg", "local_epochs": 5}, "local-epochs has no effect"),
        ({"gradient_bound": 2.0}, "it has with method=fedavg"),
        ({"privacy": "none", "secure_aggregation": True, "clients": 2}, "at least three clients"),
        ({"privacy": "none", "secure_aggregation": True, "robust": "median"}, "sums only"),
        ({"privacy": "none", "epsilon": 3.0}, "epsilon has no effect"),
    ],
)
def test_settings_that_cannot_be_covered_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings)


# Runs


def test_an_untrained_run_is_one_round_and_its_weights_are_the_seed_s():
    first, again = (run(STUDY, {**SMALL, "rounds": r}, seed=2, report=False) for r in (1, 9))
    assert len(first.metrics) == len(again.metrics) == 1
    assert first.arrays["weights"].tobytes() == again.arrays["weights"].tobytes()
    assert first.arrays["codes"].tobytes() == again.arrays["codes"].tobytes()
    assert first.ledger["epsilon"] == 4.0
    other = run(STUDY, SMALL, seed=3, report=False)
    assert other.arrays["weights"].tobytes() != first.arrays["weights"].tobytes()


def test_a_trained_run_spends_its_epsilon_and_scores_what_was_held_out(tmp_path):
    found = run(STUDY, {**TRAINED, "held-out": 0.3}, out=tmp_path)
    assert 3.0 < found.ledger["epsilon"] <= 4.0 * (1.0 + 1e-6)
    last = found.metrics[-1]
    assert {"held-out-accuracy", "held-out-noise", "noise"} <= set(last)
    # Sensitivity 1, so the noise is 1 / ratio over the graphs, and a little for dropouts.
    chosen = GromovWassersteinConfig.from_settings({**TRAINED, "held-out": 0.3})
    assert last["held-out-noise"] == pytest.approx(1.0 / chosen.score_ratio / 12, rel=0.2)
    assert {"home-kept-accuracy", "home-alone-accuracy"} <= set(found.headline)
    assert any("gathered for evaluation" in note for note in found.notes)
    page = (tmp_path / "report.html").read_text()
    assert "What stays with the clients" in page
    assert "their noisy sum only" in page


def test_with_much_budget_noisy_training_is_training_without_noise():
    settings = {**TRAINED, "epsilon": 1e9, "graphs": 120, "rounds": 20}
    found = run(STUDY, settings, seed=1, report=False)
    assert found.headline["home-shared-accuracy"] > 0.6
    assert found.metrics[-1]["noise"] < 1e-2


def test_messages_and_no_messages_take_the_same_steps():
    settings = {**TRAINED, "epsilon": 1e12}
    chosen = GromovWassersteinConfig.from_settings(settings)
    found = run(STUDY, settings, seed=3, report=False)
    from tests.apps.gromov_wasserstein.test_simulate import Federation

    here = Federation(chosen, 3)
    graphs = [graph for own in here.trained_with() for graph in own]
    how = Noisy(np.inf, 1e-5, 3, 1.0, Descent(chosen.rate, chosen.weight_decay), 4, 4)
    weights_here = noisy_weights(here.model, graphs, here.first.weights, "graph", how, 3)
    np.testing.assert_allclose(found.arrays["weights"], weights_here, atol=1e-3)
    assert np.linalg.norm(weights_here - here.first.weights) > 0.1


# Pieces


def test_a_step_is_momentum_with_decay():
    w, v = np.array([1.0, -2.0]), np.array([0.5, 0.0])
    after, speed = Descent(0.1, 0.01).step(w, v, np.array([8.0, 4.0]), 4.0)
    np.testing.assert_allclose(speed, MOMENTUM * v + [2.0, 1.0] + 0.01 * w)
    np.testing.assert_allclose(after, w - 0.1 * speed)


def test_noise_of_training_without_messages_is_as_wide_as_it_says():
    graphs = synthetic_graphs(2, np.random.default_rng(1))
    model = build_model("gcn", 3, CLASSES, "graph", 16, seed=1)
    start = weights(model)
    how = Noisy(1.0, 1e-5, 1, 1.0, Descent(1.0), 10, 8)
    quiet = Noisy(np.inf, 1e-5, 1, 1.0, Descent(1.0), 10, 8)
    moved = [noisy_weights(model, graphs, start, "graph", h, 1) for h in (how, quiet)]
    chosen = config(method="fedavg", rounds=1, training_share=0.5, epsilon=2.0)
    # z is the length of the noise; the bound is 1.
    z = noise_length(chosen, start.size, 2, 10)
    assert np.linalg.norm(moved[0] - moved[1]) == pytest.approx(z, rel=0.15)


@pytest.mark.parametrize("good", ["shared", "alone"])
def test_a_client_keeps_the_shared_weights_only_where_they_are_good(good):
    graphs = synthetic_graphs(330, np.random.default_rng(4))
    model = build_model("gcn", 3, CLASSES, "graph", 16, seed=5)
    fresh = weights(model)
    rng = np.random.default_rng(6)
    shared = 3.0 * rng.standard_normal(fresh.shape)
    own, parts = graphs[:30], Split(np.arange(20), np.arange(20, 25), np.arange(25, 30))
    if good == "shared":
        how = Noisy(np.inf, 1e-5, 40, 1.0, Descent(0.3), 1, 1)
        shared = noisy_weights(model, graphs[30:], fresh, "graph", how, 1)
    found = at_home(model, own, parts, shared, fresh, "graph")
    assert (found.chosen == "shared") == (good == "shared")
    np.testing.assert_array_equal(weights(model), found.weights)
    assert set(found.test) == {"shared", "tuned", "alone"}
    assert all(one.count == 5 for one in found.test.values())
