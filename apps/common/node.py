"""Who a ClientApp is: the node it runs on, its data, and whether all of this is a simulation.

Nothing here trusts the server. A real device is named by its own node config: ``data-path`` (its
file), ``state-path`` (a folder it may write; beside the data where absent), optionally
``partition-id`` and ``name``, and what its owner allows (see `privacy.device.policy`). Only a
simulated node takes its data from the run config, and only a simulated node draws noise from the
run's seed.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context

from trellis.privacy.device.policy_file import OWNER_KEYS
from trellis.privacy.device.state import state_folder

from .tables import DataError, client_sources, graph_folder, shared_dataset


@dataclass(frozen=True)
class Node:
    """One client of a federation.

    Attributes
    ----------
    name : the file's stem, or ``client-3``
    partition : place in the order of clients; on a device without one, -1
    data_path : its file, or folder of graphs; None where the study makes its data
    state_path : a folder of its own for what must survive a restart; None where there is none
    simulated : whether data and noise may come from the run's seed
    shared : whether ``data_path`` is one data set for all clients, of which this one has a part
    """

    name: str
    partition: int
    data_path: Path | None
    state_path: Path | None
    simulated: bool
    shared: bool = False

    @classmethod
    def of(cls, context: Context) -> Node:
        """Return the node this context belongs to."""
        config: dict[str, Any] = dict(context.node_config)
        simulated = is_simulated(context)
        partition = _partition(config)
        out = str(context.run_config.get("out", ""))
        simulated_state = Path(out) / "nodes" / str(partition) if out else None
        if "data-path" in config:
            path = Path(str(config["data-path"]))
            if not path.is_absolute():
                raise DataError(f"data-path={str(path)!r}: give the absolute path in --node-config")
            name = str(config.get("name", path.stem))
            if simulated:
                return cls(name, partition, path, simulated_state, True)
            state = config.get("state-path")
            folder = Path(str(state)) if state else state_folder(path)
            return cls(name, partition, path, folder, False)
        if not simulated:
            raise DataError(
                "this SuperNode names no data: start it with "
                "--node-config 'data-path=\"/absolute/file.csv\"'"
            )
        if partition < 0:
            raise DataError("a simulated node needs partition-id in its node config")
        data = str(context.run_config.get("data", ""))
        if not data:
            return cls(f"client-{partition + 1}", partition, None, simulated_state, True)
        if shared_dataset(Path(data)):
            name = f"client-{partition + 1}"
            return cls(name, partition, Path(data), simulated_state, True, shared=True)
        files = client_sources(Path(data))
        if partition >= len(files):
            raise DataError(f"{data}: {len(files)} files, none for partition {partition}")
        path = files[partition]
        return cls(path.stem, partition, path, simulated_state, True)


def data_stamp(node: Node) -> tuple[int, int] | None:
    """Return time of change and size of a node's file, to see whether it is still the same.

    Of a folder, the sums over its files: one that is rewritten in place leaves the folder's own.
    """
    path = node.data_path
    if path is None:
        return None
    try:
        if path.is_dir():
            states = [os.stat(file) for file in (graph_folder(path) or path).iterdir()]
        else:
            states = [os.stat(path)]
    except OSError:
        return (-1, -1)  # reading it gives the error that names it
    return (sum(s.st_mtime_ns for s in states), sum(s.st_size for s in states))


def seed_of(context: Context) -> int:
    """Return the seed of a run; an app that names none has the same as everywhere, 1."""
    return int(context.run_config.get("seed", 1))


def is_simulated(context: Context) -> bool:
    """Return whether this ClientApp runs in a simulation.

    A node config with anything of an owner's policy in it is a device's, whatever else is true.
    Otherwise the in-process engine, or whoever owns the node, says ``simulation`` in the node
    config. Flower's simulation runs ClientApps in Ray workers and gives them a partition and
    nothing else: a node with data or a state of its own is never taken for one of those. The
    server has no part in it.
    """
    config = context.node_config
    if not OWNER_KEYS.isdisjoint(config):
        return False
    if config.get("simulation") is True:
        return True
    if set(config) != {"partition-id", "num-partitions"}:
        return False
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _partition(config: dict[str, Any]) -> int:
    value = config.get("partition-id", -1)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise DataError(f"partition-id={value!r}: must be a whole number") from None
