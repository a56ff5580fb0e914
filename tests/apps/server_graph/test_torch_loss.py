"""A user's own loss, a network in torch: right gradients, and it learns over a ring of servers."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from trellis.apps.common.tables import DataError
from trellis.apps.server_graph import losses
from trellis.apps.server_graph.losses import Logistic, loss_by_name
from trellis.apps.server_graph.problem import draw_batches, local_steps, minimiser
from trellis.apps.server_graph.torch_loss import SmallMlp

NAME = "small-mlp"


def exclusive_or(rng, n):
    """Return labels that no hyperplane separates."""
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0.0, 1.0, -1.0)


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    loss = loss_by_name(NAME)
    assert loss.size(2) == 33  # a server that only counts parameters needs no torch
    with pytest.raises(ImportError, match=r"pip install '\.\[gnn\]'"):
        loss.loss(np.zeros(33), np.zeros((1, 2)), np.ones(1))


def test_gradients_are_finite_differences_of_each_sample():
    pytest.importorskip("torch")
    loss, rng = SmallMlp(), np.random.default_rng(1)
    X, y = exclusive_or(rng, 6)
    w = rng.normal(size=loss.size(2))
    w.flags.writeable = False  # as from the wire
    step = 1e-6
    slopes = [
        (loss.loss(w + step * e, X, y) - loss.loss(w - step * e, X, y)) / (2 * step)
        for e in np.eye(w.size)
    ]
    found = loss.gradients(w, X, y)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.transpose(slopes), atol=1e-8)
    np.testing.assert_array_equal(found, loss.gradients(w, X, y))


def test_the_network_is_the_formula_in_the_docstring():
    pytest.importorskip("torch")
    loss, rng = SmallMlp(), np.random.default_rng(2)
    X, y = exclusive_or(rng, 5)
    w = 20.0 * rng.normal(size=33)  # far out, where a careless loss overflows or is cut
    U, a, v, c = w[:16].reshape(8, 2), w[16:24], w[24:32], w[32]
    f = np.tanh(X @ U.T + a) @ v + c
    np.testing.assert_allclose(loss.loss(w, X, y), np.logaddexp(0.0, -y * f), rtol=1e-12)
    np.testing.assert_array_equal(loss.predict(w, X), np.sign(f))
    w = np.append(np.zeros(32), 21.0)  # f = 21, just beyond where torch's softplus is a line
    np.testing.assert_allclose(loss.loss(w, X, y), np.logaddexp(0.0, -y * 21.0), rtol=1e-12)
    with pytest.raises(DataError, match="y is 2"):
        loss.check_targets(np.array([2.0]), "f")


def test_plain_averaging_over_a_ring_of_servers_brings_the_loss_down():
    pytest.importorskip("torch")
    rng, servers, clients = np.random.default_rng(0), 5, 2
    loss = loss_by_name(NAME)
    data = [[exclusive_or(rng, 60) for _ in range(clients)] for _ in range(servers)]
    X, y = (np.concatenate([t[i] for c in data for t in c]) for i in (0, 1))
    w = np.tile(losses.start(loss, 2), (servers, 1))
    before = loss.loss(w[0], X, y).mean()
    for _ in range(40):
        psi = [
            np.mean(
                [
                    local_steps(loss, w[p], Xk, yk, 0.8, 0.0, 2.0, draw_batches(60, 30, 3, rng))
                    for Xk, yk in data[p]
                ],
                axis=0,
            )
            for p in range(servers)
        ]  # (6), (7)
        w = (np.roll(psi, 1, axis=0) + psi + np.roll(psi, -1, axis=0)) / 3.0  # (8), no noise
    after = [loss.loss(model, X, y).mean() for model in w]
    # These labels are beyond a linear model, whatever its training; the network does better.
    line = minimiser(Logistic(), data, 0.01)
    assert max(after) < 0.75 * min(before, Logistic().loss(line, X, y).mean())
    hits, line_hits = (
        np.mean(labels == y)
        for labels in (loss.predict(w.mean(axis=0), X), Logistic().predict(line, X))
    )
    assert line_hits < 0.6 < 0.75 < hits
