"""The report: clusters, servers, methods side by side, what the rounds cost; and the files."""

from __future__ import annotations

import csv
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from markupsafe import Markup

import apps
from apps.cluster_admm.config import ClusterAdmmConfig
from apps.cluster_admm.data import synthetic_table, synthetic_truth
from apps.cluster_admm.report import clusters as report_clusters
from apps.cluster_admm.report import page as report
from apps.cluster_admm.report import privacy as report_privacy
from apps.cluster_admm.report.compare import Comparison
from apps.cluster_admm.report.outcome import Outcome, distances
from apps.common.recording import wording
from apps.common.results import RunResult
from apps.common.servers import build_topology
from apps.pages import plots
from apps.pages.report import Table, write_report
from privacy.accounting.zcdp import zcdp_epsilon

CLUSTERS, SERVERS = "The clusters' models", "The graph of servers"
ROUNDS, METHODS = "Learning over the rounds", "The methods side by side"
PRIVACY = "Privacy as the rounds go"
SMALL = {
    "servers": 4,
    "topology": "path",
    "clients": 12,
    "features": 5,
    "samples": "6-9",
    "rounds": 8,
}


def run(seed=1, data=None, **changes) -> RunResult:
    settings = SMALL | {name.replace("_", "-"): value for name, value in changes.items()}
    result = apps.run("cluster-admm", settings, seed=seed, data=data)
    config = ClusterAdmmConfig.from_settings(settings)
    result.arrays.setdefault("adjacency", build_topology(config, seed).adjacency)
    if data is None:
        result.arrays.setdefault("true_clusters", synthetic_truth(config, seed).clusters)
    return result


@pytest.fixture
def drawn():
    """Ask for pictures as they are in a report."""


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Leave out the drawing of lines, which takes most of the time, where no test looks at it."""
    if "drawn" not in request.fixturenames:
        stub = Markup('<svg aria-label="{}">')
        monkeypatch.setattr(plots, "svg", lambda figure, label="": stub.format(label))


@pytest.fixture(scope="module")
def pgfl() -> RunResult:
    return run(tau_decay=0.9)


@pytest.fixture(scope="module")
def paper() -> RunResult:
    return run(privacy="paper", sample=2, phi0=0.01, zeta=0.9)


@pytest.fixture
def own(tmp_path) -> RunResult:
    """Four files of one feature's name each, two servers, two clusters."""
    rng = np.random.default_rng(5)
    for k in range(4):
        X = rng.standard_normal((9, 2))
        rows = "\n".join(
            ",".join(map(repr, row.tolist())) for row in np.column_stack([X, X.sum(1)])
        )
        (tmp_path / f"site-{k}.csv").write_text(f"age,<dose>,y\n{rows}\n")
    lines = [f"site-{k},{k // 2},{k % 2}" for k in range(4)]
    (tmp_path / "assignment.csv").write_text("client,server,cluster\n" + "\n".join(lines) + "\n")
    return run(data=tmp_path, clients=4, servers=2, clusters="2", rounds=5)


def without(result, *names):
    kept = {name: array for name, array in result.arrays.items() if name not in names}
    return replace(result, arrays=kept)


def changed(result, **arrays):
    return replace(result, arrays={**result.arrays, **arrays})


def page(result, tmp_path):
    path = tmp_path / "report.html"
    write_report(result, report.sections(result), path, wording(result.study))
    return path.read_text()


def part(result, title):
    """Return one section, without the work of the others."""
    outcome = Outcome.of(result)
    if title == CLUSTERS and outcome is not None:
        return report_clusters.clusters(result, outcome)
    if title == SERVERS and outcome is not None:
        return report_clusters.servers(result, outcome)[0]
    if title == PRIVACY:
        return report_privacy.privacy(result, outcome)
    return next(section for section in report.sections(result) if section.title == title)


def text_of(section):
    return "\n".join(block.html() for block in section.blocks)


def shown(result, title):
    return text_of(part(result, title))


def by_title(result):
    return {section.title: text_of(section) for section in report.sections(result)}


def table(result, title, first):
    """Return the table of a section whose first header is ``first``, rows by their first cell."""
    tables = [block for block in part(result, title).blocks if isinstance(block, Table)]
    found = next(block for block in tables if block.headers[0] == first)
    return {row[0]: dict(zip(found.headers, row, strict=True)) for row in found.rows}


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


def test_the_table_of_clusters_has_who_is_where_and_how_copies_differ(pgfl):
    models, homes, groups = (pgfl.arrays[name] for name in ("models", "homes", "clusters"))
    truth, true_groups = pgfl.arrays["truth"], pgfl.arrays["true_clusters"]
    for q in range(3):
        row = table(pgfl, CLUSTERS, "cluster")[f"cluster {q}"]
        members = np.flatnonzero(groups == q)
        used = sorted(set(homes[members].tolist()))
        assert (row["clients"], row["servers that have them"]) == (len(members), len(used))
        copies = [models[s, q] for s in used]
        middle = sum(copies) / len(copies)
        spread = math.sqrt(sum(float((w - middle) @ (w - middle)) for w in copies) / len(copies))
        assert row["disagreement of servers"] == pytest.approx(spread)
        assert row["length of the model"] == pytest.approx(math.sqrt(float(middle @ middle)))
        errors = []
        for k in members:
            w, target = models[homes[k], q], truth[true_groups[k]]
            errors.append(float((w - target) @ (w - target)) / float(target @ target))
        assert row["NMSD, dB"] == pytest.approx(10.0 * math.log10(sum(errors) / len(errors)))


def test_the_nearest_cluster_is_another_one(pgfl):
    models = np.zeros((4, 3, 5))
    models[:, 1, 0], models[:, 2, 0] = 1.0, 5.0
    rows = table(changed(pgfl, models=models), CLUSTERS, "cluster")
    assert [row["nearest cluster"] for row in rows.values()] == [
        "cluster 1",
        "cluster 0",
        "cluster 1",
    ]
    assert [row["distance to it"] for row in rows.values()] == [1.0, 1.0, 4.0]


def test_the_table_of_servers_counts_clients_and_neighbours(pgfl):
    rows = table(pgfl, CLUSTERS, "server")
    assert [row["clients"] for row in rows.values()] == [3, 3, 3, 3]
    assert [row["neighbours"] for row in rows.values()] == [1, 2, 2, 1]
    for name, row in rows.items():
        mine = pgfl.arrays["homes"] == int(name.removeprefix("server-"))
        for q in range(3):
            assert row[f"cluster {q}"] == np.count_nonzero(mine & (pgfl.arrays["clusters"] == q))


def test_a_copy_at_a_server_without_such_clients_does_not_count(pgfl):
    models = np.ones((4, 3, 5))
    models[3, 0] = 100.0
    homes = np.zeros(12, dtype=int)
    rows = table(changed(pgfl, models=models, homes=homes), CLUSTERS, "cluster")
    assert rows["cluster 0"]["disagreement of servers"] == 0.0


def test_clusters_that_were_found_are_held_against_the_true_ones(pgfl):
    true_groups = pgfl.arrays["true_clusters"]
    found = np.array([1, 2, 0])[true_groups]
    found[0] = true_groups[0]
    result = changed(pgfl, clusters=found)
    result.metrics = [row | {"right": 0.5, "moved": 3.0} for row in pgfl.metrics]
    rows = table(result, CLUSTERS, "")
    whole = np.array([[row[f"cluster {q}"] for q in range(3)] for row in rows.values()])
    assert whole.sum() == 12
    assert whole[np.arange(3), [1, 2, 0]].sum() == 11
    assert whole[true_groups[0], true_groups[0]] == 1
    assert "clients that changed cluster" in shown(result, ROUNDS).lower()
    with pytest.raises(StopIteration):  # where they are the true ones, there is nothing to add
        table(pgfl, CLUSTERS, "")


def test_one_task_for_all_is_shown_by_true_cluster():
    result = run(method="gfl", rounds=3)
    assert len(table(result, CLUSTERS, "")) == 3
    assert len(table(result, CLUSTERS, "cluster")) == 1


def test_the_graph_has_the_numbers_of_a_path(pgfl):
    text = shown(pgfl, SERVERS)
    for term, value in (("Servers", 4), ("Edges", 3), ("Diameter", 3), ("Components", 1)):
        assert f"<dt>{term}</dt><dd>{value}</dd>" in text
    # (A + I) with rows divided by their sums, on a path of four.
    M = np.array([[3, 3, 0, 0], [2, 2, 2, 0], [0, 2, 2, 2], [0, 0, 3, 3]]) / 6.0
    second = sorted(np.abs(np.linalg.eigvals(M)))[-2]
    assert f"<dd>{second:.4g};" in text


def test_the_paper_s_mixing_is_called_inexact_unless_all_servers_are_neighbours(pgfl):
    word = "does not end at a cluster"
    assert word in shown(pgfl, SERVERS)
    assert word not in by_title(changed(pgfl, adjacency=np.ones((4, 4))))[SERVERS]
    exact = replace(pgfl, config={**pgfl.config, "mixing": "exact"})
    assert word not in shown(exact, SERVERS)
    apart = changed(pgfl, adjacency=np.zeros((4, 4), dtype=bool))
    assert "4 components" in shown(apart, SERVERS)
    clusterfl = replace(apart, config={**pgfl.config, "method": "clusterfl"})
    assert "did not talk" in shown(clusterfl, SERVERS)


def test_a_tau_that_falls_is_drawn_and_a_constant_one_is_not(pgfl, paper):
    assert "tau, pull" in shown(pgfl, ROUNDS).lower()
    assert "tau, pull" not in shown(paper, ROUNDS).lower()


def test_the_choice_of_q_is_drawn_with_its_losses(pgfl, drawn):
    rows = [pgfl.metrics[0] | {"round": float(n), "nmsd-servers": -float(n)} for n in range(1, 33)]
    result = changed(pgfl, candidates=np.array([2, 3, 4]), held_out=np.array([2.5, 1.25, 1.5]))
    result.metrics = rows
    text = shown(result, ROUNDS)
    assert "Q = 2: 2.5, Q = 3: 1.25, Q = 4: 1.5. The least is at Q = 3" in text
    assert all(f">{word}<" in text for word in ("Q = 2", "Q = 4", "chosen"))
    for bad in (np.array([1.0, np.nan, 2.0]), np.array([1.0]), np.zeros(0)):
        assert "Held-out" not in shown(changed(result, held_out=bad), ROUNDS)


def test_the_methods_side_by_side_have_the_run_s_own_number(pgfl, paper):
    for result, each in ((pgfl, 12), (paper, 8)):
        rows = table(result, METHODS, "method")
        assert list(rows) == list(ClusterAdmmConfig.methods)
        last = result.metrics[-1]["nmsd-servers"]
        assert rows["pgfl"]["NMSD of servers' models, dB"] == pytest.approx(last, abs=0.006)
        assert rows["fedavg"]["clients a round"] == rows["gfl"]["clients a round"] == each
        assert rows["local"]["clients a round"] == 0
    assert "noise of privacy = paper" in shown(paper, METHODS)


def test_a_comparison_with_fewer_rounds_than_the_run_says_so(pgfl, monkeypatch):
    monkeypatch.setattr(report, "affordable", lambda config: 4)
    monkeypatch.setattr(report, "FEWEST_ROUNDS", 2)
    text = shown(pgfl, METHODS)
    assert "4 rounds" in text
    assert "The run itself had 8" in text
    monkeypatch.setattr(report, "FEWEST_ROUNDS", 20)
    assert "would take long" in shown(pgfl, METHODS)


def test_what_cannot_be_simulated_is_left_out_with_the_reason(pgfl):
    logistic = replace(pgfl, config={**pgfl.config, "loss": "logistic"})
    assert "logistic" in shown(logistic, METHODS)
    other = replace(pgfl, seed=2)
    assert "cannot be made again" in shown(other, METHODS)
    file = replace(pgfl, config={**pgfl.config, "topology": "gone.csv"})
    assert "No numbers for pgfl" in shown(file, METHODS)
    assert "gone.csv" in shown(file, METHODS)


def test_clusters_that_were_found_are_given_in_the_comparison(pgfl):
    auto = replace(pgfl, config={**pgfl.config, "clusters": "auto:3"})
    assert "the run had to find them" in shown(auto, METHODS)
    assert "without noise" in shown(auto, PRIVACY)


def test_the_zcdp_over_the_rounds_is_of_the_rounds_a_client_took_part_in(paper):
    spent = {}
    for entry in paper.ledger["clients"]:
        rounds = [event["round"] for event in entry["events"]]
        spent[entry["name"]] = math.fsum(0.01 / 0.9**n for n in rounds)
        by_round = report_privacy.spent_by_round(entry, 8)
        assert by_round.shape == (9,)
        assert by_round[-1] == pytest.approx(spent[entry["name"]])
        assert by_round[3] == pytest.approx(math.fsum(0.01 / 0.9**n for n in rounds if n <= 3))
    assert len(set(spent.values())) > 1
    who, most = max(spent.items(), key=lambda item: item[1])
    text = shown(paper, PRIVACY)
    assert f"{who}, " in text
    assert f"{most:.4g}-zCDP" in text
    assert f"{min(spent.values()):.4g}-zCDP" in text
    assert f"{zcdp_epsilon(most, 1e-5):.4g} by zCDP" in text


def test_the_paper_s_total_stands_beside_the_corrected_one(paper):
    text = shown(paper, PRIVACY)
    printed = math.fsum(0.01 * 0.9**n for n in range(8))
    corrected = math.fsum(0.01 / 0.9**n for n in range(1, 9))
    assert f"{printed:.4g}-zCDP, which bounds nothing" in text
    assert f"all 8 rounds are {corrected:.4g}-zCDP" in text


def test_a_bound_taken_as_given_is_warned_of_with_the_gradients_there_are(paper):
    text = shown(paper, PRIVACY)
    assert "is not a bound" in text
    config = ClusterAdmmConfig.from_settings(paper.config)
    longest = 0.0
    for k, w in enumerate(paper.arrays["clients"]):
        samples = synthetic_table(config, 1, k)
        for x, y in zip(samples.X, samples.y, strict=True):
            gradient = 2.0 * (x @ w - y) * x
            longest = max(longest, math.sqrt(float(gradient @ gradient)))
    assert f"the longest is {longest:.4g}" in text


def test_a_sound_run_tells_its_bound_and_no_warning():
    result = run(privacy="sound", rounds=2, clip_features=2.0, clip_model=3.0, clip_target=1.0)
    text = shown(result, PRIVACY)
    assert "C = 2 B (B W + Y) = 28 " in text
    assert "is not a bound" not in text
    worst = max(entry["epsilon"] for entry in result.ledger["clients"])
    assert f"{worst:.4g} exactly" in text


def test_a_run_without_privacy_claims_nothing(pgfl):
    text = shown(pgfl, PRIVACY)
    assert "Nothing was noised" in text
    assert "zCDP" not in text


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
        assert next(csv.reader(file)) == ["server", "cluster", "clients", "age", "<dose>"]


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
    result.config = {**pgfl.config, "method": "local"}
    result.metrics = pgfl.metrics[:1]
    found = by_title(result)
    assert SERVERS not in found
    assert "server" not in found[CLUSTERS]
    assert "8 rounds" in found[METHODS]
    page(result, tmp_path)


def test_a_run_that_ended_before_its_first_round_is_a_report(tmp_path):
    for settings in ({}, {"privacy": "paper"}, {"privacy": "sound"}, {"nonsense": 1}):
        empty = RunResult("cluster-admm", 1, "local", settings, status="interrupted")
        assert "ended before" in shown(empty, CLUSTERS)
        page(empty, tmp_path)
        assert report.export_graphs(empty, tmp_path) == []


def test_an_interrupted_run_tells_what_at_most_was_spent(paper, tmp_path):
    stopped = replace(paper, arrays={}, ledger={}, status="interrupted")
    found = by_title(stopped)
    assert "no ledger" in found[PRIVACY]
    corrected = math.fsum(0.01 / 0.9**n for n in range(1, 9))
    assert f"{corrected:.4g}-zCDP" in found[PRIVACY]
    assert "NOT PRIVATE" in found[PRIVACY]
    assert ROUNDS in found
    page(stopped, tmp_path)


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


def test_the_graph_the_models_and_the_clients_are_files(pgfl, tmp_path):
    graph, models, clients = report.export_graphs(pgfl, tmp_path)
    assert graph == tmp_path / "graphs" / "servers.graphml"
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ET.parse(graph).getroot()
    assert len(root.findall(f".//{space}edge")) == 3
    names = {key.get("id"): key.get("attr.name") for key in root.findall(f"{space}key")}
    for s, node in enumerate(root.findall(f".//{space}node")):
        held = {names[data.get("key")]: float(data.text) for data in node.findall(f"{space}data")}
        assert held["clients"] == 3
        assert sum(held[f"clients_{q}"] for q in range(3)) == 3
        for q in range(3):
            norm = np.linalg.norm(pgfl.arrays["models"][s, q])
            assert held[f"norm_{q}"] == pytest.approx(norm)
    with models.open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["server", "cluster", "clients", "x1", "x2", "x3", "x4", "x5"]
    found = np.array([row[3:] for row in rows[1:]], dtype=float).reshape(4, 3, 5)
    np.testing.assert_array_equal(found, pgfl.arrays["models"])
    assert [row[:2] for row in rows[1:4]] == [["server-0", str(q)] for q in range(3)]
    with clients.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == [client["name"] for client in pgfl.clients]
    assert [int(row["cluster"]) for row in rows] == pgfl.arrays["clusters"].tolist()
    assert [int(row["true_cluster"]) for row in rows] == pgfl.arrays["true_clusters"].tolist()
    assert [row["server"] for row in rows] == [f"server-{s}" for s in pgfl.arrays["homes"]]


def test_servers_have_the_names_of_their_file_where_the_run_kept_them(pgfl, tmp_path):
    names = np.array(["oslo", "rome", "bern", "kyiv"])
    result = changed(pgfl, server_names=names)
    assert list(table(result, CLUSTERS, "server")) == names.tolist()
    twice = changed(pgfl, server_names=np.array(["a", "a", "b", "c"]))
    assert next(iter(table(twice, CLUSTERS, "server"))) == "server-0"
    odd = changed(pgfl, server_names=np.array(["a\x01", "a\x02", "b", "c"]))
    ET.parse(report.export_graphs(odd, tmp_path)[0])


def test_distances_are_euclidean(pgfl):
    points = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]])
    assert np.allclose(distances(points), [[0, 5, 3], [5, 0, 4], [3, 4, 0]])
    outcome = Outcome.of(pgfl)
    assert outcome is not None
    assert outcome.counts.sum() == 12
