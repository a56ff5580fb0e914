"""The whole report of cluster-admm, for every kind of run, whole and broken."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.apps.cluster_admm.report.reading import (
    CLUSTERS,
    METHODS,
    PRIVACY,
    ROUNDS,
    SERVERS,
    by_title,
    changed,
    page,
    run,
    shown,
    table,
    without,
)
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.report import page as report
from trellis.apps.cluster_admm.report.compare import Comparison
from trellis.apps.common.results import RunResult


def test_a_whole_page_has_all_sections_and_the_same_bytes_twice(pgfl, tmp_path, drawn):
    html = page(pgfl, tmp_path)
    for title in (CLUSTERS, SERVERS, ROUNDS, METHODS, PRIVACY):
        assert f"<h2>{title.replace(chr(39), '&#39;')}</h2>" in html
    assert html == page(pgfl, tmp_path)
    assert "NMSD, dB" in html


def test_every_picture_says_its_numbers_to_who_cannot_see_it(pgfl, paper, drawn):
    for result in (pgfl, paper):
        for title, html in by_title(result).items():
            for part in html.split("<svg ")[1:]:
                label = part.split('aria-label="')[1].split('"')[0]
                assert any(letter.isdigit() for letter in label), title


def test_own_data_are_shown_without_truth(own, tmp_path, drawn):
    found = by_title(own)
    assert METHODS not in found
    assert "NMSD" not in found[CLUSTERS]
    assert "Relative change" in found[ROUNDS]
    assert "NMSD, dB" not in table(own, CLUSTERS, "cluster")["cluster 0"]
    html = page(own, tmp_path)
    assert "<dose>" not in html
    written = {path.name: path for path in report.export_graphs(own, tmp_path)}
    with written["clients.csv"].open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["client", "server", "cluster"]
    assert rows[4][1:] == ["server-1", "1"]
    with written["models.csv"].open() as file:
        assert next(csv.reader(file)) == [
            *("server", "cluster", "clients", "age", "<dose>", "(intercept)")
        ]


@pytest.mark.parametrize("settings", [{"clusters": "1"}, {"servers": 1}, {"method": "fedavg"}])
def test_one_cluster_and_one_server_are_a_report_too(settings, tmp_path, drawn):
    result = run(rounds=3, **settings)
    html = page(result, tmp_path)
    servers, count, _ = result.arrays["models"].shape
    assert ("Distance between clusters" in html) == (count > 1)
    assert ("copies of a cluster" in html) == (servers > 1)
    assert ("All have 3 clients" in html) == (servers > 1)
    assert len(report.export_graphs(result, tmp_path)) == 3


def test_clients_alone_are_not_called_servers(pgfl, tmp_path):
    models = pgfl.arrays["models"][pgfl.arrays["homes"], pgfl.arrays["clusters"]]
    alone = {
        "models": models[:, None],
        "clients": models,
        "homes": np.arange(12),
        "clusters": np.zeros(12, dtype=int),
        "adjacency": np.zeros((12, 12), dtype=bool),
    }
    result = changed(pgfl, **alone)
    result.config = ClusterAdmmConfig.from_settings(pgfl.config).as_method("local").settings()
    result.metrics = pgfl.metrics[:1]
    found = by_title(result)
    assert SERVERS not in found
    assert "server" not in found[CLUSTERS]
    assert "8 rounds" in found[METHODS]
    page(result, tmp_path)


def test_a_run_that_ended_before_its_first_round_is_a_report(tmp_path):
    for settings in (
        {},
        {"privacy": "paper"},
        {"privacy": "dp"},
        {"nonsense": 1},
    ):
        empty = RunResult("cluster-admm", 1, "local", settings, status="interrupted")
        assert "ended before" in shown(empty, CLUSTERS)
        page(empty, tmp_path)
        assert report.export_graphs(empty, tmp_path) == []


@pytest.mark.parametrize("name", ["models", "homes", "clusters", "clients", "adjacency", "truth"])
def test_missing_and_bad_arrays_leave_out_what_they_would_show(name, pgfl, tmp_path, monkeypatch):
    bad = [np.zeros((2, 2)), np.full(pgfl.arrays[name].shape, np.nan), np.array(["text"])]
    bad += [np.zeros(0), np.full(12, 99), np.array(3.0), np.full(12, -1)]
    whole = {CLUSTERS, SERVERS, ROUNDS, METHODS, PRIVACY}
    monkeypatch.setattr(report, "compare", lambda config, seed: Comparison(1, {}, {}))
    for result in (without(pgfl, name), *(changed(pgfl, **{name: array}) for array in bad)):
        written = report.export_graphs(result, tmp_path)
        titles = {section.title for section in report.sections(result)}
        if name in ("models", "homes", "clusters"):
            assert not written
        missing = {"adjacency": {SERVERS}, "truth": {METHODS}, "clients": set()}
        assert whole - titles == missing.get(name, {SERVERS, METHODS})


def test_truth_without_the_true_clusters_is_not_used(pgfl):
    assert METHODS not in by_title(without(pgfl, "true_clusters"))
