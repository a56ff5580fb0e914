"""``trellis tune`` as it is typed."""

from __future__ import annotations

import json

import pytest

from trellis.apps import run
from trellis.apps.command import main
from trellis.apps.tuning.tuner import tune

from .test_tuner import Stopping

STUDY = "consensus-graph"
QUICK = ["--set", "nodes=5", "--set", "signals=12", "--set", "rounds=2", "--splits", "2"]


def test_a_tuning_from_the_command_line(tmp_path, capsys):
    out = tmp_path / "t"
    words = ["tune", STUDY, "--over", "rho=0.1:10:log:3", "--by", "mcc", *QUICK, "--out", str(out)]
    words += ["--workers", "1"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    for text in ("mcc (more is better)", "best", "Judged by mcc", "--config", "tuning.html"):
        assert text in shown
    kept = {path.name for path in out.iterdir()}
    assert {"tuning.json", "trials.jsonl", "trials.csv", "best.toml"} <= kept
    assert {"tuning.png", "tuning.svg", "tuning.html"} <= kept
    lines = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert sorted((line["values"]["rho"], line["seed"]) for line in lines) == [
        (0.1, 1), (0.1, 2), (1.0, 1), (1.0, 2), (10.0, 1), (10.0, 2)
    ]  # fmt: skip
    before = (out / "trials.jsonl").stat().st_mtime_ns
    assert main(words) == 0  # all is done
    assert (out / "trials.jsonl").stat().st_mtime_ns == before
    assert main([*words, "--seed", "9"]) == 1
    assert "holds a tuning with other arguments" in capsys.readouterr().out


def test_real_runs_side_by_side_are_the_runs_one_after_the_other(tmp_path):
    words = ["tune", STUDY, "--over", "rho=0.1,1", "--by", "mcc", *QUICK]
    for name, workers in (("one", "1"), ("two", "2")):
        assert main([*words, "--out", str(tmp_path / name), "--workers", workers]) == 0
    tables = [(tmp_path / name / "trials.csv").read_bytes() for name in ("one", "two")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--over", "roh=1:2"], "did you mean 'rho'"),
        (["--over", "rho=-2,1"], "--over rho: -2.0 is refused"),
        (["--over", "rho"], "write KEY="),
        ([], "nothing to tune"),
        (["--over", "rho=1:2", "--by", "mccc", *QUICK, "--workers", "1"], "--by mccc: no such"),
        (["--over", "alpha=0.5,1", "--by", "consensus-edges", "--set", "privacy=dp", *QUICK,
          "--workers", "1"], "--better lower or"),
        (["--over", "rho=1:2", "--set", "privacy=dp", *QUICK],
         "rho has no effect with method='fedgl' and privacy='dp'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(capsys, words, says):
    assert main(["tune", STUDY, *words]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "error:" in shown
    assert says in shown


def test_without_a_folder_it_says_how_to_run_with_the_best(capsys):
    words = ["tune", STUDY, "--over", "rho=0.1,10", "--by", "mcc", *QUICK, "--workers", "1"]
    assert main(words) == 0
    assert "--set nodes=5" in capsys.readouterr().out


def test_ebic_judges_joint_precision_by_the_records_it_learned_from(tmp_path, capsys):
    words = ["tune", "joint-precision", "--over", "lambda1=0.02,0.1,0.9", "--by", "ebic"]
    words += ["--set", "variables=6", "--set", "blocks=2", "--set", "samples=60", "--splits", "1"]
    assert main([*words, "--workers", "1", "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert all(line["lower"] and line["measure"] == "ebic" for line in lines)
    asked = json.loads((tmp_path / "tuning.json").read_text())["arguments"]
    assert asked["held-out"] == 0.0
    # It is the number that the study itself tells of a run with these settings.
    values = {line["values"]["lambda1"]: line["value"] for line in lines}
    best = min(values, key=values.get)
    settings = {"variables": 6, "blocks": 2, "samples": 60, "lambda1": best}
    assert run("joint-precision", settings).headline["ebic"] == pytest.approx(values[best])


@pytest.mark.parametrize("out", [True, False])
def test_ctrl_c_shows_what_is_done_and_how_to_go_on(tmp_path, capsys, monkeypatch, out):
    def interrupted(*words, **options):
        return tune(*words, **{**options, "evaluate": Stopping(4), "workers": 1})

    monkeypatch.setattr("trellis.apps.tuning.tuner.tune", interrupted)
    words = ["tune", STUDY, "--over", "rho=0.1,0.3", "--splits", "2"]
    assert main([*words, "--out", str(tmp_path)] if out else words) == 130
    shown = capsys.readouterr().out
    assert "not done" in shown
    assert ("give the same command again" if out else "nothing is kept without --out") in shown
