"""A case as it is run and typed: its folder, its page, going on, refusing what is not its own."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import trellis.apps.cases
from trellis.apps.cases import evidence
from trellis.apps.cases.case import run_case
from trellis.apps.command import main
from trellis.apps.common import runner
from trellis.apps.common.settings import ConfigError

from .toy import TOY


@pytest.fixture
def toy(monkeypatch):
    """Have the toy among the cases."""
    monkeypatch.setitem(sys.modules, "toy_case", SimpleNamespace(CASE=TOY))
    monkeypatch.setattr(
        trellis.apps.cases, "CASES", {**trellis.apps.cases.CASES, "toy": "toy_case"}
    )


@pytest.fixture
def made(monkeypatch):
    """Count the runs that are made."""
    found = []
    original = runner.run

    def counted(study, settings=None, **options):
        found.append((study, options["seed"]))
        return original(study, settings, **options)

    monkeypatch.setattr(runner, "run", counted)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("case") / "toy"
    run_case(TOY, out, seeds=2, quick=True)
    return out


def test_the_page_has_the_answer_and_names_no_place_of_this_machine(folder):
    page = (folder / "index.html").read_text()
    for text in (
        "Do three wards learn a line?",
        "Together is ",
        "A line &lt;b&gt;shared&lt;/b&gt;",
        "What did it cost in privacy?",
        "Is it better than learning alone?",
        "Spent per run, at most",
        "These are reduced runs",
        "trellis case toy --quick",
        "trellis run server-graph --data toy-data/outcomes --set rounds=5 --out results/open",
        'href="runs/private/seed-1/report.html"',
        "every client alone",
        "every ward alone",
        "wards that gain",
        "3 wards, 4 runs on 2 splits",
    ):
        assert text in page
    assert "What this does not show" not in page  # nothing was said of it
    assert str(folder) not in page
    for name in ("open", "private"):
        assert (folder / "runs" / name / "seed-1" / "report.html").is_file()
        assert (folder / "runs" / name / "seed-2" / "run.json").is_file()


def test_what_is_finished_is_not_made_again(tmp_path, made):
    out = tmp_path / "toy"
    first = run_case(TOY, out, seeds=1, quick=True)
    assert made == [("server-graph", 1), ("server-graph", 1)]
    made.clear()
    assert run_case(TOY, out, seeds=1, quick=True).answer == first.answer
    assert made == []
    run_case(TOY, out, seeds=2, quick=True)
    assert made == [("server-graph", 2), ("server-graph", 2)]
    made.clear()
    # A run that was interrupted has no header that says completed.
    (out / "runs" / "open" / "seed-1" / "run.json").unlink()
    shown = []
    run_case(TOY, out, seeds=2, quick=True, watch=lambda *told: shown.append(told))
    assert made == [("server-graph", 1)]
    assert [told[0] for told in shown] == [0, 1, 2, 3, 4]
    assert "together, without privacy, split 1" in shown[0][2]


def test_other_data_or_settings_make_runs_anew(tmp_path, made):
    out = tmp_path / "toy"
    run_case(TOY, out, seeds=1, quick=True)
    made.clear()
    changed = (
        (out / "runs" / "open" / "planned.json").read_text().replace('"rounds": 5', '"rounds": 4')
    )
    (out / "runs" / "open" / "planned.json").write_text(changed)
    run_case(TOY, out, seeds=1, quick=True)
    assert len(made) == 1
    made.clear()
    # Files that somebody changed are written as they were, and what was learned from others goes.
    (out / "data" / "outcomes" / "north.csv").write_text("first,second,y\n0,0,1\n")
    run_case(TOY, out, seeds=1, quick=True)
    assert "\n0,0,1\n" not in (out / "data" / "outcomes" / "north.csv").read_text()
    run_case(TOY, out, seeds=1, quick=True, force=True)
    assert len(made) == 2


def test_a_folder_with_something_else_is_refused(tmp_path, folder):
    (tmp_path / "letter.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(ConfigError, match=r"holds letter\.txt, which no case left there"):
            run_case(TOY, tmp_path, seeds=1, force=force)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt"]
    with pytest.raises(ConfigError, match=r"is a file"):
        run_case(TOY, tmp_path / "letter.txt", seeds=1)
    with pytest.raises(ConfigError, match=r"holds the case toy \(quick\).*--force"):
        run_case(TOY, folder, seeds=1, quick=False)
    with pytest.raises(ConfigError, match="seeds=0"):
        run_case(TOY, tmp_path / "new", seeds=0)


def test_the_command(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["case", "toy", "--quick", "--seeds", "1"]) == 0
    shown = capsys.readouterr().out
    assert "Do three wards learn a line?\nTogether is not known." in shown
    assert "page: results/toy/index.html" in shown
    assert (tmp_path / "results" / "toy" / "index.html").is_file()
    assert main(["case", "toy", "--out", "results"]) == 1
    assert "no case left there" in capsys.readouterr().out


def test_the_files_alone(toy, tmp_path, capsys):
    assert main(["case", "toy", "--data-only", str(tmp_path / "files")]) == 0
    assert sorted(path.name for path in (tmp_path / "files" / "outcomes").iterdir()) == [
        *("north.csv", "south.csv", "west.csv")
    ]
    shown = capsys.readouterr().out
    assert f"trellis run server-graph --data {tmp_path}/files/outcomes --set rounds=10" in shown
    assert main(["case", "toy", "--data-only", str(tmp_path / "files")]) == 1
    assert "is not an empty folder" in capsys.readouterr().out


def test_the_list_and_a_wrong_name(toy, capsys, monkeypatch):
    assert main(["case", "hospital"]) == 1
    assert "did you mean hospitals?" in capsys.readouterr().out
    assert main(["case", "zebra"]) == 1
    assert "there are hospitals, brains, molecules, toy" in capsys.readouterr().out
    monkeypatch.setattr(
        trellis.apps.cases, "CASES", {"toy": "toy_case", "gone": "trellis.apps.cases.gone"}
    )
    assert main(["case"]) == 1
    shown = capsys.readouterr().out
    assert "Do three wards learn a line?" in shown
    assert "gone  cannot be loaded" in shown


def test_a_title_is_no_markup_of_the_terminal(toy, capsys):
    main(["case"])
    assert "A line <b>shared</b>" in capsys.readouterr().out


def test_one_split_says_that_it_cannot_say(tmp_path):
    assert evidence.UNKNOWN in run_case(TOY, tmp_path / "t", seeds=1, quick=True).answer
