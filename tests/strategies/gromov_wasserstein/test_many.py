"""The compiled loop: values and plans of the solver on POT's simplex, and its own guarantees."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.gromov_wasserstein import many
from trellis.strategies.gromov_wasserstein import pairwise as gw_pairwise
from trellis.strategies.gromov_wasserstein.many import choose, plan_of, solve_many
from trellis.strategies.gromov_wasserstein.pairwise import pairwise
from trellis.strategies.gromov_wasserstein.pool import Task, solve
from trellis.strategies.gromov_wasserstein.simplex import check_marginals
from trellis.strategies.gromov_wasserstein.space import Space

pytest.importorskip("ot")
pytest.importorskip("numba")

ROOT = Path(__file__).parents[3]
seeds = st.integers(0, 2**32 - 1)


def spaces(generator, count, largest, *, weights=None, features=False):
    """Clouds of different sizes; weights ``None`` (uniform), ``multiples`` or ``any``."""
    found = []
    for n in generator.integers(1, largest, size=count):
        rows = generator.normal(size=(n, 3))
        p = None
        if weights == "any":
            p = generator.dirichlet(np.full(n, 0.3))
        elif weights == "multiples":  # as of nodes that were lumped
            p = generator.integers(1, 4, size=n).astype(float)
            p /= p.sum()
        found.append(Space.of(cdist(rows, rows), p, rows if features else None)[0])
    return found


def all_pairs(count):
    return np.column_stack(np.triu_indices(count, k=1)).astype(np.int64)


def compiled(found, pairs, **options):
    options = {"fused": False, "alpha": 1.0, "restarts": 0, "seed": 0, **options}
    return solve_many(found, pairs, **options)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([None, "multiples", "any"]), st.integers(0, 2))
def test_values_are_those_of_the_solver_on_pots_simplex(seed, weights, restarts):
    found = spaces(np.random.default_rng(seed), 6, 14, weights=weights)
    pairs = all_pairs(6)
    wanted = solve(found, Task("gw", 0.5, restarts, 7), pairs)
    values = compiled(found, pairs, restarts=restarts, seed=7)
    assert values == pytest.approx(wanted, rel=1e-8, abs=1e-11)


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.3, 1.0]))
def test_fused_values_are_those_of_the_solver_on_pots_simplex(seed, alpha):
    found = spaces(np.random.default_rng(seed), 6, 12, weights="any", features=True)
    pairs = all_pairs(6)
    wanted = solve(found, Task("fgw", alpha, 1, 3), pairs)
    values = compiled(found, pairs, fused=True, alpha=alpha, restarts=1, seed=3)
    assert values == pytest.approx(wanted, rel=1e-8, abs=1e-11)


def test_values_agree_where_steps_are_not_full():
    # Distances against similarities: the objective is convex, its minimum in the interior.
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(7, 2)), generator.normal(size=(5, 2))
    found = [Space.of(cdist(a, a))[0], Space.of(np.exp(-(cdist(b, b) ** 2)))[0]]
    wanted = solve(found, Task("gw", 0.5, 0, 0), np.array([[0, 1]]))
    assert compiled(found, np.array([[0, 1]])) == pytest.approx(wanted, rel=1e-5)
    value, plan = plan_of(*found)
    assert np.count_nonzero(plan > 1e-9) > 11  # more than a vertex has
    check_marginals(plan, found[0].weights, found[1].weights)
    assert objective(*found, plan) == pytest.approx(value, rel=1e-9)


def objective(x, y, plan):
    difference = x.distances[:, None, :, None] - y.distances[None, :, None, :]
    return np.einsum("ijkl,ij,kl->", difference**2, plan, plan)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([None, "multiples", "any"]))
def test_a_plan_is_a_vertex_with_the_value_and_solves_its_own_problem(seed, weights):
    x, y = spaces(np.random.default_rng(seed), 2, 8, weights=weights)
    value, plan = plan_of(x, y)
    assert plan.min() >= 0.0
    assert np.count_nonzero(plan) <= sum(plan.shape) - 1
    check_marginals(plan, x.weights, y.weights)
    assert objective(x, y, plan) == pytest.approx(value, abs=1e-12)
    assert plan_of(y, x)[1].tolist() == plan.T.tolist()
    # No other solver finds a vertex with less of the linearised costs.
    gradient = -(x.distances @ plan @ y.distances)
    n, m = plan.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    least = linprog(gradient.ravel(), A_eq=sums, b_eq=np.r_[x.weights, y.weights]).fun
    assert np.vdot(gradient, plan) == pytest.approx(least, rel=1e-6, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_ties_end_where_no_fresh_tree_leads_lower(seed):
    # Rows of signs and zeros have three distances: transport problems have many solutions.
    generator = np.random.default_rng(seed)
    found = []
    for nodes in generator.integers(4, 20, size=4):
        rows = np.eye(5)[generator.integers(5, size=nodes)] * generator.choice([-1, 1], (nodes, 1))
        order = generator.permutation(nodes)
        found += [Space.of(cdist(x, x))[0] for x in (rows, rows[order])]
    pairs = all_pairs(8)
    values = np.zeros((8, 8))
    values[pairs[:, 0], pairs[:, 1]] = compiled(found, pairs)
    values += values.T
    assert (values[::2, ::2] == values[1::2, 1::2]).all()  # no trace of the numbering
    assert (np.diag(values[::2, 1::2]) == 0.0).all()
    wanted = solve(found, Task("gw", 0.5, 0, 0), pairs)
    assert values[pairs[:, 0], pairs[:, 1]].mean() <= 1.2 * wanted.mean()


def test_equal_weights_of_equal_sizes_do_not_go_in_circles():
    # Every vertex is an assignment: of 2 n - 1 edges n - 1 have no flow.
    generator = np.random.default_rng(0)
    steps = np.abs(np.arange(24)[:, None] - np.arange(24))
    rings = [np.minimum(steps, 24 - steps) * 1.0, steps * 1.0]
    lattice = generator.integers(0, 3, size=(24, 3)).astype(float)
    found = [Space.of(c, lump=False)[0] for c in (*rings, cdist(lattice, lattice))]
    found += [Space.of(cdist(x, x))[0] for x in generator.normal(size=(3, 24, 2))]
    values = compiled(found, all_pairs(6))
    assert not np.isnan(values).any()
    for i, j in all_pairs(6):
        _, plan = plan_of(found[i], found[j])
        assert sorted(set((24.0 * plan).ravel().tolist())) == [0.0, 1.0]


def test_values_on_proteins_are_those_of_the_solver_on_pots_simplex():
    from benchmarks.gromov_wasserstein import distances, embeddings

    try:
        dataset("PROTEINS")
    except DataError as error:
        pytest.skip(str(error))
    matrices = distances(embeddings("PROTEINS"))[::40]
    ours, wanted = (pairwise(matrices, workers=1, solver=who) for who in ("compiled", "pot"))
    assert np.mean(np.abs(ours - wanted) <= 1e-9 * wanted) >= 0.99
    assert ours.mean() <= wanted.mean() * (1.0 + 1e-6)


def test_processes_change_no_bit(monkeypatch):
    generator = np.random.default_rng(4)
    matrices = [space.distances for space in spaces(generator, 20, 12)]
    alone = pairwise(matrices, workers=1, restarts=1, solver="compiled")
    monkeypatch.setattr(gw_pairwise, "_CHUNK", (1e-4, 1e-4))
    shared = pairwise(matrices, workers=2, restarts=1, solver="compiled")
    assert (shared == alone).all()
    one_by_one = [
        compiled([Space.of(c)[0] for c in (matrices[3], other)], np.array([[1, 0]]), restarts=1)[0]
        for other in matrices
    ]
    assert one_by_one == alone[3].tolist()


def test_what_the_compiled_simplex_gives_up_is_solved_by_pots(monkeypatch):
    generator = np.random.default_rng(5)
    found = spaces(generator, 4, 9)
    monkeypatch.setattr(
        "trellis.strategies.gromov_wasserstein.pool.solve_many",
        lambda _, pairs, **options: np.full(len(pairs), np.nan),
    )
    pairs = all_pairs(4)
    values = solve(found, Task("gw", 0.5, 0, 0, "compiled"), pairs)
    assert (values == solve(found, Task("gw", 0.5, 0, 0), pairs)).all()


def test_a_checkpoint_of_the_other_solver_is_refused(tmp_path):
    path = tmp_path / "pairs.npz"
    generator = np.random.default_rng(6)
    matrices = [space.distances for space in spaces(generator, 5, 9)]
    pairwise(matrices, checkpoint=path, solver="compiled")
    with pytest.raises(CheckpointError, match=r"made with solver='compiled', .* solver='pot'"):
        pairwise(matrices, checkpoint=path, solver="pot")
    assert (pairwise(matrices, checkpoint=path, solver="compiled") >= 0.0).all()


def test_the_whole_work_decides_also_when_little_is_left(tmp_path, monkeypatch):
    path = tmp_path / "pairs.npz"
    generator = np.random.default_rng(7)
    matrices = [space.distances for space in spaces(generator, 12, 9)]
    monkeypatch.setattr(many, "_WORTH_COMPILING", 1e-4)
    monkeypatch.setattr(gw_pairwise, "_CHUNK", (1e-9, 1e-9))
    taken = []

    def stop(done, total):
        if done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pairwise(matrices, workers=1, checkpoint=path, on_progress=stop, on_solver=taken.append)
    pairwise(matrices, workers=1, checkpoint=path, on_solver=taken.append)
    assert taken == ["compiled", "compiled"]


def test_little_work_is_done_without_numba():
    code = (
        "import sys, numpy\n"
        "from trellis.strategies.gromov_wasserstein.pairwise import pairwise\n"
        "pairwise([numpy.ones((n, n)) - numpy.eye(n) for n in (2, 3, 4)])\n"
        "print('numba' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split() == ["False"]


def test_without_numba_pots_simplex_does_all_the_work(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(
        sys.modules, "trellis.strategies.gromov_wasserstein.compiled", raising=False
    )
    monkeypatch.delattr("trellis.strategies.gromov_wasserstein.compiled", raising=False)
    with caplog.at_level(logging.INFO):
        assert choose("gw", 1e6) == "pot"
    assert "without numba" in caplog.text
    with pytest.raises(ImportError, match=r"solver='compiled' needs numba: pip install"):
        pairwise([np.zeros((1, 1))], solver="compiled")
    monkeypatch.undo()
    assert choose("gw", 1e6) == "compiled"
    assert choose("gw", 0.1) == "pot"
    assert choose("wasserstein", 1e6) == "pot"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "cplex"}, "solver='cplex': is not one of pot, compiled"),
        (
            {"solver": "compiled", "metric": "wasserstein", "features": [np.zeros((1, 1))]},
            "solver='compiled' is for gw, fgw, not wasserstein",
        ),
    ],
)
def test_a_solver_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pairwise([np.zeros((1, 1))], **options)


def test_where_no_cache_can_be_written_it_is_compiled_all_the_same(tmp_path):
    # As in an installation that only an administrator may change, for a user without a home.
    package = tmp_path / "package"
    package.mkdir()
    source = ROOT / "strategies" / "gromov_wasserstein" / "compiled.py"
    (package / "compiled.py").write_text(source.read_text())
    (package / "__pycache__").write_text("")  # a file where the folder would be
    code = "import compiled; print(compiled.solve_pairs.stats.cache_path)"
    environment = {**os.environ, "PYTHONPATH": str(package), "HOME": "/dev/null"}
    environment |= {"XDG_CACHE_HOME": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["None"]
