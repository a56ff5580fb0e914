"""Results that stay on the device: files for the owner, nothing for the server."""

from __future__ import annotations

import io
import stat

import networkx as nx
import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from trellis.apps.command import main
from trellis.apps.common.private.files import edges_of, graphml
from trellis.apps.common.private.personal import Personal, personal
from trellis.privacy.device import log
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.exchange import exchange

NAMES = ["a & b", "<c>", "d", "e\x00"]
GRAPH = np.array([0.5, 0.0, -0.25, 1.0, 0.0, 1e-9])

app = ClientApp()


@personal(app)
def compute(message: Message, context: Context) -> Personal:
    if context.run_config.get("fails"):
        raise ValueError("Maria Rossi")
    return Personal({"weights": GRAPH}, GRAPH, NAMES, {"pull": 0.5, "kind": "graph"})


def ask(node, **run_config):
    with LocalGrid(app, [node], {"study": "consensus-graph", "seed": 1, **run_config}) as grid:
        (node_id,) = grid.get_node_ids()
        return exchange(grid, {0: Message(RecordDict(), node_id, "query.personal")}, 10.0)


def device(tmp_path):
    return {"data-path": str(tmp_path / "x.csv"), "state-path": str(tmp_path / "state")}


def test_a_simulated_client_sends_its_result_to_be_evaluated():
    found = ask({"partition-id": 0, "num-partitions": 1, "simulation": True}).content[0]
    np.testing.assert_array_equal(wire.arrays(found["arrays"])["weights"], GRAPH)
    assert dict(found["summary"]) == {"pull": 0.5}


def test_a_device_keeps_its_result_and_says_nothing(tmp_path):
    reply = ask(device(tmp_path)).content[0]
    assert {key: dict(record) for key, record in reply.items()} == {"personal": {"came": True}}
    (folder,) = (tmp_path / "state" / "results").iterdir()
    with np.load(folder / "result.npz") as kept:
        np.testing.assert_array_equal(kept["weights"], GRAPH)
        assert kept["variables"].size == 4
    page = (folder / "result.html").read_text()
    assert "&lt;c&gt;" in page
    assert "<c>" not in page
    assert "sent to anybody" in page
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (folder / "edges.csv").read_text().splitlines()[1] == "<c>,d,1.0"


def test_a_device_that_fails_says_the_same(tmp_path):
    good = ask(device(tmp_path)).content[0]
    bad = ask(device(tmp_path), fails=True)
    assert not bad.failures
    assert {k: dict(v) for k, v in bad.content[0].items()} == {k: dict(v) for k, v in good.items()}
    assert "Maria Rossi" in log.read(tmp_path / "state")[-1]["error"]


def test_other_programs_read_the_graph():
    found = nx.read_graphml(io.BytesIO(graphml(edges_of(GRAPH, NAMES), NAMES)))
    assert set(found.nodes) == {"a & b", "<c>", "d", "e\ufffd"}
    assert found["a & b"]["<c>"]["weight"] == 0.5
    assert found.number_of_edges() == 3


def test_a_graph_of_other_variables_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        edges_of(GRAPH, NAMES[:3])


def test_the_owner_finds_the_results(tmp_path, capsys):
    ask(device(tmp_path))
    assert main(["device", "result", str(tmp_path / "state")]) == 0
    said = capsys.readouterr().out
    assert "result.html" in said
    assert "weights (6,)" in said


def test_a_device_without_results_says_so(tmp_path, capsys):
    assert main(["device", "result", str(tmp_path)]) == 0
    assert "no results" in capsys.readouterr().out
