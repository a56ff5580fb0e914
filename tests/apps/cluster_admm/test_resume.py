"""cluster-admm goes on after a kill, with the same bits."""

from __future__ import annotations

import pytest

from tests.apps.cluster_admm.separated import TINY
from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.grid import run_local
from trellis.strategies.core.checkpoint import Checkpoint


class Counting(type(apps.client_app)):
    """Counts the messages of one client, and ends the run at the n-th."""

    def __init__(self, kill_at=0):
        super().__init__()
        self.seen, self.kill_at = 0, kill_at

    def __call__(self, message, context):
        if context.node_config["partition-id"] == 1:
            self.seen += 1
            if self.seen == self.kill_at:
                raise KeyboardInterrupt
        return super().__call__(message, context)


def start(settings, out, app=apps.client_app, resume=False):
    run_config = make_run_config("cluster-admm", settings, seed=4, resume=resume)
    nodes = [
        {"partition-id": i, "num-partitions": settings["clients"], "simulation": True}
        for i in range(settings["clients"])
    ]
    run_local(apps.server_app, app, nodes, run_config | {"out": str(out)})
    result = RunResult.load(out)
    kept = [{k: v for k, v in row.items() if k != "seconds"} for row in result.metrics]
    result.metrics = kept
    return result


@pytest.mark.parametrize(
    "changes",
    [
        {"clusters": "auto:3"},
        {"clusters": "auto:3", "sample": 2},
        {"clusters": "auto:3", "mixing": "exact"},
        {"clusters": "auto:2", "rounds": 7},
    ],
    ids=str,
)
def test_a_run_killed_at_any_message_and_resumed_ends_with_the_same_bits(
    changes, tmp_path, monkeypatch
):
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    settings = {**TINY, "rounds": 10, "samples": "4", **changes}
    counting = Counting()
    whole = start(settings, tmp_path / "whole", counting)
    for place in range(2, counting.seen + 1):
        folder = tmp_path / f"killed-{place}"
        with pytest.raises(KeyboardInterrupt):
            start(settings, folder, Counting(place))
        resumed = start(settings, folder, resume=True)
        assert set(resumed.arrays) == set(whole.arrays)
        for name, array in whole.arrays.items():
            assert resumed.arrays[name].tobytes() == array.tobytes(), (place, name)
        assert resumed.metrics == whole.metrics
