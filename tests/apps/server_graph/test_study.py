"""The study whole, on the in-process engine: exactness, methods, graphs, whose client is whose."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

from tests.apps.device_logs import reasons
from tests.apps.server_graph.federations import OPEN, QUADRATIC, SMALL, STUDY, far, of_method, study
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.data import synthetic_table
from trellis.apps.server_graph.losses import LeastSquares, Logistic
from trellis.apps.server_graph.problem import draw_batches
from trellis.sim.grid import run_local
from trellis.strategies.core.enrolment import StudyError

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
    clean = study(of_method(settings, "none"))
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
        own = generator(9, "sampling", 0, i).spawn(1)[0]  # of the one server
        chosen = sorted(own.choice(5, 3, replace=False).tolist())
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
    settings = {**SMALL, "servers": servers, "topology": "complete", "rounds": 5}
    settings |= {"clients": 6, "clip": 1.0}
    result = study(of_method(settings, method))
    count = 1 if method == "fedavg" else servers
    assert result.status == "completed"
    assert result.arrays["models"].shape == (count, 2)
    assert np.all(np.isfinite(result.arrays["models"]))
    if count == 1:
        same = study(of_method(settings, "fedavg"))
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
        **OPEN, "method": "hybrid", "sigma": 0.01,
        "loss": "small-mlp",
        "rounds": 8, "step": 0.5,
    }  # fmt: skip
    result = study(settings)
    from trellis.apps.server_graph.torch_loss import SmallMlp

    loss, config = SmallMlp(), ServerGraphConfig.from_settings(settings)
    tables = [synthetic_table(config, 1, k) for k in range(12)]

    def mean_loss(w):
        return np.mean([loss.loss(w, table.X, table.y).mean() for table in tables])

    assert result.arrays["models"].shape == (4, loss.size(2))
    assert mean_loss(result.arrays["centroid"]) < 0.7 * mean_loss(loss.start(2))
    assert "truth" not in result.arrays  # no one minimiser: no distance to it is claimed
    assert "msd" not in result.headline


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

    def told():
        return reasons(tmp_path / ".site3-trellis")

    for wrong, why in (
        (2, "site3.*server=2.* numbered from 0 to 1"),
        ("two", "server='two': must be a whole number"),
    ):
        bad = [*nodes[:3], {**nodes[3], "server": wrong}]
        with pytest.raises(StudyError, match="device error E"):
            in_process(settings, bad, tmp_path / "bad")
        assert re.search(why, told()[-1])
    silent = [*nodes[:3], {"data-path": nodes[3]["data-path"]}]
    with pytest.raises(StudyError, match="device error E"):
        in_process(settings, silent, tmp_path / "silent")
    assert "site3: which server is it a client of" in told()[-1]
    # Of one server everybody is a client.
    one = in_process({**settings, "servers": 1}, [*silent[3:]], tmp_path / "one")
    assert one.arrays["homes"].tolist() == [0]


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
    for name in ("msd", "msd-servers", "disagreement", "epsilon-paper", "epsilon-corrected"):
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
