"""Studies with many clients: what they do and keep grows with the clients and no faster.

Bytes and what is made are counted, no time is taken.
"""

from __future__ import annotations

import tracemalloc

import pytest

from trellis.apps import run
from trellis.apps.cluster_admm import data as cluster_data
from trellis.apps.consensus_graph import data as graph_data
from trellis.strategies.core.enrolment import Client, _name_apart

SETTINGS = {
    "cluster-admm": {"rounds": 3},
    "consensus-graph": {"rounds": 2, "tolerance": 0.0},
    "server-graph": {"rounds": 3, "method": "fedavg", "secure-aggregation": "off"},
}
# Bytes a client at most, beside those of its data: of cluster-admm twice 5.5 samples of 61 numbers,
# of consensus-graph 13 vectors of 190 numbers (replies, graphs before and after, what they yield).
MOST_BYTES = {"cluster-admm": 22_000, "consensus-graph": 21_000, "server-graph": 20_000}


@pytest.mark.parametrize("study", SETTINGS)
def test_twice_the_clients_take_twice_the_memory_and_little(study):
    run(study, {**SETTINGS[study], "clients": 20})
    peaks = []
    for clients in (150, 300, 600):
        tracemalloc.start()
        try:
            run(study, {**SETTINGS[study], "clients": clients})
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    each = (peaks[2] - peaks[1]) / 300
    assert each < MOST_BYTES[study]
    assert each < 1.25 * (peaks[1] - peaks[0]) / 150


def test_names_are_compared_with_themselves_only():
    compared = []

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(1)
            return str.__eq__(self, other)

    clients = [Client(Name(f"c{i}"), i, 1, ["x"], i, own=Name(f"c{i}")) for i in range(400)]
    clients[7].name = Name("c3")
    _name_apart(clients)
    assert [clients[3].name, clients[7].name, clients[8].name] == ["c3-4", "c3-8", "c8"]
    assert len(compared) < 100


def test_what_all_synthetic_clients_come_from_is_made_once(monkeypatch):
    made = []
    for module, name in ((cluster_data, "_clusters"), (graph_data, "edge_vector")):
        original = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, name=name, of=original: made.append(name) or of(*a)
        )
    cluster_data.synthetic_truth.cache_clear()
    graph_data._shared_graphs.cache_clear()
    run("cluster-admm", {"rounds": 1, "clients": 30})
    assert made.count("_clusters") == 1
    run("consensus-graph", {"rounds": 1, "clients": 10})
    assert made.count("edge_vector") == 1


def test_clients_share_the_names_of_their_variables():
    found = [cluster_data.synthetic_table(cluster_data.ClusterAdmmConfig(), 1, k) for k in (0, 1)]
    assert found[0].columns is found[1].columns
    assert found[0].columns[:2] == ("x01", "x02")


def test_what_is_shared_cannot_be_written():
    truth = cluster_data.synthetic_truth(cluster_data.ClusterAdmmConfig(), 1)
    with pytest.raises(ValueError, match="read-only"):
        truth.models[0] = 0.0
