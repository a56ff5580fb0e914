"""The study whole, on the in-process engine: exactness, methods, graphs, failures, faults."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import apps
from apps import run
from apps.common.results import RunResult
from apps.common.runner import make_run_config
from apps.common.seeds import generator
from apps.common.servers import build_topology
from apps.server_graph.config import ServerGraphConfig
from apps.server_graph.data import synthetic_table
from apps.server_graph.losses import LeastSquares, Logistic
from apps.server_graph.problem import draw_batches
from privacy.secagg.client import MASKED
from sim.faults import Drop, Late, Nonsense, Raise, not_a_number, wrong_shape
from sim.grid import LocalGrid, run_local
from strategies.core import wire
from strategies.core.base import StudyError
from strategies.server_graph.post import Post
from strategies.server_graph.strategy import ServerGraph

STUDY = "server-graph"
SMALL = {"servers": 4, "topology": "ring", "clients": 12, "samples": "20", "rounds": 20}
OPEN = {**SMALL, "secure-aggregation": "off"}
# All clients have one Hessian: noise that sums to zero leaves the centroid alone exactly.
QUADRATIC = {"loss": "least-squares", "spread": 0.0, "batch": 0, "features": 3}


def study(settings=None, **options):
    options.setdefault("report", False)
    return run(STUDY, settings, **options)


def far(one, other):
    return float(np.abs(one - other).max())


# --- secure aggregation at a server --------------------------------------------------------------


@pytest.mark.parametrize("method", ["none", "hybrid", "masked"])
def test_masks_cancel_a_masked_run_is_the_open_one_to_the_rings_rounding(method):
    masked = study({**SMALL, "method": method, "secure-aggregation": "on"})
    opened = study({**OPEN, "method": method})
    assert far(masked.arrays["models"], opened.arrays["models"]) < 1e-8
    assert far(opened.arrays["models"], 0.0) > 0.1
    assert masked.bytes_up > 2 * opened.bytes_up
    assert "learned the sum" in masked.ledger["secure_aggregation"]
    assert "single updates" in opened.ledger["secure_aggregation"]


def test_masks_are_the_default_where_the_paper_has_them():
    for method, masks in {"hybrid": True, "masked": True, "iid": False, "none": False}.items():
        assert ServerGraphConfig(method=method).masks_clients is masks
        assert ServerGraphConfig(method=method, secure_aggregation="off").masks_clients is False
        assert ServerGraphConfig(method=method, secure_aggregation="on").masks_clients is True


class Overheard:
    """All replies on their way to the servers."""

    def __init__(self, monkeypatch):
        self.replies = []
        receive = LocalGrid._receive

        def noted(grid, reply, asked):
            self.replies.append((reply.metadata.message_type, reply.content))
            return receive(grid, reply, asked)

        monkeypatch.setattr(LocalGrid, "_receive", noted)

    def arrays(self):
        return [
            (kind, array.numpy())
            for kind, content in self.replies
            for record in content.array_records.values()
            for array in record.values()
        ]


def test_no_model_travels_in_the_clear_under_masks_and_all_do_without(monkeypatch):
    heard = Overheard(monkeypatch)
    study({**OPEN, "method": "hybrid", "rounds": 2})
    assert sum(array.dtype == np.float64 for _, array in heard.arrays()) == 2 * 12
    heard.replies.clear()
    result = study({**SMALL, "method": "hybrid", "rounds": 2})
    vectors = heard.arrays()
    assert len(vectors) == 2 * 12
    assert {kind for kind, _ in vectors} == {f"train.{MASKED}"}
    assert {array.dtype for _, array in vectors} == {np.dtype(np.uint64)}
    # Model, and one for the count: words that look like chance, high bits and all.
    words = np.concatenate([array for _, array in vectors])
    assert words.size == 2 * 12 * (result.arrays["models"].shape[1] + 1)
    assert 0.3 < np.mean(words >= 2**63) < 0.7
    assert len(set(words.tolist())) == words.size


@pytest.mark.parametrize(
    ("settings", "server", "count"),
    # Eleven clients are dealt 3, 3, 3, 2.
    [({"clients": 11}, 3, 2), ({"sample": 2}, 0, 2), ({"clients": 4}, 0, 1)],
)
def test_fewer_than_three_clients_a_server_are_refused_before_anyone_is_asked(
    settings, server, count, monkeypatch
):
    heard = Overheard(monkeypatch)
    with pytest.raises(
        StudyError, match=f"server {server} asks {count} clients; .*secure-aggregation=off"
    ):
        study({**SMALL, "method": "hybrid", **settings})
    assert {kind for kind, _ in heard.replies} == {"query.enrol"}
    study({**OPEN, "method": "hybrid", "rounds": 1, **settings})


def test_a_client_that_is_asked_in_the_clear_though_masks_are_promised_refuses(monkeypatch):
    monkeypatch.setattr("apps.server_graph.build.SecureSum", None)
    with pytest.raises(StudyError, match="this reply would be in the clear"):
        study({**SMALL, "method": "hybrid"})


# --- a common Hessian: exact --------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["ring", "complete", "star", "path", "erdos-renyi:0.5"])
def test_on_quadratics_with_one_hessian_noise_leaves_the_centroid_alone(topology):
    settings = {**OPEN, **QUADRATIC, "servers": 6, "topology": topology}
    clean = study({**settings, "method": "none"})
    hybrid = study({**settings, "method": "hybrid", "sigma": 20.0})
    masked = study({**settings, "method": "masked", "sigma": 20.0})
    iid = study({**settings, "method": "iid", "sigma": 20.0})
    assert far(hybrid.arrays["centroid"], clean.arrays["centroid"]) < 1e-10
    assert far(masked.arrays["centroid"], clean.arrays["centroid"]) < 1e-10
    # The single servers are another matter, and so is noise that does not sum to zero.
    assert np.all(np.abs(hybrid.arrays["models"] - clean.arrays["models"]).max(axis=1) > 1.0)
    assert far(iid.arrays["centroid"], clean.arrays["centroid"]) > 0.5
    assert hybrid.headline["disagreement"] > 100.0 * clean.headline["disagreement"]
    degree = np.count_nonzero(clean.arrays["combination"], axis=1) - 1
    # Masks leave no trace in any server's model, unless some server has one neighbour.
    exact = far(masked.arrays["models"], clean.arrays["models"]) < 1e-10
    assert exact == (degree.min() > 1)


def test_masked_is_exact_for_any_loss_and_any_batch_and_hybrid_is_not():
    settings = {**OPEN, "sigma": 1.0, "rounds": 60, "batch": 5}
    clean = study({**settings, "method": "none"})
    masked = study({**settings, "method": "masked"})
    hybrid = study({**settings, "method": "hybrid"})
    assert far(masked.arrays["models"], clean.arrays["models"]) < 1e-10
    assert far(hybrid.arrays["centroid"], clean.arrays["centroid"]) > 0.01


def test_the_quadratic_run_ends_at_the_minimiser():
    settings = {**OPEN, **QUADRATIC, "method": "none", "topology": "complete", "rounds": 300}
    result = study(settings)
    config = ServerGraphConfig.from_settings(settings)
    tables = [synthetic_table(config, 1, k) for k in range(12)]
    # Equal Hessians and equal counts: ridge regression on everything.
    X, y = np.concatenate([t.X for t in tables]), np.concatenate([t.y for t in tables])
    exact = np.linalg.solve(X.T @ X / len(y) + config.ridge * np.eye(3), X.T @ y / len(y))
    assert far(result.arrays["truth"], exact) < 1e-10
    assert far(result.arrays["centroid"], exact) < 1e-10
    assert result.headline["msd"] < -100.0


# --- other methods and graphs --------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Logistic(), LeastSquares()], ids=["logistic", "least-squares"])
def test_fedavg_is_plain_fedavg(loss):
    name = "logistic" if isinstance(loss, Logistic) else "least-squares"
    settings = {
        "method": "fedavg", "clients": 5, "samples": "12,20,15,30,9", "rounds": 7, "batch": 4,
        "local-steps": 3, "step": 0.2, "ridge": 0.05, "loss": name, "sample": 3, "features": 4,
    }  # fmt: skip
    result = study(settings, seed=9)
    config = ServerGraphConfig.from_settings(settings)
    tables = [synthetic_table(config, 9, k) for k in range(5)]
    w = np.zeros(4)
    for i, row in enumerate(result.metrics, start=1):
        assert row["clients"] == 3.0
        chosen = sorted(generator(9, "sampling", 0, i).choice(5, 3, replace=False).tolist())
        ended = []
        for k in chosen:
            v, table = w, tables[k]
            for rows in draw_batches(len(table.y), 4, 3, generator(9, "batch", k, i)):
                slopes = loss.gradients(v, table.X[rows], table.y[rows])
                v = v - 0.2 * (slopes.mean(axis=0) + 0.05 * v)
            ended.append(v)
        w = np.mean(ended, axis=0)
    np.testing.assert_allclose(result.arrays["centroid"], w, atol=1e-14)
    assert result.arrays["models"].shape == (1, 4)
    assert result.headline["between-servers"] == 0.0


@pytest.mark.parametrize("method", ServerGraphConfig.methods)
@pytest.mark.parametrize("servers", [1, 2])
def test_one_server_and_two_work_by_every_method(method, servers):
    settings = {**SMALL, "servers": servers, "topology": "complete", "method": method, "rounds": 5}
    result = study({**settings, "clients": 6, "clip": 1.0})
    count = 1 if method == "fedavg" else servers
    assert result.status == "completed"
    assert result.arrays["models"].shape == (count, 2)
    assert np.all(np.isfinite(result.arrays["models"]))
    if count == 1:
        same = study({**settings, "clients": 6, "clip": 1.0, "method": "fedavg"})
        assert far(result.arrays["models"], same.arrays["models"]) < 1e-9
    noisy = count > 1 and method in ("hybrid", "iid", "masked")
    if count > 1:
        assert (far(result.arrays["models"][0], result.arrays["models"][1]) > 1e-3) == noisy


@pytest.mark.parametrize(
    "topology",
    ["ring", "path", "star", "complete", "grid", "grid:2,4", "erdos-renyi:0.4", "random:3",
     "small-world:4,0.2"],
)  # fmt: skip
@pytest.mark.parametrize("weights", ["auto", "laplacian"])
def test_every_topology_by_name(topology, weights):
    result = study(
        {**OPEN, "servers": 8, "topology": topology, "weights": weights, "rounds": 3, "sigma": 0.1}
    )
    a = result.arrays["combination"]
    np.testing.assert_allclose(a, a.T)
    np.testing.assert_allclose(a.sum(axis=0), 1.0)
    assert 0.0 < result.headline["spectral-gap"] <= 1.0
    if weights == "laplacian":
        across = a[~np.eye(8, dtype=bool)]
        assert len(np.unique(across[across > 0.0].round(12))) == 1


def test_random_graphs_come_from_the_seed():
    config = ServerGraphConfig()
    one, same, other = (build_topology(config, seed).weights for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


OWN = np.array([[0.5, 0.3, 0.2], [0.3, 0.6, 0.1], [0.2, 0.1, 0.7]])


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_an_own_matrix_from_a_file_is_what_models_are_combined_with(tmp_path, ending):
    path = tmp_path / f"matrix.{ending}"
    if ending == "npz":
        np.savez(path, A=OWN)
    else:
        np.savetxt(path, OWN, delimiter=",")
    settings = {**OPEN, "servers": 3, "clients": 3, "method": "none", "rounds": 1}
    result = study({**settings, "topology": str(path)})
    np.testing.assert_array_equal(result.arrays["combination"], OWN)
    alone = study({**settings, "servers": 1, "topology": "complete", "clients": 3, "sample": 0})
    config = ServerGraphConfig.from_settings(settings)
    psi = []
    for k in range(3):
        table = synthetic_table(config, 1, k)
        (rows,) = draw_batches(20, config.batch, 1, generator(1, "batch", k, 1))
        psi.append(-0.1 * Logistic().gradients(np.zeros(2), table.X[rows], table.y[rows]).mean(0))
    np.testing.assert_allclose(result.arrays["models"], OWN @ np.array(psi), atol=1e-15)
    np.testing.assert_allclose(alone.arrays["centroid"], np.mean(psi, axis=0), atol=1e-15)
    again = study({**settings, "topology": str(path), "weights": "metropolis"})
    np.testing.assert_allclose(again.arrays["combination"], np.full((3, 3), 1 / 3))


def test_sampling_asks_L_clients_of_each_server():
    result = study({**OPEN, "clients": 24, "sample": 2, "method": "none", "rounds": 15})
    assert [row["clients"] for row in result.metrics] == [8.0] * 15
    rounds = np.array([client["rounds"] for client in result.clients]).reshape(4, 6)
    assert rounds.sum(axis=1).tolist() == [30] * 4
    assert len(np.unique(rounds)) > 1
    again = study({**OPEN, "clients": 24, "sample": 2, "method": "none", "rounds": 15})
    assert [c["rounds"] for c in again.clients] == [c["rounds"] for c in result.clients]
    other = study({**OPEN, "clients": 24, "sample": 2, "method": "none", "rounds": 15}, seed=2)
    assert [c["rounds"] for c in other.clients] != [c["rounds"] for c in result.clients]


def test_workers_change_no_bit():
    settings = {**SMALL, "method": "hybrid", "rounds": 4}
    one, two = study(settings), study(settings, workers=2)
    assert one.arrays["models"].tobytes() == two.arrays["models"].tobytes()


def test_a_torch_network_is_trained_over_a_ring():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    settings = {
        **OPEN, "method": "hybrid", "sigma": 0.01, "loss": "apps.server_graph.torch_loss.SmallMlp",
        "rounds": 8, "step": 0.5,
    }  # fmt: skip
    result = study(settings)
    from apps.server_graph.torch_loss import SmallMlp

    loss, config = SmallMlp(), ServerGraphConfig.from_settings(settings)
    tables = [synthetic_table(config, 1, k) for k in range(12)]

    def mean_loss(w):
        return np.mean([loss.loss(w, table.X, table.y).mean() for table in tables])

    assert result.arrays["models"].shape == (4, loss.size(2))
    assert mean_loss(result.arrays["centroid"]) < 0.7 * mean_loss(loss.start(2))
    assert "truth" not in result.arrays  # no one minimiser: no distance to it is claimed
    assert "msd" not in result.headline


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
    whole = study(TEN)
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
    sent, payload = {}, ServerGraph.payload

    def noted(strategy, server_round, client):
        content = payload(strategy, server_round, client)
        model = wire.arrays(content["arrays"])["model"]
        same = [p for p, w in enumerate(strategy.models) if w.tobytes() == model.tobytes()]
        sent[server_round, client] = same
        return content

    monkeypatch.setattr(ServerGraph, "payload", noted)
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


# --- who belongs to whom -------------------------------------------------------------------------


def write_clients(folder, count, ending="npz"):
    rng = np.random.default_rng(0)
    for k in range(count):
        X, y = rng.normal(size=(30, 2)), rng.choice([-1.0, 1.0], 30)
        if ending == "npz":
            np.savez(folder / f"site{k}.npz", X=X, y=y)
        else:
            lines = ["y,a,b", *(f"{t},{u},{v}" for t, (u, v) in zip(y, X, strict=True))]
            (folder / f"site{k}.csv").write_text("\n".join(lines))


def test_assignment_csv_says_whose_client_a_file_is(tmp_path):
    write_clients(tmp_path, 5)
    assigned = [2, 0, 1, 1, 0]
    rows = [f"site{k}{'.npz' if k % 2 else ''},{p}" for k, p in enumerate(assigned)]
    (tmp_path / "assignment.csv").write_text("client,server\n" + "\n".join(rows) + "\n")
    settings = {"servers": 3, "topology": "ring", "secure-aggregation": "off", "rounds": 2}
    result = study(settings, data=tmp_path)
    assert result.arrays["homes"].tolist() == assigned
    assert "truth" not in result.arrays


def in_process(settings, nodes, out):
    run_config = make_run_config(STUDY, {"clients": len(nodes), **settings}) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


def test_a_node_config_says_whose_client_a_device_is_and_a_wrong_one_is_named(tmp_path):
    write_clients(tmp_path, 4, "csv")
    settings = {"servers": 2, "topology": "complete", "secure-aggregation": "off", "rounds": 2}
    nodes = [
        {"data-path": str(tmp_path / f"site{k}.csv"), "server": p}
        for k, p in enumerate([1, 0, 1, 1])
    ]
    result = in_process(settings, nodes, tmp_path / "out")
    homes = dict(zip([c["name"] for c in result.clients], result.arrays["homes"], strict=True))
    assert homes == {"site0": 1, "site1": 0, "site2": 1, "site3": 1}
    for wrong in (2, "two"):
        bad = [*nodes[:3], {**nodes[3], "server": wrong}]
        with pytest.raises(StudyError, match=f"site3.*server={wrong!r}.* numbered from 0 to 1"):
            in_process(settings, bad, tmp_path / "bad")
    silent = [*nodes[:3], {"data-path": nodes[3]["data-path"]}]
    with pytest.raises(StudyError, match="site3: which server is it a client of"):
        in_process(settings, silent, tmp_path / "silent")


def test_a_client_missing_in_assignment_csv_is_named(tmp_path):
    write_clients(tmp_path, 3)
    (tmp_path / "assignment.csv").write_text("client,server\nsite0,0\nsite1,1\n")
    settings = {"servers": 2, "topology": "complete", "secure-aggregation": "off"}
    with pytest.raises(StudyError, match=r"assignment\.csv: client 'site2' stands there 0 times"):
        study(settings, data=tmp_path)
    (tmp_path / "assignment.csv").write_text("client,server\nsite0,0\nsite1,1\nsite2,2\n")
    with pytest.raises(StudyError, match=r"assignment\.csv: row 3: server='2'"):
        study(settings, data=tmp_path)


# --- the record ----------------------------------------------------------------------------------


def test_what_a_run_leaves(tmp_path):
    result = study({**OPEN, "method": "hybrid", "clip": 1.0}, out=tmp_path, report=True)
    assert set(result.arrays) >= {"models", "centroid", "combination", "homes", "alive", "truth"}
    np.testing.assert_allclose(
        result.arrays["centroid"], result.arrays["models"].mean(axis=0), atol=1e-15
    )
    for name in ("msd", "msd-servers", "disagreement", "epsilon-paper", "epsilon-sound"):
        assert np.isfinite(result.headline[name])
        assert np.isfinite(result.metrics[0][name])
    last = 10.0 * np.log10(np.sum((result.arrays["centroid"] - result.arrays["truth"]) ** 2))
    assert result.metrics[-1]["msd"] == pytest.approx(last)
    # 20 rounds, 4 edges both ways, 2 numbers of 8 bytes
    assert result.headline["between-servers"] == 20 * 8 * 16
    again = study({**OPEN, "method": "hybrid", "clip": 1.0}, out=tmp_path, resume=True)
    assert again.headline == result.headline


def test_headlines_are_the_mean_power_of_the_last_half():
    result = study({**OPEN, "method": "none"})
    power = [10.0 ** (row["msd"] / 10.0) for row in result.metrics[10:]]
    assert result.headline["msd"] == pytest.approx(10.0 * np.log10(np.mean(power)))
