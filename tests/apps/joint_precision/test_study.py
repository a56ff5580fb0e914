"""The federated study: against the same problem solved in one place, its path and its choices."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.common.seeds import generator
from trellis.apps.common.threads import one_blas_thread
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.correlation import correlation, to_positive_semidefinite
from trellis.apps.joint_precision.curves import area_under_roc, roc_points
from trellis.apps.joint_precision.data import synthetic_table, synthetic_truth
from trellis.apps.joint_precision.solver import solve_joint

from .federations import correlations

STUDY = "joint-precision"
BOTH = pytest.mark.parametrize("penalty", ["group", "fused"])
# These penalties leave three blocks and seven variables alone: screening has something to do.
SMALL = {"variables": 24, "blocks": 4, "samples": "100,150,220", "lambda1": 0.2}
TIGHT = {"tolerance": 0.0, "rounds": 60}


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():
        yield


def weights(samples: str) -> np.ndarray:
    counts = np.array([float(part) for part in samples.split(",")])
    return (counts if counts.size == 3 else np.tile(counts, 3)) / np.mean(counts)


def solved(settings, penalty, **more):
    """Solve the study's problem in one place."""
    matrices = correlations(settings["variables"], settings["blocks"], settings["samples"])
    return solve_joint(
        matrices,
        settings.get("lambda1", 0.1),
        settings.get("lambda2", 0.05),
        penalty,
        weights=weights(settings["samples"]),
        **{"tolerance": 0.0, "rounds": 200, **more},
    )


def assert_same_matrices(one, other, atol=1e-8):
    """Compare what two runs found, results or solutions."""
    for name in ("precision", "sparse"):
        mine, theirs = (
            r.arrays[name] if hasattr(r, "arrays") else getattr(r, name) for r in (one, other)
        )
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol, err_msg=name)


# --- the same problem in one place -------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("samples", ["150", "100,150,220"])
def test_the_federation_finds_what_one_place_finds(penalty, samples):
    settings = {**SMALL, "samples": samples}
    result = run(STUDY, {**settings, **TIGHT, "method": penalty})
    here = solved(settings, penalty, screening=False)
    assert_same_matrices(result, here)
    np.testing.assert_array_equal(result.arrays["sparse"] != 0, here.sparse != 0)
    assert abs(result.headline["gap"]) < 1e-12
    assert result.metrics[-1]["objective"] == pytest.approx(here.objective, abs=1e-11)


@BOTH
def test_pooled_data_give_the_federated_result(penalty):
    federated = run(STUDY, {**SMALL, **TIGHT, "method": penalty})
    pooled = run(STUDY, {**SMALL, **TIGHT, "method": "pooled", "penalty": penalty})
    assert_same_matrices(pooled, federated)
    assert len(pooled.metrics) == 1
    assert any("raw data" in note for note in pooled.notes)
    np.testing.assert_allclose(
        pooled.arrays["smallest_eigenvalue"], federated.arrays["smallest_eigenvalue"], atol=1e-12
    )


def test_more_samples_weigh_more_than_in_an_unweighted_problem():
    unweighted = solve_joint(correlations(24, 4, "100,150,220"), 0.2, 0.05, tolerance=1e-10)
    result = run(STUDY, {**SMALL, **TIGHT})
    assert np.abs(result.arrays["sparse"] - unweighted.sparse).max() > 1e-3


@BOTH
def test_screening_changes_the_work_and_not_the_result(penalty):
    screened = run(STUDY, {**SMALL, **TIGHT, "method": penalty})
    whole = run(STUDY, {**SMALL, **TIGHT, "method": penalty, "screening": False})
    assert_same_matrices(screened, whole)
    assert np.unique(screened.arrays["blocks"]).size > 3
    assert np.unique(whole.arrays["blocks"]).size == 1
    # No entry between two blocks travels.
    assert screened.metrics[-1]["bytes-up"] < 0.7 * whole.metrics[-1]["bytes-up"]


@BOTH
@pytest.mark.parametrize(("variables", "blocks"), [(54, 6), (160, 10), (320, 10)])
def test_a_gap_of_a_millionth_is_certified_in_twenty_five_rounds(penalty, variables, blocks):
    settings = {"variables": variables, "blocks": blocks, "samples": "150", "method": penalty}
    result = run(STUDY, {**settings, "lambda1": 0.1, "lambda2": 0.05})
    assert len(result.metrics) <= 25
    assert -1e-9 < result.headline["gap"] <= 1e-6
    here = solved(settings, penalty, tolerance=1e-10, rounds=1000)
    # What the certificate claims is true of the objective.
    assert result.metrics[-1]["objective"] - here.objective <= 1e-6
    assert not any("raise rounds" in note for note in result.notes)


def test_half_the_bytes_find_nearly_the_same():
    # Rounding Omega to 24 bits leaves 1.6e-7 on the matrices here.
    settings = {"variables": 54, "blocks": 6, "samples": "150", "rounds": 40, "tolerance": 0.0}
    double = run(STUDY, settings)
    single = run(STUDY, {**settings, "wire": "float32"})
    assert 0.0 < np.abs(single.arrays["sparse"] - double.arrays["sparse"]).max() < 2e-6
    for way in ("bytes-up", "bytes-down"):
        ratio = single.metrics[-1][way] / double.metrics[-1][way]
        assert 0.5 <= ratio < 0.56, way
    certified = run(STUDY, {"variables": 54, "blocks": 6, "samples": "150", "wire": "float32"})
    assert certified.headline["gap"] <= 1e-6
    assert len(certified.metrics) <= 20


def test_kendall_does_not_see_the_margins_and_pearson_does():
    settings = {**SMALL, "tolerance": 1e-8}
    gaussian, bent = (
        run(STUDY, {**settings, "margins": margins}) for margins in ("gaussian", "nonparanormal")
    )
    assert_same_matrices(gaussian, bent, atol=1e-12)
    with_pearson = [
        run(STUDY, {**settings, "margins": margins, "correlation": "pearson"}).arrays["sparse"]
        for margins in ("gaussian", "nonparanormal")
    ]
    assert np.abs(with_pearson[0] - with_pearson[1]).max() > 0.01


@pytest.mark.parametrize("kind", ["kendall", "spearman", "pearson"])
def test_every_correlation_reaches_the_problem(kind):
    result = run(STUDY, {**SMALL, **TIGHT, "correlation": kind})
    matrices = correlations(24, 4, SMALL["samples"], kind=kind)
    here = solve_joint(
        matrices, 0.2, 0.05, weights=weights(SMALL["samples"]), tolerance=0.0, rounds=200
    )
    assert_same_matrices(result, here)


@pytest.mark.parametrize("method", ["glasso", "clime"])
def test_learning_alone_takes_one_round_and_no_word_of_the_others(method):
    settings = {**SMALL, "method": method, "tolerance": 1e-10}
    together = run(STUDY, settings)
    assert len(together.metrics) == 1
    other = run(STUDY, {**settings, "samples": "100,60,90"})
    np.testing.assert_array_equal(together.arrays["sparse"][0], other.arrays["sparse"][0])
    assert np.any(together.arrays["sparse"][1] != other.arrays["sparse"][1])
    if method == "glasso":
        for number, matrix in enumerate(correlations(24, 4, SMALL["samples"])):
            alone = solve_joint(matrix[None], 0.2, 0.0, tolerance=1e-10)
            np.testing.assert_allclose(
                together.arrays["sparse"][number], alone.sparse[0], atol=1e-9
            )


def test_a_known_graph_is_found_better_together():
    together = [run(STUDY, seed=seed).headline["mcc"] for seed in range(1, 5)]
    alone = [run(STUDY, {"method": "glasso"}, seed=seed).headline["mcc"] for seed in range(1, 5)]
    assert np.mean(together) > np.mean(alone) + 0.02


def test_the_same_seed_gives_the_same_bits_with_and_without_threads():
    first, second = run(STUDY, SMALL, seed=7), run(STUDY, SMALL, seed=7, workers=2)
    other = run(STUDY, SMALL, seed=8)
    for name in first.arrays:
        assert first.arrays[name].tobytes() == second.arrays[name].tobytes(), name
    assert not np.array_equal(first.arrays["precision"], other.arrays["precision"])


# --- the path ------------------------------------------------------------------------------------

PATH = {"variables": 12, "blocks": 2, "samples": "60,80,100", "path": 5, "lambda1": 0.12}


def support_of(result) -> np.ndarray:
    """Return the graphs of a path (L, K, pairs) from the packed array of the result."""
    p = len(result.variables)
    return np.unpackbits(result.arrays["path_support"], axis=-1, count=p * (p - 1) // 2) != 0


def upper(matrices) -> np.ndarray:
    return matrices[(..., *np.triu_indices(matrices.shape[-1], 1))]


@BOTH
def test_every_point_of_a_path_is_the_solution_of_its_own_run(penalty):
    settings = {**PATH, "method": penalty, "tolerance": 1e-12}
    result = run(STUDY, settings)
    lambdas = np.column_stack([result.arrays["path_lambda1"], result.arrays["path_lambda2"]])
    assert len(lambdas) == 5
    assert np.all(np.diff(lambdas[:, 0]) < 0.0)
    np.testing.assert_allclose(lambdas[-1], [0.12, 0.05])
    np.testing.assert_allclose(lambdas[:, 1] / lambdas[:, 0], 0.05 / 0.12)
    assert np.all(result.arrays["path_gap"] <= 1e-12)
    assert not support_of(result)[0].any()
    for number, (lambda1, lambda2) in enumerate(lambdas):
        alone = run(
            STUDY, {**settings, "path": 0, "lambda1": float(lambda1), "lambda2": float(lambda2)}
        )
        np.testing.assert_array_equal(
            support_of(result)[number], upper(alone.arrays["sparse"]) != 0
        )
        if number == int(result.arrays["path_chosen"]):
            assert_same_matrices(result, alone, atol=1e-6)
            assert result.headline["lambda1"] == lambda1
            assert result.headline["lambda2"] == lambda2


def test_a_warm_start_saves_rounds():
    result = run(STUDY, PATH)
    alone = [
        len(run(STUDY, {**PATH, "path": 0, "lambda1": l1, "lambda2": l2}).metrics)
        for l1, l2 in zip(
            result.arrays["path_lambda1"].tolist(), result.arrays["path_lambda2"].tolist(),
            strict=True,
        )
    ]  # fmt: skip
    assert len(result.metrics) < sum(alone)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize("method", ["group", "glasso", "pooled"])
def test_the_chosen_point_has_the_smallest_extended_bic(method, gamma):
    settings = {**PATH, "samples": "200,300,400", "tolerance": 1e-12}
    settings |= {"method": method, "gamma": gamma}
    result = run(STUDY, settings)
    matrices = correlations(12, 2, "200,300,400")
    counts, values = (200.0, 300.0, 400.0), []
    scale = np.array(counts) / 300.0
    for lambda1, lambda2 in zip(
        result.arrays["path_lambda1"], result.arrays["path_lambda2"], strict=True
    ):
        if method == "glasso":
            found = [solve_joint(s[None], lambda1, 0.0, tolerance=1e-12) for s in matrices]
            thetas = np.array([one.sparse[0] for one in found])
        else:
            thetas = solve_joint(matrices, lambda1, lambda2, weights=scale, tolerance=1e-12).sparse
        value = 0.0
        for theta, s, n in zip(thetas, matrices, counts, strict=True):
            edges = np.count_nonzero(np.triu(theta, 1))
            value += n * (np.trace(theta @ s) - np.linalg.slogdet(theta)[1])
            value += edges * np.log(n) + 4.0 * gamma * edges * np.log(12)
        values.append(value)
    np.testing.assert_allclose(result.arrays["path_ebic"], values, rtol=1e-6)
    chosen = int(result.arrays["path_chosen"])
    assert chosen == int(np.argmin(values))
    np.testing.assert_array_equal(upper(result.arrays["sparse"]) != 0, support_of(result)[chosen])


def test_a_larger_gamma_is_sparser():
    settings = {**PATH, "samples": "200,300,400", "path": 8}
    edges = [
        run(STUDY, {**settings, "gamma": gamma}).headline["edges"] for gamma in (0.0, 3.0, 1000.0)
    ]
    assert edges[0] > edges[1] >= edges[2] == 0.0


def test_stability_is_that_of_the_same_subsamples_solved_one_by_one():
    settings = {**PATH, "choose": "stability", "subsamples": 4, "path": 6, "tolerance": 1e-10}
    result = run(STUDY, settings)
    config = JointPrecisionConfig.from_settings(settings)
    tables = [synthetic_table(config, 1, client).values for client in range(3)]
    counts = np.array([60.0, 80.0, 100.0])
    seen = []
    for replicate in range(1, 5):
        matrices = []
        for client, table in enumerate(tables):
            rng = generator(1, f"subsample of client-{client + 1}", server_round=replicate)
            rows = rng.choice(len(table), int(0.8 * len(table)), replace=False)
            matrices.append(to_positive_semidefinite(correlation(table[rows], "kendall"))[0])
        seen.append(
            [
                upper(
                    solve_joint(
                        np.array(matrices), l1, l2, weights=counts / 80.0, tolerance=1e-10
                    ).sparse
                )
                != 0
                for l1, l2 in zip(
                    result.arrays["path_lambda1"], result.arrays["path_lambda2"], strict=True
                )
            ]
        )
    share = np.mean(seen, axis=0)  # (L, K, pairs)
    expected = np.mean(2.0 * share * (1.0 - share), axis=(1, 2))
    np.testing.assert_allclose(result.arrays["path_instability"], expected, atol=1e-12)
    assert expected.max() > 0.05
    stable = [k for k in range(6) if np.all(expected[: k + 1] <= 0.05)]
    assert int(result.arrays["path_chosen"]) == stable[-1]
    assert len({row["lambda1"] for row in result.metrics}) == 6


def test_a_subsample_of_many_rows_has_ten_times_their_root():
    settings = {**PATH, "choose": "stability", "subsamples": 1, "samples": "400", "path": 2}
    result = run(STUDY, settings)
    # One subsample: an edge is there or not, nothing is unstable.
    np.testing.assert_array_equal(result.arrays["path_instability"], 0.0)
    assert int(result.arrays["path_chosen"]) == 1


def test_the_result_has_the_arrays_it_promises():
    result = run(STUDY, {**PATH, "subsamples": 2})
    pairs = 12 * 11 // 2
    shapes = {
        "precision": (3, 12, 12),
        "sparse": (3, 12, 12),
        "partial": (3, 12, 12),
        "smallest_eigenvalue": (3,),
        "blocks": (12,),
        "answered": (3,),
        "truth": (3, 12, 12),
        "path_lambda1": (5,),
        "path_lambda2": (5,),
        "path_gap": (5,),
        "path_edges": (5, 3),
        "path_ebic": (5,),
        "path_chosen": (),
        "path_support": (5, 3, -(-pairs // 8)),
        "path_instability": (5,),
        "path_tpr": (5,),
        "path_fpr": (5,),
        "path_ppv": (5,),
    }
    assert {name: array.shape for name, array in result.arrays.items()} == shapes
    np.testing.assert_array_equal(
        result.arrays["path_edges"], np.count_nonzero(support_of(result), axis=-1)
    )
    np.testing.assert_array_equal(result.arrays["answered"], len(result.metrics))
    sparse, partial = result.arrays["sparse"], result.arrays["partial"]
    np.testing.assert_allclose(np.diagonal(partial, axis1=1, axis2=2), 1.0)
    expected = -sparse[1, 2, 5] / np.sqrt(sparse[1, 2, 2] * sparse[1, 5, 5])
    assert partial[1, 2, 5] == pytest.approx(expected)
    assert np.linalg.eigvalsh(result.arrays["precision"]).min() > 0.0
    assert set(run(STUDY, {**PATH, "path": 0}).arrays) == {
        name for name in shapes if not name.startswith("path")
    }


def test_a_path_draws_the_curves_where_the_truth_is_known():
    result = run(STUDY, PATH)
    truth = upper(synthetic_truth(JointPrecisionConfig.from_settings(PATH), 1).precision) != 0
    support = support_of(result)
    hits = (support & truth).sum(axis=(1, 2))
    np.testing.assert_allclose(result.arrays["path_tpr"], hits / truth.sum())
    false = (support & ~truth).sum(axis=(1, 2))
    np.testing.assert_allclose(result.arrays["path_fpr"], false / (~truth).sum())
    found = hits + false
    np.testing.assert_allclose(
        result.arrays["path_ppv"][found > 0], hits[found > 0] / found[found > 0]
    )
    fpr, tpr = roc_points(support, truth)
    assert result.headline["auc"] == pytest.approx(area_under_roc(fpr, tpr))
    assert 0.5 < result.headline["auc"] <= 1.0
    assert 0.0 < result.headline["aupr"] <= 1.0


def test_own_data_have_no_truth_and_no_curves(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("b", "a", "c"):
        values = rng.normal(size=(50, 6))
        values[:, 1] += values[:, 0]
        np.savez(tmp_path / f"{name}.npz", X=values, columns=np.array(list("uvwxyz")))
    result = run(STUDY, {"path": 4}, data=tmp_path)
    assert not {"truth", "path_tpr", "path_fpr", "path_ppv"} & set(result.arrays)
    assert not {"auc", "aupr", "tpr", "mcc"} & set(result.headline)
    assert result.variables == list("uvwxyz")
    assert [client["name"] for client in result.clients] == ["a", "b", "c"]
    assert support_of(result)[-1][:, 0].all()  # the one edge there is
