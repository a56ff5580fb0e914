"""Servers that stop and clients that fail: the others go on, and who is missing is named."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.server_graph.federations import OPEN, SMALL, far, study
from trellis.apps.common.seeds import generator
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.data import synthetic_table
from trellis.apps.server_graph.losses import Logistic
from trellis.apps.server_graph.problem import draw_batches
from trellis.sim.faults import Drop, Late, Nonsense, Raise, not_a_number, wrong_shape
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.server_graph.post import Post
from trellis.strategies.server_graph.strategy import ServerGraph

# --- servers that stop ---------------------------------------------------------------------------


TEN = {
    "servers": 10, "clients": 20, "samples": "50", "method": "none", "rounds": 240, "batch": 5,
    "step": 0.2, "ridge": 0.1, "topology": "small-world:4,0.1",
}  # fmt: skip
LOST = (2, 5, 7)


@pytest.mark.parametrize("what", ["drop", "rehome"])
def test_three_of_ten_servers_lost_leave_the_others_where_they_would_be_without(what):
    """Against the minimiser of who is left, in the same rounds after both have settled."""
    never = ",".join(f"{p}:1" for p in LOST)
    lost = ",".join(f"{p}:60" for p in LOST)
    settings = {**TEN, "on-server-loss": what}
    without = study({**settings, "failures": never})
    with_loss = study({**settings, "failures": lost})
    whole = study({**TEN, "rounds": 63})
    assert abs(with_loss.headline["msd"] - without.headline["msd"]) < 1.0
    assert with_loss.headline["msd"] < -20.0
    # Each is judged by its own minimiser, which losing clients moves.
    assert far(with_loss.arrays["truth"], without.arrays["truth"]) == 0.0
    assert far(with_loss.arrays["truth"], whole.arrays["truth"]) > 1e-3
    servers = [row["servers"] for row in with_loss.metrics]
    assert servers == [10.0] * 59 + [7.0] * 181
    clients = [row["clients"] for row in with_loss.metrics]
    assert clients[:59] == [20.0] * 59
    assert set(clients[59:]) == {14.0 if what == "drop" else 20.0}
    assert with_loss.arrays["alive"].tolist() == [p not in LOST for p in range(10)]
    homes = with_loss.arrays["homes"].reshape(10, 2)
    if what == "drop":
        assert np.all(homes[list(LOST)] == -1)
    else:
        assert not set(homes.ravel().tolist()) & {*LOST, -1}
    # The loss did something: right after it the models differ from those of a run without.
    assert with_loss.metrics[62]["msd"] != whole.metrics[62]["msd"]


def test_the_truth_of_rehomed_clients_is_the_minimiser_with_servers_counting_alike():
    settings = {**TEN, "rounds": 2, "failures": "2:1", "on-server-loss": "rehome"}
    result = study({**settings, "loss": "least-squares"})
    config = ServerGraphConfig.from_settings({**settings, "loss": "least-squares"})
    homes = result.arrays["homes"]
    H, b = config.ridge * np.eye(2), np.zeros(2)
    for server in set(homes.tolist()):
        own = np.flatnonzero(homes == server)
        for k in own:
            table = synthetic_table(config, 1, int(k))
            share = 1.0 / (9 * len(own) * len(table.y))
            H, b = H + share * table.X.T @ table.X, b + share * table.X.T @ table.y
    np.testing.assert_allclose(result.arrays["truth"], np.linalg.solve(H, b), atol=1e-10)


@pytest.mark.parametrize("method", ["hybrid", "masked"])
def test_a_server_that_is_back_takes_part_again_and_all_matrices_are_sound(method, monkeypatch):
    used, exchange = [], Post.exchange

    def noted(post, servers, server_round, psi, weights, alive=None):
        used.append((server_round, weights.copy(), list(alive)))
        return exchange(post, servers, server_round, psi, weights, alive)

    monkeypatch.setattr(Post, "exchange", noted)
    settings = {**OPEN, "method": method, "failures": "1:3-4,3:4-6", "rounds": 8}
    result = study(settings)
    up = {i: alive for i, _, alive in used}
    assert [up[i] for i in (2, 3, 4, 5, 6, 7)] == [
        [0, 1, 2, 3], [0, 2, 3], [0, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2, 3],
    ]  # fmt: skip
    for _, a, alive in used:
        np.testing.assert_allclose(a, a.T, atol=1e-15)
        np.testing.assert_allclose(a.sum(axis=0), 1.0, atol=1e-14)
        down = sorted({0, 1, 2, 3} - set(alive))
        np.testing.assert_array_equal(a[down], np.eye(4)[down])
    assert [client["rounds"] for client in result.clients] == [8] * 3 + [6] * 3 + [8] * 3 + [5] * 3


def test_clients_of_a_lost_server_hear_nothing_or_get_a_neighbours_model(monkeypatch):
    sent, configure = {}, ServerGraph.configure_train

    def noted(strategy, server_round, arrays, config, grid):
        for message in configure(strategy, server_round, arrays, config, grid):
            model = wire.arrays(message.content["arrays"])["model"]
            same = [p for p, w in enumerate(strategy.models) if w.tobytes() == model.tobytes()]
            sent[server_round, message.metadata.dst_node_id - 1] = same
            yield message

    monkeypatch.setattr(ServerGraph, "configure_train", noted)
    settings = {**OPEN, "method": "none", "failures": "1:3", "rounds": 4}
    study({**settings, "on-server-loss": "drop"})
    assert {k for i, k in sent if i == 3} == set(range(12)) - {3, 4, 5}
    sent.clear()
    study({**settings, "on-server-loss": "rehome"})
    assert all(sent[2, k] == [1] for k in (3, 4, 5))
    assert {sent[4, k][0] for k in (3, 4, 5)} == {0, 2}


def test_secure_sums_go_on_after_a_server_is_lost():
    settings = {**SMALL, "method": "masked", "failures": "1:3-5", "rounds": 7}
    for what in ("drop", "rehome"):
        masked = study({**settings, "on-server-loss": what})
        opened = study({**settings, "on-server-loss": what, "secure-aggregation": "off"})
        assert far(masked.arrays["models"], opened.arrays["models"]) < 1e-8


def test_survivors_that_fall_apart_are_warned_of_and_go_on(caplog):
    settings = {**OPEN, "topology": "star", "method": "hybrid", "failures": "0:5", "rounds": 10}
    result = study(settings)
    assert result.status == "completed"
    assert "fall into 3 components" in caplog.text
    assert result.metrics[-1]["servers"] == 3.0


# --- clients that fail ---------------------------------------------------------------------------


FAULTS = {
    "dropped": (Drop(category="train", since=2), ""),
    "late": (Late(category="train", at=frozenset({2, 4})), "no reply"),
    "raises": (Raise(category="train", since=3, text="disk full"), "disk full"),
    "nan": (Nonsense(category="train", since=2, change=not_a_number), "reply rejected"),
    "shape": (Nonsense(category="train", since=2, change=wrong_shape), "reply rejected"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("secure", ["off", "on"])
def test_a_client_that_fails_is_named_and_the_others_go_on(fault, secure, caplog):
    acts, reason = FAULTS[fault]
    settings = {**SMALL, "clients": 16, "method": "hybrid", "rounds": 5, "timeout": 0.5}
    result = study({**settings, "secure-aggregation": secure}, faults={6: acts})
    if secure == "on" and fault == "nan":  # masked words are no reals: there is nothing to replace
        assert result.clients[6]["failures"] == 0
        return
    assert result.status == "completed"
    assert [c["failures"] > 0 for c in result.clients] == [k == 6 for k in range(16)]
    assert reason in result.clients[6]["last_failure"]
    assert "client client-7" in caplog.text
    assert [c["rounds"] for k, c in enumerate(result.clients) if k != 6] == [5] * 15
    assert np.all(np.isfinite(result.arrays["models"]))


def test_the_mean_is_of_those_who_answered():
    settings = {**OPEN, "clients": 16, "method": "none", "topology": "complete", "rounds": 1}
    part = study(settings, faults={6: Drop(category="train")})
    config = ServerGraphConfig.from_settings(settings)
    psi = np.zeros((4, 2))
    for k in set(range(16)) - {6}:
        table = synthetic_table(config, 1, k)
        (rows,) = draw_batches(20, config.batch, 1, generator(1, "batch", k, 1))
        step = -0.1 * Logistic().gradients(np.zeros(2), table.X[rows], table.y[rows]).mean(axis=0)
        psi[k // 4] += step / (3 if k // 4 == 1 else 4)
    np.testing.assert_allclose(part.arrays["centroid"], psi.mean(axis=0), atol=1e-15)


@pytest.mark.parametrize("secure", ["off", "on"])
def test_a_server_all_of_whose_clients_fail_keeps_its_model_in_that_round(secure, monkeypatch):
    told, exchange = {}, Post.exchange

    def noted(post, servers, server_round, psi, weights, alive=None):
        told[server_round] = {p: vector.copy() for p, vector in psi.items()}
        found = exchange(post, servers, server_round, psi, weights, alive)
        told[server_round, "after"] = found
        return found

    monkeypatch.setattr(Post, "exchange", noted)
    settings = {**SMALL, "method": "none", "secure-aggregation": secure, "rounds": 4}
    gone = {k: Raise(category="train", at=frozenset({3})) for k in (3, 4, 5)}
    result = study(settings, faults=gone)
    np.testing.assert_array_equal(told[3][1], told[2, "after"][1])
    assert far(told[3][0], told[2, "after"][0]) > 1e-3
    assert far(told[4][1], told[3, "after"][1]) > 1e-3
    assert [row["failed"] for row in result.metrics] == [0.0, 0.0, 3.0, 0.0]
    assert [row["clients"] for row in result.metrics] == [12.0, 12.0, 9.0, 12.0]
    assert [c["failures"] for c in result.clients] == [0] * 3 + [1] * 3 + [0] * 6


@pytest.mark.parametrize("secure", ["off", "on"])
def test_a_run_all_of_whose_clients_fail_ends_with_their_reasons(secure):
    settings = {**SMALL, "method": "none", "secure-aggregation": secure, "rounds": 4}
    gone = {k: Raise(category="train", since=2, text="disk full") for k in range(12)}
    with pytest.raises(StudyError, match=r"round 2: no .*client-1: .*disk full"):
        study(settings, faults=gone)
