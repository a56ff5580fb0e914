"""What the attacks on server-graph and cluster-admm share: devices, and a server of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from trellis import apps
from trellis.apps.common.runner import config_class
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire

Array = NDArray[np.float64]


def device(folder: Path, X: Array, y: Array, **node: Any) -> dict[str, Any]:
    """Return the node config of a device with this data; it does not say ``simulation``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "data.npz"
    np.savez(path, X=X, y=y)
    own = {"data-path": str(path), "state-path": str(folder / "state"), "server": 0, "cluster": 0}
    return {**own, **node}


def ask(
    study: str,
    settings: dict[str, Any],
    node: dict[str, Any],
    kind: str,
    arrays: dict[str, Array] | None = None,
    **order: float,
) -> Message:
    """Return the device's answer to one message of a server that picks every setting."""
    config = config_class(study).from_settings(settings)
    run_config = {"study": study, "seed": 1, "out": "", **config.run_config()}
    content = RecordDict()
    if arrays is not None:
        content["arrays"] = wire.record(arrays)
    if order:
        named = {key.replace("_", "-"): value for key, value in order.items()}
        content["config"] = ConfigRecord({"server-round": named.pop("round", 1), **named})
    with LocalGrid(apps.client_app, [node], run_config) as grid:
        (number,) = grid.get_node_ids()
        (reply,) = grid.send_and_receive([Message(content, number, kind)])
    return reply


def model(reply: Message) -> Array:
    """Return the model that a device sent."""
    assert not reply.has_error(), reply.error.reason
    return wire.arrays(reply.content["arrays"])["model"]
