"""The picture of a run: written beside its report, shown in the index of several runs."""

from __future__ import annotations

import base64
import re

from trellis.apps import run
from trellis.apps.command import main
from trellis.apps.common.files.run_folder import FILES
from trellis.apps.pages.report import PICTURE, write_index

TINY = {"nodes": 5, "clients": 3, "rounds": 2}


def test_the_index_shows_the_first_picture_of_every_run(tmp_path):
    results = [
        run("consensus-graph", TINY, out=tmp_path / name, seed=seed)
        for seed, name in ((1, "one"), (2, "two"))
    ]
    page = write_index(results, tmp_path / "index.html").read_text()
    shown = re.findall(
        r'href="(\w+)/report.html"><img src="data:image/svg\+xml;base64,([^"]+)"', page
    )
    assert [name for name, _ in shown] == ["one", "two"]
    for name, source in shown:
        assert base64.b64decode(source) == (tmp_path / name / PICTURE).read_bytes()
    assert len(re.findall(r'alt="[^"]{20,}"', page)) == 2  # what a screen reader says
    assert "consensus-graph, open" in page


def test_a_picture_is_a_file_of_the_run_and_of_its_report(tmp_path):
    assert PICTURE in FILES  # it goes when the run is replaced
    run("consensus-graph", TINY, out=tmp_path)
    page = (tmp_path / "report.html").read_bytes()
    assert b'href="picture.svg"' in page
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_bytes() == page


def test_a_run_without_a_picture_is_left_out_of_them(tmp_path):
    result = run("consensus-graph", TINY, out=tmp_path / "run")
    (tmp_path / "run" / PICTURE).unlink()
    page = write_index([result], tmp_path / "index.html").read_text()
    assert "<img" not in page
    assert 'href="run/report.html"' in page
