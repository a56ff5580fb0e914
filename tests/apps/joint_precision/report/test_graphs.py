"""The clients' graphs in the report: edges counted, compared, and held against the truth."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from sklearn.metrics import jaccard_score, matthews_corrcoef

from tests.apps.joint_precision.report.results import page, partials, row, run, support, symmetric
from trellis.apps.joint_precision.report.page import export_graphs
from trellis.apps.pages.wording import number


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


def test_coordinates_give_views_of_the_head(tmp_path):
    result = run(clients=2, path=False)
    result.arrays["coordinates"] = np.random.default_rng(0).normal(size=(8, 3))
    result.arrays["groups"] = np.array(["frontal"] * 4 + ["<occipital>"] * 4)
    words = page(result, tmp_path).words
    # Once for the common graph, once a client, twice a client beside the truth.
    assert words.count("from above") == 1 + 2 + 4
    assert "<occipital>" in words
    export_graphs(result, tmp_path)
