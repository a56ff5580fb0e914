"""Attacks on cluster-admm and server-graph by a server that picks the settings and the messages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .server_studies import ask, device, model

Array = NDArray[np.float64]

ONE = {"privacy": "sound", "clients": 3, "clusters": "1"}


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
    chosen: dict[str, Any] = {"privacy": "sound", "clients": 1, "servers": 1}
    if study == "cluster-admm":
        chosen = {**ONE, "loss": "logistic" if loss == "logistic" else "ridge"}
        arrays, order = {"models": np.ones((1, 4)), "pulls": np.ones(1)}, {"round": 1}
    else:
        chosen |= {"method": "hybrid", "clip": 1.0, "secure-aggregation": "off"}
        chosen |= {"loss": "logistic" if loss == "logistic" else "least-squares"}
        arrays, order = {"model": np.full(4, 1e3)}, {"round": 1}
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
        answer = ask(study, chosen, node, "train", arrays, **order)
        assert np.all(np.isfinite(model(answer)))
    assert said[0] == said[1]


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

CLEAR = {"privacy": "sound", "clients": 1, "servers": 1, "ridge": 0.0, "step": 1.0, "epsilon": 1e30}


@pytest.mark.parametrize(
    "chosen",
    [
        {"method": "iid", "clip": 1e9, "sigma": 1e-9},
        {"method": "iid", "clip": 1.0, "sigma": 1.0},
        {"method": "hybrid", "clip": 1.0, "sigma": 1.0, "secure-aggregation": "off"},
        {"method": "hybrid", "clip": 1e9, "sigma": 1.0},
        {"method": "hybrid", "clip": 1e-9, "sigma": 1.0},
        {"method": "hybrid", "clip": 1.0, "sigma": 1.0, "step": 1e9},
        {"method": "none", "privacy": "none"},
        {"method": "masked", "privacy": "none", "sigma": 1.0},
    ],
)
def test_required_privacy_lets_no_update_out_in_the_clear(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    node = device(tmp_path, np.ones((1, 3)), np.array([1.0]), **{"require-privacy": True})
    settings_ = {**CLEAR, **chosen}
    reply = ask("server-graph", settings_, node, "query.enrol")
    assert reply.has_error() or "refused" in reply.content["client"]
    reply = ask("server-graph", settings_, node, "train", {"model": np.zeros(3)}, round=1)
    assert reply.has_error()


def test_required_privacy_takes_part_by_secure_aggregation_and_not_otherwise(
    tmp_path: Path,
) -> None:
    node = device(tmp_path, np.ones((4, 3)), np.ones(4), **{"require-privacy": True})
    chosen = {**CLEAR, "method": "hybrid", "clip": 1.0, "sigma": 1.0}
    reply = ask("server-graph", chosen, node, "query.enrol")
    assert "refused" not in reply.content["client"]
    assert ask("server-graph", chosen, node, "train", {"model": np.zeros(3)}, round=1).has_error()
