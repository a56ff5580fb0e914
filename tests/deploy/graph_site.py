"""A graph of SuperLinks on this machine, as its operators use it, and the harm done to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.sim.federation.graph.folder import ServerGraph
from trellis.sim.federation.graph.rehearsal import GraphRehearsal
from trellis.sim.processes import descendants, flower_environment, free_port
from trellis.strategies.network.spool import Spool

from .site import Submitted, processes_of, trellis, until


def write_rows(path: Path, seed: int) -> None:
    """Write a client's table: two features, their columns orthogonal, and a target."""
    rng = np.random.default_rng(seed)
    features = np.linalg.qr(rng.normal(size=(80, 2)))[0] * np.sqrt(80.0)
    target = features @ [1.0, -2.0] + 0.5 * rng.normal(size=80)
    rows = np.column_stack([features, target])
    np.savetxt(path, rows, delimiter=",", header="a,b,y", comments="")


class GraphSite:
    """A graph of servers that runs on this machine.

    Parameters
    ----------
    folder : of the graph
    data : one file per client
    work : an empty folder for what runs leave
    """

    def __init__(self, folder: Path, data: Path, work: Path) -> None:
        self.folder, self.data, self.work = folder, data, work
        self.graph = ServerGraph.load(folder)
        self.rehearsal = GraphRehearsal(self.graph)
        self._submitted: list[Submitted] = []

    def submit(self, study: str, out: str, *options: object, **settings: object) -> Submitted:
        """Submit a run to all servers, or with ``--only`` and ``--resume`` to one."""
        place = self.work / out
        given = [*map(str, options)]
        if "--only" in given:
            given += ["--resume", str(place)]
        else:
            given += ["--out", str(place)]
        for key, value in settings.items():
            given += ["--set", f"{key.rstrip('_').replace('_', '-')}={value}"]
        output = self.work / f"{len(self._submitted)}-{out}.log"
        run = Submitted([str(self.folder), study, *given], output, place)
        self._submitted.append(run)
        return run

    def name(self, run: Submitted) -> str:
        """Return what all servers know a run by."""
        return run.wait_for(r"run (\S+-[0-9a-f]{8}) was submitted")[1]

    def spool(self, run: Submitted, server: str) -> Spool:
        """Return a server's letters of a run."""
        return Spool(self.graph.own(server) / "spool", self.name(run))

    def in_round(self, run: Submitted, server: str, number: int) -> None:
        """Wait until a server has told its neighbours of a round."""
        spool = self.spool(run, server)
        until(lambda: spool.told >= number, lambda: f"{server} is in round {spool.told}")

    def results(self, run: Submitted) -> list[RunResult]:
        """Return what every server left."""
        return [RunResult.load(run.out / name) for name in self.graph.names]

    def merged(self, run: Submitted) -> RunResult:
        """Return the result of all servers as the command gathers it."""
        shutil.rmtree(run.out / "merged", ignore_errors=True)
        folders = [run.out / name for name in self.graph.names]
        trellis("merge", *folders, "--out", run.out / "merged")
        return RunResult.load(run.out / "merged")

    def kill_server(self, name: str) -> None:
        """Kill a server's SuperLink, ServerApp and what else runs there for it, by process id."""
        found = descendants({self.rehearsal.servers[name].processes()["server"]})
        for pid in sorted(found):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not descendants(found), lambda: f"{name} does not die")

    def up(self, *options: str) -> None:
        """Start what does not run, and wait until all are online."""
        trellis("deploy", "up", self.folder, *options)

    def let_go(self) -> None:
        """End what still follows a run."""
        for run in self._submitted:
            run.kill()

    @contextmanager
    def cut(self, one: str, other: str) -> Iterator[None]:
        """Let nothing pass between two servers: their bridges to each other stand still."""
        bridges = [
            self.rehearsal.servers[one].processes()[f"bridge-to-{other}"],
            self.rehearsal.servers[other].processes()[f"bridge-to-{one}"],
        ]
        frozen = descendants(set(bridges))
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in frozen:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    @contextmanager
    def false_bridge(self, of: int, at: str, spool: Path) -> Iterator[None]:
        """Connect a node to a SuperLink that says to be the bridge of a server, with this spool."""
        home = self.work / "false"
        home.mkdir(exist_ok=True)
        config = home / "node.toml"
        config.write_text(f'bridge = {of}\nspool = "{spool}"\n')
        address = self.graph.federations[at].here
        command = [
            sys.executable,
            "-m",
            "trellis.sim.supernode",
            "--insecure",
            "--superlink",
            address,
        ]
        command += ["--host", "127.0.0.1", "--port", str(free_port()), "--node-config", str(config)]
        with (home / "log").open("wb") as log:
            environment = flower_environment(home)
            node = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            log_of = home / "log"
            until(lambda: "SuperNode ID" in log_of.read_text(errors="replace"), log_of.read_text)
            yield
        finally:
            below = descendants({node.pid})
            node.terminate()
            node.wait(30)
            until(lambda: not descendants(below), lambda: "the false bridge does not end")


@contextmanager
def graph_site(place: Path, *options: str) -> Iterator[GraphSite]:
    """Make three servers in a line with two clients each; nothing stays behind."""
    folder, work, data = place / "graph", place / "work", place / "data"
    for part in (work, data):
        part.mkdir()
    for number in range(6):
        write_rows(data / f"client-{number + 1}.csv", number)
    given = ["--servers", "3", "--topology", "path", "--clients", "2", "--data", str(data)]
    trellis("deploy", "init", folder, *given, "--open", "--port", free_port(), *options)
    try:
        trellis("deploy", "up", folder)
        found = GraphSite(folder, data, work)
        try:
            yield found
        finally:
            found.let_go()
    finally:
        rehearsal = GraphRehearsal(ServerGraph.load(folder))
        started = descendants(
            {pid for server in rehearsal.servers.values() for pid in server.processes().values()}
        )
        trellis("deploy", "down", folder)
    assert processes_of(place) == []
    assert descendants(started) == set()
