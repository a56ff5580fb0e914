"""``trellis distances``: files to matrix by one command, killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from trellis.apps.command import main
from trellis.apps.command.distances.following import Left, Lines
from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.files.tudataset import read_tudataset
from trellis.apps.gromov_wasserstein.graphs import shortest_paths
from trellis.apps.gromov_wasserstein.synthetic import synthetic_graphs
from trellis.strategies.gromov_wasserstein.pairwise import pairwise

pytest.importorskip("ot")

ROOT = Path(__file__).parents[3]


def synthetic(path, count=24):
    graphs = synthetic_graphs(count, np.random.default_rng(0))
    write_graphs(path, graphs)
    return graphs


def kept(folder):
    with np.load(folder / "distances.npz") as found:
        return {name: found[name] for name in found.files}


def trellis(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "trellis", "distances", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def test_the_matrix_is_that_of_all_pairs(tmp_path, capsys):
    graphs = synthetic(tmp_path / "graphs.npz")
    out = tmp_path / "out"
    assert main(["distances", str(tmp_path / "graphs.npz"), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "24 graphs" in shown
    assert "276 pairs" in shown
    assert "24 x 24 distances" in shown
    whole = pairwise([shortest_paths(graph) for graph in graphs], workers=1)
    found = kept(out)
    assert (found["distances"] == whole).all()
    assert found["sizes"].tolist() == [graph.nodes for graph in graphs]
    assert found["labels"].tolist() == [graph.label for graph in graphs]
    told = json.loads((out / "distances.json").read_text())
    assert (told["graphs"], told["pairs"], told["share-solved"]) == (24, 276, 1.0)


def test_only_what_the_nearest_need(tmp_path, capsys):
    graphs = synthetic(tmp_path / "graphs.npz")
    out = tmp_path / "out"
    ask = ["distances", str(tmp_path / "graphs.npz"), "--out", str(out)]
    assert main([*ask, "--neighbours", "2"]) == 0
    assert "were needed and solved" in capsys.readouterr().out
    whole = pairwise([shortest_paths(graph) for graph in graphs], workers=1)
    far = np.where(np.eye(24, dtype=bool), np.inf, whole)
    found = kept(out)
    assert (found["near"] == np.argsort(far, axis=1, kind="stable")[:, :2]).all()
    open_ = np.isnan(found["distances"])
    assert 0 < open_.sum() < open_.size
    assert (found["distances"][~open_] == whole[~open_]).all()
    assert (found["bounds"] <= whole).all()
    # All pairs afterwards take up what there is.
    assert main(ask) == 0
    assert (kept(out)["distances"] == whole).all()


def test_other_metrics_and_distances_between_nodes(tmp_path):
    graphs = synthetic(tmp_path / "graphs.npz", 6)
    rows = [graph.features.astype(float) for graph in graphs]
    paths = [shortest_paths(graph) for graph in graphs]
    for options, matrix in (
        (["--metric", "wasserstein"], pairwise(None, metric="wasserstein", features=rows)),
        (["--metric", "fgw", "--alpha", "0.2"], None),
        (["--nodes", "features"], None),
    ):
        if "fgw" in options:
            matrix = pairwise(paths, metric="fgw", features=rows, alpha=0.2)
        elif matrix is None:
            from trellis.apps.gromov_wasserstein.distances import between

            matrix = pairwise([between(row, "euclidean") for row in rows])
        out = tmp_path / "-".join(options)
        arguments = [str(tmp_path / "graphs.npz"), "--out", str(out), *options]
        assert main(["distances", *arguments]) == 0
        assert (kept(out)["distances"] == matrix).all()


def test_a_killed_command_goes_on_and_gives_the_same_bits(tmp_path):
    try:
        folder = dataset("MUTAG")
    except DataError as error:
        pytest.skip(str(error))
    graphs = read_tudataset(folder)[:90]
    write_graphs(tmp_path / "some.npz", graphs)
    out = tmp_path / "out"
    ask = (tmp_path / "some.npz", "--out", out, "--workers", "2", "--restarts", "3")
    with trellis(*ask) as process:
        deadline = time.monotonic() + 120.0
        while not (out / "pairs.npz").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (out / "distances.npz").exists()
    with np.load(out / "pairs.npz") as file:
        saved = int(np.sum(~np.isnan(file["values"])))
        pairs = file["values"].size
    assert 0 < saved < pairs
    with trellis(*ask) as process:
        told = process.communicate(timeout=250)[0]
    assert process.returncode == 0, told
    assert "90 x 90 distances" in told
    alone = pairwise([shortest_paths(graph) for graph in graphs], workers=1, restarts=3)
    assert kept(out)["distances"].tobytes() == alone.tobytes()


def test_what_cannot_be_is_said(tmp_path, capsys):
    synthetic(tmp_path / "graphs.npz", 4)
    synthetic(tmp_path / "others.npz", 5)
    out = str(tmp_path / "out")
    assert main(["distances", str(tmp_path / "nothing"), "--out", out]) == 1
    assert "no folder and no npz file of graphs" in capsys.readouterr().out
    assert main(["distances", str(tmp_path), "--out", out]) == 1
    assert "NAME_A.txt" in capsys.readouterr().out
    assert main(["distances", str(tmp_path / "graphs.npz"), "--out", out]) == 0
    assert main(["distances", str(tmp_path / "others.npz"), "--out", out]) == 1
    assert "made for 4 graphs, this run has 5" in capsys.readouterr().out
    arguments = [str(tmp_path / "graphs.npz"), "--out", out, "--neighbours", "-1"]
    assert main(["distances", *arguments]) == 1
    assert "neighbours=-1" in capsys.readouterr().out


def test_lines_tell_the_rate_and_what_is_left():
    now = [0.0]
    told = []
    left = Left([10] * 50, clock=lambda: now[0])
    lines = Lines(told.append, "pairs", left, clock=lambda: now[0])
    for seconds, done in ((0.0, 100), (2.0, 200), (10.0, 600), (11.0, 650)):
        now[0] = seconds
        lines(done, 1100)
    lines.close()
    # Pairs of one size: 500 took 10 seconds, so the 500 that are left take as long.
    assert told[0] == "pairs: 600 of 1,100, 50 per second, about 10 s left"
    assert told[1].startswith("pairs: 650 of 1,100")
    assert len(told) == 2


def test_large_pairs_first_leave_less_than_their_number_says():
    now = [0.0]
    left = Left([5] * 45 + [200] * 5, clock=lambda: now[0])
    left.note(0, 1000)
    now[0] = 60.0
    # A fifth of the pairs, and those with the large graphs.
    assert left.note(200, 1000).endswith(("about 0 s left", "about 1 s left", "about 2 s left"))
