"""One message a client: made as they are sent, or all before, on whichever grid."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from tests.sim.engines import echo, local_grid
from trellis.sim.faults import Drop
from trellis.strategies.core import wire
from trellis.strategies.core.exchange import OFFLINE, exchange


def question(client: int, node: int) -> Message:
    arrays = wire.record({"x": np.full(3, float(client))})
    return Message(
        RecordDict({"arrays": arrays, "order": ConfigRecord({"n": client})}), node, "train"
    )


def told(answers):
    values = {c: wire.arrays(found["arrays"])["x"].tolist() for c, found in answers.content.items()}
    return values, answers.failures, answers.bytes_up, answers.bytes_down


@pytest.mark.parametrize("workers", [0, 2])
def test_messages_made_one_by_one_are_answered_as_those_made_before(workers):
    found = []
    for lazily in (False, True):
        with local_grid(echo, 4, workers=workers, faults={2: Drop()}) as grid:
            nodes = list(grid._nodes)
            pairs = [(client, question(client, node)) for client, node in enumerate(nodes)]
            pairs.append((4, question(4, 0)))  # not online
            pairs.append((5, question(5, 12345)))  # unknown
            found.append(told(exchange(grid, iter(pairs) if lazily else dict(pairs), 60.0)))
    assert found[0] == found[1]
    values, failures, up, down = found[0]
    assert values == {client: [float(client)] * 3 for client in (0, 1, 3)}
    assert failures[4] == OFFLINE
    assert "did not take" in failures[5]
    assert set(failures) == {2, 4, 5}
    assert 0 < up < down


def test_a_grid_that_goes_through_messages_twice_is_given_a_list():
    with local_grid(echo, 3) as inner:

        class Twice:
            def push_messages(self, messages):
                assert len(list(messages)) == len(list(messages)) == 3
                return inner.push_messages(messages)

            def pull_messages(self, ids):
                return inner.pull_messages(ids)

        pairs = ((client, question(client, node)) for client, node in enumerate(inner._nodes))
        assert set(exchange(Twice(), pairs, 60.0).content) == {0, 1, 2}


def test_nothing_to_send_is_no_round():
    with local_grid(echo, 2) as grid:
        answers = exchange(grid, iter([(0, question(0, 0))]), 60.0)
        assert answers.failures == {0: OFFLINE}
        assert grid._round == 0
