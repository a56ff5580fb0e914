"""gromov-wasserstein through messages: the whole study in process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.common.node import Node
from trellis.apps.common.settings import ConfigError
from trellis.apps.gromov_wasserstein import server_app
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.data import client_graphs
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.graphs import Graph
from trellis.apps.gromov_wasserstein.model.gnn import build_model, load
from trellis.apps.gromov_wasserstein.model.training import embed
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.sim.faults import Nonsense, Raise, not_a_number
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.gromov_wasserstein.pairwise import pairwise

STUDY = "gromov-wasserstein"
SMALL = {
    "clients": 4, "graphs": 12, "rounds": 2, "local-epochs": 1, "downstream": "knn,anomaly",
}  # fmt: skip


def study(settings=None, **options):
    chosen = {**SMALL, **(settings or {})}
    if chosen.get("privacy") == "dp":
        del chosen["local-epochs"]  # a round is one step there, or none
    return run(STUDY, chosen, report=False, **options)


@pytest.fixture(scope="module")
def plain():
    return study()


def test_a_result_has_the_distances_and_whose_graphs_they_are_of(plain):
    found = plain.arrays
    assert found["distances"].shape == (12, 12)
    np.testing.assert_array_equal(found["distances"], found["distances"].T)
    assert np.all(np.diag(found["distances"]) == 0.0)
    assert found["owner"].tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert len(found["codes"]) == found["sizes"].sum()
    assert found["anomaly"].shape == (12,)
    assert {"loss", "majority"} <= set(plain.headline)


def test_distances_are_of_the_last_model_s_embeddings(plain):
    config = GromovWassersteinConfig.from_settings(SMALL)
    graphs = [
        graph
        for k in range(4)
        for graph in client_graphs(config, 1, Node(f"c{k}", k, None, None, True))
    ]
    classes = plain.arrays["codes"].shape[1]
    model = build_model("gcn", graphs[0].features.shape[1], classes, "node", 16)
    load(model, plain.arrays["weights"])
    rows = embed(model, graphs)
    np.testing.assert_allclose(plain.arrays["codes"], np.concatenate(rows), atol=1e-12)
    costs = [np.linalg.norm(r[:, None] - r[None], axis=2) for r in rows]
    expected = pairwise(costs, workers=1)
    np.testing.assert_allclose(plain.arrays["distances"], expected, rtol=1e-6, atol=1e-9)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(plain):
    again, other = study(), study(seed=2)
    for name, array in plain.arrays.items():
        assert array.tobytes() == again.arrays[name].tobytes(), name
    assert plain.arrays["weights"].tobytes() != other.arrays["weights"].tobytes()


@pytest.mark.parametrize(
    "settings",
    [
        {"task": "graph", "model": "gin", "width": 6},
        {"method": "fedprox", "batch": 1},
        {"metric": "wasserstein"},
        {"metric": "fgw", "distance": "cosine"},
        {"privacy": "paper"},
        {"privacy": "dp", "epsilon": 60.0, "estimator": "rectified"},
        {"privacy": "dp", "epsilon": 60.0, "estimator": "simplex", "budget-per": "node"},
        {"privacy": "dp", "method": "fedavg", "epsilon": 60.0},
        {"privacy": "dp", "method": "fedavg", "task": "graph", "held-out": 0.3},
        {"release-every": 1, "privacy": "paper", "epsilon": 5.0},
        {"sample": 2},
        {"downstream": "all"},
        {"share-labels": False, "downstream": "knn"},
    ],
    ids=str,
)
def test_every_variant_runs(settings):
    result = study(settings)
    distances = result.arrays["distances"]
    assert np.all(np.isfinite(distances))
    assert np.any(distances > 0.0)
    if settings.get("privacy") == "dp":
        assert result.arrays["codes"].dtype == np.int8


def test_accuracies_of_a_model_that_saw_the_labels_are_said_to_be_flattered(plain):
    seen = study({"task": "graph", "downstream": "knn"})
    assert any("are flattered" in note for note in seen.notes)
    assert not any("are flattered" in note for note in plain.notes)


def test_secure_aggregation_leaves_the_model_as_it_is():
    clear = study()
    masked = study({"secure-aggregation": True})
    np.testing.assert_allclose(masked.arrays["weights"], clear.arrays["weights"], atol=1e-6)


def test_releases_of_several_rounds_add_up():
    result = study({"release-every": 1, "privacy": "paper", "epsilon": 5.0})
    assert result.ledger["epsilon"] == 5.0  # of both releases together
    assert {e["epsilon"] for c in result.ledger["clients"] for e in c["events"]} == {2.5}
    once = study({"privacy": "dp", "epsilon": 5.0, "budget-per": "node"})
    largest = max(once.arrays["sizes"])
    assert once.ledger["epsilon"] == pytest.approx(5.0 * largest)


def test_a_large_epsilon_sends_the_embedding_and_a_small_one_coin_flips():
    settings = {"privacy": "dp", "budget-per": "node", "estimator": "rectified"}
    close = study({**settings, "epsilon": 1e4}).arrays["codes"]
    h = close.shape[1]
    assert (np.abs(close) == 1).all()
    # Rows sum to one, so an entry is sent as +1 with probability 1 / h on average.
    assert close.mean() == pytest.approx(2.0 / h - 1.0, abs=0.12)
    coins = study({**settings, "epsilon": 1e-3, "bits": h}).arrays["codes"]
    assert coins.mean() == pytest.approx(0.0, abs=0.12)


def test_a_client_that_answers_nonsense_is_named_and_passed_over(caplog):
    faults = {
        0: Raise(category="query", since=2),  # after enrolment
        2: Nonsense(change=not_a_number, category="train"),
    }
    result = study(faults=faults)
    assert set(result.arrays["owner"].tolist()) == {1, 2, 3}
    assert "client-1" in caplog.text
    assert any("client-3" in note for note in result.notes)


def test_distances_that_were_interrupted_are_not_computed_again(tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(server_app, "judge", stop)
    with pytest.raises(KeyboardInterrupt):
        study(out=tmp_path)
    monkeypatch.undo()
    counted = []
    monkeypatch.setattr(server_app, "_progress", lambda done, total: counted.append((done, total)))
    result = study(out=tmp_path, resume=True)
    assert all(done == total for done, total in counted)  # nothing was left to do
    assert result.arrays["distances"].tobytes() == study().arrays["distances"].tobytes()


# --- bad input ------------------------------------------------------------------------------------


def graph(n=4, features=3, edges=((0, 1), (1, 2)), label=0, labels=None):
    return Graph(
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
        features=np.eye(n, features, dtype=np.float32),
        label=label,
        node_labels=np.arange(n) % 2 if labels is None else np.asarray(labels),
    )


def folder(tmp_path, *clients):
    for number, graphs in enumerate(clients):
        write_graphs(tmp_path / f"site{number}.npz", graphs)
    return tmp_path


def test_small_odd_graphs_are_no_problem(tmp_path):
    odd = [
        graph(n=1, edges=()),
        graph(edges=()),
        graph(edges=((0, 1),)),  # isolated nodes
        graph(n=6, edges=((0, 1), (2, 3), (4, 5)), label=1),  # disconnected
    ]
    data = folder(tmp_path, odd, [graph(), graph(label=1)])
    result = run(STUDY, {"rounds": 1, "downstream": "anomaly"}, data=data, report=False)
    assert result.arrays["distances"].shape == (6, 6)
    assert np.all(np.isfinite(result.arrays["distances"]))


def test_other_features_are_named(tmp_path):
    data = folder(tmp_path, [graph()], [graph(features=4)])
    with pytest.raises(StudyError, match="site1 has other variables than site0"):
        run(STUDY, {"rounds": 1}, data=data, report=False)


def test_labels_that_are_missing_are_said_to_be(tmp_path):
    data = folder(tmp_path, [graph(labels=[-1] * 4, label=-1)], [graph(labels=[-1] * 4, label=-1)])
    with pytest.raises((StudyError, ConfigError), match="two are needed to learn from"):
        run(STUDY, {"rounds": 1}, data=data, report=False)


def test_more_bits_than_a_row_has_are_refused():
    with pytest.raises(ConfigError, match="bits=50: the rows of an embedding have"):
        study({"privacy": "dp", "bits": 50})


def test_without_torch_the_pip_line_is_named():
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from trellis import apps\n"
        "try:\n"
        "    apps.run('gromov-wasserstein', {'rounds': 1}, report=False)\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "pip install '.[gnn]'" in done.stdout


def test_graphs_without_labels_are_told_what_needs_none(tmp_path):
    for k, name in enumerate(("north", "south")):
        graphs = synthetic_graphs(3, np.random.default_rng(k))
        write_graphs(tmp_path / f"{name}.npz", [Graph(g.edges, g.features) for g in graphs])
    with pytest.raises(ConfigError, match=r"0 classes.*method=untrained and classes=4"):
        run(STUDY, {"rounds": 1}, data=tmp_path)
    settings = {"method": "untrained", "classes": 4, "held-out": 0.2}
    result = run(STUDY, settings, data=tmp_path)
    assert result.arrays["distances"].shape == (6, 6)
    assert any("the method has no model" in note for note in result.notes)
