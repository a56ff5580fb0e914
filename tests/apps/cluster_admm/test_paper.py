"""The paper's table and figures, small; the numbers at full size are in the study's page."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

from apps.cluster_admm.config import ClusterAdmmConfig
from apps.cluster_admm.paper import synthetic as paper
from apps.cluster_admm.simulate import simulate
from tests.apps.experiments.making import make

SMALL = {
    **paper.PAPER, "servers": 4, "clients": 24, "features": 4, "samples": "6-9", "topology": "ring",
}  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(paper, "PAPER", SMALL)
    monkeypatch.setattr(paper, "SEEDS", range(1, 3))
    monkeypatch.setattr(paper, "ROUNDS", 12)
    monkeypatch.setattr(paper, "TOLD_AT", 8)
    monkeypatch.setattr(paper, "TAUS", (0.0, 0.4, 0.9))
    monkeypatch.setattr(paper, "simulated", in_this_process)


def in_this_process(jobs, seeds, console, title):
    return [[paper.one((job, seed)) for seed in seeds] for job in jobs]


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_settings_of_the_paper_s_file_are_those_of_the_figures():
    with Path(paper.__file__).with_name("settings.toml").open("rb") as file:
        told = tomllib.load(file)
    assert told["study"] == ClusterAdmmConfig.study
    config = ClusterAdmmConfig.from_settings(told[ClusterAdmmConfig.study])
    job = paper.job("scheduled, noise", paper.METHODS["tau .4"], paper.ROUNDS)
    assert config == ClusterAdmmConfig.from_settings({**paper.PAPER, **job})


def test_the_table_s_cell_with_most_noise_is_near_what_is_expected():
    # One seed of five: the deviation between seeds is below 2 dB.
    run = paper.one((paper.job("scheduled, noise", paper.METHODS["tau .4"], paper.TOLD_AT), 4))
    assert run.nmsd[-1] == pytest.approx(paper.EXPECTED["scheduled, noise"][0], abs=3.0)


def test_the_table_has_every_method_in_every_situation(small, tmp_path, console):
    paper.table_nmsd(tmp_path, console)
    rows = read(tmp_path / "table-nmsd.csv")
    assert len(rows) == len(paper.EXPECTED) * (len(paper.METHODS) + len(paper.BESIDE))
    local = {row["nmsd"] for row in rows if row["method"] == "local"}
    assert len(local) == 1  # clients alone know nothing of schedules, and send nothing to noise
    config = ClusterAdmmConfig.from_settings({**SMALL, "method": "gfl", "tau": 0.0, "rounds": 8})
    powers = [10.0 ** (simulate(config, seed).nmsd[-1] / 10.0) for seed in (1, 2)]
    told = next(float(row["nmsd"]) for row in rows if row["method"] == "GFL")
    assert told == pytest.approx(10.0 * np.log10(np.mean(powers)))


def test_one_server_asks_as_many_clients_a_round_as_all_servers_together():
    assert paper.job("scheduled", {"method": "fedavg"}, 5)["sample"] == 30
    assert paper.job("scheduled", {"method": "gfl"}, 5)["sample"] == 3
    assert paper.job("all", {"method": "fedavg"}, 5)["sample"] == 0


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3"])
def test_learning_curves_have_a_line_a_method(name, small, tmp_path, console):
    make("cluster-admm", name, tmp_path, console)
    rows = read(tmp_path / f"{name}.csv")
    assert len(rows) == 12
    assert set(rows[0]) == {"round", *paper.METHODS, *paper.BESIDE}
    assert (tmp_path / f"{name}.svg").is_file()


def test_figure_4_is_over_tau_in_every_situation(small, tmp_path, console):
    paper.figure_4(tmp_path, console)
    rows = read(tmp_path / "fig4.csv")
    assert [float(row["tau"]) for row in rows] == [0.0, 0.4, 0.9]
    assert set(rows[0]) == {"tau", *paper.SITUATIONS}


def test_figure_5_has_less_similar_clusters_and_a_tau_that_falls(small, tmp_path, console):
    paper.figure_5(tmp_path, console)
    first, *_, last = read(tmp_path / "fig5-quiet.csv")
    still, falling = float(first["tau .4"]), float(first["tau .4 x .98^n"])
    assert falling == pytest.approx(still, abs=0.2)  # one factor .98 in the first round
    assert last["tau .4"] != last["tau .4 x .98^n"]
    assert (tmp_path / "fig5.png").is_file()


def test_privacy_totals_are_of_the_rounds_that_clients_took_part_in(small, tmp_path, console):
    paper.privacy_sweep("fig7", "zeta", (0.9, 1.0), tmp_path, console)
    falling, constant = read(tmp_path / "fig7.csv")
    # 3 of 6 clients a round, 8 rounds: 4 rounds a client in the mean, each phi0 where zeta is 1.
    assert float(constant["mean client"]) == pytest.approx(0.004)
    assert float(constant["every round"]) == pytest.approx(0.008)
    assert float(constant["paper's total"]) == pytest.approx(0.008)
    assert float(falling["paper's total"]) < 0.008 < float(falling["every round"])
    assert float(falling["every round"]) == pytest.approx(sum(0.001 / 0.9**n for n in range(1, 9)))
    assert float(falling["mean client"]) < float(falling["most"]) <= float(falling["every round"])


def test_exact_mixing_is_exact_and_the_paper_s_only_where_all_are_neighbours(
    small, tmp_path, console, monkeypatch
):
    monkeypatch.setattr(paper, "GRAPHS", ("ring", "complete"))
    monkeypatch.setattr(paper, "RHOS", (3.0,))
    monkeypatch.setattr(paper, "MIXING_ROUNDS", 400)
    paper.mixing(tmp_path, console)
    ring, complete = read(tmp_path / "mixing.csv")
    assert float(ring["exact"]) < 1e-8
    assert float(complete["exact"]) < 1e-8
    assert float(ring["paper"]) > 1e-3
    assert float(ring["paper, from server-uniform"]) > 1e-3
    assert float(complete["paper, from server-uniform"]) < 1e-8
    assert {"mixing-paper.svg", "mixing-exact.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_processes_return_every_job_with_its_seeds(console, monkeypatch):
    jobs = [
        {**SMALL, "rounds": 2, "tau": tau, "clients": 8, "servers": 2, "topology": "complete"}
        for tau in (0.0, 0.5, 0.9)
    ]
    for job, runs in zip(jobs, paper.simulated(jobs, (1, 2), console, "test"), strict=True):
        for seed, run in zip((1, 2), runs, strict=True):
            assert np.array_equal(run.models, paper.one((job, seed)).models)
