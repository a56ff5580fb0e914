"""The estimators are scikit-learn's: its own checks say so."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import trellis


@parametrize_with_checks([trellis.SmoothGraph(), trellis.JointGraphicalLasso()])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def test_a_grid_chooses_a_ridge_by_held_out_signals():
    data = trellis.sample("consensus-graph", clients=1, nodes=8)["ward-1"]
    search = GridSearchCV(trellis.SmoothGraph(), {"beta": [1e-3, None, 1e3]}, cv=3).fit(data)
    assert search.best_params_ == {"beta": None}
    assert list(search.best_estimator_.graph_.nodes) == list(data.columns)
    assert search.best_estimator_.weights_.shape == (8, 8)


def test_scores_are_those_of_devices_and_fall_on_other_data():
    from trellis.apps.consensus_graph.private.personal import log_likelihood, with_faint
    from trellis.apps.consensus_graph.problem import edge_vector

    wards = trellis.sample("consensus-graph", clients=2, nodes=8)
    X = wards["ward-1"].to_numpy()
    model = trellis.SmoothGraph().fit(X[:30])
    w = with_faint(edge_vector(model.weights_))
    assert model.score(X[30:]) == pytest.approx(log_likelihood(w, X[30:], model.scale_).mean())
    shuffled = np.random.default_rng(0).permuted(X[30:], axis=0)
    assert model.score(shuffled) < model.score(X[30:])


@pytest.mark.parametrize("correlation", ["kendall", "spearman", "pearson"])
def test_groups_as_labels_or_as_a_list(correlation):
    data = trellis.sample("joint-precision", clients=3, variables=6, blocks=2, samples="40")
    tables = [frame.to_numpy() for frame in data.values()]
    if correlation == "pearson":
        tables = [np.argsort(np.argsort(table, axis=0), axis=0).astype(float) for table in tables]
    rows, labels = np.concatenate(tables), np.repeat(["x", "y", "z"], 40)
    order = np.random.default_rng(1).permutation(len(rows))
    model = trellis.JointGraphicalLasso(0.2, 0.1, correlation=correlation)
    model.fit(rows[order], groups=labels[order])
    same = trellis.JointGraphicalLasso(0.2, 0.1, correlation=correlation).fit(tables)
    np.testing.assert_allclose(model.precision_, same.precision_, atol=1e-9)
    np.testing.assert_allclose(model.precision_ @ model.covariance_, np.tile(np.eye(6), (3, 1, 1)),
                               atol=1e-9)  # fmt: skip
    assert model.groups_.tolist() == ["x", "y", "z"]
    assert model.score(rows, groups=labels) == pytest.approx(same.score(tables))
    assert model.score(rows, groups=labels) > model.score(rows, groups=np.roll(labels, 40))
    assert model.graph("y").number_of_nodes() == 6
    with pytest.raises(ValueError, match="say of which of the 3"):
        model.score(rows)
    with pytest.raises(ValueError, match="group 'w': was not there"):
        model.score(rows, groups=np.full(120, "w"))
    with pytest.raises(ValueError, match="one a row"):
        model.fit(rows, groups=labels[:5])


def test_the_estimator_is_the_study_with_all_data_in_one_place():
    data = trellis.sample("joint-precision", clients=3, variables=6, blocks=2, samples="40")
    model = trellis.JointGraphicalLasso(0.1, 0.05, tol=1e-9).fit(list(data.values()))
    settings = {"lambda1": 0.1, "lambda2": 0.05, "tolerance": 1e-9, "rounds": 2000, "held-out": 0}
    result = trellis.run("joint-precision", settings, data=data)
    np.testing.assert_allclose(model.precision_, result.arrays["sparse"], atol=1e-4)
    with pytest.warns(UserWarning, match="raise max_iter"):
        trellis.JointGraphicalLasso(0.01, 0.0, max_iter=1).fit(list(data.values()))
