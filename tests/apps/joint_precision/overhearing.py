"""Small runs of joint-precision, and what goes over the wire in one."""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict

from trellis import apps
from trellis.apps.common.runner import make_run_config
from trellis.apps.joint_precision import client_app as study_client
from trellis.sim.grid import LocalGrid, run_local
from trellis.strategies.core import wire

STUDY = "joint-precision"
SMALL = {"variables": 6, "blocks": 2, "samples": "50"}


def overheard(settings, data=None, seed=1, nodes=None):
    """Run the study; return its result and every (partition, message, reply) on the wire."""
    heard = []

    class Overheard(type(apps.client_app)):
        def __call__(self, message, context):
            reply = super().__call__(message, context)
            heard.append((context.node_config.get("partition-id", -1), message, reply))
            return reply

    run_config = make_run_config(STUDY, settings, data=data, seed=seed)
    clients = int(run_config[f"{STUDY}.clients"])
    nodes = nodes or [
        {"partition-id": i, "num-partitions": clients, "simulation": True} for i in range(clients)
    ]
    run_local(apps.server_app, Overheard(), nodes, run_config)
    return heard


def ask_client(run_config, node_config, kind="train", **config):
    """Send one message straight to a node; return the reply."""
    content = RecordDict({"config": ConfigRecord({"server-round": 1, **config})})
    support = np.packbits(np.zeros(15, dtype=bool))
    arrays = {"point": np.zeros(15), "support": support, "nonzero": np.zeros(0)}
    content["arrays"] = wire.record(arrays)
    context = Context(1, 2, node_config, RecordDict(), run_config)
    with LocalGrid(apps.client_app, [], {}) as grid:
        message = grid.create_message(content, kind, 2, "1")
    return study_client.app(message, context)
