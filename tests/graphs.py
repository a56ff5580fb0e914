"""Graphs of servers in this process: each its own grid, thread and folder, joined by bridges."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellis import apps
from trellis.apps.common.assignment import dealt_server
from trellis.apps.common.node import Node
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.federation.certificates import make_signing_key
from trellis.sim.grid import run_local
from trellis.strategies.topology.graph import topology


def server_folders(root: Path, servers: int) -> list[Path]:
    """Make a folder for each server: its identity and the table of all."""
    pairs = [make_signing_key() for _ in range(servers)]
    table = b"".join(b"server-%d %s" % (s, pair.public) for s, pair in enumerate(pairs))
    folders = []
    for s, pair in enumerate(pairs):
        folder = root / f"server-{s}"
        folder.mkdir(parents=True)
        (folder / "identity.key").write_bytes(pair.private)
        (folder / "servers.txt").write_bytes(table)
        folders.append(folder)
    return folders


@dataclass
class Graph:
    """A study on servers that live apart, each in a thread.

    Attributes
    ----------
    study, settings, seed, data : as of `trellis.apps.common.runner.run`
    root : where everything goes
    options : more of the run config, such as ``max-staleness``
    """

    study: str
    settings: Mapping[str, Any]
    root: Path
    seed: int = 1
    data: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = "a run"
    client_app: Any = None

    def __post_init__(self) -> None:
        self.base = make_run_config(self.study, self.settings, data=self.data, seed=self.seed)
        self.clients = int(self.base[f"{self.study}.clients"])
        self.servers = int(self.base[f"{self.study}.servers"])
        self.graph = topology(str(self.base[f"{self.study}.topology"]), self.servers)
        self.folders = server_folders(self.root / "servers", self.servers)
        self.errors: dict[int, BaseException] = {}

    def run_config(self, server: int, **more: Any) -> dict[str, Any]:
        """Return the run config of one server."""
        own = {
            "server": server,
            "server-folder": str(self.folders[server]),
            "graph-run": self.name,
            "server-timeout": 20.0,
            "out": str(self.root / "out" / str(server)),
        }
        return {**self.base, **own, **self.options, **more}

    def nodes(self, server: int) -> list[dict[str, Any]]:
        """Return the node configs of one server's clients and of the bridges to it."""
        found = []
        for k in range(self.clients):
            node = Node(f"client-{k + 1}", k, None, None, True)
            if dealt_server(self.clients, self.servers, node) == server:
                found.append(
                    {
                        "partition-id": k,
                        "num-partitions": self.clients,
                        "simulation": True,
                        "server": server,
                    }
                )
        for p in self.graph.neighbours(server).tolist():
            found.append({"bridge": p, "spool": str(self.folders[p] / "spool")})
        return found

    def start(self, server: int, **more: Any) -> threading.Thread:
        """Start one server."""
        config, nodes = self.run_config(server, **more), self.nodes(server)

        def work() -> None:
            try:
                run_local(
                    apps.server_app, self.client_app or apps.client_app, nodes, config, workers=8
                )
            except BaseException as error:
                self.errors[server] = error

        thread = threading.Thread(target=work, name=f"server-{server}")
        thread.start()
        return thread

    def run(self, *, timeout: float = 120.0, **more: Any) -> list[RunResult]:
        """Run all servers to their end; raise what one of them raised."""
        threads = [self.start(server, **more) for server in range(self.servers)]
        for thread in threads:
            thread.join(timeout)
            assert not thread.is_alive(), f"{thread.name} did not end"
        for error in self.errors.values():
            raise error
        return [self.result(server) for server in range(self.servers)]

    def result(self, server: int) -> RunResult:
        """Return what one server left."""
        return RunResult.load(self.root / "out" / str(server))


def own_rows(results: list[RunResult]) -> Any:
    """Return the models (P, ...) of servers, each as it knows its own."""
    import numpy as np

    return np.array([result.arrays["models"][s] for s, result in enumerate(results)])
