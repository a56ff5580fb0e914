"""The report: distances, pictures, accuracies beside controls, training, privacy; and the files."""

from __future__ import annotations

import csv
import itertools
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from markupsafe import Markup
from scipy.stats import spearmanr

from apps.common.results import RunResult
from apps.gromov_wasserstein.config import GromovWassersteinConfig
from apps.gromov_wasserstein.release import STATEMENTS, encode_rows, spent
from apps.gromov_wasserstein.report import distances as report_distances
from apps.gromov_wasserstein.report import learning as report_learning
from apps.gromov_wasserstein.report import page as report
from apps.gromov_wasserstein.report import privacy as report_privacy
from apps.gromov_wasserstein.report.learning import CHANCE, CONSTANT, MAJORITY, SIZES, Score
from apps.gromov_wasserstein.report.outcome import Outcome
from apps.gromov_wasserstein.report.pictures import block_means, class_styles, clustered_order
from apps.pages import plots
from apps.pages.report import Table, write_report

DISTANCES, PICTURE = "The distances between graphs", "The graphs in a picture"
LEARNING, TRAINING = "What can be learned from the distances", "Training the shared model"
PRIVACY = "What a release hides"
OWNER = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
SIZE = [5, 9, 7, 12, 6, 8, 8, 20, 11, 5, 9, 10]
LABEL = [0, 1, 0, 1, 0, 1, -1, 1, 0, 0, 1, 0]
H = 4


def run(**settings) -> RunResult:
    """Return a run of twelve graphs of three clients, one graph without a label."""
    chosen = {"privacy": "sound", "epsilon": 20.0, "task": "graph", "width": H}
    chosen |= {name.replace("_", "-"): value for name, value in settings.items()}
    config = GromovWassersteinConfig.from_settings(chosen)
    rng = np.random.default_rng(3)
    labels = np.array(LABEL)
    points = rng.normal(size=(12, 3)) + 3.0 * labels[:, None]
    D = np.array([[math.dist(a, b) for b in points] for a in points])
    arrays = {
        "distances": D,
        "owner": np.array(OWNER),
        "sizes": np.array(SIZE),
        "labels": labels,
        "codes": np.ones((sum(SIZE), H), dtype=np.int8),
        "anomaly": D.sum(axis=1) / 11,
        "spectral-clusters": (points[:, 0] > 1.5).astype(np.int64),
        "svm-from-constant": np.array([0.70, 0.72, 0.68, 0.75, 0.75]),
    }
    headline = {"rounds": 3.0, "graphs": 12.0, "test-accuracy": 0.7, "majority": 6 / 11}
    headline |= {"svm-accuracy": 0.71, "svm-from-sizes": 0.795, "svm-from-constant": 0.72}
    headline |= {"spectral-ari": 0.31, "spectral-purity": 0.83}
    rows = [
        {"round": n, "change": 0.1, "loss": 1.0 / n, "train-accuracy": 0.5, "test-accuracy": n / 4}
        for n in (1.0, 2.0, 3.0)
    ]
    rows[-1]["released-graphs"] = 12.0
    return RunResult(
        "gromov-wasserstein",
        1,
        "local",
        config.settings(),
        arrays=arrays,
        headline=headline,
        metrics=rows,
        clients=[{"name": name} for name in ("oslo", "<rome>", "bern")],
        ledger={"mode": config.privacy, "epsilon": 20.0, "delta": 0.0},
        status="completed",
        started="2024-01-01T00:00:00Z",
    )


@pytest.fixture
def drawn():
    """Ask for pictures as they are in a report."""


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Leave out the drawing of lines, which takes most of the time, where no test looks at it."""
    if "drawn" not in request.fixturenames:
        stub = Markup('<svg aria-label="{}">')
        monkeypatch.setattr(plots, "svg", lambda figure, label="": stub.format(label))


def changed(result, **arrays):
    return replace(result, arrays={**result.arrays, **arrays})


def without(result, *names):
    kept = {name: array for name, array in result.arrays.items() if name not in names}
    return replace(result, arrays=kept)


def told(result, **headline):
    numbers = {name.replace("_", "-"): value for name, value in headline.items()}
    return replace(result, headline={**result.headline, **numbers})


def part(result, title):
    """Return one section, without the work of the others."""
    outcome = Outcome.of(result)
    if title == DISTANCES:
        return report_distances.distances_section(result, outcome)
    if title == LEARNING:
        return report_learning.learning_section(result, outcome)[0]
    if title == PRIVACY:
        return report_privacy.privacy(result, outcome)
    return next(section for section in report.sections(result) if section.title == title)


def shown(result, title):
    return "\n".join(block.html() for block in part(result, title).blocks)


def table(result, title, *headers):
    """Return the table that has these headers, rows by their first cell."""
    tables = [block for block in part(result, title).blocks if isinstance(block, Table)]
    found = next(block for block in tables if set(headers) <= set(block.headers))
    return {row[0]: dict(zip(found.headers, row, strict=True)) for row in found.rows}


def page(result, tmp_path):
    path = tmp_path / "report.html"
    write_report(result, report.sections(result), path, report.WORDING)
    return path.read_text()


def test_a_whole_page_has_all_sections_escapes_names_and_has_the_same_bytes_twice(tmp_path, drawn):
    result = run()
    html = page(result, tmp_path)
    for title in (DISTANCES, PICTURE, LEARNING, TRAINING, PRIVACY):
        assert f"<h2>{title}</h2>" in html
    assert "<rome>" not in html
    assert html == page(result, tmp_path)
    assert html.count('<svg role="img" aria-label=""') == 0
    assert "control: numbers of nodes alone, SVM" in html


def test_mean_distances_by_class_are_of_two_different_graphs():
    rows = table(run(), DISTANCES, "class 0")
    D = run().arrays["distances"]
    for a, b in itertools.product((0, 1), repeat=2):
        pairs = [
            D[i, j]
            for i, j in itertools.permutations(range(12), 2)
            if (LABEL[i], LABEL[j]) == (a, b)
        ]
        assert rows[f"class {a}"][f"class {b}"] == pytest.approx(sum(pairs) / len(pairs))
    assert rows["class 0"]["graphs"] == 6
    mean = sum(n for n, y in zip(SIZE, LABEL, strict=True) if y == 0) / 6
    assert rows["class 0"]["nodes, mean"] == pytest.approx(mean)
    same = [D[i, j] for i, j in itertools.permutations(range(12), 2) if LABEL[i] == LABEL[j] >= 0]
    assert f"same class: {sum(same) / len(same):.4g}." in shown(run(), DISTANCES)


def test_mean_distances_by_owner_are_to_its_own_and_to_others():
    rows = table(run(), DISTANCES, "owner")
    D = run().arrays["distances"]
    assert list(rows) == ["oslo", "<rome>", "bern"]
    for k, row in enumerate(rows.values()):
        for header, same in (("to its own", True), ("to others'", False)):
            pairs = [
                D[i, j]
                for i, j in itertools.permutations(range(12), 2)
                if OWNER[i] == k and (OWNER[j] == k) == same
            ]
            assert row[header] == pytest.approx(sum(pairs) / len(pairs))


def test_an_owner_or_class_of_one_graph_has_no_distance_to_itself():
    alone = changed(run(), owner=np.arange(12), labels=np.arange(12))
    assert all(row["to its own"] is None for row in table(alone, DISTANCES, "owner").values())
    assert all(row["class 3"] is None for row in [table(alone, DISTANCES, "class 3")["class 3"]])
    many = changed(run(), labels=np.repeat([0, 1, 2], 4))
    assert set(table(many, DISTANCES, "class 2")) == {"class 0", "class 1", "class 2"}


def test_the_correlation_with_sizes_is_spearman_s():
    sizes = np.arange(1, 13)
    gaps = np.abs(sizes[:, None] - sizes).astype(float)
    text = shown(changed(run(), sizes=sizes, distances=gaps**3), DISTANCES)
    assert "gives away: 1.00." in text
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 50).astype(float), rng.normal(size=50)
    assert report_distances.rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert report_distances.rank_correlation(a, np.ones(50)) is None
    equal = changed(run(), sizes=np.full(12, 7))
    assert "all of one size" in shown(equal, DISTANCES)


def test_clustering_puts_groups_side_by_side_whatever_the_order_they_come_in():
    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat([0, 1, 2], 7))
    points = np.column_stack([10.0 * groups, rng.normal(size=21)])
    D = np.array([[math.dist(a, b) for b in points] for a in points])
    order = clustered_order(D)
    assert sorted(order) == list(range(21))
    assert np.count_nonzero(np.diff(groups[order])) == 2


def test_graphs_that_average_linkage_merges_are_neighbours_in_the_order():
    D = np.random.default_rng(6).random((14, 14))
    D = np.where(np.eye(14, dtype=bool), 0.0, D + D.T)
    place = np.argsort(clustered_order(D))
    groups = [(k,) for k in range(14)]
    while len(groups) > 1:
        a, b = min(
            itertools.combinations(groups, 2),
            key=lambda two: np.mean([D[i, j] for i in two[0] for j in two[1]]),
        )
        groups = [one for one in groups if one not in (a, b)] + [a + b]
        assert np.ptp(place[list(a + b)]) == len(a + b) - 1


@pytest.mark.parametrize("count", [3, 10, 11, 25, 301])
def test_blocks_are_means_and_keep_the_mean_of_every_block(count):
    rng = np.random.default_rng(count)
    matrix = rng.random((count, count))
    small = block_means(matrix, 10)
    assert small.shape == (min(count, 10),) * 2
    if count <= 10:
        assert small is matrix
        return
    edges = [k * count // 10 for k in range(11)]
    for a, b in ((0, 0), (3, 7), (9, 9)):
        block = matrix[edges[a] : edges[a + 1], edges[b] : edges[b + 1]]
        assert small[a, b] == pytest.approx(block.mean())


def test_many_graphs_are_drawn_in_blocks_and_written_whole(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(report_distances, "MOST_POINTS", 40)
    rng = np.random.default_rng(2)
    points = rng.random((310, 2))
    D = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    few = {"owner": np.arange(310) % 3, "sizes": np.full(310, 4), "anomaly": D.mean(axis=1)}
    labels = np.arange(310) % 20
    result = changed(without(run(), "spectral-clusters"), distances=D, labels=labels, **few)
    html = page(result, tmp_path)
    assert "310 graphs are drawn in 130 x 130 blocks" in html
    assert "A random sample of 40 of 310 graphs is drawn" in html
    assert "to others" in next(iter(table(result, DISTANCES, "within it").values()))
    assert len(html) < 1_000_000
    path = report.export_graphs(result, tmp_path)[0]
    with path.open() as file:
        rows = list(csv.reader(file))
    np.testing.assert_array_equal(np.array([row[1:] for row in rows[1:]], dtype=float), D)


def test_every_named_class_has_a_look_of_its_own():
    labels = np.repeat(np.arange(20), np.arange(20, 0, -1))
    styles = class_styles(labels)
    assert list(styles) == list(range(12))  # the commonest
    assert len(set(styles.values())) == len({colour for colour, _ in styles.values()}) == 12
    assert class_styles(np.full(5, -1)) == {}


def test_pictures_without_scikit_learn_leave_out_t_sne_with_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    text = shown(run(), PICTURE)
    assert "t-SNE is left out: classification and clustering need scikit-learn" in text
    assert "Multidimensional scaling" in text


def test_points_in_a_plane_are_scaled_without_loss():
    points = np.random.default_rng(4).random((12, 2))
    D = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    assert "with the real ones 1.00" in shown(changed(run(), distances=D), PICTURE)


def test_every_accuracy_stands_beside_all_its_controls():
    row = table(run(), LEARNING, "classifier")["SVM on exp(-gamma D)"]
    assert row["from the distances"] == 71.0
    assert row["from the numbers of nodes alone"] == 79.5
    assert row["from a constant embedding"] == "72.0 ± 3.1 (5 draws)"
    assert row[MAJORITY] == 54.5
    assert row[CHANCE] == 50.0
    assert "test" not in table(run(), LEARNING, "classifier")


def test_an_accuracy_below_its_controls_is_said_to_prove_nothing():
    text = shown(run(), LEARNING)
    assert (
        "71.0 %: does not beat the numbers of nodes alone (79.5 %), a constant embedding (72.0 %). "
        "It is no evidence" in text
    )
    assert '<div class="notice" role="note"><p>SVM' in text


CONTROLS = {SIZES: 0.5, CONSTANT: 0.6, MAJORITY: 0.55, CHANCE: 0.5}


@pytest.mark.parametrize("name", list(CONTROLS))
def test_a_single_control_that_is_as_good_is_enough_to_lose(name):
    score = Score("SVM", 0.8, {**CONTROLS, name: 0.8}, np.zeros(0))
    good, text = report_learning.verdict(score, 100, True)
    assert not good
    assert f"does not beat {name} (80.0 %)." in text


def test_an_accuracy_above_all_controls_has_its_lead_and_its_error():
    draws = np.array([0.59, 0.61])
    good, text = report_learning.verdict(Score("SVM", 0.8, CONTROLS, draws), 100, True)
    assert good
    assert "the best of them a constant embedding, by 20.0 points" in text
    assert "of 100 graphs, is about 4.0 points." in text
    assert "standard deviation of 1.4 points" in text
    close = Score("SVM", 0.65, CONTROLS, draws)
    assert "not more than two of these" in report_learning.verdict(close, 100, True)[1]


def test_draws_of_the_constant_embedding_that_are_as_good_are_counted():
    draws = np.array([0.4, 0.5, 0.9])
    good, text = report_learning.verdict(Score("SVM", 0.8, CONTROLS, draws), 100, True)
    assert not good
    assert "1 of its 3 draws did as well or better" in text


def test_a_control_that_is_missing_is_missed():
    only = {MAJORITY: 0.5, CHANCE: 0.5}
    good, text = report_learning.verdict(Score("SVM", 0.8, only, np.zeros(0)), 100, True)
    assert not good
    assert f"Not compared with {SIZES}, {CONSTANT}" in text
    good, text = report_learning.verdict(Score("SVM", 0.8, {}, np.zeros(0)), 100, True)
    assert not good
    assert "shows nothing" in text
    plain = told(run(privacy="none"), svm_accuracy=0.99)
    for name in ("svm-from-constant",):
        plain.headline.pop(name)
        plain.arrays.pop(name)
    text = shown(plain, LEARNING)
    assert "Nothing was encoded" in text
    assert "Not compared" not in text


def test_without_labels_no_accuracy_is_told_but_clusters_and_anomalies_are():
    blind = changed(run(), labels=np.full(12, -1))
    blind.headline = {"graphs": 12.0}
    text = shown(blind, LEARNING)
    assert "No graph has a label that the server knows" in text
    assert table(blind, LEARNING, "method")["spectral"]["purity"] is None
    assert all(row["label"] is None for row in table(blind, LEARNING, "score").values())
    assert "No graph has a label" in shown(blind, PICTURE)
    unasked = replace(run(), headline={"graphs": 12.0})
    assert "No classifier was asked for" in shown(unasked, LEARNING)


def test_clusters_are_counted_by_class():
    rows = table(run(), LEARNING, "", "class 0")
    groups = run().arrays["spectral-clusters"]
    for name, row in rows.items():
        cluster = int(name.removeprefix("cluster "))
        for label in (0, 1):
            pairs = zip(groups, LABEL, strict=True)
            assert row[f"class {label}"] == sum(pair == (cluster, label) for pair in pairs)
    first = table(run(), LEARNING, "method")["spectral"]
    assert first["graphs in the largest"] == max(row["graphs"] for row in rows.values())
    assert (first["adjusted Rand index"], first["purity"]) == (0.31, 0.83)


def test_the_most_anomalous_graph_is_first_with_its_owner_size_and_label():
    score = np.ones(12)
    score[[3, 8]] = 5.0, 3.0
    rows = table(changed(run(), anomaly=score), LEARNING, "score")
    assert list(rows)[:2] == ["<rome>-1", "bern-2"]
    assert list(rows["<rome>-1"].values()) == ["<rome>-1", "<rome>", 12, 1, 5.0, 5.0]
    assert len(rows) == 10


def test_training_is_drawn_from_the_rounds_there_are():
    text = shown(run(), TRAINING)
    assert "loss 1 to 0.3333" in text
    assert "train 0.5 to 0.5, test 0.25 to 0.75" in text
    assert "labels of graphs" in text
    assert "validation" not in text
    short = replace(run(), metrics=run().metrics[:1])
    assert TRAINING not in [section.title for section in report.sections(short)]


CASES = [
    {},
    {"epsilon": 100.0},
    {"epsilon": 100.0, "bits": 3},
    {"budget_per": "node", "epsilon": 5.0},
    {"estimator": "double", "epsilon": 80.0},
    {"estimator": "double", "bits": 2},
    {"estimator": "simplex", "bits": 2},
    {"privacy": "paper"},
    {"privacy": "paper", "bits": 3},
]


@pytest.mark.parametrize("settings", CASES)
def test_bits_are_those_that_a_client_sends(settings):
    result = run(**settings)
    config = GromovWassersteinConfig.from_settings(result.config)
    rows = table(result, PRIVACY, "flip probability")
    assert list(rows) == [5, 9, 20]
    for nodes, row in rows.items():
        sent = encode_rows(config, np.full((nodes, H), 0.5), np.random.default_rng(1))
        bits = sum(np.count_nonzero(codes) for codes in sent.values())
        assert row["bits of the graph"] == bits
        assert row["of entries"] == nodes * H
        whole = config.epsilon / nodes if config.privacy == "paper" else spent(config, [nodes])
        assert row["epsilon of the graph"] == pytest.approx(whole)
        assert row["epsilon of a bit"] == pytest.approx(whole / bits)
        flip = 1.0 / (math.exp(whole / bits) + 1.0)
        assert row["flip probability"] == pytest.approx(flip)
        assert row["wrong bits, expected"] == pytest.approx(bits * flip)


def test_flips_are_as_frequent_as_the_report_says():
    config = GromovWassersteinConfig.from_settings(run().config)
    cost = report_privacy.cost_of(config, H, 9)
    rng, ones = np.random.default_rng(1), np.ones((9, H))
    sent = np.concatenate([encode_rows(config, ones, rng)["codes"] for _ in range(2000)])
    wrong = np.count_nonzero(sent == -1) / np.count_nonzero(sent)
    assert wrong == pytest.approx(cost.flip, abs=4.0 * math.sqrt(0.25 / (2000 * cost.bits)))


def test_the_share_of_wrong_bits_is_over_all_graphs_and_warns_of_coin_flips():
    text = shown(run(), PRIVACY)
    # One bit a row: two are better from 2 * 2.18 on, and the smallest graph's rows have 20 / 5.
    wrong = sum(n / (math.exp(20.0 / n) + 1.0) for n in SIZE)
    assert f"send {sum(SIZE)} bits for {sum(SIZE) * H} entries" in text
    assert f"wrong bits: {100 * wrong / sum(SIZE):.1f} %" in text
    assert "nearly coin flips" not in text
    assert "nearly coin flips" in shown(run(epsilon=1.0), PRIVACY)


def test_budgets_are_told_per_graph_and_per_node():
    assert "20 / n in a graph with n nodes" in shown(run(), PRIVACY)
    text = shown(run(budget_per="node", epsilon=5.0), PRIVACY)
    assert "n times 5 a release; the largest has n = 20: 100" in text
    assert "does not bound what is told about a node" in text
    assert "fraction 1/n" in shown(run(privacy="paper"), PRIVACY)


def test_who_learns_what_follows_the_settings():
    off = {row["what"]: row for row in table(run(), PRIVACY, "who learns it").values()}
    updates = "updates of training, with loss, hits and numbers of items"
    assert "every client's (secure aggregation is off)" in off[updates]["who learns it"]
    assert off["labels of graphs"]["who learns it"] == "the server, in the clear"
    assert off["embeddings, encoded"]["covered by epsilon"] == "yes"
    on = table(run(secure_aggregation=True, share_labels=False), PRIVACY, "who learns it")
    assert "sum only (secure aggregation is on)" in on[updates]["who learns it"]
    assert on["labels of graphs"]["who learns it"] == "nobody: they are not sent"
    for rows in (off, on):  # no more is covered than the encoded embeddings and what comes of them
        yes = [what for what, row in rows.items() if str(row["covered by epsilon"])[:3] == "yes"]
        assert yes == ["embeddings, encoded", "distances, and what is learned from them"]
    plain = table(run(privacy="none"), PRIVACY, "who learns it")
    assert {row["covered by epsilon"] for row in plain.values()} == {"no"}


def test_a_simulation_is_said_to_protect_nobody_and_a_deployment_is_not():
    word = "protect nobody"
    assert word in shown(run(), PRIVACY)
    assert word not in shown(replace(run(), engine="deployment"), PRIVACY)


def test_no_privacy_claims_nothing():
    text = shown(run(privacy="none"), PRIVACY)
    assert STATEMENTS["none"]["claim"] in text
    assert "flip" not in text
    assert "LDP" not in text


def test_settings_without_an_encoder_for_a_graph_are_told():
    text = shown(run(estimator="simplex"), PRIVACY)
    assert "are not told: estimator=" in text


def test_a_run_that_ended_before_its_first_round_is_a_report(tmp_path):
    for settings in ({}, {"privacy": "sound"}, {"privacy": "paper"}, {"nonsense": 1}):
        empty = RunResult("gromov-wasserstein", 1, "local", settings, status="interrupted")
        titles = [section.title for section in report.sections(empty)]
        assert titles == [DISTANCES, PRIVACY]
        assert "ended before embeddings were released" in page(empty, tmp_path)
        assert report.export_graphs(empty, tmp_path) == []


def test_a_run_that_ended_before_its_distances_shows_the_rest(tmp_path):
    kept = ("owner", "sizes", "labels", "codes")
    stopped = run()
    stopped.arrays = {name: stopped.arrays[name] for name in kept}
    stopped.headline, stopped.ledger = {}, {}
    titles = [section.title for section in report.sections(stopped)]
    assert titles == [DISTANCES, TRAINING, PRIVACY]
    assert "ended before the distances" in shown(stopped, DISTANCES)
    assert "has no ledger" in shown(stopped, PRIVACY)
    assert [path.name for path in report.export_graphs(stopped, tmp_path)] == ["graphs.csv"]
    page(stopped, tmp_path)


ARRAYS = ["distances", "owner", "sizes", "labels", "codes", "anomaly", "spectral-clusters"]


@pytest.mark.parametrize("name", [*ARRAYS, "svm-from-constant"])
def test_missing_and_bad_arrays_leave_out_what_they_would_show(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)  # t-SNE takes most of the time
    result = run()
    bad = [np.zeros((2, 2)), np.full(result.arrays[name].shape, np.nan), np.array(["text"])]
    bad += [np.zeros(0), np.full(12, -7), np.array(3.0), np.full((12, 12), -1.0)]
    for one in (without(result, name), *(changed(result, **{name: array}) for array in bad)):
        titles = {section.title for section in report.sections(one)}
        assert {DISTANCES, TRAINING, PRIVACY} <= titles
        written = report.export_graphs(one, tmp_path)
        assert (LEARNING in titles) == (name not in ("distances", "owner", "sizes"))
        assert len(written) == {"distances": 1, "owner": 0, "sizes": 0}.get(name, 2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_graphs_are_a_report_too(count, tmp_path, drawn):
    result = run()
    result.arrays = {name: array[:count] for name, array in result.arrays.items()}
    result.arrays["distances"] = result.arrays["distances"][:, :count]
    page(result, tmp_path)
    assert len(report.export_graphs(result, tmp_path)) == 2


def test_graphs_that_are_all_the_same_are_a_report_too(tmp_path, drawn):
    zero = np.zeros((12, 12))
    html = page(changed(run(), distances=zero, anomaly=zero[0]), tmp_path)
    assert "all at one distance" in html


def test_graphs_and_distances_are_files(tmp_path):
    result = run()
    distances, graphs = report.export_graphs(result, tmp_path)
    assert (distances.name, graphs.name) == ("distances.csv", "graphs.csv")
    with graphs.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["owner"] for row in rows] == [["oslo", "<rome>", "bern"][k] for k in OWNER]
    assert [int(row["number"]) for row in rows] == [1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert [int(row["nodes"]) for row in rows] == SIZE
    assert [int(row["label"]) for row in rows] == LABEL
    assert [float(row["anomaly"]) for row in rows] == result.arrays["anomaly"].tolist()
    clusters = result.arrays["spectral-clusters"].tolist()
    assert [int(row["spectral_cluster"]) for row in rows] == clusters
    with distances.open() as file:
        table = list(csv.reader(file))
    assert table[0][1:] == [row[0] for row in table[1:]] == [row["graph"] for row in rows]
    assert table[0][1] == "oslo-1"
    found = np.array([row[1:] for row in table[1:]], dtype=float)
    np.testing.assert_array_equal(found, result.arrays["distances"])


def test_clients_without_names_of_their_own_are_numbered():
    for clients in ([], [{"name": "a"}] * 3):
        outcome = Outcome.of(replace(run(), clients=clients))
        assert outcome is not None
        assert outcome.names[0] == "client-0-1"


def test_no_accuracy_is_in_the_index_without_its_controls():
    names = report.WORDING.headline
    assert {"svm-accuracy", "svm-from-sizes", "svm-from-constant", "majority"} <= set(names)
    labels = [report.WORDING.label(name) for name in run().headline]
    assert len(set(labels)) == len(labels)
