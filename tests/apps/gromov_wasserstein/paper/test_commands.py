"""Every table and figure has a command, with settings that are valid and data that is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from apps.common.tables import DataError
from apps.gromov_wasserstein import paper
from apps.gromov_wasserstein.config import GromovWassersteinConfig
from tests.apps.experiments.making import make


def test_every_table_and_figure_has_a_command():
    wanted = {"table1", "fig2", "fig3", "fig4", "fig5", "fig7", "fig11", "fig12"}
    assert set(paper.FIGURES) == wanted | {"privacy-utility", "private", "break-even"}
    assert set(paper.ON_REQUEST) == {"table1-full"}


def test_the_paper_s_settings_are_valid():
    path = Path(paper.__file__).with_name("settings.toml")
    content = tomllib.loads(path.read_text())
    config = GromovWassersteinConfig.from_settings(content["gromov-wasserstein"])
    assert (config.clients, config.rounds, config.privacy) == (10, 200, "sound")


def test_without_data_the_error_names_the_variable(tmp_path, monkeypatch, console):
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    for name in ("fig3", "fig11", "table1", "private"):
        with pytest.raises(DataError, match="TRELLIS_DATA"):
            make("gromov-wasserstein", name, tmp_path, console)
