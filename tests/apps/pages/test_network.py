"""The page of one server of a graph, and of several gathered: what is known, in words."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from tests.apps.pages.pages import Page
from tests.apps.runs.cuts import SMALL, cut, whole
from trellis import apps
from trellis.apps.common.recording import wording
from trellis.apps.common.results import RunResult
from trellis.apps.pages.network.drawing import letter_strip, network_map
from trellis.apps.pages.network.links import Links, known_servers
from trellis.apps.pages.network.section import network_sections
from trellis.apps.pages.report import Table, write_report
from trellis.apps.runs.merge import merge

EVENTS = [
    {"round": 3, "seconds": 12.34, "server": 0, "what": "gone: no letter within 60 s"},
    {"round": 5, "seconds": 80.0, "server": 0, "what": "back: <a letter> of round 4"},
]


@pytest.fixture(scope="module")
def logical() -> dict[str, RunResult]:
    return {study: whole(study) for study in SMALL}


def page(result, folder) -> Page:
    module = apps.study_module(result.study, "report")
    path = folder / "report.html"
    write_report(result, module.sections(result), path, wording(result.study))
    return Page.read(path)


def tables(result) -> dict[str, Table]:
    """Return the tables of a report by their first header."""
    sections = apps.study_module(result.study, "report").sections(result)
    blocks = [block for section in sections for block in section.blocks]
    return {block.headers[0]: block for block in blocks if isinstance(block, Table)}


@pytest.mark.parametrize("study", SMALL)
def test_one_server_s_page_says_what_is_known(study, logical, tmp_path):
    result = cut(logical[study], 1, EVENTS)
    found = page(result, tmp_path)
    found.assert_private()
    assert "What this server saw" in found.headings
    for words in (
        "site-1 of 3 servers",
        "This is the result of site-1, which hears site-0, site-2.",
        "a letter could be up to 1 round old",
        "What crosses an edge is one letter a round",
        "gone: no letter within 60 s",
        "back: <a letter> of round 4",  # as text
        "12.34",
        "2 rounds with an event",
        "one process",
    ):
        assert words in found.words, words
    pictures = " ".join(str(picture["aria-label"]) for picture in found.tags("svg"))
    assert "site-0 and site-1: 6 letters, the oldest 0 rounds old" in pictures
    assert "site-1 and site-2: 5 letters, the oldest 1 round old" in pictures
    assert "nan" not in found.words.replace("(nan in", "")


@pytest.mark.parametrize("study", SMALL)
def test_what_one_server_cannot_know_is_a_dash(study, logical):
    found = tables(cut(logical[study], 1))["server"]
    rows = {row[0]: dict(zip(found.headers, row, strict=True)) for row in found.rows}
    assert [rows[f"site-{p}"]["clients"] for p in range(3)] == [None, 3, None]
    assert [rows[f"site-{p}"]["neighbours"] for p in range(3)] == [1, 2, 1]
    assert "squared distance to the centroid" not in found.headers


def test_disagreement_is_not_told_by_one_server(logical, tmp_path):
    words = page(cut(logical["server-graph"], 0), tmp_path).words
    assert "How far the servers disagree is not known" in words
    assert "The models of 1 of them are known here" in words
    column = tables(cut(logical["cluster-admm"], 0))["cluster"]
    at = list(column.headers).index("disagreement of servers")
    assert all(np.isnan(row[at]) for row in column.rows)


@pytest.mark.parametrize("study", SMALL)
def test_files_have_the_models_that_are_known(study, logical, tmp_path):
    result = cut(logical[study], 1)
    written = apps.study_module(study, "report").export_graphs(result, tmp_path)
    by_name = {path.name: path for path in written}
    with by_name["models.csv"].open() as file:
        rows = list(csv.reader(file))[1:]
    assert {row[0] for row in rows} == {"site-1"}
    assert "nan" not in by_name["models.csv"].read_text()
    graph = ET.parse(by_name["servers.graphml"]).getroot()  # our own file
    nodes = graph.iter("{http://graphml.graphdrawing.org/xmlns}node")
    assert [node.get("id") for node in nodes] == ["site-0", "site-1", "site-2"]
    assert "nan" not in by_name["servers.graphml"].read_text()


@pytest.mark.parametrize("study", SMALL)
@pytest.mark.parametrize("chosen", [(0, 1, 2), (2, 1), (0,)])
def test_a_gathered_run_is_a_page(study, chosen, logical, tmp_path):
    parts = [cut(logical[study], p, EVENTS if p == 1 else None) for p in chosen]
    result = merge([part.save(tmp_path / f"s{k}") for k, part in enumerate(parts)])
    found = page(result, tmp_path)
    found.assert_private()
    assert "What the servers saw of each other" in found.headings
    links = tables(result)["link"]
    expected = {"site-0 from site-1": 0} if 0 in chosen else {}
    if 1 in chosen:
        expected |= {"site-1 from site-0": 0, "site-1 from site-2": 1}
    if 2 in chosen:
        expected |= {"site-2 from site-1": 0}
    age = list(links.headers).index("largest age")
    assert {row[0]: row[age] for row in links.rows} == expected
    if 1 in chosen:
        assert "noted by" in tables(result)["round"].headers
    everyone = len(chosen) == 3
    assert ("These are all of them." in found.words) == everyone
    assert ("Not gathered, so unknown" in found.words) == (not everyone)
    if everyone:
        assert "site-0 and site-1: 12 letters" in str(
            [picture["aria-label"] for picture in found.tags("svg")]
        )


@pytest.mark.parametrize("study", SMALL)
def test_a_run_that_ended_before_its_first_letter_is_a_page(study, logical, tmp_path):
    result = replace(cut(logical[study], 1, EVENTS[:1]), arrays={}, metrics=[], status="failed")
    words = page(result, tmp_path).words
    assert "ended before a model was there" in words
    assert "ended before a letter was used" in words
    assert "gone: no letter within 60 s" in words


@pytest.mark.parametrize("study", SMALL)
def test_one_process_has_no_such_section(study, logical):
    assert network_sections(logical[study], "") == []
    titles = [s.title for s in apps.study_module(study, "report").sections(logical[study])]
    assert not [title for title in titles if "saw" in title]


def test_noise_in_sums_is_told_without_the_other_servers_numbers(tmp_path):
    dp = {"privacy": "dp", "epsilon": 4.0, "clip": 1.0, "secure-aggregation": "auto"}
    logical = whole("server-graph", method="hybrid", **dp)
    result = cut(logical, 1)
    result.ledger = logical.ledger
    result.metrics = [
        {**row, "epsilon": told["epsilon"]}
        for row, told in zip(result.metrics, logical.metrics, strict=True)
    ]
    found = page(result, tmp_path)
    found.assert_private()
    assert "noisy sums" in found.words
    # A forecast is of all clients, which one server does not know.
    assert "it pays to learn together" not in found.words


def test_epsilon_between_servers_that_are_apart_is_not_called_simulated(tmp_path):
    logical = whole("server-graph", method="hybrid", clip=1.0, privacy="paper")
    result = cut(logical, 1)
    result.metrics = [
        {**row, **{k: told[k] for k in ("epsilon-paper", "epsilon-corrected")}}
        for row, told in zip(result.metrics, logical.metrics, strict=True)
    ]
    words = page(result, tmp_path).words
    assert "Each server has a SuperLink of its own: this is what one tells all the others." in words
    assert "Simulated: this is what servers" not in words


def test_a_neighbour_that_is_gone_is_a_notice(logical, tmp_path):
    result = cut(logical["server-graph"], 1)
    result.arrays["alive"] = np.array([False, True, True])
    assert "Gone at the end, as far as is known here: server 0." in page(result, tmp_path).words


def test_ages_letters_and_rounds_are_counted():
    links = Links(
        np.array([[0, 1], [0, 2], [0, 3]]),
        np.array([4.0, 5.0, 6.0, 7.0]),
        np.array([[4, 2, 0], [5, 2, 0], [5, 0, -1], [7, 7, -1]]),
    )
    assert links.letters.tolist() == [4, 3, 0]
    assert links.rounds.tolist() == [4, 4, 2]
    assert links.oldest.tolist()[:2] == [1.0, 3.0]
    assert np.isnan(links.oldest[2])
    assert links.ages[:2, 1].tolist() == [2.0, 3.0]


def test_arrays_that_do_not_fit_are_no_links(logical):
    result = cut(logical["server-graph"], 1)
    for bad in (np.zeros((6, 5), dtype=int), np.zeros(3), np.zeros((0, 2))):
        assert Links.of(replace(result, arrays={**result.arrays, "link_rounds": bad})) is None
    longer = replace(result, metrics=result.metrics[:-1])
    found = Links.of(longer)
    assert found is not None
    assert found.at.tolist() == [1, 2, 3, 4, 5, 6]


def test_models_are_known_where_all_numbers_are():
    models = np.zeros((3, 2, 2))
    models[1, 0, 0] = np.nan
    models[2] = np.nan
    assert known_servers(models).tolist() == [True, False, False]


def test_the_strip_has_a_colour_for_every_age_and_grey_for_none():
    network = {"server": 0, "names": ["a", "b"], "edges": [[0, 1]], "neighbours": [1]}
    at = np.arange(1.0, 5.0)
    links = Links(np.array([[0, 1]]), at, np.array([[1], [1], [0], [4]]))
    axes = letter_strip({**network, "events": [{"round": 3}]}, links).axes[0]
    (picture,) = axes.images
    shown = [tuple(np.round(picture.to_rgba(value), 3)) for value in (0.0, 1.0, 2.0)]
    assert picture.get_array().tolist() == [[0.0, 1.0, 2.0, 0.0]]
    assert len(set(shown)) == 3
    assert shown[2][0] == pytest.approx(shown[2][1], abs=0.07)  # a grey
    assert [line.get_xdata()[0] for line in axes.lines] == [3]


def test_many_rounds_are_pooled_to_the_worst_of_each_column():
    network = {"server": 0, "names": ["a", "b"], "edges": [[0, 1]], "neighbours": [1]}
    at = np.arange(1.0, 1001.0)
    used = at.astype(int)[:, None].copy()
    used[500] = 0
    links = Links(np.array([[0, 1]]), at, used)
    (picture,) = letter_strip(network, links).axes[0].images
    assert picture.get_array().shape == (1, 200)
    assert np.flatnonzero(picture.get_array()[0] > 0).tolist() == [100]
    result = RunResult("server-graph", 1, "deployment", {}, network=network)
    result.arrays["link_rounds"] = used
    (section,) = network_sections(result, "")
    assert "5 rounds stand in one column" in "".join(b.html() for b in section.blocks)


def test_many_servers_are_drawn_without_words():
    count = 60
    network = {
        "server": 0,
        "names": [f"s{p}" for p in range(count)],
        "edges": [[p, p + 1] for p in range(count - 1)],
        "neighbours": [1],
    }
    assert not network_map(network, None).axes[0].texts
