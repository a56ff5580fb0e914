"""``trellis merge`` as people use it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.runs.cuts import SMALL, cuts, whole
from trellis.apps.command import main
from trellis.apps.common.results import FolderLock, RunResult


@pytest.fixture(scope="module")
def logical() -> dict[str, RunResult]:
    return {study: whole(study) for study in SMALL}


def folders(result, tmp_path) -> list[str]:
    return [str(part.save(tmp_path / f"s{k}")) for k, part in enumerate(cuts(result))]


@pytest.mark.parametrize("study", SMALL)
def test_merge_keeps_result_page_and_graphs(study, logical, tmp_path, capsys):
    out = tmp_path / "all"
    assert main(["merge", *folders(logical[study], tmp_path), "--out", str(out)]) == 0
    kept = {path.name for path in out.iterdir()}
    assert {"run.json", "metrics.csv", "result.npz", "report.html", "graphs"} <= kept
    found = RunResult.load(out)
    assert np.array_equal(found.arrays["models"], logical[study].arrays["models"])
    shown = capsys.readouterr().out
    assert study in shown
    assert "site-1: a note of 1" in shown
    assert "What the servers saw of each other" in (out / "report.html").read_text()
    before = (out / "report.html").read_bytes()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_bytes() == before


def test_without_a_report(logical, tmp_path):
    out = tmp_path / "all"
    parts = folders(logical["server-graph"], tmp_path)
    assert main(["merge", *parts[:2], "--out", str(out), "--no-report"]) == 0
    assert not (out / "report.html").exists()
    assert (out / "result.npz").is_file()


def test_gathering_again_into_the_same_folder_replaces_it(logical, tmp_path):
    out = tmp_path / "all"
    parts = folders(logical["server-graph"], tmp_path)
    assert main(["merge", *parts[:1], "--out", str(out)]) == 0
    assert main(["merge", *parts, "--out", str(out), "--no-report"]) == 0
    assert RunResult.load(out).network["merged"] == ["site-0", "site-1", "site-2"]
    assert not (out / "report.html").exists()  # it was of one server


def test_a_server_s_own_result_is_never_overwritten(logical, tmp_path, capsys):
    parts = folders(logical["server-graph"], tmp_path)
    before = (tmp_path / "s0" / "run.json").read_bytes()
    assert main(["merge", *parts, "--out", parts[0]]) == 1
    assert "choose an empty folder" in capsys.readouterr().out
    assert (tmp_path / "s0" / "run.json").read_bytes() == before


def test_a_folder_that_another_writes_into_is_refused(logical, tmp_path, capsys):
    lock = FolderLock(tmp_path / "all")
    parts = folders(logical["server-graph"], tmp_path)
    assert main(["merge", *parts, "--out", str(tmp_path / "all")]) == 1
    lock.release()
    assert "another run writes into this folder" in capsys.readouterr().out


def test_refusals_end_with_one_and_leave_nothing(logical, tmp_path, capsys):
    parts = folders(logical["server-graph"], tmp_path)
    assert main(["merge", parts[0], parts[0], "--out", str(tmp_path / "all")]) == 1
    assert "network.server" in capsys.readouterr().out
    assert not (tmp_path / "all").exists()
    with pytest.raises(SystemExit) as stopped:
        main(["merge", *parts])
    assert stopped.value.code == 2
