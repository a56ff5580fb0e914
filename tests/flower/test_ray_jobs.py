"""Pairs of graphs and sweeps on the Ray that Flower's simulation brings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
from rich.console import Console
from scipy.spatial.distance import cdist

from trellis.apps.experiments.sweep import Job, on_all_cores, sweep
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.graphs import shortest_paths
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.strategies.core.jobs import how_many_at_once
from trellis.strategies.gromov_wasserstein import pairwise as gw_pairwise

ROOT = Path(__file__).parents[2]
SETTINGS = {"rounds": 3, "nodes": 8, "privacy": "dp", "epsilon": 20.0}
JOBS = [Job("consensus-graph", SETTINGS, seed, (seed,), ("consensus",)) for seed in (1, 2, 3)]
pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


def matrices():
    generator = np.random.default_rng(0)
    return [cdist(x, x) for x in (generator.normal(size=(20, 3)) for _ in range(40))]


def refuse(item):
    raise ValueError(f"item {item} is refused by {os.getpid()}")


def on_ray(folder):
    """Run in a process of its own, with Ray up and chosen; leave what was found in ``folder``."""
    console = Console(file=io.StringIO())
    assert how_many_at_once(100) == 2
    gw_pairwise._CHUNK = (0.01, 0.02)

    def stop(done, total):
        if done > total / 4:
            raise KeyboardInterrupt

    seen, path = [], folder / "pairs.npz"
    with pytest.raises(KeyboardInterrupt):
        gw_pairwise.pairwise(matrices(), workers=2, checkpoint=path, on_progress=stop)
    with np.load(path) as file:
        saved = int(np.sum(~np.isnan(file["values"])))
    found = gw_pairwise.pairwise(
        matrices(), workers=2, checkpoint=path, on_progress=lambda done, _: seen.append(done)
    )
    assert saved < 780
    assert seen[0] > saved
    assert seen == sorted(seen)
    assert len(seen) > 4
    with pytest.raises(ValueError, match="item 0 is refused by") as refused:
        on_all_cores(refuse, [0, 0], console, "refused")
    assert str(os.getpid()) not in str(refused.value)
    outcomes = sweep(JOBS, console, "runs")
    arrays = {f"run{outcome.job.seed}": outcome.arrays["consensus"] for outcome in outcomes}
    np.savez(folder / "found.npz", distances=found, **arrays)


def main(folder, home):
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=home)
    register_ray()
    try:
        with joblib.parallel_config(backend="ray"):
            on_ray(Path(folder))
    finally:
        ray.shutdown()


def test_pairs_and_sweeps_on_ray_give_the_same_bits_and_leave_nothing(tmp_path, processes_of):
    pytest.importorskip("ray")
    # A short path: Ray puts sockets there, whose names have a limit.
    with tempfile.TemporaryDirectory(prefix="trellis-", ignore_cleanup_errors=True) as home:
        code = f"from {__name__} import main; main({str(tmp_path)!r}, {home!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": home},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr
        deadline = time.monotonic() + 30.0
        while (left := processes_of(Path(home))) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left
    here = sweep(JOBS, Console(file=io.StringIO()), "runs")
    with np.load(tmp_path / "found.npz") as found:
        alone = gw_pairwise.pairwise(matrices(), workers=1)
        assert found["distances"].tobytes() == alone.tobytes()
        for outcome in here:
            mine, theirs = outcome.arrays["consensus"], found[f"run{outcome.job.seed}"]
            assert mine.tobytes() == theirs.tobytes()


def test_the_command_for_distances_on_ray_gives_the_same_bits(tmp_path, processes_of):
    pytest.importorskip("ray")
    graphs = synthetic_graphs(60, np.random.default_rng(0))
    write_graphs(tmp_path / "graphs.npz", graphs)
    out = tmp_path / "out"
    ask = [str(tmp_path / "graphs.npz"), "--out", str(out), "--restarts", "8", "--workers", "2"]
    with tempfile.TemporaryDirectory(prefix="trellis-", ignore_cleanup_errors=True) as home:
        done = subprocess.run(
            [sys.executable, "-m", "trellis", "distances", *ask, "--ray"],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": home},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(Path(home).glob("**/session_*"))  # it was Ray indeed
        deadline = time.monotonic() + 30.0
        while (left := processes_of(Path(home))) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left
    alone = gw_pairwise.pairwise([shortest_paths(g) for g in graphs], workers=1, restarts=8)
    with np.load(out / "distances.npz") as found:
        assert found["distances"].tobytes() == alone.tobytes()
