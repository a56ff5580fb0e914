"""Small federations of devices with files of their own, and one message of every kind to them.

For benchmarks and tests of what a device does per message: there every message is a process of its
own, so an import is paid for each time.

    python -m benchmarks.devices FILE        answers a message that `record_messages` has kept
    python -m benchmarks.devices FILE ...    several, each in a process of its own, forked
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from benchmarks.importing import ImportMeter

CLIENTS = 3
_ANSWERED = "answered"

_SOUND = {"privacy": "dp", "epsilon": 5.0}
_HELD_OUT = {"held-out": 0.2}
_SERVER = {"servers": 1, "rounds": 2}
_FINDING = {"clusters": "auto", "assign-every": 1, "rounds": 4}
_UNTRAINED = {"classes": 2, "rounds": 1, "model": "gcn", "downstream": "knn", "method": "untrained"}
_GRAPHS = {**_UNTRAINED, "method": "fedavg"}


@dataclass(frozen=True)
class Case:
    """One study with some settings; ``name`` says which."""

    name: str
    study: str
    settings: Mapping[str, Any]

    def run_config(self, out: str = "") -> dict[str, Any]:
        """Return the run config."""
        from trellis.apps.common.runner import make_run_config

        return make_run_config(self.study, {**self.settings, "clients": CLIENTS}) | {"out": out}


CASES = {
    case.name: case
    for case in (
        Case("consensus-graph", "consensus-graph", {"rounds": 3}),
        Case("consensus-graph-dp", "consensus-graph", _SOUND),
        Case("joint-precision", "joint-precision", {"rounds": 3}),
        Case("joint-precision-dp", "joint-precision", _SOUND),
        Case("server-graph", "server-graph", _SERVER),
        Case("server-graph-dp", "server-graph", {**_SERVER, **_SOUND}),
        Case("cluster-admm", "cluster-admm", {**_SERVER, "clusters": "1"}),
        Case("cluster-admm-dp", "cluster-admm", {**_SOUND, "clusters": "1"}),
        Case("gromov-wasserstein-dp", "gromov-wasserstein", {**_GRAPHS, **_SOUND}),
    )
}
# What messages of the same kinds are with other settings.
OTHER_CASES = {
    case.name: case
    for case in (
        # Each client's statistic by itself.
        Case("consensus-graph-each", "consensus-graph", {"method": "one-shot"}),
        Case("consensus-graph-held-out", "consensus-graph", {"rounds": 2, **_HELD_OUT}),
        Case("joint-precision-each", "joint-precision", {"method": "one-shot"}),
        Case("joint-precision-held-out", "joint-precision", {"rounds": 2, **_HELD_OUT}),
        Case("joint-precision-alone", "joint-precision", {"method": "glasso"}),
        Case("server-graph-clear", "server-graph", {**_SERVER, "secure-aggregation": "off"}),
        Case("server-graph-held-out", "server-graph", {**_SERVER, **_HELD_OUT}),
        Case("cluster-admm-held-out", "cluster-admm", {**_SERVER, "clusters": "1", **_HELD_OUT}),
        Case("cluster-admm-finding", "cluster-admm", {"servers": 1, **_FINDING}),
        Case("gromov-wasserstein", "gromov-wasserstein", {**_GRAPHS, "task": "graph", **_HELD_OUT}),
        Case("gromov-wasserstein-untrained", "gromov-wasserstein", {**_UNTRAINED, **_SOUND}),
    )
}


def devices(study: str, folder: Path) -> list[dict[str, Any]]:
    """Write a file and a state folder per device, and return their node configs."""
    from trellis.apps import study_module

    rng = np.random.default_rng(5)
    nodes: list[dict[str, Any]] = []
    for i in range(CLIENTS):
        file = folder / f"ward-{i}.npz"
        if study == "gromov-wasserstein":
            _write_graphs(file, rng)
        elif getattr(study_module(study, "data"), "TARGETS", False):
            X = rng.standard_normal((40, 4))
            y = X @ np.array([1.0, -1.0, 0.5, 0.0]) + 0.1 * rng.standard_normal(40)
            np.savez(file, X=X, y=np.where(y > 0.0, 1.0, -1.0))
        else:
            np.savez(file, X=rng.standard_normal((60, 6)))
        nodes.append(
            {
                "data-path": str(file),
                "state-path": str(folder / f"state-{i}"),
                # Keys are not signed here, and each device would add the noise of all.
                "count-noise-of": "anyone",
            }
        )
        if study in ("server-graph", "cluster-admm"):
            nodes[-1] |= {"server": 0, "cluster": 0}
    return nodes


def _write_graphs(file: Path, rng: np.random.Generator) -> None:
    from trellis.apps.gromov_wasserstein.files.npz import write_graphs
    from trellis.apps.gromov_wasserstein.graphs import Graph

    graphs = []
    for number in range(6):
        pairs = [[0, 1], *([[0, 4]] if number % 2 else []), [1, 2], [2, 3], [3, 4]]
        edges = np.array(pairs)
        features = rng.standard_normal((5, 3)).astype(np.float32)
        labels = np.full(5, -1, dtype=np.int64)
        graphs.append(Graph(edges, features, number % 2, labels, f"graph {number}"))
    write_graphs(file, graphs)


class _Recorder(ClientApp):
    """The ClientApp of all studies, which keeps the first message of every kind, and its context.

    Of whichever device gets it first: its state is that in which the message met it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __call__(self, message: Message, context: Context) -> Message:
        """Keep the message, then answer it."""
        from trellis.apps.dispatch import client_app

        file = self._folder / f"{message.metadata.message_type}.pickle"
        if not file.exists():
            file.write_bytes(pickle.dumps((message, context)))
        return client_app(message, context)


def record_messages(case: Case, folder: Path) -> dict[str, Path]:
    """Run a case in this process on devices and return a file by kind of message.

    `answer_recorded` answers one, in another process.
    """
    from trellis.apps.dispatch import server_app
    from trellis.sim.grid import run_local

    kept = folder / "messages"
    kept.mkdir(parents=True)
    run_local(server_app, _Recorder(kept), devices(case.study, folder), case.run_config())
    return {file.stem: file for file in sorted(kept.iterdir())}


def answer_recorded(file: str) -> tuple[float, float]:
    """Answer a message as the process that Flower starts for it would.

    Returns
    -------
    importing, answering
        CPU seconds since Flower would have called the ClientApp.

    Raises
    ------
    RuntimeError
        Where the device has no answer.
    """
    import_as_flower_does()
    message, context = pickle.loads(Path(file).read_bytes())
    # A folder of its own: the device's ledger has the release that this message asks for.
    with tempfile.TemporaryDirectory(prefix="trellis-state-") as folder, ImportMeter() as meter:
        context.node_config["state-path"] = folder
        begin = time.process_time()
        from trellis.apps.dispatch import client_app

        reply = client_app(message, context)
        whole = time.process_time() - begin
    if reply.has_error():
        raise RuntimeError(reply.error.reason)
    importing = meter.total()
    return importing, whole - importing


def loaded_for(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return, by kind of message, the modules that a process has when it has answered.

    Raises
    ------
    RuntimeError
        Where a device has no answer; names the kind.
    """
    command = [sys.executable, "-m", "benchmarks.devices", *map(str, files.values())]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(_ANSWERED)]
    missing = [kind for kind, file in files.items() if str(file) not in {line[1] for line in lines}]
    if missing:
        raise RuntimeError(f"{missing[0]}: {done.stderr[-2000:]}")
    by_file = {line[1]: set(line[2:]) for line in lines}
    return {kind: by_file[str(file)] for kind, file in files.items()}


def _answer_in_forks(files: Sequence[str]) -> None:
    """Answer each message in a process that begins with what Flower has imported."""
    import_as_flower_does()
    for file in files:
        if (child := os.fork()) == 0:
            # Never back into the loop, whatever happens.
            code = 1
            try:
                answer_recorded(file)
                print(_ANSWERED, file, *sorted(sys.modules), flush=True)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.waitpid(child, 0)


def import_as_flower_does() -> None:
    """Import what a process has imported when Flower calls a ClientApp in it."""
    import flwr.supernode.cli
    import flwr.supernode.runtime.run_clientapp  # noqa: F401


if __name__ == "__main__":
    # Under its own name: a process for one message has nothing of this module's imports to spare.
    if len(sys.argv) > 2:
        _answer_in_forks(sys.argv[1:])
    else:
        print(*answer_recorded(sys.argv[1]))
