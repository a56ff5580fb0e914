"""A loss of a user's own: its steps against closed forms, a whole run, and where it is refused."""

from __future__ import annotations

import textwrap
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.apps.server_graph.test_losses import Huber
from trellis import apps
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.losses import own_loss, targets_of
from trellis.apps.cluster_admm.own_steps import OwnSteps
from trellis.apps.cluster_admm.problem import mean_losses, optimum
from trellis.apps.cluster_admm.steps import primal_steps
from trellis.apps.common.plugins import register
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.losses import LeastSquares, Logistic

OWN_SQUARES, OWN_LOGISTIC = "own-squares", "own-logistic"
register("losses", OWN_SQUARES, LeastSquares)
register("losses", OWN_LOGISTIC, Logistic)
register("losses", "huber", Huber)


class Squares(Huber):
    """The study's ridge, without a Hessian: by L-BFGS."""

    def loss(self, w, X, y):
        return (X @ w - y) ** 2

    def gradients(self, w, X, y):
        return 2.0 * (X @ w - y)[:, None] * X


class CurvedSquares(Squares):
    """The same with one: by Newton's method."""

    def hessian(self, w, X, y, weights):
        return 2.0 * (X.T * weights) @ X


class Wider(Huber):
    def size(self, features):
        return features + 1


class Downhill(Huber):
    """Not convex, without an end."""

    def loss(self, w, X, y):
        return -((X @ w) ** 4)

    def gradients(self, w, X, y):
        return -4.0 * ((X @ w) ** 3)[:, None] * X


class Wrong(Huber):
    def gradients(self, w, X, y):
        return np.zeros(3)


for own in (Squares, CurvedSquares, Wider, Downhill, Wrong):
    register("losses", own.__name__.lower(), own)


def tables_of(clients=6, features=5, seed=0, labels=False):
    rng = np.random.default_rng(seed)
    tables = []
    for k in range(clients):
        X = rng.standard_normal((3 + k, features))
        y = X @ np.arange(features) + rng.standard_normal(3 + k)
        tables.append((X, np.where(y > 0.0, 1.0, -1.0) if labels else y))
    return tables


@pytest.mark.parametrize(
    ("name", "built_in", "labels", "tolerance"),
    [
        ("squares", "ridge", False, 1e-7),
        ("curvedsquares", "ridge", False, 1e-12),
        (OWN_LOGISTIC, "logistic", True, 1e-9),
    ],
)
def test_steps_are_those_of_the_built_in_loss(name, built_in, labels, tolerance):
    tables, shares = tables_of(labels=labels), np.linspace(0.0, 1.0, 6)
    own, told = (primal_steps(loss, tables, 0.3, shares, 2.0) for loss in (name, built_in))
    v = np.random.default_rng(1).standard_normal((6, 5))
    np.testing.assert_allclose(own.solve(v), told.solve(v), rtol=0, atol=tolerance)
    some = np.array([4, 1])
    np.testing.assert_array_equal(own.solve(v[some], some), own.solve(v)[some])


def test_a_step_of_half_squares_is_its_closed_form():
    X, y = tables_of(1)[0]
    v = np.arange(5.0)
    found = OwnSteps(OWN_SQUARES, [(X, y)], 0.3, [0.5], 2.0).solve(v[None])[0]
    c = 2.0 * 0.5 * 0.3 + 2.0
    expected = np.linalg.solve(X.T @ X / len(y) + c * np.eye(5), X.T @ y / len(y) + v)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_a_step_of_huber_s_loss_is_that_of_another_solver():
    X, y = tables_of(1, features=3, seed=4)[0]
    v = np.array([0.5, -1.0, 2.0])
    found = OwnSteps("huber", [(X, 9.0 * y)], 0.0, [0.0], 1.5).solve(v[None])[0]
    loss = Huber()

    def objective(w):
        return loss.loss(w, X, 9.0 * y).mean() + 0.75 * w @ w - v @ w

    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 10_000, "maxfev": 10_000}
    told = minimize(objective, np.zeros(3), method="Nelder-Mead", options=options).x
    np.testing.assert_allclose(found, told, rtol=0, atol=1e-6)
    assert np.abs(X @ found - 9.0 * y).max() > 1.0  # some samples are on the straight part


def test_optimum_and_mean_losses_are_of_the_class():
    tables = tables_of()
    name = "curvedsquares"
    np.testing.assert_allclose(optimum(name, tables, 0.2), optimum("ridge", tables, 0.2), atol=1e-8)
    models = np.random.default_rng(3).standard_normal((4, 5))
    for loss in (name, "ridge"):
        found = mean_losses(loss, models, *tables[2])
        np.testing.assert_allclose(found, mean_losses("ridge", models, *tables[2]))
    assert targets_of(name) == targets_of("ridge") == "numbers"
    assert targets_of(OWN_LOGISTIC) == "labels"


SMALL = {
    "clients": 8, "servers": 2, "topology": "complete", "clusters": "2", "features": 4,
    "samples": "6-9", "rounds": 30,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"mixing": "exact"}, {"clusters": "auto:2"}])
def test_a_run_with_the_class_is_a_run_with_the_built_in_loss(changes):
    settings = {**SMALL, "rounds": 45, **changes}
    found, told = (
        apps.run("cluster-admm", {**settings, "loss": loss}, seed=3)
        for loss in ("curvedsquares", "ridge")
    )
    np.testing.assert_allclose(found.arrays["models"], told.arrays["models"], rtol=0, atol=1e-8)
    assert found.headline["nmsd"] == pytest.approx(told.headline["nmsd"], abs=1e-6)


def test_exact_mixing_reaches_the_optimum_of_huber_s_loss(tmp_path):
    rng = np.random.default_rng(5)
    tables = []
    for k in range(4):
        X = rng.standard_normal((12, 3))
        y = X @ np.array([1.0, -2.0, 0.5]) + rng.standard_t(2, 12)
        np.savez(tmp_path / f"c{k}.npz", X=X, y=y)
        tables.append((X, y))
    settings = {
        "loss": "huber", "mixing": "exact", "servers": 2, "topology": "complete",
        "clusters": "1", "rounds": 400, "standardise": "none", "rho": 1.0, "held-out": 0.25,
    }  # fmt: skip
    found = apps.run("cluster-admm", {**settings, "held-out": 0}, data=tmp_path)
    best = optimum("huber", tables, 0.1)
    np.testing.assert_allclose(found.arrays["models"][:, 0], [best, best], rtol=0, atol=1e-5)
    held = apps.run("cluster-admm", settings, data=tmp_path)
    assert np.isfinite(held.arrays["models"]).all()


def test_labels_of_a_class_are_checked_by_it(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(3), y=np.array([1.0, 2.0, -1.0]))
    np.savez(tmp_path / "b.npz", X=np.eye(3), y=np.ones(3))
    settings = {"loss": OWN_LOGISTIC, "servers": 1, "clusters": "1", "topology": "complete"}
    with pytest.raises(Exception, match=r"y is 2"):
        apps.run("cluster-admm", settings, data=tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "hinge"}, "loss='hinge': use one of ridge, logistic, .*entry point 'hinge'"),
        ({"privacy": "dp"}, "sums are of the moments of ridge and logistic"),
    ],
)
def test_modes_that_need_bounds_refuse_it(settings, message):
    with pytest.raises(ConfigError, match=message):
        ClusterAdmmConfig.from_settings({"loss": "huber", **settings})


def test_the_article_s_noise_takes_any_loss_and_claims_nothing():
    settings = {**SMALL, "loss": "huber", "privacy": "paper", "rounds": 3, "epsilon": 50}
    result = apps.run("cluster-admm", settings, seed=1)
    assert any("bound nothing" in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Wider", "6 parameters for 5 features"),
        ("Missing", "entry point 'missing'"),
    ],
)
def test_a_class_that_does_not_fit_is_named(name, message):
    with pytest.raises(ConfigError, match=message):
        own_loss(name.lower(), 5)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Downhill", (ArithmeticError, ValueError), "Downhill"),
        ("Wrong", ValueError, r"Wrong\.gradients has shape \(3,\)"),
    ],
)
def test_a_step_that_does_not_end_names_the_class(name, error, message):
    steps = OwnSteps(name.lower(), tables_of(1), 0.0, [1.0], 1.0)
    with np.errstate(all="ignore"), pytest.raises(error, match=message):
        steps.solve(np.ones((1, 5)))


def test_a_report_and_the_clients_scores_are_made(tmp_path):
    settings = {**SMALL, "loss": "huber", "held-out": 0.3}
    apps.run("cluster-admm", settings, seed=1, out=tmp_path / "run")
    assert "huber" in (tmp_path / "run" / "report.html").read_text()


def test_the_page_s_example_learns_the_90th_percentile(tmp_path, monkeypatch):
    page = Path(apps.__file__).parent / "cluster_admm" / "README.md"
    lines = page.read_text().splitlines()
    first = lines.index("    import numpy as np")
    last = next(i for i, line in enumerate(lines[first:], first) if line.startswith("and, with"))
    example = textwrap.dedent("\n".join(lines[first:last]))
    (tmp_path / "quantile.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    register("losses", "pinball", import_module("quantile").Pinball)
    data = tmp_path / "data"
    data.mkdir()
    rng, every = np.random.default_rng(0), []
    for k in range(4):
        X = np.column_stack([np.ones(150), rng.standard_normal((150, 2))])
        y = X @ np.array([1.0, 2.0, -1.0]) + 10.0 * rng.standard_normal(150)
        np.savez(data / f"c{k}.npz", X=X, y=y)
        every.append((X, y))
    settings = {
        "loss": "pinball", "standardise": "none", "servers": 1, "clusters": "1",
        "rho": 1.0, "ridge": 0.0, "rounds": 200, "held-out": 0,
    }  # fmt: skip
    model = apps.run("cluster-admm", settings, data=data).arrays["models"][0, 0]
    below = np.mean([np.mean(y < X @ model) for X, y in every])
    assert below == pytest.approx(0.9, abs=0.02)
