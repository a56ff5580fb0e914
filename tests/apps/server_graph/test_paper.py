"""The paper's table and figures, small; the numbers at full size are in the study's page."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

from apps.server_graph import client_app
from apps.server_graph.config import ServerGraphConfig
from apps.server_graph.paper import speed
from apps.server_graph.paper import synthetic as paper
from privacy.secagg.protocol import Member
from privacy.servers.masks import ServerMasks
from strategies.topology.graph import topology

SMALL = {**paper.PAPER, "servers": 6, "clients": 18, "sample": 2, "samples": "20"}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(paper, "PAPER", SMALL)
    monkeypatch.setattr(paper, "SEEDS", range(1, 3))
    monkeypatch.setattr(paper, "ROUNDS", 60)
    monkeypatch.setattr(paper, "WINDOWS", {"20-40": slice(20, 40), "1000-2000": slice(40, 60)})
    monkeypatch.setattr(paper, "simulated", in_this_process)


def in_this_process(jobs, seeds, console, title):
    return list(zip(*(paper.of_seed(jobs, seed) for seed in seeds), strict=True))


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_settings_of_the_paper_s_file_are_the_paper_s():
    with Path(paper.__file__).with_name("settings.toml").open("rb") as file:
        told = tomllib.load(file)
    assert told["study"] == ServerGraphConfig.study
    config = ServerGraphConfig.from_settings(told[ServerGraphConfig.study])
    figures = ServerGraphConfig.from_settings(paper.PAPER)
    for name in ("servers", "clients", "samples", "features", "step", "ridge", "topology", "batch"):
        assert getattr(config, name) == getattr(figures, name)
    assert (config.method, config.sigma, config.sample) == ("hybrid", 0.2, figures.sample)


def test_the_paper_s_setting_without_noise_is_near_the_expected_level():
    # A fifth of the clients, half of them a round: the level of one seed moves by many dB.
    job = {"method": "none", "rounds": 700, "sample": 5, "clients": 100}
    runs = [paper.of_seed([job], seed)[0] for seed in range(1, 7)]
    level = paper.decibel(paper.power([run.msd for run in runs], slice(500, 700)))
    assert level == pytest.approx(paper.EXPECTED[10, 0.2][0], abs=6.0)


def test_table_db_has_every_cell_and_masks_cost_nothing_without_leaves(small, tmp_path, console):
    paper.table_db(tmp_path, console)
    rows = read(tmp_path / "table-db.csv")
    assert len(rows) == len(paper.EXPECTED) * len(paper.METHODS) + 2 * len(paper.SIGMAS)
    for row in rows:
        if row["method"] == "masked" and row["leaves"] == "0":
            assert abs(float(row["1000-2000 over none"])) < 1e-6
        if row["method"] == "none":
            assert float(row["1000-2000 over none"]) == 0.0
    leafless = [row for row in rows if row["graph"] == paper.LEAFLESS]
    assert {row["leaves"] for row in leafless} == {"0"}


def test_figure_2_draws_both_noises(small, tmp_path, console):
    paper.figure_2(tmp_path, console)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"fig2.csv", "fig2-0.2.png", "fig2-0.2.svg", "fig2-1.png", "fig2-1.svg"} <= names
    last = read(tmp_path / "fig2.csv")[-1]
    assert float(last["iid 1"]) > float(last["none 1"])


def test_methods_tells_utility_cost_and_what_neighbours_learn(small, tmp_path, console):
    paper.methods(tmp_path, console)
    rows = {row["method"]: row for row in read(tmp_path / "methods.csv")}
    assert set(rows) == {*paper.METHODS, "fedavg"}
    assert float(rows["masked"]["key-bytes"]) > 0.0 == float(rows["hybrid"]["key-bytes"])
    # A word of the ring is as long as a float.
    assert rows["masked"]["bytes"] == rows["none"]["bytes"]
    assert float(rows["fedavg"]["messages"]) == 0.0
    assert all(row["neighbour-learns"] for row in rows.values())


def test_failures_compares_with_a_run_that_never_had_the_servers(
    small, tmp_path, console, monkeypatch
):
    monkeypatch.setattr(paper, "LOST_FROM", 20)
    monkeypatch.setattr(paper, "LOST", 2)
    monkeypatch.setattr(paper, "ROUNDS", 1050)  # the table is of rounds from 1000 on
    monkeypatch.setattr(paper, "SEEDS", (2,))
    paper.failures(tmp_path, console)
    rows = read(tmp_path / "failures.csv")
    assert len(rows) == 6
    quiet = [row for row in rows if row["method"] == "none"]
    assert all(abs(float(row["difference"])) < 1.0 for row in quiet)
    assert (tmp_path / "failures.svg").is_file()


def test_servers_are_taken_out_only_where_the_others_stay_connected():
    assert paper.removable(topology("path", 4), 1) == (0,)
    assert paper.removable(topology("star", 5), 3) == (1, 2, 3)
    with pytest.raises(ValueError, match="ring"):
        paper.removable(topology("ring", 3), 3)


def test_means_are_of_powers():
    runs = [np.array([0.0, -10.0]), np.array([-20.0, -20.0])]
    assert paper.power(runs) == pytest.approx((1.0 + 0.1 + 0.01 + 0.01) / 4)
    assert paper.decibel(0.0) == -np.inf


def test_speed_splits_the_time_and_leaves_every_function_as_it_was(tmp_path, console, monkeypatch):
    kept = client_app.local_steps, ServerMasks.message, vars(Member)["enter"]
    monkeypatch.setattr(speed, "SETTING", {"clients": 12, "servers": 4, "method": "masked"})
    monkeypatch.setattr(speed, "CASES", {"off": 2, "on": 2})
    speed.speed(tmp_path, console)
    off, on = read(tmp_path / "speed.csv")
    for row in (off, on):
        parts = [float(value) for name, value in row.items() if name.startswith("share")]
        assert sum(parts) == pytest.approx(1.0)
        assert min(parts) >= 0.0
    assert float(off["share, masks of clients"]) == 0.0 < float(on["share, masks of clients"])
    assert (client_app.local_steps, ServerMasks.message, vars(Member)["enter"]) == kept


def test_a_piece_inside_another_is_counted_once():
    watch = speed.Stopwatch()
    inner = watch.around("masks of clients", lambda: sum(range(200_000)))
    outer = watch.around("clients' arithmetic", lambda: inner())
    outer()
    assert 0.0 < watch.seconds["clients' arithmetic"] < watch.seconds["masks of clients"]
