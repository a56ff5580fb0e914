"""What nodes are called in Flower's simulation, whose ids are random numbers of 20 digits."""

from __future__ import annotations

import pytest
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce.vce_api import _register_nodes
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from trellis.sim.private import identity
from trellis.strategies.core.enrolment import StudyError, enrol
from trellis.strategies.core.nodes import may_change, online


@pytest.fixture
def simulation():
    """Flower's own grid with five nodes, and the partition of each."""
    factory = LinkStateFactory(
        FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
    )
    run = Run.create_empty(7)
    run.federation_id, run.primary_task_id = NOOP_FEDERATION_ID, 1
    state = factory.state()
    state.run_ids[7], state.task_store[1] = RunRecord(run=run), Task(task_id=1, run_id=7)
    grid = InMemoryGrid(state_factory=factory)
    grid.set_run(run)
    identity.take(7)
    yield grid, _register_nodes(5, factory)
    identity.give_back(7)


def test_a_node_is_called_by_its_client_s_place(simulation):
    grid, partitions = simulation
    found = online(grid)
    assert list(found) == sorted(partitions)
    assert not may_change(grid)
    for number, partition in partitions.items():
        assert found[number].called() == f"client {partition + 1}"
        assert found[number].called("ward") == "ward"


def test_who_is_missing_in_a_simulation_is_a_client(simulation, monkeypatch):
    grid, _ = simulation
    monkeypatch.setattr(InMemoryGrid, "push_messages", lambda *_: [])
    with pytest.raises(StudyError, match="waiting for 2 more clients; 5 of 7 clients are online"):
        enrol(grid, 7, 0.1, 0.2)
