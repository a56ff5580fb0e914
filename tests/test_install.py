"""Hints name a pip command that exists, for every way in which Trellis can be installed."""

from __future__ import annotations

import importlib.metadata
import json
from importlib.metadata import PathDistribution
from typing import Any

import pytest

from trellis.install import pip_install

WHEEL = "file:///opt/wheels/trellis-0.1.0-py3-none-any.whl"
CLONE = "pip install '.[laptop]' in a clone of the project"


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Make Python's records of Trellis what a test says; each is a folder's ``direct_url.json``."""

    def write(*sources: dict[str, Any] | None) -> None:
        found = []
        for number, source in enumerate(sources):
            folder = tmp_path / f"trellis-{number}.dist-info"
            folder.mkdir()
            if source is not None:
                (folder / "direct_url.json").write_text(json.dumps(source))
            found.append(PathDistribution(folder))
        monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found)

    return write


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'trellis[laptop]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, CLONE),
        ({"url": "file:///src", "dir_info": {}}, CLONE),
        ({"url": WHEEL, "archive_info": {}}, f"pip install 'trellis[laptop] @ {WHEEL}'"),
        (
            {"url": "https://a.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'trellis[laptop] @ git+https://a.org/t.git@abc'",
        ),
    ],
    ids=["index", "editable", "folder", "wheel", "git"],
)
def test_the_command_fits_where_trellis_came_from(record, source, command):
    record(source)
    assert pip_install("laptop") == command


def test_the_record_of_a_build_in_a_clone_does_not_hide_pip_s(record):
    record(None, {"url": "file:///src", "dir_info": {"editable": True}})
    assert pip_install("laptop") == CLONE


def test_a_clone_on_the_path_that_nobody_installed(record):
    record()
    assert pip_install("gnn") == "pip install '.[gnn]' in a clone of the project"
