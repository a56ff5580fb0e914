"""The joint-precision study's part of the report, and its graphs as files."""

from __future__ import annotations

import csv

import networkx
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.metrics import jaccard_score, matthews_corrcoef

import apps
from apps import command
from apps.common import runner
from apps.common.results import RunResult
from apps.joint_precision.config import JointPrecisionConfig
from apps.joint_precision.release import statement
from apps.joint_precision.report import clients as report_clients
from apps.joint_precision.report import export
from apps.joint_precision.report import graphs as report_graphs
from apps.joint_precision.report.graphs import DRAWN_CLIENTS
from apps.joint_precision.report.page import WORDING, export_graphs, sections
from apps.pages.report import write_report
from apps.pages.wording import number
from tests.apps.pages.pages import Page, leave_out_pictures

METHODS = ("group", "fused", "glasso", "clime", "pooled")
EVIL = '<script>alert("1")</script> \'$\\frac{$'


def symmetric(rng, clients, p, density):
    half = np.triu(rng.uniform(-0.3, 0.3, (clients, p, p)), 1)
    half *= rng.random((clients, p, p)) < density
    matrices = half + half.swapaxes(1, 2)
    matrices[:, range(p), range(p)] = 1.0 + np.abs(matrices).sum(axis=1)
    return matrices


def partials(matrices):
    scale = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    found = -matrices / (scale[:, :, None] * scale[:, None, :])
    found[:, range(matrices.shape[1]), range(matrices.shape[1])] = 1.0
    return found


def run(p=8, clients=3, truth=True, path=True, density=0.4, **changes) -> RunResult:
    rng = np.random.default_rng(5)
    sparse = symmetric(rng, clients, p, density)
    # Some edges that all have, whatever chance says.
    sparse[:, 0, 1] = sparse[:, 1, 0] = [0.4] + [0.5] * (clients - 1)
    sparse[:, 2, 3] = sparse[:, 3, 2] = [0.2] + [-0.2] * (clients - 1)
    arrays = {
        "precision": sparse + 1e-9 * rng.normal(size=sparse.shape),
        "sparse": sparse,
        "partial": partials(sparse),
        "smallest_eigenvalue": np.linspace(-0.045, 0.02, clients),
        "blocks": np.arange(p) * 3 // p,
        "answered": np.full(clients, 12),
    }
    if truth:
        arrays["truth"] = symmetric(rng, clients, p, 0.3)
    if path:
        points, pairs = 5, p * (p - 1) // 2
        arrays |= {
            "path_lambda1": np.geomspace(0.6, 0.1, points),
            "path_lambda2": np.geomspace(0.3, 0.05, points),
            "path_gap": np.full(points, 5e-7),
            "path_edges": np.tile(np.arange(points)[:, None] * 3, clients),
            "path_ebic": np.array([210.0, 205.5, 201.25, 203.0, 209.0]),
            "path_instability": np.linspace(0.0, 0.1, points),
            "path_chosen": np.array(2),
            "path_support": np.zeros((points, clients, -(-pairs // 8)), dtype=np.uint8),
        }
    if path and truth:
        arrays["path_tpr"] = np.array([0.0, 0.3, 0.5, 0.7, 0.9])
        arrays["path_fpr"] = np.array([0.0, 0.0625, 0.125, 0.25, 0.375])
        arrays["path_ppv"] = np.array([np.nan, 0.9, 0.8, 0.7, 0.6])
    config = {"method": "group", "privacy": "none", "tolerance": 1e-6, "correlation": "kendall"}
    values = {
        "config": {**config, "lambda1": 0.1, "lambda2": 0.05, "screening": True, "choose": "ebic"},
        "arrays": arrays,
        "clients": [{"name": f"site {k}", "count": 10 + k} for k in range(clients)],
        "variables": [f"gene{k}" for k in range(p)],
        "headline": {"rounds": 12.0, "gap": 2.5e-7, "lambda1": 0.245, "auc": 0.84, "aupr": 0.71},
        "status": "completed",
        "started": "2025-01-01T00:00:00Z",
    }
    return RunResult("joint-precision", 1, "local", **{**values, **changes})


def configured(**settings) -> RunResult:
    result = run()
    result.config |= settings
    return result


def page(result, folder) -> Page:
    path = folder / "report.html"
    found = Page.read(write_report(result, sections(result), path, WORDING))
    found.assert_sound()
    return found


@pytest.fixture
def told(monkeypatch, tmp_path):
    """Return what reads a report without its pictures."""
    leave_out_pictures(monkeypatch)
    monkeypatch.setattr(report_graphs, "connectome", lambda *_, **__: Figure())
    monkeypatch.setattr(report_clients, "connectomes", lambda *_, **__: Figure())
    return lambda result: page(result, tmp_path)


def support(result):
    ends = np.triu_indices(result.arrays["sparse"].shape[1], 1)
    return result.arrays["sparse"][:, ends[0], ends[1]] != 0.0


def row(*fields):
    return " ".join(number(field) for field in fields)


@pytest.mark.parametrize("method", METHODS)
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


def test_the_numbers_of_the_comparison_are_those_of_the_matrices(tmp_path):
    result = run(truth=False, path=False)
    words = page(result, tmp_path).words
    held = support(result)
    holders = held.sum(axis=0)
    ends = np.triu_indices(8, 1)
    negative = (result.arrays["partial"][:, ends[0], ends[1]] < 0.0) & held
    for k in range(3):
        fields = [
            f"site {k}",
            10 + k,
            int(held[k].sum()),
            int(np.sum(held[k] & (holders == 3))),
            int(np.sum(held[k] & (holders == 2))),
            int(np.sum(held[k] & (holders == 1))),
            int(negative[k].sum()),
        ]
        assert row(*fields) in words
        assert f"common to all clients ({fields[3]})" in words
        assert f"not common ({fields[4] + fields[5]})" in words
        overlaps = [float(jaccard_score(held[k], held[j])) for j in range(3)]
        assert row(f"site {k}", *overlaps) in words
    assert f"{np.sum(holders == 3)} are common to all clients" in words


def test_the_strongest_common_edges_come_first_with_their_signs(told):
    result = run()
    words = told(result).words
    values = result.arrays["partial"][:, 0, 1].tolist()
    assert row("gene0 \u2013 gene1", float(-np.mean(values)), "\N{MINUS SIGN}", *values) in words
    mixed = result.arrays["partial"][:, 2, 3].tolist()
    assert row("gene2 \u2013 gene3", float(np.mean(np.abs(mixed))), "mixed", *mixed) in words
    assert words.index("gene0 \u2013 gene1") < words.index("gene2 \u2013 gene3")
    assert "with signs that differ between clients" in words


def test_agreement_with_the_truth_is_counted_over_pairs(told):
    result = run()
    words = told(result).words
    ends = np.triu_indices(8, 1)
    facts = result.arrays["truth"][:, ends[0], ends[1]] != 0.0
    for k, (guess, fact) in enumerate(zip(support(result), facts, strict=True)):
        fields = [
            int(guess.sum()),
            int(fact.sum()),
            float(np.mean(guess[fact])),
            float(np.mean(guess[~fact])),
            float(np.mean(fact[guess])),
            float(matthews_corrcoef(fact, guess)),
        ]
        assert row(f"site {k}", *fields) in words


def test_an_edge_counts_however_small_it_is(told, tmp_path):
    result = run()
    before = int(support(result)[0].sum())
    a, b = np.argwhere(np.triu(result.arrays["sparse"][0] == 0.0, 1))[0]
    for size, shown in ((1e-14, True), (5e-324, True), (0.0, False)):
        result.arrays["sparse"][0, [a, b], [b, a]] = size
        result.arrays["partial"] = partials(result.arrays["sparse"])
        if size < 1e-300:  # a quotient that falls below what a float can hold
            result.arrays["partial"][0, [a, b], [b, a]] = 0.0
        assert row("site 0", 10, before + shown) in told(result).words
        export_graphs(result, tmp_path)
        graph = networkx.read_graphml(tmp_path / "graphs" / "site_0.graphml")
        assert graph.number_of_edges() == before + shown
        assert graph.has_edge(f"gene{a}", f"gene{b}") == shown


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"privacy": "none"}, "S = Omega^-1 - (rho/w)(Omega - Psi + U)"),
        ({"privacy": "paper"}, "S = Omega^-1 - (rho/w)(Omega - Psi + U)"),
        ({"privacy": "sound"}, "matrix is noised once"),
        ({"method": "pooled"}, "every client's raw data is sent"),
    ],
)
def test_what_the_server_knows_is_said_once_and_as_the_ledger_has_it(told, settings, text):
    result = configured(**settings)
    result.ledger = {"mode": settings.get("privacy", "none"), "epsilon": 0.0}
    result.ledger |= statement(JointPrecisionConfig(**settings))
    words = told(result).words
    assert words.count(text) == 1
    assert ("Omega^-1" in words) == ("Omega^-1" in text)
    assert ("noised once" in words) == ("noised once" in text)
    assert ("othing was noised" in words) == ("noised once" not in text)
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
    assert "completed edges a client 9; duality gap 2.5e-07 0" in words


def rounds(gaps):
    rows = [{"round": k + 1.0, "gap": gap, "change": np.nan} for k, gap in enumerate(gaps)]
    return [{**row, "lambda1": 0.1} for row in rows]


@pytest.mark.parametrize(
    ("path_gaps", "text"),
    [
        ([9e-7, 2e-7], "Converged at all 2 points: the largest duality gap, 9e-07, is within"),
        ([9e-7, 2e-5], "Not converged at 1 of 2 points: the largest duality gap, 2e-05, exceeds"),
        ([np.nan, 2e-7], "Not converged at 1 of 2 points: no duality gap was certified there"),
    ],
)
def test_a_path_has_converged_where_all_its_points_have(told, path_gaps, text):
    result = run(metrics=rounds([np.nan, 1.0, 9e-7, np.inf, path_gaps[-1]]))
    result.arrays["path_gap"] = np.array(path_gaps)
    result.config["subsamples"] = 4
    for name in ("lambda1", "lambda2", "ebic", "instability", "edges", "tpr", "fpr", "ppv"):
        result.arrays[f"path_{name}"] = result.arrays[f"path_{name}"][:2]
    result.arrays["path_chosen"] = np.array(1)
    words = told(result).words
    assert "for 2 points of a path, which was run again on 4 parts of the data." in words
    assert text in words


def test_lost_clients_are_named(told):
    result = run()
    assert "Lost" not in told(result).words
    result.arrays["answered"] = np.array([12, 0, 7])
    words = told(result).words
    assert "Lost before the last round (12): site 1 never answered; site 2 last answered" in words
    assert "in round 7" in words
    result.config["sample"] = 2
    words = told(result).words
    assert "Lost before the last round (12): site 1 never answered. " in words
    result.config |= {"sample": 0, "method": "glasso"}
    result.arrays["answered"] = np.array([1, 2, 3])
    assert "Lost" not in told(result).words


def test_a_client_that_never_answered_is_left_out_of_what_all_have(told, tmp_path):
    result = run()
    result.arrays["answered"] = np.array([12, 0, 12])
    result.arrays["smallest_eigenvalue"][1] = np.nan
    result.arrays["sparse"][1] = result.arrays["partial"][1] = np.nan
    words = told(result).words
    held = support(result)[[0, 2]]
    common = int(held.all(axis=0).sum())
    assert f"{common} are common to all clients" in words
    assert f"has {number(float(held.sum(axis=1).mean()))} edges on average" in words
    assert row("site 1", 11, 0, 0, 0, 0, 0) in words
    alone = int(np.sum(held[0] & ~held[1]))
    assert row("site 0", 10, int(held[0].sum()), common, 0, alone) in words
    names = {path.name for path in export_graphs(result, tmp_path)}
    assert "site_1.graphml" not in names
    graph = networkx.read_graphml(tmp_path / "graphs" / "common.graphml")
    assert graph.number_of_edges() == common
    weight = graph.edges["gene0", "gene1"]["weight"]
    assert weight == pytest.approx(result.arrays["partial"][[0, 2], 0, 1].mean())


def test_projected_correlations_are_told_with_their_number(told):
    result = run()
    result.arrays["smallest_eigenvalue"] = np.array([-0.045, 0.005, -1e-12])
    words = told(result).words
    assert "2 of 3 correlation matrices were not positive semidefinite" in words
    assert "site 0 (-0.045), site 2 (-1e-12)." in words
    assert row("site 0", -0.045, "projected") in words
    assert row("site 1", 0.005, "as it is") in words
    result.arrays["smallest_eigenvalue"] = np.full(3, 0.1)
    assert "not positive semidefinite" not in told(result).words


def test_blocks_are_counted(told):
    result = run()
    result.arrays["blocks"] = np.array([4, 4, 4, 4, 1, 1, 7, 0])
    words = told(result).words
    assert "split 8 variables into 4 blocks" in words
    assert "the largest has 4, and 2 variables stand alone" in words
    assert f"{(64 + 8 + 1 + 1) / 512:.2%}" in words
    assert "size blocks 4 1 2 1 1 2" in words
    result.arrays["blocks"] = np.zeros(8, dtype=int)
    assert "nothing could be split" in told(result).words
    result.config["screening"] = False
    assert "Screening was off" in told(result).words
    result.config["subsamples"] = 4
    assert "Screening was not used" in told(result).words
    result.config["method"] = "glasso"
    assert "Blocks of variables" not in told(result).headings


def test_the_path_shows_the_chosen_point(told):
    result = run()
    found = told(result)
    chosen = float(result.arrays["path_lambda1"][2])
    second = float(result.arrays["path_lambda2"][2])
    assert f"chosen by extended BIC: lambda1 = {number(chosen)}, lambda2 = {number(second)}" in (
        found.words
    )
    fields = [chosen, second, 6.0, 201.25, 0.05, 0.5, 0.125, 0.8, 5e-7]
    assert row("chosen", *fields) in found.words
    labels = [str(picture["aria-label"]) for picture in found.tags("svg")]
    for start in ("Extended BIC", "Instability", "Edges"):
        assert any(f"{start}; the chosen point is at {number(chosen)}." in text for text in labels)
    assert any("ROC curve; the chosen point is at (0.125, 0.5)" in text for text in labels)
    assert any("recall; the chosen point is at (0.5, 0.8)" in text for text in labels)
    assert "Area under the curve: 0.84" in found.words
    assert "last of the path" not in found.words
    assert "stopped with a duality gap" not in found.words


def test_a_path_that_ends_too_early_or_did_not_converge_is_told(told):
    result = run()
    result.arrays["path_chosen"] = np.array(4)
    result.arrays["path_gap"] = np.array([1e-7, 1e-7, 3e-5, 1e-7, 2e-4])
    del result.arrays["path_instability"]
    result.config["choose"] = "stability"
    words = told(result).words
    assert "chosen point is the last of the path" in words
    assert "2 of 5 points stopped with a duality gap above the tolerance of 1e-06" in words
    assert "at most 0.0002" in words
    assert "chosen by stability" in words
    assert "Instability" not in words


def test_a_gap_above_the_tolerance_is_told(told):
    result = run()
    assert "the objective is at most that above its minimum." in told(result).words
    result.headline["gap"] = 0.37
    assert "more than the tolerance of 1e-06" in told(result).words


@pytest.mark.parametrize(
    ("density", "text"), [(0.0, "a smaller lambda1"), (1.1, "a larger lambda1")]
)
def test_empty_and_full_graphs_come_with_advice(told, tmp_path, density, text):
    result = run()
    sparse = symmetric(np.random.default_rng(0), 3, 8, density)
    result.arrays |= {"sparse": sparse, "partial": partials(sparse)}
    words = told(result).words
    assert text in words
    assert ("strongest edges common" in words) == (density > 0.0)
    written = export_graphs(result, tmp_path)
    assert len(written) == 1 + 2 * 4


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


def test_coordinates_give_views_of_the_head(tmp_path):
    result = run(clients=2, path=False)
    result.arrays["coordinates"] = np.random.default_rng(0).normal(size=(8, 3))
    result.arrays["groups"] = np.array(["frontal"] * 4 + ["<occipital>"] * 4)
    words = page(result, tmp_path).words
    # Once for the common graph, once a client, twice a client beside the truth.
    assert words.count("from above") == 1 + 2 + 4
    assert "<occipital>" in words
    export_graphs(result, tmp_path)


def test_names_from_data_are_escaped_everywhere(tmp_path):
    result = run(p=4, clients=2, variables=[f"{EVIL}{k}" for k in range(4)])
    for client in result.clients:
        client["name"] = EVIL
    export_graphs(result, tmp_path)
    assert EVIL.split()[0] in page(result, tmp_path).words
    assert "<script" not in (tmp_path / "report.html").read_text()
    with (tmp_path / "graphs" / "partial-correlations.csv").open(newline="") as file:
        assert {line["variable a"] for line in csv.DictReader(file)} <= set(result.variables)


def test_graphs_are_written_as_files(tmp_path):
    result = run()
    result.clients[1]["name"] = "../common"
    result.clients[0]["name"] = "common"
    written = export_graphs(result, tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    assert names == {"graphs/partial-correlations.csv"} | {
        f"graphs/{stem}.{suffix}"
        for stem in ("common", "common-2", "common-3", "site_2")
        for suffix in ("graphml", "png")
    }
    assert all(path.stat().st_size for path in written)
    held, (first, second) = support(result), np.triu_indices(8, 1)
    files = ("common-2", "common-3", "site_2")
    rows = []
    for k, stem in enumerate(files):
        graph = networkx.read_graphml(tmp_path / "graphs" / f"{stem}.graphml")
        assert list(graph.nodes) == result.variables
        assert graph.number_of_edges() == held[k].sum()
        for pair in np.flatnonzero(held[k]):
            a, b = first[pair], second[pair]
            data = graph.edges[f"gene{a}", f"gene{b}"]
            assert data["weight"] == result.arrays["partial"][k, a, b]
            assert data["precision"] == result.arrays["precision"][k, a, b]
            assert data["common"] is bool(held[:, pair].all())
            known = [result.clients[k]["name"], f"gene{a}", f"gene{b}"]
            values = [repr(data["weight"]), repr(data["precision"])]
            rows.append([*known, *values, str(data["common"]).lower()])
    with (tmp_path / "graphs" / "partial-correlations.csv").open(newline="") as file:
        header, *found = csv.reader(file)
    assert found == rows
    assert ",".join(header) == ("client,variable a,variable b,partial correlation,precision,common")
    common = networkx.read_graphml(tmp_path / "graphs" / "common.graphml")
    assert common.number_of_edges() == held.all(axis=0).sum()
    weight = common.edges["gene0", "gene1"]["weight"]
    assert weight == pytest.approx(result.arrays["partial"][:, 0, 1].mean())
    assert common.edges["gene2", "gene3"]["mixed"] is True
    assert common.edges["gene0", "gene1"]["mixed"] is False


@pytest.mark.usefixtures("told")
def test_an_edge_whose_signs_cancel_is_still_common(tmp_path):
    result = run(clients=2)
    result.arrays["partial"][:, 0, 1] = [0.25, -0.25]
    export_graphs(result, tmp_path)
    common = networkx.read_graphml(tmp_path / "graphs" / "common.graphml")
    assert common.edges["gene0", "gene1"]["mixed"] is True
    assert abs(common.edges["gene0", "gene1"]["weight"]) == 0.25


@pytest.mark.usefixtures("told")
def test_files_of_a_large_run_stop_at_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "EXPORTED_EDGES", 12)
    written = {path.name for path in export_graphs(run(), tmp_path)}
    assert "site_0.graphml" in written
    assert "site_2.graphml" not in written


def test_the_report_is_the_same_every_time(tmp_path):
    page(run(p=4, clients=2, path=False), tmp_path)
    first = (tmp_path / "report.html").read_bytes()
    page(run(p=4, clients=2, path=False), tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first


def test_a_large_run_gives_a_report_of_sane_size(tmp_path):
    result = run(p=150, clients=20, density=0.2, truth=False)
    found = page(result, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
    assert row("site 19", 29, int(support(result)[19].sum())) in found.words
    assert f"The first {DRAWN_CLIENTS} of 20 clients are drawn" in found.words
    assert "Overlap of edges" in found.words
