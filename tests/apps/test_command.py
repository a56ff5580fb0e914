from __future__ import annotations

import json

import numpy as np
import pytest

from trellis import apps
from trellis.apps import run
from trellis.apps.command import main
from trellis.apps.common.results import RunResult

STUDY = "consensus-graph"
QUICK = ["--set", "nodes=6", "--set", "rounds=4", "--set", "signals=20"]
# Of every study: with the sizes of ``trellis run all`` it takes minutes where others compute too.
SMALL = (
    "rounds=2",
    "cluster-admm.clients=9",
    "cluster-admm.servers=3",
    "cluster-admm.topology=ring",
    "cluster-admm.features=3",
    "consensus-graph.clients=4",
    "consensus-graph.nodes=6",
    "consensus-graph.signals=20",
    "gromov-wasserstein.clients=3",
    "gromov-wasserstein.graphs=12",
    "gromov-wasserstein.downstream=svm",
    "joint-precision.clients=4",
    "joint-precision.variables=6",
    "joint-precision.blocks=2",
    "joint-precision.samples=40",
    "joint-precision.path=2",
    "server-graph.clients=9",
    "server-graph.servers=3",
    "server-graph.topology=ring",
    "server-graph.samples=20",
)


def test_run_keeps_the_layout_of_the_contract(tmp_path, capsys):
    assert main(["run", STUDY, *QUICK, "--seed", "5", "--out", str(tmp_path / "r")]) == 0
    kept = {path.name for path in (tmp_path / "r").iterdir()}
    assert {"run.json", "metrics.csv", "result.npz", "report.html", "graphs"} <= kept
    header = json.loads((tmp_path / "r" / "run.json").read_text())
    assert header["seed"] == 5
    assert header["status"] == "completed"
    assert header["config"]["nodes"] == 6
    arrays = np.load(tmp_path / "r" / "result.npz")
    assert arrays["weights"].shape == (5, 15)
    assert arrays["consensus"].shape == (15,)
    assert arrays["gamma"].shape == (5,)
    assert len((tmp_path / "r" / "metrics.csv").read_text().splitlines()) == 5
    shown = capsys.readouterr().out
    assert "consensus-graph" in shown
    assert "completed" in shown


def test_command_and_python_give_the_same(tmp_path):
    assert main(["run", STUDY, *QUICK, "--out", str(tmp_path / "r")]) == 0
    result = run(STUDY, {"nodes": 6, "rounds": 4, "signals": 20})
    kept = RunResult.load(tmp_path / "r")
    assert result.arrays["weights"].tobytes() == kept.arrays["weights"].tobytes()
    assert result.folder is None


def test_run_all_writes_the_index(tmp_path):
    options = [option for setting in SMALL for option in ("--set", setting)]
    assert main(["run", "all", *options, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text()
    for study in apps.STUDIES:
        assert f"{study}/report.html" in page
        assert f"{study}-dp/report.html" in page


def test_settings_file_and_options_together(tmp_path):
    (tmp_path / "s.toml").write_text("[consensus-graph]\nnodes = 5\nrounds = 2\n")
    out = tmp_path / "r"
    arguments = ["--config", str(tmp_path / "s.toml"), "--set", "rounds=3", "--out", str(out)]
    assert main(["run", STUDY, *arguments]) == 0
    config = RunResult.load(out).config
    assert (config["nodes"], config["rounds"]) == (5, 3)


def test_report_is_made_again(tmp_path):
    assert main(["run", STUDY, *QUICK, "--out", str(tmp_path)]) == 0
    before = (tmp_path / "report.html").read_bytes()
    (tmp_path / "report.html").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_bytes() == before


def test_report_of_nothing_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().out


def test_the_list_is_short_and_says_where_to_read_on(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for word in (STUDY, "the sparse graph they share", "trellis info STUDY"):
        assert word in " ".join(shown.split())
    lines = shown.splitlines()
    assert len(lines) <= 2 * len(apps.STUDIES) + 3
    assert max(map(len, lines)) <= 80


def test_an_unknown_figure_is_named(capsys):
    assert main(["paper", STUDY, "fig99"]) == 1
    told = capsys.readouterr().out
    assert "fig99: unknown figure; did you mean fig9?" in told
    assert "consensus-graph has" in told


@pytest.mark.parametrize("bad", [-1, True, "one"])
def test_a_bad_seed_is_named(bad):
    with pytest.raises(ValueError, match="seed="):
        run(STUDY, {"nodes": 5}, seed=bad)


def test_an_unknown_study_or_engine_is_named():
    with pytest.raises(ValueError, match="study='x': use one of cluster-admm, consensus-graph"):
        run("x")
    with pytest.raises(ValueError, match="engine='ray': use one of local, flower"):
        run(STUDY, engine="ray")


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    from trellis.apps.common import runner

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", interrupted)
    assert main(["run", STUDY, "--out", str(tmp_path / "r")]) == 130
    assert f"trellis run {STUDY} --resume {tmp_path / 'r'}" in capsys.readouterr().out


def test_the_facade_is_the_same_run():
    import trellis

    assert set(trellis.__all__) <= set(dir(trellis))
    result = trellis.run(STUDY, {"nodes": 6, "rounds": 4, "signals": 20})
    again = run(STUDY, {"nodes": 6, "rounds": 4, "signals": 20})
    assert result.arrays["weights"].tobytes() == again.arrays["weights"].tobytes()
