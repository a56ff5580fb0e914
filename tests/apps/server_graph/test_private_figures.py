"""The figures of what noise in sums costs, small; the numbers at full size are in the page."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

from tests.apps.experiments.making import make
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.paper import private as figures
from trellis.apps.server_graph.truth import distances


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_settings_of_the_file_are_those_of_the_table():
    with Path(figures.__file__).with_name("settings-private.toml").open("rb") as file:
        told = tomllib.load(file)["server-graph"]
    config = ServerGraphConfig.from_settings({**figures.BASE, **told})
    case = figures.CASES[figures.OWN_OF]
    assert config == ServerGraphConfig.from_settings({**figures.BASE, **case})


def test_the_table_has_every_case_and_nobody_spends_more_than_was_set(tmp_path, console):
    make("server-graph", "private", tmp_path, console, seeds=2, **{"share-of-rounds": 0.4})
    rows = {row["case"]: row for row in read(tmp_path / "private.csv")}
    assert set(rows) == {figures.ALONE, figures.OWN, *figures.CASES}
    for name, case in figures.CASES.items():
        if "epsilon" in case and "sigma" not in case:
            assert 0.8 * case["epsilon"] < float(rows[name]["epsilon"]) <= case["epsilon"]
        assert float(rows[name]["accuracy"]) > 0.8
    assert (
        float(rows["the paper's noise between servers, sigma 0.2, 400 rounds"]["epsilon"]) > 100.0
    )
    assert float(rows[figures.BETWEEN_OF]["epsilon"]) <= 1.0 + 1e-9
    assert float(rows[figures.OWN]["loss"]) < float(rows[figures.OWN_OF]["loss"])


def test_the_private_model_is_near_the_minimiser_and_alone_is_not():
    """The setting of the table at two seeds: 10 servers of 5 clients, epsilon 1."""
    config = ServerGraphConfig.from_settings({**figures.BASE, **figures.FEW, "epsilon": 1.0})
    for seed in (2, 4):
        run = figures.simulate(config, seed, shares=False)
        assert run.epsilon <= 1.0
        assert distances(run.models, run.truth)["msd"] < -14.0
        assert figures.decibel(figures.alone(config, seed, run.truth)["power"]) > -8.0


def test_break_even_tells_from_how_many_clients_on(tmp_path, console):
    small = {"samples": [20], "clients": [5, 20], "epsilons": [0.01, 10.0]}
    (finding,) = make("server-graph", "break-even", tmp_path, console, seeds=2, **small)
    assert "epsilon 0.01: from more than 20; 20 samples per client, epsilon 10: from 5" in (
        finding.found
    )
    rows = read(tmp_path / "break-even.csv")
    assert len(rows) == 2 * 3
    assert {row["budget"] for row in rows} == {"0.01", "10.0", "nan"}
    assert {row["who"] for row in rows if row["budget"] == "nan"} == {"alone"}
    assert (tmp_path / "break-even-20.png").is_file()
