"""Attacks on cluster-admm and server-graph by a server that picks the settings and the messages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict
from numpy.typing import NDArray

from trellis.apps.server_graph import client_app as server_graph
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.private import Terms, digest
from trellis.strategies.core import wire

from .server_studies import ask, device

Array = NDArray[np.float64]

ONE = {"privacy": "dp", "clients": 3, "clusters": "1"}


def hospital(rows: int = 5000) -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    X = rng.standard_normal((rows, 3)) + np.array([0.8, 0.0, 0.0])
    y = X @ np.array([1.0, -2.0, 0.5]) + rng.standard_normal(rows)
    return X, np.where(np.abs(y) < 1e-3, 1e-3, y)


def refused(reply: Any) -> bool:
    return bool(reply.has_error())


# --- data-dependent refusals ---------------------------------------------------------------------


def neighbours(folder: Path, X: Array, y: Array, record: Any, target: Any) -> list[dict[str, Any]]:
    """Return two devices whose data differs in one record."""
    other_X, other_y = X.astype(object), y.astype(object)
    other_X[5], other_y[5] = record, target
    if not any(isinstance(cell, str) for cell in [*other_X.ravel(), *other_y]):
        other_X, other_y = other_X.astype(float), other_y.astype(float)
    else:
        other_X, other_y = other_X.astype(str), other_y.astype(str)
    return [device(folder / "one", X, y), device(folder / "two", other_X, other_y)]


@pytest.mark.parametrize(
    ("record", "target"),
    [
        (1.0, 61.7312),
        (1.0, math.nan),
        (math.nan, 1.0),
        (math.inf, -math.inf),
        (1e300, -1e300),
        (1e-320, 5e-324),
        ("Maria Rossi", 1.0),
        (1.0, "positive"),
    ],
)
@pytest.mark.parametrize("study", ["cluster-admm", "server-graph"])
@pytest.mark.parametrize("loss", ["logistic", "numbers"])
def test_no_single_record_decides_whether_a_device_answers(
    tmp_path: Path, study: str, loss: str, record: Any, target: Any
) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((40, 4)), rng.choice([-1.0, 1.0], 40)
    if study == "cluster-admm":
        chosen = {**ONE, "loss": "logistic" if loss == "logistic" else "ridge"}
        arrays, order = {"models": np.ones((1, 4)), "pulls": np.ones(1)}, {"round": 1}
    else:
        chosen = {"privacy": "dp", "clients": 3, "method": "fedavg", "clip": 1.0}
        chosen |= {"loss": "logistic" if loss == "logistic" else "least-squares"}
    said = []
    for node in neighbours(tmp_path, X, y, record, target):
        enrolled = ask(study, chosen, node, "query.enrol")
        assert not enrolled.has_error(), enrolled.error.reason
        about = dict(enrolled.content["client"])
        said.append({key: value for key, value in about.items() if key != "name"})
        if study == "cluster-admm":  # what it adds to sums: `test_chosen_scales`
            assert not ask(study, chosen, node, "query.personal", arrays, **order).has_error()
            assert ask(study, chosen, node, "train", arrays, **order).has_error()
            continue
        answer = gradient_of(chosen, node, np.full(4, 1e3))
        assert np.linalg.norm(answer) <= 1.0 / 10.0 * 40.0
        assert np.all(np.isfinite(answer))
    assert said[0] == said[1]


def gradient_of(chosen: dict[str, Any], node: dict[str, Any], w: Array) -> Array:
    """Return what a device of server-graph would add to a sum before noise."""
    config = ServerGraphConfig.from_settings(chosen)
    run_config = {"study": "server-graph", "seed": 1, "out": "", **config.run_config()}
    needed = Terms.of(config).needed_deviation(40)
    told = {"server-round": 1, "settings": digest(config), "deviation": needed}
    arrays = wire.record({"model": w})
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({**told})})
    context = Context(next(_run), 1, node, RecordDict(), run_config)

    class Sent:
        class metadata:
            message_type = "train.secagg_masked"

    sent: Any = Sent()
    sent.content = content
    return server_graph.summands(sent, context).arrays["gradient"]


_run = iter(range(1, 10**6))


def test_targets_of_a_regression_are_no_error_text_when_asked_for_as_labels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(1)
    y = 61.7312 + rng.standard_normal(200)
    node = device(tmp_path, rng.standard_normal((200, 4)), y, **{"max-epsilon": 0.01})
    reply = ask("cluster-admm", {**ONE, "loss": "logistic"}, node, "query.enrol")
    assert not reply.has_error()
    assert "61" not in str(dict(reply.content["client"]))
    assert "200 labels are not -1, 0 or 1" in caplog.text  # on the device


def test_without_privacy_such_files_are_still_refused(tmp_path: Path) -> None:
    node = device(tmp_path, np.ones((3, 2)), np.array([1.0, 7.0, -1.0]))
    chosen = {**ONE, "privacy": "none", "loss": "logistic"}
    assert ask("cluster-admm", chosen, node, "query.enrol").has_error()


# --- server-graph in the clear -------------------------------------------------------------------

CLEAR = {"privacy": "paper", "clients": 1, "servers": 1, "ridge": 0.0, "step": 1.0, "epsilon": 1e30}
NONE = {"privacy": "none", "clients": 1, "servers": 1}


@pytest.mark.parametrize(
    "chosen",
    [
        {**CLEAR, "method": "iid", "clip": 1e9, "sigma": 1e-9},
        {**CLEAR, "method": "iid", "clip": 1.0, "sigma": 1.0},
        {**CLEAR, "method": "hybrid", "clip": 1.0, "sigma": 1.0, "secure-aggregation": "off"},
        {**CLEAR, "method": "hybrid", "clip": 1.0, "sigma": 1.0},
        {"privacy": "dp", "clients": 3, "servers": 1, "clip": 1e9},
        {"privacy": "dp", "clients": 3, "servers": 1, "clip": 1e-9},
        {**NONE, "method": "none"},
        {**NONE, "method": "masked", "sigma": 1.0},
    ],
)
def test_required_privacy_lets_no_update_out_in_the_clear(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    node = device(tmp_path, np.ones((1, 3)), np.array([1.0]), **{"require-privacy": True})
    reply = ask("server-graph", chosen, node, "query.enrol")
    assert reply.has_error() or "refused" in reply.content["client"]
    model_ = {"model": np.zeros(3)}
    assert ask("server-graph", chosen, node, "train", model_, server_round=1).has_error()


def test_required_privacy_takes_part_in_noisy_sums_and_not_otherwise(tmp_path: Path) -> None:
    node = device(tmp_path, np.ones((4, 3)), np.ones(4), **{"require-privacy": True})
    chosen = {"privacy": "dp", "clients": 3, "servers": 1, "clip": 1.0}
    reply = ask("server-graph", chosen, node, "query.enrol")
    assert "refused" not in reply.content["client"]
    model_ = {"model": np.zeros(3)}
    assert ask("server-graph", chosen, node, "train", model_, server_round=1).has_error()
