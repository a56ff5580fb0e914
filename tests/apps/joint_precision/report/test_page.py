"""The joint-precision study's part of the report, for every kind of run."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tests.apps.joint_precision.report.results import configured, page, partials, row, run, support
from tests.apps.pages.pages import Page
from trellis import apps
from trellis.apps import command
from trellis.apps.common import runner
from trellis.apps.joint_precision.methods import METHODS
from trellis.apps.joint_precision.report.page import export_graphs

NAMES = METHODS.names()
EVIL = '<script>alert("1")</script> \'$\\frac{$'


@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("path", [True, False])
def test_every_method_has_a_sound_report(told, method, truth, path):
    result = run(truth=truth, path=path)
    result.config["method"] = method
    found = told(result)
    assert f"(method {method})" in found.words
    assert ("Agreement with the truth" in found.headings) == truth
    assert ("MCC" in found.words) == truth
    assert ("The path" in found.headings) == path
    assert ("ROC curve" in found.words) == (truth and path)
    alone = method in ("glasso", "clime")
    assert ("lambda2 is not used" in found.words) == alone


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"privacy": "none"}, "S = Omega^-1 - (rho/w)(Omega - Psi + U)"),
        ({"privacy": "paper"}, "S = Omega^-1 - (rho/w)(Omega - Psi + U)"),
        ({"privacy": "dp"}, "one noisy sum over all clients"),
        ({"method": "pooled"}, "every client's raw data is sent"),
    ],
)
def test_what_the_server_knows_is_said_once_and_as_the_ledger_has_it(told, settings, text):
    result = configured(**settings)
    result.ledger = {"mode": settings.get("privacy", "none"), "epsilon": 0.0}
    result.ledger |= METHODS.row(
        settings.get("method", "group"), settings.get("privacy", "none")
    ).claim
    words = told(result).words
    assert words.count(text) == 1
    assert ("Omega^-1" in words) == ("Omega^-1" in text)
    assert ("othing was noised" in words) == ("noisy" not in text)
    assert "stayed with the clients" not in words
    assert "accounting" not in words


def test_the_headline_has_this_studys_words(told):
    result = run()
    result.headline |= {"mcc": 0.75, "common-edges": 26.0}
    words = told(result).words
    assert "clients' MCC (edge: not zero) 0.75" in words
    assert "edges common to all 26" in words
    assert "threshold 0.2" not in words
    assert "rounds 12" in words
    assert "rounds answered" not in words


@pytest.mark.usefixtures("told")
def test_the_command_asks_the_study_for_its_words(tmp_path, monkeypatch):
    result = run()
    result.headline |= {"edges": 9.0, "mcc": 0.75}
    result.save(tmp_path / "joint-precision")
    assert command.main(["report", str(tmp_path / "joint-precision")]) == 0
    words = Page.read(tmp_path / "joint-precision" / "report.html").words
    assert "clients' MCC (edge: not zero) 0.75" in words
    monkeypatch.setattr(apps, "STUDIES", {"joint-precision": apps.STUDIES["joint-precision"]})
    monkeypatch.setattr(runner, "run", lambda *_, **__: result)
    assert command.main(["run", "all", "--out", str(tmp_path)]) == 0
    words = Page.read(tmp_path / "index.html").words
    assert (
        "completed edges a client: 9; duality gap: 2.5e-07; clients' MCC (edge: not zero): 0.75 0"
        in words
    )


def test_one_client_and_two_variables_are_enough(tmp_path):
    result = run(p=4, clients=1)
    words = page(result, tmp_path).words
    assert "Jaccard" not in words
    assert row("site 0", 10, int(support(result).sum()), int(support(result).sum()), 0, 0) in words
    sparse = np.array([[[2.0, 0.5], [0.5, 2.0]]] * 2)
    small = run(p=4, clients=2, truth=False, path=False, variables=["a", "b"])
    small.arrays = {"sparse": sparse, "partial": partials(sparse), "precision": sparse}
    assert "1 possible edges" in page(small, tmp_path).words
    assert len(export_graphs(small, tmp_path)) == 7


def test_a_run_without_a_matrix_says_so(told, tmp_path):
    result = run(arrays={})
    assert "ended before a precision matrix was learned" in told(result).words
    assert export_graphs(result, tmp_path) == []


def test_names_from_data_are_escaped_everywhere(tmp_path):
    result = run(p=4, clients=2, variables=[f"{EVIL}{k}" for k in range(4)])
    for client in result.clients:
        client["name"] = EVIL
    export_graphs(result, tmp_path)
    assert EVIL.split()[0] in page(result, tmp_path).words
    assert "<script" not in (tmp_path / "report.html").read_text()
    with (tmp_path / "graphs" / "partial-correlations.csv").open(newline="") as file:
        assert {line["variable a"] for line in csv.DictReader(file)} <= set(result.variables)


def test_the_report_is_the_same_every_time(tmp_path):
    page(run(p=4, clients=2, path=False), tmp_path)
    first = (tmp_path / "report.html").read_bytes()
    page(run(p=4, clients=2, path=False), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first


def test_a_large_run_gives_a_report_of_sane_size(tmp_path):
    result = run(p=150, clients=20, density=0.2, truth=False)
    found = page(result, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    assert row("site 19", 29, int(support(result)[19].sum())) in found.words
    assert "Of 20 clients 4 are drawn, at even steps from the one with most edges" in found.words
    assert "Overlap of edges" in found.words
