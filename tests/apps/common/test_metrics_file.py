"""``metrics.csv`` while a run is under way."""

from __future__ import annotations

import pytest

from trellis.apps.common.files.metrics_file import MetricsFile
from trellis.apps.common.results import RunResult, metrics_csv, read_metrics_csv
from trellis.apps.common.runner import run
from trellis.strategies.core.history.rows import Rows
from trellis.strategies.rounds import Rounds

ROWS = [{"round": 1.0, "change": 0.1 + 0.2}, {"round": 2.0, "change": float("nan")}]


def test_a_line_is_there_when_a_round_has_ended(tmp_path):
    rows = Rows()
    with MetricsFile(tmp_path) as file:
        for number, row in enumerate(ROWS, start=1):
            rows.append(row)
            file.add(rows)
            assert (tmp_path / "metrics.csv").read_text() == metrics_csv(ROWS[:number])
        place = (tmp_path / "metrics.csv").stat().st_ino
        rows.append({"round": 3.0})
        file.add(rows)
        assert (tmp_path / "metrics.csv").stat().st_ino == place  # who follows it goes on
        rows.append({"round": 4.0, "score": 1.0})  # a column that no row had
        file.add(rows)
        rows.append({"round": 5.0, "score": 2.0})
        file.add(rows)
    assert (tmp_path / "metrics.csv").read_text() == metrics_csv(rows)


def test_half_a_line_is_no_row():
    text = metrics_csv(ROWS)
    for cut in range(1, 9):
        assert repr(read_metrics_csv(text[:-cut])) == repr(ROWS[:1])
    assert repr(read_metrics_csv(text)) == repr(ROWS)
    assert not read_metrics_csv("")
    assert not read_metrics_csv("round,cha")


def test_a_run_that_is_resumed_forgets_the_lines_after_its_checkpoint(tmp_path, monkeypatch):
    settings = {"nodes": 6, "clients": 3, "signals": "20", "rounds": 6, "tolerance": 0.0}
    seen, whole = [], Rounds._round

    def failing(self, grid, server_round, result):
        path = tmp_path / "out" / "metrics.csv"
        if server_round > 1:
            seen.append(len(read_metrics_csv(path.read_text())))
        if server_round == 5:
            path.write_text(path.read_text() + "5.0,3.0,0.0,9")  # of a round that was torn
            raise SystemExit
        whole(self, grid, server_round, result)

    monkeypatch.setattr(Rounds, "_round", failing)
    with pytest.raises(SystemExit):
        run("consensus-graph", settings, out=tmp_path / "out", report=False)
    monkeypatch.undo()
    assert seen == [1, 2, 3, 4]
    run("consensus-graph", settings, out=tmp_path / "out", resume=True, report=False)
    rounds = [row["round"] for row in RunResult.load(tmp_path / "out").metrics]
    assert rounds == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
