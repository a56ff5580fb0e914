"""Flower as it runs on devices, on this machine: one SuperLink, one SuperNode process a client.

    with Deployment([{"partition-id": 0}, {"partition-id": 1}]) as deployment:
        run = deployment.run(app, {"rounds": 2}, timeout=300).check()

Everything listens on the loopback interface only, without TLS. Each node has its own process and
its own ``FLWR_HOME``, and each message its own process: expect seconds a round, not milliseconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from trellis.sim.flower import FlowerRun, FlowerSession, tail
from trellis.sim.processes import FlowerRunError, free_port
from trellis.sim.run_config import Scalar, check_run_config, toml

logger = logging.getLogger("trellis.flower")


class Deployment:
    """A SuperLink and its SuperNodes, from entering the context to leaving it.

    Parameters
    ----------
    node_configs : one node config a SuperNode; what the ClientApp sees as ``context.node_config``
    start_timeout : seconds for all nodes to come online
    """

    def __init__(
        self, node_configs: Sequence[Mapping[str, Scalar]], *, start_timeout: float = 120.0
    ) -> None:
        if not node_configs:
            raise ValueError("node_configs is empty: a deployment needs at least one node")
        self._node_configs = [toml(config) for config in node_configs]
        self._start_timeout = start_timeout
        self._session = FlowerSession()
        self._logs: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._session.__enter__()
        try:
            self._session.start_superlink()
            for number, config in enumerate(self._node_configs):
                self._start_node(number, config)
            self._wait_for_nodes()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The files go with the session; who asks why a run failed often asks after leaving.
        try:
            self._logs = self._session.logs()
        finally:
            self._session.__exit__(kind, error, trace)

    @property
    def address(self) -> str:
        """The SuperLink's ``host:port``."""
        return self._session.address

    def run(
        self,
        app: Path,
        run_config: Mapping[str, Scalar] | None = None,
        *,
        timeout: float = 3600.0,
        on_log: Callable[[str], None] | None = None,
    ) -> FlowerRun:
        """Run ``app`` on these nodes and wait for its end; see `trellis.sim.flower.simulate`.

        A run whose time is over is stopped; the deployment can be used further.
        """
        run_config = run_config or {}
        check_run_config(app, run_config)
        return self._session.run(app, run_config, timeout=timeout, on_log=on_log)

    def logs(self) -> dict[str, str]:
        """Return what ``superlink``, ``supernode-0``, ... have written, also after the end."""
        return self._logs or self._session.logs()

    def _start_node(self, number: int, config: str) -> None:
        name = f"supernode-{number}"
        home = self._session.home / name
        home.mkdir()
        # A file, as for the run config: Flower takes no quote inside a string otherwise.
        file = home / "node-config.toml"
        file.write_bytes(config.encode())
        self._session.start(
            name,
            "flower-supernode",
            *("--insecure", "--superlink", self.address),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", str(file)),
            home=home,
        )

    def _wait_for_nodes(self) -> None:
        wanted = len(self._node_configs)
        deadline = time.monotonic() + self._start_timeout
        while True:
            nodes = self._session.flwr("supernode", "list")["nodes"]
            online = sum(node["status"] == "online" for node in nodes)
            if online >= wanted:
                logger.info("%d SuperNodes are online", online)
                return
            self._session.check_alive()
            if time.monotonic() > deadline:
                ends = (f"{name}:\n{tail(log, 5)}" for name, log in self.logs().items())
                raise FlowerRunError(
                    f"{online} of {wanted} SuperNodes are online after "
                    f"{self._start_timeout:g} s\n" + "\n".join(ends)
                )
            time.sleep(0.5)
