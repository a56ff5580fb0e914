"""The paper's numbers, and our resolutions of them."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

from apps.common.results import RunResult
from apps.common.tables import DataError
from apps.experiments.figures import figure, figure_names
from apps.experiments.sweep import Job, Outcome, by_row, means, run_job
from apps.joint_precision.config import JointPrecisionConfig
from apps.joint_precision.curves import area_under_roc
from apps.joint_precision.paper import cost, real_data, timing
from apps.joint_precision.paper import synthetic as paper
from tests.apps.datasets import needs
from tests.apps.pages.pages import leave_out_pictures

SMALL = {"variables": 12, "blocks": 3, "samples": "40"}


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def in_this_process(jobs, console, title):
    return [run_job(job) for job in jobs]


def written(folder: Path, stem: str) -> None:
    assert {f"{stem}.png", f"{stem}.svg"} <= {path.name for path in folder.iterdir()}


def test_the_area_table_s_first_row_is_within_three_hundredths(tmp_path, console, monkeypatch):
    key = ("danaher", "kendall", "nonparanormal")
    monkeypatch.setattr(paper, "EXPECTED_AUC", {key: paper.EXPECTED_AUC[key]})
    monkeypatch.setattr(paper, "PATH", {**paper.PATH, "path": 10, "tolerance": 1e-2})
    monkeypatch.setattr(paper, "sweep", in_this_process)
    paper.table_auc(tmp_path, console)
    rows = read(tmp_path / "table-auc.csv")
    assert [row["method"] for row in rows] == ["group", "fused", "glasso"]
    for row in rows:
        assert float(row["auc"]) == pytest.approx(float(row["expected"]), abs=paper.WITHIN)
        assert 0.0 < float(row["spread"]) < 0.05
    written(tmp_path, "table-auc-danaher")


def test_every_figure_of_the_paper_has_a_command():
    known = figure_names("joint-precision")
    assert {"table-auc", "fig5", "fig6", "fig7", "fig8", "table3", "fig9"} <= set(known)
    assert figure("joint-precision", "abide").maker == figure("joint-precision", "fig9").maker


def test_every_method_s_settings_are_valid():
    for method, changes in paper.FIGURE_7_METHODS.values():
        for size in paper.SIZES:
            JointPrecisionConfig.from_settings(
                paper.method_settings(method, variables=size, **changes)
            )
    for n, epsilon in paper.EXPECTED_PRIVATE:
        assert (
            JointPrecisionConfig.from_settings(paper.private_settings(n, epsilon)).privacy
            == "sound"
        )
    for p, changes in ((p, c) for p in cost.GRID for c in cost.METHODS.values()):
        JointPrecisionConfig.from_settings({"variables": p, "blocks": 10, **changes})


def test_jgl_is_pooled_with_pearson_s_correlation_and_the_penalty_it_is_named_after():
    found = paper.method_settings("jgl-fused", margins="gaussian")
    assert (found["method"], found["penalty"], found["correlation"], found["margins"]) == (
        "pooled", "fused", "pearson", "gaussian",
    )  # fmt: skip
    assert found["lambda2"] == pytest.approx(0.3 * found["lambda1"])


def test_figure_6_is_drawn_with_as_many_edges_as_the_truth(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper, "sweep", in_this_process)
    paper.figure_6(tmp_path, console)
    rows = read(tmp_path / "fig6.csv")
    assert [int(row["true"]) for row in rows] == sorted(
        (int(r["true"]) for r in rows), reverse=True
    )
    for row in rows:
        assert int(row["hits"]) <= min(int(row["true"]), int(row["learned"]))
        assert int(row["hits"]) > 0.3 * int(row["true"])
    written(tmp_path, "fig6")


def test_figure_7_says_who_wins(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper, "sweep", in_this_process)
    monkeypatch.setattr(paper, "SEEDS", range(1, 3))
    monkeypatch.setattr(paper, "SIZES", (54,))
    monkeypatch.setattr(paper, "PATH", {**paper.PATH, "path": 8, "tolerance": 1e-2})
    paper.figure_7(tmp_path, console)
    gaussian, bent = read(tmp_path / "fig7-areas.csv")
    # Kendall's tau knows nothing of the margins.
    assert float(gaussian["FEDJEM group"]) == pytest.approx(float(bent["FEDJEM group"]), abs=1e-9)
    assert float(gaussian["FEDJEM minus JGL, group"]) < 0.01
    assert float(bent["FEDJEM minus JGL, group"]) > 0.05
    assert len(read(tmp_path / "fig7-curves.csv")) == 2 * 101
    written(tmp_path, "fig7-gaussian-54")


def test_a_mean_roc_curve_has_the_mean_area():
    rng = np.random.default_rng(1)
    outcomes = []
    for _ in range(3):
        x, y = np.sort(rng.random(9)), np.sort(rng.random(9))
        job = Job(paper.STUDY, {}, 1)
        auc = {"auc": area_under_roc(x, y)}
        outcomes.append(Outcome(job, auc, {"path_fpr": x[::-1], "path_tpr": y[::-1]}))
    grid = np.linspace(0.0, 1.0, 20001)
    area = np.trapezoid(paper.mean_roc(outcomes, grid), grid)
    assert area == pytest.approx(np.mean([o.headline["auc"] for o in outcomes]), abs=1e-3)


def test_private_areas_are_lower_and_stand_beside_the_forecast(tmp_path, console, monkeypatch):
    monkeypatch.setattr(paper, "sweep", in_this_process)
    monkeypatch.setattr(paper, "SEEDS", range(1, 3))
    monkeypatch.setattr(paper, "EXPECTED_PRIVATE", {(150, 10.0): (0.84, 0.57)})
    monkeypatch.setattr(paper, "PATH", {**paper.PATH, "path": 12, "tolerance": 1e-2})
    paper.table_privacy(tmp_path, console)
    (row,) = read(tmp_path / "table-privacy.csv")
    assert float(row["plain"]) == pytest.approx(0.84, abs=0.05)
    assert float(row["sound"]) == pytest.approx(0.57, abs=0.05)
    assert "mostly show noise" in row["forecast"]


def test_figure_5_splits_a_round_into_its_parts(tmp_path, console, monkeypatch):
    for name, value in (("DIMENSIONS", (4, 8)), ("SAMPLE_RATIOS", (1,)), ("KEPT_EDGES", (0.5,))):
        monkeypatch.setattr(timing, name, value)
    monkeypatch.setattr(timing, "ROUNDS", 3)
    timing.figure_5(tmp_path, console)
    rows = read(tmp_path / "fig5-rounds.csv")
    assert len(rows) == 3 * 4
    for row in rows:
        parts = [float(row[part]) for part in ("local", "server", "communication")]
        assert all(part > 0.0 for part in parts)
        sent = float(row["bytes-up"]) + float(row["bytes-down"])
        assert float(row["link"]) == pytest.approx(8.0 * sent / 5e6)
    written(tmp_path, "fig5-d-local")


def test_thinned_tables_have_the_clients_of_the_paper():
    tables = timing.thinned_tables(4, 30, 1.0)
    assert [table.shape for table in tables] == [(30, 40)] * 3
    whole = np.abs(np.corrcoef(timing.thinned_tables(6, 4000, 1.0)[0].T)) > 0.12
    thin = np.abs(np.corrcoef(timing.thinned_tables(6, 4000, 0.2)[0].T)) > 0.12
    assert thin.sum() < whole.sum()


def test_the_server_recovers_a_client_s_correlations_from_one_message():
    assert timing.recovery_error({**SMALL, "rounds": 2, "screening": False}) < 1e-12


def test_a_run_by_itself_is_clocked_and_given_up_when_it_takes_too_long(monkeypatch):
    found = cost.clocked(SMALL)
    assert found.note == ""
    assert 0.0 < found.setup < found.seconds
    assert found.sent > 8 * 3 * 12 * 13 / 2
    monkeypatch.setattr(cost, "MOST_SECONDS", 0.0)
    assert cost.clocked({**SMALL, **cost.METHODS["CLIME"]}).note == "> 0 s"


def test_a_programme_without_a_solution_is_a_note(console):
    none = cost.clocked({"variables": 12, "blocks": 3, "samples": "3", **cost.METHODS["CLIME"]})
    assert none.note == "infeasible"


def test_figure_8_and_table_3_are_written(tmp_path, console, monkeypatch):
    calls = []

    def clock(settings, seed=1):
        calls.append(settings)
        if settings["method"] == "clime":
            return cost.Clocked(note="> 60 s")
        return cost.Clocked(1.0, 0.5, 0.9, 5e6 / 8)

    monkeypatch.setattr(cost, "clocked", clock)
    monkeypatch.setattr(cost, "GRID", {20: (10, 100), 40: (10, 100)})
    cost.figure_8(tmp_path, console)
    rows = read(tmp_path / "fig8.csv")
    assert len(rows) == 16
    # What was too slow once is not tried on more variables or fewer samples, and says so.
    assert sum(settings["method"] == "clime" for settings in calls) == 1
    notes = [row["note"] for row in rows if row["method"] == "CLIME"]
    assert notes == ["not run", "> 60 s", "not run", "not run"]
    assert {float(row["link"]) for row in rows if row["method"] != "CLIME"} == {1.0}
    monkeypatch.setattr(cost, "VARIABLES", 12)
    cost.table_3(tmp_path, console)
    fedjem, jgl, *_ = read(tmp_path / "table3.csv")
    assert float(fedjem["raw-bytes"]) == 0.0
    assert float(fedjem["recoverable-bytes-of-S"]) == 8 * 3 * 12 * 11 / 2
    assert float(jgl["raw-bytes"]) == 8 * 3 * 150 * 12
    assert float(fedjem["recovery-error"]) < 1e-12
    written(tmp_path, "table3")


def test_an_autocorrelated_series_counts_for_less():
    rng = np.random.default_rng(1)
    white = rng.standard_normal((4000, 5))
    slow = np.zeros_like(white)
    for t in range(1, len(slow)):
        slow[t] = 0.7 * slow[t - 1] + white[t]
    slow /= slow.std(axis=0)
    assert real_data.effective_share(white) == pytest.approx(1.0, abs=0.02)
    # sum of 0.49^k = 0.49 / 0.51, so 1 / (1 + 2 * 0.961) = 0.342.
    assert real_data.effective_share(slow) == pytest.approx(0.342, abs=0.03)


def test_fewer_effective_samples_never_choose_more_edges():
    result = RunResult("joint-precision", 1, "local", {"gamma": 0.5})
    result.variables = [f"v{k}" for k in range(10)]
    result.clients = [{"count": 100}, {"count": 300}]
    edges = np.array([[0, 0], [5, 7], [20, 22]])
    losses = np.array([[10.0, 10.0], [9.0, 9.2], [8.8, 8.9]])
    counts = np.array([100.0, 300.0])
    extra = 2.0 * np.log(10.0)
    result.arrays = {
        "path_edges": edges,
        "path_ebic": losses @ counts + edges @ (np.log(counts) + extra),
    }
    np.testing.assert_allclose(
        real_data.effective_ebic(result, [1.0, 1.0]), result.arrays["path_ebic"]
    )
    half = real_data.effective_ebic(result, [0.5, 0.5])
    np.testing.assert_allclose(half, losses @ (counts / 2) + edges @ (np.log(counts / 2) + extra))


def test_an_edge_is_listed_with_who_holds_it():
    partial = np.zeros((2, 3, 3))
    partial[0, 0, 1] = partial[1, 0, 1] = 0.2
    partial[1, 1, 2] = -0.4
    rows = real_data.edge_rows(partial, partial != 0.0, ["a", "b"], ["x", "y", "z"], ["l"] * 3)
    assert [row["held-by"] for row in rows] == ["b only", "common"]
    assert rows[0]["region-a"] == "y"
    assert rows[0]["b"] == -0.4


@needs("ABIDE")
def test_scans_are_standardised_and_a_flat_region_is_dropped_for_everybody():
    scans = real_data.read_scans("abide_aal116.npz", "dx")
    assert scans.dropped == ["Cerebelum_7b_L", "Cerebelum_7b_R"]
    assert {name: table.shape for name, table in scans.tables.items()} == {
        "autism": (2250, 114), "control": (2060, 114),
    }  # fmt: skip
    for person in scans.people:
        np.testing.assert_allclose(person.mean(axis=0), 0.0, atol=1e-9)
        np.testing.assert_allclose(person.std(axis=0), 1.0)


@needs("ABIDE")
def test_brain_graphs_share_most_edges(tmp_path, console, monkeypatch):
    leave_out_pictures(monkeypatch)  # of the report beside the figure
    monkeypatch.setattr(real_data, "POINTS", 3)
    monkeypatch.setattr(real_data, "DEALS", 1)
    settings = {**real_data.SETTINGS, "tolerance": 0.1, "lambda1": 0.1, "lambda2": 0.1}
    monkeypatch.setattr(real_data, "SETTINGS", settings)
    real_data.figure_9(tmp_path, console)
    held = [row["held-by"] for row in read(tmp_path / "fig9-edges.csv")]
    assert held.count("common") > 0.5 * len(held)
    written(tmp_path, "fig9")


def test_absent_data_is_named(monkeypatch, tmp_path, console):
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    for make in (real_data.figure_9, real_data.abide_sites):
        with pytest.raises(DataError, match="set TRELLIS_DATA to the folder that holds ABIDE"):
            make(tmp_path, console)


def test_the_paper_s_settings_are_the_paper_s():
    path = Path(paper.__file__).with_name("settings.toml")
    settings = tomllib.loads(path.read_text())["joint-precision"]
    config = JointPrecisionConfig.from_settings(settings)
    assert (config.variables, config.blocks, config.samples) == (54, 6, "150")
    assert config.generator == "paper"


def test_means_are_taken_row_by_row():
    job = [Job("s", {}, seed, (row,)) for row, seed in (("a", 1), ("b", 1), ("a", 2))]
    outcomes = [Outcome(j, {"x": v}) for j, v in zip(job, (1.0, 5.0, 3.0), strict=True)]
    assert means(outcomes) == {("a",): {"x": 2.0}, ("b",): {"x": 5.0}}
    assert [len(found) for found in by_row(outcomes).values()] == [2, 1]
