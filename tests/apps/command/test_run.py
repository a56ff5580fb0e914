"""``trellis run`` and ``list``: options of all studies, broken studies, words at the end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from trellis import apps
from trellis.apps.command import main, run_all
from trellis.apps.command.closing import show
from trellis.apps.command.showcase import Showcase
from trellis.apps.common import runner
from trellis.apps.common.progress import LineDisplay, LiveDisplay, display_on, row_of
from trellis.apps.common.results import RunResult, said

STUDY = "consensus-graph"
TINY = {"nodes": 6, "clients": 3, "signals": "20", "rounds": 2}


@pytest.fixture
def two_studies(monkeypatch):
    """Let all studies be two small ones."""
    sizes = {
        STUDY: Showcase(TINY),
        "joint-precision": Showcase({"variables": 6, "blocks": 2, "clients": 3, "samples": "40"}),
    }
    studies = {study: apps.STUDIES[study] for study in sizes}
    monkeypatch.setattr(apps, "STUDIES", studies)
    monkeypatch.setattr(run_all, "SHOWCASES", sizes)


@pytest.fixture
def asked(monkeypatch):
    """Note what would be run."""
    calls = []

    def note(study, settings, **options):
        calls.append((study, settings, options))
        return RunResult(study, 1, "local", settings, status="completed")

    monkeypatch.setattr(runner, "run", note)
    return calls


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--data", "x"], "--data with all studies: studies want different data"),
        (["--config", "x.toml"], "--config with all studies: a file has the settings of one study"),
        (["--resume", "x"], "--resume with all studies: this starts every study anew"),
        (["--set", "rho=2"], "--set with all studies: gromov-wasserstein: rho: unknown setting"),
        (["--set", "rounds=0"], "--set with all studies: cluster-admm: rounds=0: must be >= 1"),
        (["--set", "joint-precision.alpha=2"], "joint-precision: alpha: unknown setting"),
        (["--set", "nobody.rho=2"], "nobody is no study"),
        (["--set", "privacy=none"], "each runs open and private"),
        (["--workers", "2", "--engine", "flower"], "--workers 2: threads are of --engine local"),
    ],
)
def test_what_makes_no_sense_for_all_studies_is_refused_before_any_runs(
    tmp_path, capsys, asked, option, words
):
    assert main(["run", "all", "--out", str(tmp_path), *option]) == 1
    assert words in " ".join(capsys.readouterr().out.split())
    assert asked == []
    assert not list(tmp_path.iterdir())


def test_settings_and_workers_reach_all_studies(tmp_path, two_studies, asked):
    given = ["--set", "rounds=7", "--set", f"{STUDY}.alpha=1.5", "--workers", "2"]
    assert main(["run", "all", "--out", str(tmp_path), *given]) == 0
    assert [(study, s["rounds"], s.get("alpha"), o["workers"]) for study, s, o in asked] == [
        (STUDY, 7, 1.5, 2),
        (STUDY, 7, 1.5, 2),
        ("joint-precision", 7, None, 2),
        ("joint-precision", 7, None, 2),
    ]
    assert {s["privacy"] for _, s, _ in asked} == {"none", "dp"}


def break_study(tmp_path, monkeypatch):
    (tmp_path / "broken_study").mkdir()
    (tmp_path / "broken_study" / "__init__.py").write_text("raise RuntimeError('half a [study]')\n")
    monkeypatch.syspath_prepend(tmp_path)
    studies = {"aaa": "broken_study", "bbb": "no_such_package", **apps.STUDIES}
    monkeypatch.setattr(apps, "STUDIES", studies)
    sys.modules.pop("broken_study", None)


def test_broken_studies_do_not_end_the_list(tmp_path, monkeypatch, capsys):
    break_study(tmp_path, monkeypatch)
    assert main(["list"]) == 1
    shown = capsys.readouterr().out
    assert "RuntimeError: half a [study]" in shown
    assert "No module named 'no_such_package'" in shown
    for word in (STUDY, "server-graph", "masks and", "trellis info STUDY"):
        assert word in shown


def test_broken_studies_end_neither_all_runs_nor_their_index(
    tmp_path, monkeypatch, capsys, two_studies
):
    break_study(tmp_path, monkeypatch)
    for _ in range(2):  # and the command can be repeated
        assert main(["run", "all", "--out", str(tmp_path / "r")]) == 1
        assert "half a [study]" in " ".join(capsys.readouterr().out.split())
        page = (tmp_path / "r" / "index.html").read_text()
        for word in ("aaa", "half a [study]", "no_such_package", f"{STUDY}-dp/report.html"):
            assert word in page
        assert "4 of 8 runs without failure" in page


def test_a_run_that_fails_does_not_pass_for_the_one_before(tmp_path, two_studies, monkeypatch):
    assert main(["run", "all", "--out", str(tmp_path)]) == 0

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(runner, "run", fail)
    assert main(["run", "all", "--out", str(tmp_path)]) == 1
    page = (tmp_path / "index.html").read_text()
    assert "0 of 4 runs without failure" in page
    assert "ZeroDivisionError" in page


# Words at the end


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([STUDY, "--out", "{}"], "trellis run consensus-graph --resume {}"),
        (["all", "--out", "{}"], "trellis run --resume {}/cluster-admm"),
        ([STUDY], ""),
    ],
)
def test_an_interrupt_names_a_command_that_can_be_parsed(
    tmp_path, monkeypatch, capsys, arguments, hint
):
    monkeypatch.setattr(runner, "run", interrupted)
    assert main(["run", *(a.format(tmp_path) for a in arguments)]) == 130
    shown = capsys.readouterr().out
    assert hint.format(tmp_path) in shown
    assert ("go on with" in shown) == bool(hint)
    assert ("nothing is kept" in shown) == (not hint)


def test_a_run_in_flower_that_is_interrupted_says_so_in_its_folder(tmp_path, monkeypatch):
    def cut_off(app, run_config, **_):
        RunResult(STUDY, 1, "flower", {}).save(Path(run_config["out"]))
        raise KeyboardInterrupt

    monkeypatch.setattr("trellis.sim.flower.simulate", cut_off)
    with pytest.raises(KeyboardInterrupt):
        runner.run(STUDY, TINY, out=tmp_path, engine="flower")
    left = RunResult.load(tmp_path)
    assert left.status == "interrupted"
    assert "can be resumed" in left.notes[-1]


def test_the_closing_table_is_whole_on_a_narrow_terminal():
    result = RunResult("gromov-wasserstein", 1, "local", {}, status="completed", seconds=1234.5)
    result.metrics, result.bytes_up, result.bytes_down = [{}] * 200, 3_065_184, 123_065_184
    result.headline = {"alone-held-out-likelihood": -1234.5678, "gap": float("nan")}
    result.ledger = {"mode": "dp", "epsilon": 0.6864, "simulated": True}
    console = Console(width=80, record=True, file=io.StringIO())
    show(console, [result])
    shown = console.export_text()
    assert "…" not in shown
    for word in ("200 rounds", "1234.50 s", "up 3,065 kB", "down 123,065 kB", "epsilon 0.686"):
        assert word in shown
    assert "the same likelihood, learning" in shown  # goes on in the next line
    assert "-1235" in shown
    assert "duality gap: not known" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line[:1] in "│┃┏┡└")


def test_an_error_without_words_is_named_by_its_kind(monkeypatch, capsys):
    def fail(*_, **__):
        raise ValueError

    monkeypatch.setattr(runner, "run", fail)
    assert main(["run", STUDY]) == 1
    assert capsys.readouterr().out == "error: ValueError\n"
    assert said(OSError(" ")) == "OSError"
    assert said(ValueError("too few")) == "too few"


# Client files that cannot be used


def tables(folder, *bad):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in ("east", "north", "south", "west"):
        rows = "\n".join(",".join(map(str, row)) for row in rng.normal(size=(12, 3)))
        rows = "1,two,3" if name in bad else rows
        (folder / f"{name}.csv").write_text(f"x,y,z\n{rows}\n")
    return folder


@pytest.mark.parametrize("bad", [["north"], ["north", "west"]])
@pytest.mark.parametrize("study", [STUDY, "joint-precision"])
def test_bad_files_are_told_once_each_in_one_error(tmp_path, capsys, caplog, study, bad):
    data = tables(tmp_path / "data", *bad)
    assert main(["run", study, "--data", str(data), "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if "not a number" in line]
    for name, line in zip(bad, lines, strict=True):
        assert f"{name}: {data / name}.csv: row 1, column 'y' is 'two', not a number" in line
    assert lines[0].startswith(f"error: {4 - len(bad)} of 4 clients could be enrolled. ")
    assert shown.err == ""
    assert "node " not in shown.out
    assert not [record for record in caplog.records if record.exc_info]
    (note,) = RunResult.load(tmp_path / "out").notes
    assert note.startswith(f"The run stopped: {4 - len(bad)} of 4 clients could be enrolled")


def test_a_run_goes_on_without_a_bad_file_where_it_may(tmp_path):
    data = tables(tmp_path / "data", "north")
    result = apps.run(STUDY, {"clients-least": 3, "rounds": 2}, data=data)
    assert [client["name"] for client in result.clients] == ["east", "south", "west"]
    assert any("north: " in note and "not a number" in note for note in result.notes)


# Progress without a terminal


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_lines_come_every_few_seconds_and_at_the_end_of_each_study():
    lines, clock = [], Clock()
    with LineDisplay(lines.append, clock, every=5.0) as display:
        for number in range(1, 13):
            clock.now += 1.0
            display("s", 50, {"round": float(number), "change": 0.5 / number})
        assert lines == [
            "s: round 5 of 50, change 1.0e-01, 4 s",
            "s: round 10 of 50, change 5.0e-02, 9 s",
        ]
        display.finish("s")
        assert lines[2:] == ["s: done after round 12 of 50, change 4.2e-02, 11 s"]
        display.finish("s")
        display("t", 3, {"round": 1.0, "gap": 0.25, "objective": 2.0})
        assert len(lines) == 3
    assert lines[3:] == ["t: ended after round 1 of 3, gap 2.5e-01  objective 2, 0 s"]


def test_a_file_gets_lines_and_a_terminal_a_live_display(tmp_path, capsys):
    from rich.console import Console

    assert isinstance(display_on(Console(force_terminal=True)), LiveDisplay)
    assert isinstance(display_on(Console(force_terminal=False)), LineDisplay)
    arguments = [f"--set={key}={value}" for key, value in TINY.items()]
    assert main(["run", STUDY, *arguments]) == 0
    assert f"{STUDY}: done after round 2 of 2, change " in capsys.readouterr().out


def test_rounds_are_read_from_a_log():
    line = "INFO :      round 12: 5 clients answered, 0 failed, change 0.00345"
    assert row_of(line) == {"round": 12.0, "change": 0.00345}
    assert row_of("INFO : round 12: 5 clients answered, 0 failed") == {"round": 12.0}
    assert row_of("INFO : nothing") is None
