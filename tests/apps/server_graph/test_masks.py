"""Secure aggregation at a server: masks cancel, and no model travels in the clear."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.server_graph.federations import OPEN, SMALL, far, study
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.privacy.secagg.client import MASKED
from trellis.sim.grid import LocalGrid
from trellis.strategies.core.enrolment import StudyError


@pytest.mark.parametrize("method", ["none", "hybrid", "masked"])
def test_masks_cancel_a_masked_run_is_the_open_one_to_the_rings_rounding(method):
    masked = study({**SMALL, "method": method, "secure-aggregation": "on"})
    opened = study({**OPEN, "method": method})
    assert far(masked.arrays["models"], opened.arrays["models"]) < 1e-8
    assert far(opened.arrays["models"], 0.0) > 0.1
    assert masked.bytes_up > 2 * opened.bytes_up
    assert "learned the sum" in masked.ledger["secure_aggregation"]
    assert "single updates" in opened.ledger["secure_aggregation"]


def test_masks_are_the_default_where_the_paper_has_them():
    for method, masks in {"hybrid": True, "masked": True, "iid": False, "none": False}.items():
        assert ServerGraphConfig(method=method).masked is masks
        assert ServerGraphConfig(method=method, secure_aggregation="off").masked is False
        assert ServerGraphConfig(method=method, secure_aggregation="on").masked is True


class Overheard:
    """All replies on their way to the servers."""

    def __init__(self, monkeypatch):
        self.replies = []
        receive = LocalGrid._receive

        def noted(grid, reply, asked):
            self.replies.append((reply.metadata.message_type, reply.content))
            return receive(grid, reply, asked)

        monkeypatch.setattr(LocalGrid, "_receive", noted)

    def arrays(self):
        return [
            (kind, array.numpy())
            for kind, content in self.replies
            for record in content.array_records.values()
            for array in record.values()
        ]


def test_no_model_travels_in_the_clear_under_masks_and_all_do_without(monkeypatch):
    heard = Overheard(monkeypatch)
    study({**OPEN, "method": "hybrid", "rounds": 2})
    assert sum(array.dtype == np.float64 for _, array in heard.arrays()) == 2 * 12
    heard.replies.clear()
    result = study({**SMALL, "method": "hybrid", "rounds": 2})
    vectors = heard.arrays()
    assert len(vectors) == 2 * 12
    assert {kind for kind, _ in vectors} == {f"train.{MASKED}"}
    assert {array.dtype for _, array in vectors} == {np.dtype(np.uint64)}
    # Model, and one for the count: words that look like chance, high bits and all.
    words = np.concatenate([array for _, array in vectors])
    assert words.size == 2 * 12 * (result.arrays["models"].shape[1] + 1)
    assert 0.3 < np.mean(words >= 2**63) < 0.7
    assert len(set(words.tolist())) == words.size


@pytest.mark.parametrize(
    ("settings", "server", "count"),
    # Eleven clients are dealt 3, 3, 3, 2.
    [({"clients": 11}, 3, 2), ({"sample": 2}, 0, 2), ({"clients": 4}, 0, 1)],
)
def test_fewer_than_three_clients_a_server_are_refused_before_anyone_is_asked(
    settings, server, count, monkeypatch
):
    heard = Overheard(monkeypatch)
    with pytest.raises(
        StudyError, match=f"server {server} asks {count} clients; .*secure-aggregation=off"
    ):
        study({**SMALL, "method": "hybrid", **settings})
    assert {kind for kind, _ in heard.replies} == {"query.enrol"}
    study({**OPEN, "method": "hybrid", "rounds": 1, **settings})


def test_a_client_that_is_asked_in_the_clear_though_masks_are_promised_refuses(monkeypatch):
    monkeypatch.setattr("trellis.strategies.secure_grid.SecureGrid", lambda grid, sums: grid)
    with pytest.raises(StudyError, match="this reply would be in the clear"):
        study({**SMALL, "method": "hybrid"})
