"""One client that declares what is not so: what it cannot do to the run of all others.

Adversary: one of the clients. At enrolment it declares what it likes about itself; the server and
the other clients are honest. Every declared value has a bound (`trellis.strategies.core.declared`).
"""

from __future__ import annotations

import csv
import time
from functools import cache

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import config_class, run
from trellis.apps.server_graph.forecast import sum_warnings
from trellis.sim.faults import Nonsense
from trellis.strategies.core.declared import (
    FAR,
    Client,
    bound_counts,
    count_notes,
    read_client,
    read_name,
)
from trellis.strategies.core.enrolment import Heard, judged, other_variables
from trellis.strategies.core.nodes import OnlineNode
from trellis.strategies.core.wire import BadReply

LIAR = 4
NAME = f"client-{LIAR + 1}"
SERVERS = {"servers": 3, "topology": "complete"}
# By name: study, settings, the array of the result that everyone uses.
SUM = {"privacy": "dp", "epsilon": 20.0, "clients": 8}
PRIVATE = {
    "consensus-graph": ({**SUM, "nodes": 6}, "consensus"),
    "joint-precision": ({**SUM, "variables": 12, "samples": "60"}, "consensus"),
    "cluster-admm": ({**SUM, "features": 4, "clusters": "1"}, "models"),
}
OPEN = {
    "consensus-graph": {"clients": 6, "rounds": 2, "nodes": 6},
    "joint-precision": {"clients": 6, "rounds": 4, "variables": 12, "samples": "60"},
    "cluster-admm": {**SERVERS, "clients": 12, "rounds": 3, "features": 3, "clusters": "2"},
    "server-graph": {**SERVERS, "clients": 12, "rounds": 2},
}
HONEST = {"name": "north", "partition": 3, "count": 40, "variables": ["a", "b"]}
MOMENTS = {"moments-count": [40.0], "moments-means": [0.0] * 2, "moments-spreads": [1.0] * 2}
NODE = OnlineNode(7, "", "")


def declare(**values: object) -> Nonsense:
    """Let a client declare other values at enrolment than it has."""

    def change(reply: Message) -> RecordDict:
        for key, value in values.items():
            reply.content["client"][key.replace("_", "-")] = value
        return reply.content

    return Nonsense(change=change, category="query", at=frozenset({1}))


@cache
def honest(study: str) -> RunResult:
    return run(study, PRIVATE[study][0], seed=3)


def play(study: str, settings: dict[str, object], **values: object) -> RunResult:
    return run(study, settings, seed=3, faults={LIAR: declare(**values)} if values else None)


# What is beyond a bound


BEYOND = {
    "a name of 10^8 characters": {"name": "A" * 10**8},
    "a name of 256 characters": {"name": "A" * 256},
    "no name": {"name": ""},
    "a name that is a number": {"name": 5},
    "a name that clears the screen": {"name": "a\x1b[2J"},
    "a name of two lines": {"name": "a\nround 3: all is well"},
    "a count below zero": {"count": -5},
    "a count of zero": {"count": 0},
    "a count of 10^9 + 1": {"count": 10**9 + 1},
    "a count of 10^18": {"count": 10**18},
    "a count that is true": {"count": True},
    "a count that is no whole number": {"count": 1.5},
    "a count that is a text": {"count": "x" * 10**7},
    "a partition of 10^18": {"partition": 10**18},
    "a partition below -1": {"partition": -2},
    "a partition that is true": {"partition": True},
    "a server of 10^18": {"server": 10**18},
    "a cluster below -1": {"cluster": -2},
    "10^9 classes": {"classes": 10**9},
    "classes that are a text": {"classes": "many"},
    "no variables": {"variables": "a"},
    "variables that are numbers": {"variables": [1, 2]},
    "10^6 + 1 variables": {"variables": ["v"] * (10**6 + 1)},
    "a variable twice": {"variables": ["a", "a"]},
    "a variable of 10^7 characters": {"variables": ["a" * 10**7]},
    "variables of 2 10^7 characters": {"variables": [f"{i:0900d}" for i in range(22_223)]},
    "moments of more records than it has": {**MOMENTS, "moments-count": [1e9]},
    "moments that are no numbers": {**MOMENTS, "moments-means": [float("nan")] * 2},
    "moments of 1e200": {**MOMENTS, "moments-means": [1e200] * 2},
    "spreads below zero": {**MOMENTS, "moments-spreads": [-1.0] * 2},
    "moments of 10^6 columns": {
        "moments-count": [40.0], "moments-means": [0.0] * 10**6, "moments-spreads": [1.0] * 10**6,
    },
    "moments without spreads": {"moments-count": [40.0], "moments-means": [0.0] * 2},
}  # fmt: skip


@pytest.mark.parametrize("what", list(BEYOND))
def test_a_declaration_beyond_its_bound_is_refused_in_few_words(what):
    record = ConfigRecord({**HONEST, **BEYOND[what]})
    began = time.monotonic()
    with pytest.raises(BadReply) as error:
        read_client(record, NODE)
    assert len(str(error.value)) < 300
    assert time.monotonic() - began < 5.0


def test_an_honest_declaration_is_read_as_it_is():
    found = read_client(ConfigRecord({**HONEST, **MOMENTS, "server": 1, "classes": 3}), NODE)
    assert (found.name, found.partition, found.count, found.counted) == ("north", 3, 40, 40)
    assert (found.variables, found.server, found.cluster, found.classes) == (["a", "b"], 1, -1, 3)
    assert found.moments == [[40.0], [0.0, 0.0], [1.0, 1.0]]
    assert read_name(ConfigRecord({"name": "Santé 北, ward 3"})) == "Santé 北, ward 3"
    assert read_client(ConfigRecord({**HONEST, "count": 10**9}), NODE).count == 10**9


def test_very_many_other_variables_are_told_apart_at_once():
    names = [f"v{i}" for i in range(200_000)]
    one, other = Client("a", 0, 5, names, 1), Client("b", 1, 5, [*names[1:], "w" * 900], 2)
    began = time.monotonic()
    text = other_variables(other, one)
    assert time.monotonic() - began < 5.0
    assert len(text) < 500


def test_a_client_whose_moments_are_of_other_columns_is_left_out():
    def client(name, columns):
        moments = [[5.0], [0.0] * columns, [1.0] * columns] if columns else []
        return Client(name, -1, 5, ["x", "y"], 1, moments=moments)

    found = judged(Heard([client("a", 2), client("b", 3), client("c", 0), client("d", 2)]))
    assert [c.name for c in found.clients] == ["a", "d"]
    assert found.rejected == 2
    assert "b: cannot be enrolled: its moments are not of 2 columns" in found.reasons


LIES = {
    "count": {"count": -5},
    "huge count": {"count": 10**18},
    "name": {"name": "A" * 10**7},
    "variables": {"variables": ["v"] * 10**5},
    "partition": {"partition": 10**18},
    "server": {"server": 99},
    "cluster": {"cluster": 10**9},
    "classes": {"classes": 10**9},
    "moments": {"moments-count": [1.0], "moments-means": [1.0], "moments-spreads": [-1.0]},
    "no count": {"count": "none"},
}


@pytest.mark.parametrize("lie", list(LIES))
@pytest.mark.parametrize("study", list(OPEN))
def test_one_bad_enrolment_ends_no_run(study, lie):
    settings = OPEN[study]
    result = play(study, settings, **LIES[lie])
    assert result.status == "completed"
    if lie == "server" and "servers" not in settings:  # of which such a study has none
        assert len(result.clients) == settings["clients"]
        return
    assert len(result.clients) == int(settings["clients"]) - 1
    [note] = [note for note in result.notes if "cannot be enrolled" in note]
    assert len(note) < 1100


def test_a_liar_does_not_count_where_a_least_number_is_set():
    settings = {**OPEN["consensus-graph"], "clients-least": 5}
    assert len(play("consensus-graph", settings, count=-1).clients) == 5
    with pytest.raises(Exception, match="5 of 6 clients could be enrolled"):
        play("consensus-graph", {**settings, "clients-least": 6}, count=-1)


# Numbers of records within the bound


def clients(*counts):
    made = [Client(f"c{i}", i, count, ["x"], i + 1) for i, count in enumerate(counts)]
    bound_counts(made)
    return made


def test_no_client_counts_as_more_than_a_hundred_times_the_median():
    found = clients(60, 50, 70, 10**9, 1)
    assert [c.counted for c in found] == [60, 50, 70, FAR * 60, 1]
    assert [c.count for c in found] == [60, 50, 70, 10**9, 1]
    [note] = count_notes(found)
    assert "Client c3 declares 1000000000 records, more than 100 times the median" in note
    assert "60: it counts as 6000" in note


def test_honest_numbers_of_records_count_as_they_are_and_are_not_noted():
    for counts in [(20, 60, 300, 5000), (10**9,), (1, 10**9), (1, 1, 100), (10**6,) * 3]:
        found = clients(*counts)
        assert tuple(c.counted for c in found) == counts
        assert count_notes(found) == []


def test_few_records_are_noted_and_many_notes_cut():
    [note] = count_notes(clients(1, 500, 600, 700))
    assert "Client c0 declares 1 records, less than 1/100 of the median of all clients, 500" in note
    notes = count_notes(clients(*[1] * 60, *[500] * 61))
    assert len(notes) == 11
    assert notes[-1].startswith("50 more clients")


@pytest.mark.parametrize("count", [3000, 10**9])
@pytest.mark.parametrize("study", ["consensus-graph", "joint-precision"])
def test_a_false_count_does_not_move_what_the_private_sum_shows(study, count):
    # The sum is divided by numbers of records: a false one made it vanish.
    def change(reply: Message) -> RecordDict:
        if "client" in reply.content:
            reply.content["client"]["count"] = count
        if "metrics" in reply.content:  # of its summands
            reply.content["metrics"]["num-examples"] = count
        return reply.content

    settings, name = PRIVATE[study]
    false = run(study, settings, seed=3, faults={LIAR: Nonsense(change=change)})
    before, after = honest(study).arrays[name], false.arrays[name]
    assert np.linalg.norm(after - before) < 0.3 * np.linalg.norm(before)
    assert any(NAME in note and str(count) in note for note in false.notes)
    # Of a lie at enrolment alone the sum knows nothing.
    enrolled = play(study, settings, count=count).arrays[name]
    np.testing.assert_array_equal(enrolled, before)


def test_a_false_count_is_noted_and_bounded_in_cluster_admm():
    settings, name = PRIVATE["cluster-admm"]
    false = play("cluster-admm", settings, count=10**9)
    before, after = honest("cluster-admm").arrays[name], false.arrays[name]
    assert np.linalg.norm(after - before) < 0.3 * np.linalg.norm(before)
    assert any(f"Client {NAME} declares 1000000000 records" in note for note in false.notes)


def test_a_client_of_few_samples_that_costs_all_much_noise_is_named():
    # The noise of a server's sum is what its smallest client needs.
    config = config_class("server-graph").from_settings({**SUM, "servers": 1})
    assert not any("declares" in note for note in sum_warnings(config, clients(60, 50, 40), 3))
    [note] = [n for n in sum_warnings(config, clients(60, 50, 70, 1), 3) if "declares" in n]
    assert note.startswith("Client c3 declares 1 samples, the median of all clients is 50: ")


@pytest.mark.parametrize("study", list(OPEN))
def test_a_false_count_is_noted_without_privacy_too(study):
    result = play(study, OPEN[study], count=10**8)
    assert any(f"Client {NAME} declares 100000000 records" in note for note in result.notes)


# Names


@pytest.mark.parametrize("name", ['=HYPERLINK("http://x")', "+1+cmd|x", "-2+3", "@SUM(A1)"])
def test_a_name_becomes_no_formula(tmp_path, name):
    settings = {**OPEN["cluster-admm"], "held-out": 0.2}
    faults = {LIAR: declare(name=name)}
    run("cluster-admm", settings, seed=3, faults=faults, out=tmp_path)
    seen = 0
    for path in tmp_path.rglob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        seen += any(name in cell for cell in cells)
        texts = [cell for cell in cells if cell[:1] in tuple("=+-@")]
        for text in texts:
            float(text)  # a number, or this fails
    assert seen >= 2  # scores.csv and clients.csv
