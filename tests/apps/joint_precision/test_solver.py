"""The joint problem: against GGLasso, scikit-learn and CVXPY, its certificate, its blocks."""

from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from sklearn.covariance import graphical_lasso

from trellis.apps.common.threads import one_blas_thread
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.problem import (
    LocalProblem,
    log_determinant,
    omega_update,
    partial_correlations,
    recover_correlation,
    smooth_loss,
)
from trellis.apps.joint_precision.solver import (
    glasso_alone,
    screened_blocks,
    solve_joint,
    solve_path,
)
from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.splitting import Splitting

from .federations import correlations

BOTH = pytest.mark.parametrize("penalty", ["group", "fused"])


@pytest.fixture(autouse=True)
def _one_thread():
    with one_blas_thread():
        yield


def objective(thetas, matrices, lambda1, lambda2, penalty, weights=None):
    """Return (9), written apart from the code under test."""
    weights = np.ones(len(thetas)) if weights is None else weights
    off = ~np.eye(thetas.shape[-1], dtype=bool)
    value = sum(
        w * (np.sum(t * s) - np.linalg.slogdet(t)[1])
        for w, t, s in zip(weights, thetas, matrices, strict=True)
    )
    value += lambda1 * np.abs(thetas[:, off]).sum()
    if penalty == "group":
        return value + lambda2 * np.sqrt((thetas[:, off] ** 2).sum(axis=0)).sum()
    pairs = [(i, j) for i in range(len(thetas)) for j in range(i)]
    return value + lambda2 * sum(np.abs(thetas[i] - thetas[j])[off].sum() for i, j in pairs)


@pytest.mark.parametrize(("variables", "blocks"), [(54, 6), (160, 10)])
def test_the_group_solution_is_gglassos(variables, blocks):
    from gglasso.solver.admm_solver import ADMM_MGL

    matrices = correlations(variables, blocks)
    ours = solve_joint(matrices, 0.1, 0.05, tolerance=1e-12)
    start = np.tile(np.eye(variables), (3, 1, 1))
    theirs, _ = ADMM_MGL(
        matrices, 0.1, 0.05, "GGL", start, tol=1e-13, rtol=1e-13, max_iter=5000, verbose=False
    )
    assert np.max(np.abs(ours.sparse - theirs["Theta"])) <= 1e-5
    np.testing.assert_array_equal(ours.sparse != 0.0, theirs["Theta"] != 0.0)


@BOTH
def test_a_small_problem_is_solved_as_cvxpy_solves_it(penalty):
    matrices = correlations(6, 2, samples="25", seed=3)
    weights = np.array([0.5, 1.0, 1.5])
    off = 1.0 - np.eye(6)
    thetas = [cvxpy.Variable((6, 6), symmetric=True) for _ in range(3)]
    loss = sum(
        w * (cvxpy.trace(t @ s) - cvxpy.log_det(t))
        for w, t, s in zip(weights, thetas, matrices, strict=True)
    )
    loss += 0.1 * sum(cvxpy.sum(cvxpy.abs(cvxpy.multiply(off, t))) for t in thetas)
    if penalty == "group":
        stacked = cvxpy.vstack([cvxpy.vec(cvxpy.multiply(off, t), order="F") for t in thetas])
        loss += 0.05 * cvxpy.sum(cvxpy.norm(stacked, 2, axis=0))
    else:
        loss += 0.05 * sum(
            cvxpy.sum(cvxpy.abs(cvxpy.multiply(off, thetas[i] - thetas[j])))
            for i in range(3)
            for j in range(i)
        )
    value = cvxpy.Problem(cvxpy.Minimize(loss)).solve(
        solver="SCS", eps_abs=1e-9, eps_rel=1e-9, max_iters=200_000
    )
    ours = solve_joint(matrices, 0.1, 0.05, penalty, weights=weights, tolerance=1e-11)
    assert ours.objective == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(ours.sparse, [t.value for t in thetas], atol=1e-4)


@BOTH
def test_one_client_is_scikit_learns_graphical_lasso(penalty):
    matrices = correlations(clients=1)
    ours = solve_joint(matrices, 0.1, 0.0, penalty, tolerance=1e-10)
    _, theirs = graphical_lasso(matrices[0], 0.1, tol=1e-8, enet_tol=1e-9, max_iter=1000)
    np.testing.assert_allclose(ours.sparse[0], theirs, atol=2e-5)


@BOTH
@pytest.mark.parametrize(("variables", "blocks"), [(54, 6), (160, 10), (320, 10)])
def test_twenty_five_rounds_certify_the_gap(penalty, variables, blocks):
    matrices = correlations(variables, blocks)
    found = solve_joint(matrices, 0.1, 0.05, penalty, screening=False)
    assert found.rounds <= 24  # screening takes one
    assert 0.0 <= found.gap <= 1e-6


@BOTH
def test_the_gap_is_never_too_small(penalty):
    matrices = correlations()
    best = solve_joint(matrices, 0.1, 0.05, penalty, tolerance=1e-11)
    for rounds in (2, 4, 8, 12):
        early = solve_joint(matrices, 0.1, 0.05, penalty, rounds=rounds, tolerance=0.0)
        distance = objective(early.sparse, matrices, 0.1, 0.05, penalty) - best.objective
        assert distance <= early.gap + 1e-9
        assert early.objective == pytest.approx(
            objective(early.sparse, matrices, 0.1, 0.05, penalty), rel=1e-12
        )


@BOTH
@pytest.mark.parametrize("rho", [1e-3, 0.03, 30.0, 1e3])
def test_a_bad_rho_is_rescued(penalty, rho):
    matrices = correlations()
    good = solve_joint(matrices, 0.1, 0.05, penalty)
    found = solve_joint(matrices, 0.1, 0.05, penalty, rho=rho)
    assert found.rounds <= 80
    assert found.objective == pytest.approx(good.objective, abs=2e-6)


def test_balancing_stays_within_bounds_when_a_residual_vanishes():
    """With S = I the solution is I from the first round on and every residual is zero."""
    found = solve_joint(np.tile(np.eye(5), (3, 1, 1)), 0.1, 0.05, screening=False, tolerance=0.0)
    np.testing.assert_allclose(found.sparse, np.tile(np.eye(5), (3, 1, 1)), atol=1e-12)


@BOTH
def test_weights_enter_as_in_the_objective(penalty):
    matrices, weights = correlations(), np.array([0.4, 1.0, 1.6])
    found = solve_joint(matrices, 0.1, 0.05, penalty, weights=weights, tolerance=1e-9)
    value = objective(found.sparse, matrices, 0.1, 0.05, penalty, weights)
    assert found.objective == pytest.approx(value, rel=1e-12)
    other = solve_joint(matrices, 0.1, 0.05, penalty, tolerance=1e-9)
    assert value < objective(other.sparse, matrices, 0.1, 0.05, penalty, weights)


@BOTH
@pytest.mark.parametrize("lambda1", [0.12, 0.2, 0.3])
def test_screened_equals_unscreened(penalty, lambda1):
    matrices = correlations(108, 12)
    points = [(lambda1, 0.5 * lambda1)]
    blocks = screened_blocks(matrices, np.ones(3), PENALTIES[penalty], points)
    if lambda1 >= 0.2:
        assert len(blocks.members) + blocks.alone.size > 1
    quick = solve_joint(matrices, *points[0], penalty, tolerance=0.0, rounds=100)
    slow = solve_joint(matrices, *points[0], penalty, tolerance=0.0, rounds=100, screening=False)
    np.testing.assert_allclose(quick.sparse, slow.sparse, atol=1e-8)
    np.testing.assert_allclose(quick.precision, slow.precision, atol=1e-8)


@BOTH
def test_the_blocks_are_exactly_the_components_of_the_solution(penalty):
    matrices = correlations(108, 12)
    blocks = screened_blocks(matrices, np.ones(3), PENALTIES[penalty], [(0.25, 0.1)])
    solved = solve_joint(matrices, 0.25, 0.1, penalty, tolerance=1e-12, screening=False)
    rows, columns = np.nonzero(np.any(solved.sparse != 0.0, axis=0))
    found = Blocks.components(108, rows, columns)
    groups = {tuple(group.tolist()) for group in found.members}
    assert groups == {tuple(group.tolist()) for group in blocks.members}
    assert len(groups) > 1


@BOTH
def test_a_path_gives_what_each_point_gives_alone(penalty):
    matrices = correlations()
    points = [(0.3, 0.15), (0.2, 0.1), (0.1, 0.05)]
    for point, found in zip(
        points, solve_path(matrices, points, penalty, tolerance=1e-12), strict=True
    ):
        alone = solve_joint(matrices, *point, penalty, tolerance=1e-12)
        np.testing.assert_allclose(found.sparse, alone.sparse, atol=1e-5)


def test_a_step_solves_the_clients_problem():
    matrix = correlations(clients=1)[0]
    ratio, rng = 0.7, np.random.default_rng(0)
    target = rng.normal(size=matrix.shape)
    target = target + target.T
    omega = omega_update(matrix - ratio * target, ratio)
    np.testing.assert_allclose(
        np.linalg.inv(omega) - ratio * omega, matrix - ratio * target, atol=1e-10
    )  # (13)
    assert np.linalg.eigvalsh(omega)[0] > 0.0


def test_a_step_keeps_its_digits_for_large_eigenvalues():
    matrix = np.diag([1e9, 1.0, -1e9])
    omega = omega_update(matrix.copy(), 1e-3)
    np.testing.assert_allclose(
        1.0 / np.diag(omega) - 1e-3 * np.diag(omega), np.diag(matrix), rtol=1e-9
    )


def test_one_message_gives_the_correlation_away():
    """What privacy = none says: the server needs one reply and its own Psi, U and rho."""
    matrix = correlations(clients=1)[0]
    blocks = Blocks.whole(54)
    split = Splitting(blocks, np.array([1.3]), PENALTIES["group"], 1.0)
    split.penalise(0.1, 0.05)
    local = LocalProblem(matrix, blocks)
    for _ in range(4):
        psi, point, ratio = split.psi[0], split.point(0), split.ratio(0)
        omega = local.step(psi, point, ratio).omega
        recovered = recover_correlation(blocks.unpack(omega), blocks.unpack(point), ratio)
        np.testing.assert_allclose(recovered, matrix, atol=1e-12)
        split.advance({0: omega})


def test_terms_of_the_certificate_say_when_a_matrix_is_not_positive_definite():
    bad = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert log_determinant(bad) == -np.inf
    assert smooth_loss(bad, np.eye(2)) == np.inf
    assert log_determinant(np.diag([2.0, 3.0])) == pytest.approx(np.log(6.0))


def test_partial_correlations_come_from_the_inverse_covariance():
    x = np.random.default_rng(0).normal(size=(400, 3)) @ np.array(
        [[1, 0, 0], [0.5, 1, 0], [0, 0.7, 1.0]]
    )
    partial = partial_correlations(np.linalg.inv(np.cov(x.T)))
    design = np.column_stack([np.ones(400), x[:, 2]])
    residuals = [x[:, j] - design @ np.linalg.lstsq(design, x[:, j], rcond=None)[0] for j in (0, 1)]
    assert partial[0, 1] == pytest.approx(np.corrcoef(*residuals)[0, 1], rel=1e-10)
    np.testing.assert_array_equal(np.diag(partial), 1.0)


def test_some_clients_at_a_time_reach_the_same_solution():
    matrices = correlations()
    best = solve_joint(matrices, 0.1, 0.05, tolerance=1e-10)
    blocks = Blocks.whole(54)
    split = Splitting(blocks, np.ones(3), PENALTIES["group"], 1.0)
    split.penalise(0.1, 0.05)
    local = [LocalProblem(matrix, blocks) for matrix in matrices]
    rng = np.random.default_rng(0)
    for _ in range(150):
        chosen = rng.choice(3, 2, replace=False)
        split.advance(
            {
                int(i): local[i].step(split.psi[i], split.point(i), split.ratio(i)).omega
                for i in chosen
            }
        )
    np.testing.assert_allclose(blocks.unpack(split.psi), best.sparse, atol=1e-5)


def test_a_client_left_out_leaves_the_others_problem():
    matrices = correlations()
    pair = solve_joint(matrices[:2], 0.1, 0.05, tolerance=1e-10)
    blocks = Blocks.whole(54)
    split = Splitting(blocks, np.ones(3), PENALTIES["group"], 1.0)
    split.penalise(0.1, 0.05)
    local = [LocalProblem(matrix, blocks) for matrix in matrices]
    frozen = None
    for number in range(60):
        if number == 5:
            split.leave_out(2)
            frozen = split.psi[2].copy()
        present = [0, 1] if number >= 5 else [0, 1, 2]
        steps = {i: local[i].step(split.psi[i], split.point(i), split.ratio(i)) for i in present}
        losses, log_dets = np.full(3, np.nan), np.full(3, np.nan)
        for i, step in steps.items():
            losses[i], log_dets[i] = step.loss, step.log_det
        gap = split.gap(losses, log_dets)
        split.advance({i: step.omega for i, step in steps.items()})
    assert gap <= 1e-8
    np.testing.assert_allclose(blocks.unpack(split.psi)[:2], pair.sparse, atol=1e-4)
    np.testing.assert_array_equal(split.psi[2], frozen)


def test_alone_is_the_joint_problem_of_one():
    matrix = correlations(clients=1)[0]
    found = glasso_alone(
        JointPrecisionConfig(method="glasso", tolerance=1e-11), matrix, np.array([0.3, 0.1])
    )
    psi, omega, losses, gaps = (found[name] for name in ("psi", "omega", "losses", "gaps"))
    expected = solve_joint(matrix[None], 0.1, 0.0, tolerance=1e-11)
    whole = Blocks.whole(54)
    np.testing.assert_allclose(whole.unpack(psi[1]), expected.sparse[0], atol=1e-5)
    assert losses[1] == pytest.approx(smooth_loss(whole.unpack(psi[1]), matrix), rel=1e-9)
    assert np.all(gaps <= 1e-6)
    assert np.linalg.eigvalsh(whole.unpack(omega[1]))[0] > 0.0


@BOTH
def test_leaving_out_early_certificates_changes_nothing_but_their_number(penalty, monkeypatch):
    matrices = correlations()
    found = solve_joint(matrices, 0.1, 0.05, penalty)
    monkeypatch.setattr(Splitting, "worth_certifying", lambda self, tolerance: True)
    always = solve_joint(matrices, 0.1, 0.05, penalty)
    assert found.rounds == always.rounds
    np.testing.assert_array_equal(found.sparse, always.sparse)
