"""Every table, figure and theorem has a command, with settings that are valid and named data."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("ot")

from tests.apps.experiments.making import make
from trellis.apps.common.tables import DataError
from trellis.apps.experiments.figures import figures, untested
from trellis.apps.gromov_wasserstein import paper
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig

STUDY = "gromov-wasserstein"
OURS = {"privacy-utility", "private", "break-even"}


def test_every_table_and_figure_has_a_command():
    wanted = {f"table{number}" for number in range(1, 5)}
    wanted |= {f"fig{number}" for number in range(2, 13)}
    wanted |= {"theorem1", "encoder", "equation2", "communication"}
    known = figures(STUDY)
    assert set(known) == wanted | OURS | {"table1-sample"}
    assert [name for name, figure in known.items() if figure.on_request] == ["table1-sample"]
    assert [claim.name for claim, _ in untested(STUDY)] == ["fig1"]


def test_every_claim_has_one_name_a_place_and_a_source():
    claims = [claim for figure in figures(STUDY).values() for claim in figure.claims]
    assert len({claim.name for claim in claims}) == len(claims) > 45
    for name, figure in figures(STUDY).items():
        if figure.on_request:
            continue
        places = {claim.place for claim in figure.claims}
        assert places == {"ours"} if name in OURS else places != {"ours"}


def test_table_1_is_at_the_paper_s_sizes():
    full = figures(STUDY)["table1"].numbers("full")
    assert set(full["graphs"].values()) == {0}
    assert (full["rounds"], full["grid"]) == (200, "paper")
    assert full["seeds"] >= 3
    assert figures(STUDY)["fig2"].numbers("full")["subgraphs"] == 500


def test_the_paper_s_settings_are_valid():
    path = Path(paper.__file__).with_name("settings.toml")
    content = tomllib.loads(path.read_text())
    config = GromovWassersteinConfig.from_settings(content[STUDY])
    assert (config.clients, config.rounds, config.privacy) == (10, 200, "dp")


def test_without_data_the_error_names_the_variable(tmp_path, monkeypatch, console):
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    for name in ("fig3", "fig11", "table1", "private"):
        with pytest.raises(DataError, match="TRELLIS_DATA"):
            make(STUDY, name, tmp_path, console)
