"""Attacks on cluster-admm and server-graph by a server that picks the settings and the messages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from trellis.apps.cluster_admm.release import grid_plan, sensitivity

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.privacy.accounting.budget import DeviceLedger

from .server_studies import ask, device, model

Array = NDArray[np.float64]

ONE = {"privacy": "sound", "clients": 1, "servers": 1, "clusters": "1", "rounds": 1, "zeta": 1.0}


def hospital(rows: int = 5000) -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    X = rng.standard_normal((rows, 3)) + np.array([0.8, 0.0, 0.0])
    y = X @ np.array([1.0, -2.0, 0.5]) + rng.standard_normal(rows)
    return X, np.where(np.abs(y) < 1e-3, 1e-3, y)


def refused(reply: Any) -> bool:
    return bool(reply.has_error())


# --- cluster-admm: scales at which the noise is below the rounding -------------------------------


def test_scales_that_are_out_of_range_are_refused_before_anything_is_released(
    tmp_path: Path,
) -> None:
    """The server chose a ridge of 2^79 and a v of which the data moves the last bit alone."""
    node = device(tmp_path, *hospital(), **{"max-epsilon": 0.2})
    v = np.array([0.0, -(2.0**22) * 1.5, 0.0])
    chosen = {
        **ONE,
        "phi0": 8e-6,
        "ridge": 2.0**79,
        "clip-features": 2.0**-12,
        "clip-target": 1e-6,
        "clip-model": 2.0 * 2.0**22 * 1.5 / 2.0**80,
    }
    reply = ask("cluster-admm", chosen, node, "train", {"v": v}, round=1, rho=1.0, share=1.0)
    assert refused(reply)
    assert DeviceLedger(tmp_path / "state").events() == []


@pytest.mark.parametrize("loss", ["ridge", "logistic"])
@pytest.mark.parametrize("exponent", [30, 40, 50, 60, 100])
def test_a_long_v_in_range_is_refused_when_its_rounding_is_as_large_as_the_sensitivity(
    tmp_path: Path, exponent: int, loss: str
) -> None:
    node = device(tmp_path, *hospital(), **{"max-epsilon": 0.2})
    v = np.array([0.0, 2.0**exponent * 1.5, 0.0])
    chosen = {**ONE, "loss": loss, "phi0": 1e-6, "ridge": 1e8, "clip-features": 1e-3}
    chosen |= {"clip-target": 1e-3, "clip-model": 1e6}
    order = {"round": 1, "rho": 1.0, "share": 1.0}
    first, other = hospital()
    first[0], other[0] = 100.0, -50.0
    replies = [
        ask("cluster-admm", chosen, where, "train", {"v": v}, **order)
        for where in (node, device(tmp_path / "other", first, other))
    ]
    assert refused(replies[0]) == refused(replies[1]) is True


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(["ridge", "logistic"]),
    st.floats(-6, 6),
    st.floats(-6, 6),
    st.floats(-6, 6),
    st.floats(-9, 9),
    st.floats(-9, 9),
    st.floats(-8, 30),
    st.floats(-9, 2),
    st.integers(0, 2**20),
)
def test_whatever_the_scales_two_neighbours_answer_alike_within_their_noise(
    tmp_path_factory: pytest.TempPathFactory,
    loss: str,
    B: float,
    Y: float,
    W: float,
    rho: float,
    ridge: float,
    log_v: float,
    phi: float,
    seed: int,
) -> None:
    """Both refuse or both send multiples of one grid, no further apart than Delta and the noise."""
    folder, rng = tmp_path_factory.mktemp("scales"), np.random.default_rng(seed)
    chosen = {
        **ONE,
        "loss": loss,
        "clip-features": 10.0**B,
        "clip-target": 10.0**Y,
        "clip-model": 10.0**W,
        "ridge": 10.0**ridge,
        "phi0": 10.0**phi,
        "epsilon": 1e30,
    }
    X, y = hospital(20)
    v = 10.0**log_v * rng.standard_normal(3)
    order = {"round": 1, "rho": 10.0**rho, "share": 1.0}
    replies = []
    for name in ("one", "two"):
        node = device(folder / name, X, y)
        replies.append(ask("cluster-admm", chosen, node, "train", {"v": v}, **order))
        X, y = X.copy(), y.copy()
        X[3], y[3] = 1e9 * rng.standard_normal(3), -1e9
    assert refused(replies[0]) == refused(replies[1])
    if refused(replies[0]):
        return
    config = ClusterAdmmConfig.from_settings(chosen)
    plan = grid_plan(config, 1, 20, 3, order["rho"], 1.0)
    for reply in replies:
        steps = model(reply) / plan.grid
        np.testing.assert_array_equal(steps, np.rint(steps))
    apart = float(np.linalg.norm(model(replies[0]) - model(replies[1])))
    assert apart <= plan.sensitivity + 20.0 * plan.sigma
    claimed = sensitivity(config, 20, order["rho"], 1.0)
    assert plan.sigma >= claimed / math.sqrt(2.0 * config.phi0)


def test_a_question_asked_at_the_last_bit_is_answered_by_the_noise(tmp_path: Path) -> None:
    """The attack within the ranges: a mean is asked for by whether a last bit moves."""
    node = device(tmp_path, *hospital())
    chosen = {**ONE, "phi0": 8e-6, "clip-features": 1e-2, "clip-target": 1e-2, "clip-model": 10.0}
    order = {"round": 1, "rho": 3.0, "share": 1.0}
    v = np.array([0.0, 3.0, 0.0])
    sent = [
        model(ask("cluster-admm", chosen, node, "train", {"v": v}, **order)) for _ in range(200)
    ]
    plan = grid_plan(ClusterAdmmConfig.from_settings(chosen), 1, 5000, 3, 3.0, 1.0)
    assert np.std(sent, axis=0) == pytest.approx(plan.sigma, rel=0.25)
    assert plan.grid > 1e3 * np.spacing(3.0)


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
        chosen |= {"clusters": "1", "loss": "logistic" if loss == "logistic" else "ridge"}
        arrays, order = {"v": np.ones(4)}, {"round": 1, "rho": 3.0, "share": 1.0}
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
