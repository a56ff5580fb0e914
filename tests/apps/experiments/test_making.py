"""Figures of the papers: from their files to verdicts; what is interrupted, fails or is there."""

from __future__ import annotations

import io
import json
from pathlib import Path

import joblib
import pytest
from rich.console import Console

from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.apps.experiments import driver, figures, record
from trellis.apps.experiments.datasets import DataSetMissing
from trellis.apps.experiments.finding import Finding, spread, standard_error, surely
from trellis.apps.experiments.making import Making


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def said(console):
    return console.file.getvalue()


def described(function, claims=("above",), name="fig1"):
    """Return a figure whose function is the test's own."""

    class Own(figures.Figure):
        def function(self):
            return function

    found = tuple(figures.Claim(claim, "Fig. 1", "it is above", "printed") for claim in claims)
    sizes = {"full": {"seeds": 4, "rounds": 9}, "quick": {"seeds": 2}, "test": {"rounds": 1}}
    return Own("server-graph", name, "A figure", "own:own", False, sizes, found)


def only(figure, monkeypatch):
    """Let the record know one figure."""
    known = {figure.study: {figure.name: figure}}
    monkeypatch.setattr(record, "figures", lambda study: known.get(study, {}))
    monkeypatch.setattr(record, "untested", lambda study: [])


def above(making):
    values = making.on_all_cores(abs, list(making.seeds))
    making.table([{"seed": float(seed)} for seed in values])
    return [Finding("above", spread(values), "reproduced", seeds=len(values))]


def test_a_figure_is_made_with_the_numbers_of_its_size(tmp_path, console):
    made = driver.make_figure(described(above), tmp_path, console, "quick")
    assert (made.ended, made.size, made.findings[0].seeds) == ("made", "quick", 2)
    assert (tmp_path / "fig1.csv").read_text().splitlines() == ["seed", "1.0", "2.0"]
    assert "reproduced above: 1.5 ± 0.5" in said(console)
    assert not list((tmp_path / ".kept").glob("fig1/*"))


def test_what_was_made_is_not_made_again_unless_asked(tmp_path, console):
    calls = []

    def counted(making):
        calls.append(1)
        return above(making)

    figure = described(counted)
    ends = [driver.make_figure(figure, tmp_path, console, "full").ended for _ in range(2)]
    ends.append(driver.make_figure(figure, tmp_path, console, "quick").ended)
    ends.append(driver.make_figure(figure, tmp_path, console, "quick", again=True).ended)
    assert ends == ["made", "made before", "made", "made"]
    assert len(calls) == 3
    (tmp_path / "fig1.json").write_text("{")
    assert driver.make_figure(figure, tmp_path, console, "quick").ended == "made"


def test_an_interrupted_figure_goes_on_where_it_was(tmp_path, console):
    making = Making("fig1", tmp_path, console, {"seeds": 3})
    done = tmp_path / "done"
    done.mkdir()
    jobs = [(str(done), 1), (str(done), 2), (str(done), 0)]
    with joblib.parallel_config(n_jobs=1), pytest.raises(RuntimeError, match="cut"):
        making.on_all_cores(_counted, jobs)
    assert {path.name for path in done.iterdir()} == {"1", "2"}
    for path in done.iterdir():
        path.unlink()
    with pytest.raises(RuntimeError, match="cut"):
        making.on_all_cores(_counted, jobs)
    assert list(done.iterdir()) == []
    assert "2 of 3 were found before" in said(console)


def _counted(job):
    folder, number = job
    if number == 0:
        raise RuntimeError("cut")
    (Path(folder) / str(number)).touch()
    return number


def test_one_that_fails_stops_no_other(tmp_path, console):
    def fails(making):
        raise ValueError("the models diverge")

    def has_no_data(making):
        raise DataSetMissing("no such data set; set TRELLIS_DATA")

    wanted = [
        described(fails, name="fig1"),
        described(has_no_data, name="fig2"),
        described(above, name="fig3"),
    ]
    made = driver.make_figures(wanted, tmp_path, console)
    assert [one.ended for one in made] == ["failed", "skipped", "made"]
    assert "fig1 failed: ValueError: the models diverge" in said(console)
    assert "Traceback" in (tmp_path / "server-graph" / "fig1.error.txt").read_text()


def test_data_that_are_there_and_do_not_do_are_a_failure(tmp_path, console):
    def too_few(making):
        raise DataError("5 graphs are too few for 10 folds")

    made = driver.make_figure(described(too_few), tmp_path, console)
    assert (made.ended, made.reason) == ("failed", "DataError: 5 graphs are too few for 10 folds")


@pytest.mark.parametrize("claims", [(), ("above", "below")])
def test_findings_must_be_those_of_the_claims(claims, tmp_path, console):
    made = driver.make_figure(described(above, claims), tmp_path, console)
    assert made.ended == "failed"
    assert "own:own has found above" in made.reason


def test_a_verdict_is_one_of_four_and_says_why():
    with pytest.raises(ValueError, match="use one of reproduced, partly"):
        Finding("a", "1", "true")
    with pytest.raises(ValueError, match="refuted needs a reason"):
        Finding("a", "1", "refuted")


def test_a_quick_look_does_not_take_the_place_of_a_full_run(tmp_path, console, monkeypatch):
    figure = described(above)
    only(figure, monkeypatch)
    quick = driver.make_figure(figure, tmp_path, console, "quick")
    full = driver.make_figure(figure, tmp_path, console, "full")
    first = record.entered({}, [quick])
    assert first["server-graph/above"]["size"] == "quick"
    assert "0 rows at the papers' own sizes, 1 by the quick" in record.markdown(first)
    both = record.entered(first, [full])
    assert record.entered(both, [quick]) == both
    assert both["server-graph/above"]["seeds"] == 4
    page = record.write(tmp_path / "papers.json", both)
    assert record.read(tmp_path / "papers.json") == both
    assert "`trellis paper server-graph fig1`, 0 s" in page.read_text()
    assert "**reproduced**" in page.read_text()
    assert record.entered({"server-graph/gone": {}}, []) == {}


def test_a_claim_that_was_not_run_says_so(monkeypatch):
    figure = described(above)
    only(figure, monkeypatch)
    assert "| not run yet | 1 |" in record.markdown({})


def test_files_of_figures_are_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "paper_folder", lambda study: tmp_path)
    file = tmp_path / "fig2.toml"
    file.write_text('title = "a"\nmake = "a:b"\n[full]\nseeds = 2\n[quick]\nsneeds = 1\n')
    with pytest.raises(ConfigError, match=r"\[quick\] has sneeds"):
        figures.figures("server-graph")
    file.write_text('title = "a"\nmake = "a:b"\ncolour = 3\n')
    with pytest.raises(ConfigError, match="unknown colour"):
        figures.figures("server-graph")
    file.write_text('title = "a"\nmake = "a:b"\n[[claim]]\nname = "x"\n')
    with pytest.raises(ConfigError, match="without place, says, source"):
        figures.figures("server-graph")
    file.write_text('title = "a"\nmake = "a:b"\n')
    (tmp_path / "fig10.toml").write_text('title = "a"\nmake = "a:b"\n')
    (tmp_path / "settings.toml").write_text("study = 1\n")
    assert list(figures.figures("server-graph")) == ["fig2", "fig10"]
    with pytest.raises(ConfigError, match="did you mean fig2"):
        figures.figure("server-graph", "fgi2")


def test_the_note_of_a_figure_is_json(tmp_path, console):
    driver.make_figure(described(above), tmp_path, console, "test")
    told = json.loads((tmp_path / "fig1.json").read_text())
    assert told["numbers"] == {"seeds": 4, "rounds": 1}


def test_a_difference_counts_beyond_two_standard_errors():
    assert [surely([1.0, 1.1, 0.9]), surely([-2.0]), surely([1.0, -1.2]), surely([0.0])] == [
        1,
        -1,
        0,
        0,
    ]
    values = [[1.0, 5.0], [3.0, 5.0]]
    assert standard_error(values, axis=0).tolist() == [1.0, 0.0]  # sqrt(2) / sqrt(2)
    assert standard_error([4.0]) == 0.0


def test_claims_of_our_own_are_not_counted_as_a_paper_s(tmp_path, console, monkeypatch):
    figure = described(above)
    ours = figures.Claim("above", record.OURS, "it is above", "our own")
    object.__setattr__(figure, "claims", (ours,))
    only(figure, monkeypatch)
    page = record.markdown(
        record.entered({}, [driver.make_figure(figure, tmp_path, console, "quick")])
    )
    assert "| reproduced: we get what the paper says | 0 |" in page
    assert "### Claims of our own, server-graph" in page
    assert "| We say |" in page
