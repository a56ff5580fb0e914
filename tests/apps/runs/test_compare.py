"""Runs side by side."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from trellis.apps.command import main
from trellis.apps.common.results import RunResult
from trellis.apps.runs.compare import compare


def kept(folder, study="server-graph", headline=None, **changes) -> RunResult:
    config = {"rounds": 10, "step": changes.pop("step", 0.5), "failures": ""}
    result = RunResult(
        study,
        1,
        "local",
        config,
        headline=headline or {"rounds": 2.0, "msd": -12.5},
        metrics=[{"round": 1.0}, {"round": 2.0}],
        bytes_up=1200,
        bytes_down=300,
        seconds=1.5,
        status="completed",
    )
    replace(result, **changes).save(folder)
    return result


def test_numbers_and_the_settings_that_differ(tmp_path):
    kept(tmp_path / "a", ledger={"epsilon": 0.75})
    kept(tmp_path / "b", step=0.25, seed=2, headline={"msd": -9.0, "score": 0.5})
    found = compare([tmp_path / "a", tmp_path / "b"])
    assert found.runs == ["a", "b"]
    assert found.numbers == {
        "rounds": [2.0, 2.0],
        "msd": [-12.5, -9.0],
        "seconds": [1.5, 1.5],
        "bytes up": [1200.0, 1200.0],
        "bytes down": [300.0, 300.0],
        "epsilon spent": [0.75, None],
        "score": [None, 0.5],
    }
    assert found.settings == {"seed": ["1", "2"], "step": ["0.5", "0.25"]}


def test_of_different_studies_only_what_both_have(tmp_path):
    kept(tmp_path / "a")
    kept(tmp_path / "b", study="cluster-admm", headline={"nmsd": -3.0})
    found = compare([tmp_path / "a", tmp_path / "b"])
    assert list(found.numbers) == ["rounds", "seconds", "bytes up", "bytes down", "epsilon spent"]
    assert found.settings == {"study": ["server-graph", "cluster-admm"]}


def test_folders_of_one_name_are_told_apart(tmp_path):
    for name in ("x", "y"):
        kept(tmp_path / name / "run")
    folders = [tmp_path / name / "run" for name in ("x", "y")]
    assert compare(folders).runs == ["x/run", "y/run"]


def test_the_command_shows_and_writes_the_table(tmp_path, capsys):
    kept(tmp_path / "a")
    kept(tmp_path / "b", step=0.25)
    table = tmp_path / "tables" / "both.csv"
    folders = [str(tmp_path / name) for name in ("a", "b")]
    assert main(["compare", *folders, "--csv", str(table)]) == 0
    shown = capsys.readouterr().out
    for word in ("msd", "-12.5", "What differs", "0.25", "bytes up"):
        assert word in shown
    rows = {row[0]: row[1:] for row in csv.reader(table.open())}
    assert rows[""] == ["a", "b"]
    assert rows["msd"] == ["-12.5", "-12.5"]
    assert rows["epsilon spent"] == ["", ""]
    assert rows["step"] == ["0.5", "0.25"]


def test_runs_with_the_same_settings_are_called_so(tmp_path, capsys):
    for name in ("a", "b"):
        kept(tmp_path / name)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "the same settings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a"], "two runs or more"), (["a", "a"], "given twice"), (["a", "none"], "holds no run")],
)
def test_what_cannot_be_compared_is_refused(names, words, tmp_path, capsys):
    kept(tmp_path / "a")
    assert main(["compare", *(str(tmp_path / name) for name in names)]) == 1
    assert words in capsys.readouterr().out.replace("\n", " ")
