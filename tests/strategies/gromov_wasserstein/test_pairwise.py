"""All pairs: POT's values on real graphs, any number of processes, and a run that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.gromov_wasserstein import pairwise as gw_pairwise
from trellis.strategies.gromov_wasserstein import pool as gw_pool
from trellis.strategies.gromov_wasserstein.pair import (
    fused_gromov_wasserstein,
    gromov_wasserstein,
    wasserstein,
)
from trellis.strategies.gromov_wasserstein.pairwise import pairwise

ot = pytest.importorskip("ot")

ROOT = Path(__file__).parents[3]


def clouds(count, seed=0):
    generator = np.random.default_rng(seed)
    sizes = [1, *generator.integers(2, 9, size=count - 1)]
    return [generator.normal(size=(n, 3)) for n in sizes]


def spaces(count, seed=0):
    return [cdist(x, x) for x in clouds(count, seed)]


@pytest.fixture
def solved(monkeypatch):
    """Count the pairs that this process solves."""
    counted = []
    solve = gw_pairwise.solve

    def counting(spaces, task, pairs):
        counted.append(len(pairs))
        return solve(spaces, task, pairs)

    monkeypatch.setattr(gw_pairwise, "solve", counting)
    return counted


def test_values_on_mutag_are_those_of_pot():
    from benchmarks.gromov_wasserstein import distances, embeddings

    try:
        dataset("MUTAG")
    except DataError as error:
        pytest.skip(str(error))
    matrices = distances(embeddings("MUTAG"))[:64]
    rows, columns = np.triu_indices(64, k=1)
    assert rows.size > 2000
    theirs = np.array(
        [
            ot.gromov.gromov_wasserstein(matrices[i], matrices[j], log=True)[1]["gw_dist"]
            for i, j in zip(rows, columns, strict=True)
        ]
    )
    ours = pairwise(matrices, workers=1)[rows, columns]
    assert np.mean(np.abs(ours - theirs) <= 1e-4 * theirs + 1e-9) >= 0.99
    assert ours.mean() == pytest.approx(theirs.mean(), rel=1e-4)


def test_the_matrix_holds_the_value_of_every_pair():
    matrices = spaces(7)
    generator = np.random.default_rng(1)
    weights = [generator.dirichlet(np.ones(len(c))) for c in matrices]
    found = pairwise(matrices, weights, workers=1)
    for i in range(7):
        for j in range(7):
            one = gromov_wasserstein(matrices[i], matrices[j], weights[i], weights[j]).value
            assert found[i, j] == one
    assert (found == found.T).all()
    assert (np.diag(found) == 0.0).all()


def test_other_metrics_hold_the_value_of_every_pair():
    rows = clouds(5)
    matrices = spaces(5)
    fused = pairwise(matrices, metric="fgw", features=rows, alpha=0.3, workers=1)
    plain = pairwise(None, metric="wasserstein", features=rows, workers=1)
    for i in range(5):
        for j in range(5):
            costs = cdist(rows[i], rows[j]) ** 2
            one = fused_gromov_wasserstein(costs, matrices[i], matrices[j], alpha=0.3).value
            assert fused[i, j] == pytest.approx(one, abs=1e-12)
            assert plain[i, j] == pytest.approx(wasserstein(rows[i], rows[j]), abs=1e-12)


@pytest.mark.parametrize("metric", ["gw", "fgw", "wasserstein"])
def test_processes_change_no_bit(metric, monkeypatch):
    options = {"metric": metric, "features": clouds(20), "restarts": 1}
    alone = pairwise(spaces(20), workers=1, **options)
    here = []

    def counting(spaces, task, pairs):
        here.append(len(pairs))
        return solve(spaces, task, pairs)

    solve = gw_pool.solve
    monkeypatch.setattr(gw_pool, "solve", counting)
    monkeypatch.setattr(gw_pairwise, "solve", counting)
    monkeypatch.setattr(gw_pairwise, "_CHUNK", (1e-3, 1e-3))
    assert (pairwise(spaces(20), workers=3, **options) == alone).all()
    assert sum(here) == 0
    for backend, solved_here in (("loky", 0), ("threading", 190), ("sequential", 190)):
        here.clear()
        with joblib.parallel_config(backend=backend, n_jobs=2):
            assert (pairwise(spaces(20), workers=3, **options) == alone).all()
        assert sum(here) == solved_here
    with joblib.parallel_config(backend="loky", n_jobs=2):
        here.clear()
        assert (pairwise(spaces(20), workers=1, **options) == alone).all()
        assert sum(here) == 190


def test_lumped_equals_unlumped():
    generator = np.random.default_rng(0)
    rows = [x[generator.integers(len(x), size=12)] for x in clouds(10)]
    matrices = [cdist(x, x) for x in rows]
    lumped = pairwise(matrices, workers=1)
    assert lumped == pytest.approx(pairwise(matrices, workers=1, lump=False), rel=1e-10, abs=1e-12)


def test_graphs_that_are_the_same_are_solved_once(solved):
    matrices = spaces(6)
    generator = np.random.default_rng(0)
    orders = [generator.permutation(len(c)) for c in matrices]
    copies = [c[np.ix_(order, order)] for c, order in zip(matrices, orders, strict=True)]
    found = pairwise(matrices + copies, workers=1)
    assert sum(solved) == 15
    assert (found[:6, :6] == found[6:, 6:]).all()
    assert (np.diag(found[:6, 6:]) == 0.0).all()


def test_no_graph_and_one_graph_have_a_matrix():
    assert pairwise([]).shape == (0, 0)
    assert pairwise([np.zeros((1, 1))]).tolist() == [[0.0]]


def test_progress_counts_to_the_end(monkeypatch):
    monkeypatch.setattr(gw_pairwise, "_CHUNK", (1e-4, 1e-3))
    seen = []
    pairwise(spaces(8), workers=1, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (28, 28)
    assert len(seen) > 3
    assert seen == sorted(seen)


def test_an_interrupted_run_keeps_what_was_finished(tmp_path, monkeypatch, solved):
    monkeypatch.setattr(gw_pairwise, "_CHUNK", (1e-4, 1e-3))
    path = tmp_path / "pairs.npz"

    def stop(done, total):
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pairwise(spaces(9), workers=1, checkpoint=path, on_progress=stop)
    before = sum(solved)
    solved.clear()
    found = pairwise(spaces(9), workers=1, checkpoint=path)
    assert before > 10
    assert before + sum(solved) == 36
    assert (found == pairwise(spaces(9), workers=1)).all()
    assert [file.name for file in tmp_path.iterdir()] == ["pairs.npz"]
    solved.clear()
    pairwise(spaces(9), workers=1, checkpoint=path)
    assert sum(solved) == 0


_SCRIPT = """
import sys
import numpy as np
from pathlib import Path
from trellis.strategies.gromov_wasserstein import pairwise as gw_pairwise
from scipy.spatial.distance import cdist

def report(done, total):
    print("done", done, flush=True)

if __name__ == "__main__":
    gw_pairwise._CHUNK = (0.01, 0.02)
    generator = np.random.default_rng(0)
    clouds = [generator.normal(size=(25, 3)) for _ in range(80)]
    gw_pairwise.pairwise(
        [cdist(x, x) for x in clouds],
        workers=2,
        checkpoint=Path(sys.argv[1]),
        on_progress=report,
        solver="pot",  # the slow one: there is time to kill it
    )
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for orphans in /proc")
@pytest.mark.parametrize("whom", ["one", "all"])  # as a terminal's Ctrl-C
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_process_and_resumes_where_it_was(tmp_path, solved, kind, whom):
    script, path = tmp_path / "script.py", tmp_path / "pairs.npz"
    script.write_text(_SCRIPT)
    mark = f"TRELLIS_TEST_MARK={os.getpid()}-{kind}-{whom}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= dict([mark.split("=")])
    with subprocess.Popen(
        [sys.executable, str(script), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        for line in process.stdout:
            if int(line.split()[1]) >= 200:
                (os.kill if whom == "one" else os.killpg)(process.pid, kind)
                break
        process.stdout.read()
    assert process.returncode != 0
    deadline = time.monotonic() + 30.0
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    with np.load(path) as file:
        saved = int(np.sum(~np.isnan(file["values"])))
    assert 0 < saved < 3160
    generator = np.random.default_rng(0)
    matrices = [cdist(x, x) for x in (generator.normal(size=(25, 3)) for _ in range(80))]
    found = pairwise(matrices, workers=1, checkpoint=path, solver="pot")
    assert sum(solved) == 3160 - saved
    some = pairwise(matrices[:6], workers=1, solver="pot")
    assert (found[:6, :6] == some).all()


def _marked(mark):
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def test_a_checkpoint_of_other_inputs_is_refused_by_name(tmp_path):
    path = tmp_path / "pairs.npz"
    matrices = spaces(4, seed=3)
    pairwise(matrices, workers=1, checkpoint=path)
    other = [*matrices[:2], matrices[2] * 2.0, matrices[3]]
    with pytest.raises(CheckpointError, match=r"pairs\.npz: made with another graph 2"):
        pairwise(other, workers=1, checkpoint=path)
    with pytest.raises(CheckpointError, match="made for 4 graphs, this run has 3"):
        pairwise(matrices[:3], workers=1, checkpoint=path)
    with pytest.raises(CheckpointError, match="made with restarts=0, this run has restarts=2"):
        pairwise(matrices, workers=1, checkpoint=path, restarts=2)
    uneven = [np.arange(1.0, len(c) + 1) / np.arange(1.0, len(c) + 1).sum() for c in matrices]
    with pytest.raises(CheckpointError, match="made with another graph 0"):
        pairwise(matrices, uneven, workers=1, checkpoint=path)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="not a readable file of distances"):
        pairwise(matrices, workers=1, checkpoint=path)


def test_errors_name_the_matrix():
    good = np.array([[0.0, 1.0], [1.0, 0.0]])
    bad = {
        r"matrix 1: shape \(2, 3\)": np.zeros((2, 3)),
        r"matrix 1: entry \[0, 1\] is nan": np.array([[0.0, np.nan], [np.nan, 0.0]]),
        "matrix 1: not symmetric": np.array([[0.0, 1.0], [0.5, 0.0]]),
        r"matrix 1: entry \[0, 1\] is -1": -good,
    }
    for message, matrix in bad.items():
        with pytest.raises(ValueError, match=message):
            pairwise([good, matrix])
    with pytest.raises(ValueError, match="matrix 1: weights"):
        pairwise([good, good], [None, [0.5, 0.6]])
    with pytest.raises(ValueError, match="weights: 1 of them for 2 graphs"):
        pairwise([good, good], [None])
    with pytest.raises(ValueError, match=r"matrix 0: features of shape \(3, 1\)"):
        pairwise([good], metric="fgw", features=[np.zeros((3, 1))])
    with pytest.raises(ValueError, match="features 1: rows of 2, those of graph 0 have 1"):
        pairwise([good, good], metric="fgw", features=[np.zeros((2, 1)), np.zeros((2, 2))])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "euclid"}, "metric='euclid': is not one of gw, fgw, wasserstein"),
        ({"metric": "fgw"}, "metric='fgw' compares features"),
        ({"alpha": 2.0}, "alpha=2"),
        ({"restarts": -1}, "restarts=-1"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pairwise(spaces(2), **options)
