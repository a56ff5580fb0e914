"""Small runs of joint-precision, what goes over the wire in one, and what a client releases."""

from __future__ import annotations

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict

from trellis import apps
from trellis.apps.common.node import Node
from trellis.apps.common.runner import make_run_config
from trellis.apps.joint_precision import client_app as study_client
from trellis.apps.joint_precision import release
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.data import synthetic_table
from trellis.apps.joint_precision.release import release_correlation
from trellis.privacy.accounting.budget import Policy
from trellis.sim.grid import LocalGrid, run_local
from trellis.strategies.core import wire

STUDY = "joint-precision"
SMALL = {"variables": 6, "blocks": 2, "samples": "50"}
SOUND = {**SMALL, "privacy": "sound", "release": "each", "epsilon": 2.0, "delta": 1e-6}


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


def upper_tau(values: np.ndarray) -> np.ndarray:
    """Return tau-a by its definition."""
    n, p = values.shape
    first, second = np.triu_indices(n, 1)
    signs = np.sign(values[first] - values[second])
    return (signs.T @ signs)[np.triu_indices(p, 1)] * 2.0 / (n * (n - 1))


def released(monkeypatch, settings, seeds, node=None, values=None):
    """Return noisy minus clean tau (seeds, pairs), as it leaves the release."""
    config = JointPrecisionConfig.from_settings(settings)
    seen = []
    original = release.correlation_from_tau

    def watched(tau):
        seen.append(tau.copy())
        return original(tau)

    monkeypatch.setattr(release, "correlation_from_tau", watched)
    noise, events = [], []
    for seed in seeds:
        table = synthetic_table(config, seed, 1) if values is None else values
        known = release_correlation(
            config, seed, node or Node("a", 1, None, None, True), table, Policy()
        )
        np.testing.assert_array_equal(seen[-1], seen[-1].T)
        np.testing.assert_array_equal(np.diagonal(seen[-1]), 1.0)
        noise.append(seen[-1][np.triu_indices(len(seen[-1]), 1)] - upper_tau(table.values))
        (event,) = known.statistic.events
        events.append(event)
    return np.array(noise), events


def ask_client(run_config, node_config, order):
    """Send one order straight to a node; return the reply."""
    content = RecordDict({"order": ConfigRecord({"round": 1, **order})})
    support = np.packbits(np.zeros(15, dtype=bool))
    arrays = {"point": np.zeros(15), "support": support, "nonzero": np.zeros(0)}
    content["arrays"] = wire.record(arrays)
    context = Context(1, 2, node_config, RecordDict(), run_config)
    with LocalGrid(apps.client_app, [], {}) as grid:
        message = grid.create_message(content, "train", 2, "1")
    return study_client.app(message, context)
