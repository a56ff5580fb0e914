"""Many clients in one process: whether a round stays linear, and users a second beside peers.

Three studies, each in a process of its own: cluster-admm and consensus-graph with their defaults
(the latter with rounds as they are printed), and one linear model, the same for all engines:
federated averaging of least squares, 60 features, 10 samples a user, one gradient step on all of
them, all users in every round. That is server-graph with ``method = "fedavg"``; pfl-research and
Flower's simulation run it too, and all must end with the same model.

Ours exchanges messages as on devices: made, copied, answered by the unmodified ClientApp, checked,
read. pfl-research has none: it calls a function for each user. ``without messages`` is ours that
way, all users in one product (`trellis.apps.server_graph.simulate`).

Each side is one process with one thread, and its seconds are the processor's: what else the machine
does counts for neither. Flower's simulation, which keeps all cores busy, goes by the clock.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import peers
from .timing import entry, in_turns, peak_memory

FEW = 150
SIZES = (10, 50, 150, 500, 1500, 5000, 10_000)
QUICK_SIZES = (10, 150, 1500)
FLOWER_SIZES = (10, 50, 150, 500)
_LINEAR = "a linear model"
_SETTINGS: dict[str, dict[str, Any]] = {
    "cluster-admm": {},
    "consensus-graph": {"tolerance": 0.0},
    "server-graph": {
        "method": "fedavg",
        "loss": "least-squares",
        "features": 60,
        "samples": "10",
        "batch": 0,
        "ridge": 0.0,
        "step": 0.01,
        "secure-aggregation": "off",
    },
}
_MODEL = "least squares, 60 features, 10 samples a user, one gradient step, all users a round"
_NUMPY = "pfl 0.6.0 (an algorithm of one's own in numpy)"
_TORCH = "pfl 0.6.0 (PyTorch model, FederatedAveraging)"


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return messages a second of many clients, users a second beside peers, and how both grow."""
    many = SIZES[-1] if full else 2000
    runs = 3 if full else 1
    rows = [
        _beside_few("cluster-admm", many, runs),
        _beside_few("consensus-graph", many, runs),
    ]
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        users = _Users(Path(folder))
        rows += _beside_pfl(users, FEW, 5 if full else 2)
        if full:
            rows += _beside_pfl(users, 1500, 3)
        rows += _growth(users, SIZES if full else QUICK_SIZES, full)
        if full:
            rows += _beside_flower(users)
    return rows


def _beside_few(study: str, many: int, runs: int) -> dict[str, Any]:
    """Return the row that has many clients in the place of ours, and few in that of a peer."""
    measured = []

    def rate(clients: int) -> float:
        found = _measure(study, clients, 5)
        if clients == many:
            measured.append(found["peak"] / clients)
        return clients / _round(found)

    ours, few = in_turns(runs, lambda: rate(many), lambda: rate(FEW))
    memory = statistics.median(measured)
    return entry(
        f"many-clients-{study}",
        ours,
        few,
        peer_version=f"Trellis, {FEW} clients",
        unit="messages/s",
        setting=f"{study}, {many:,} clients in one process beside {FEW}; {memory:.0f} KB a client",
        ours_cores=1,
        peer_cores=1,
        more_is_better=True,
    )


class _Users:
    """The users of the linear model: their data for peers, and what each side needs for a round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def data(self, users: int) -> Path:
        """Return a file with X (users, n, d) and y (users, n), the same as ours."""
        from trellis.apps.server_graph.config import ServerGraphConfig
        from trellis.apps.server_graph.data import synthetic_table

        path = self.folder / f"{users}.npz"
        if not path.is_file():
            config = ServerGraphConfig.from_settings(_settings("server-graph", users, 1))
            tables = [synthetic_table(config, 1, user) for user in range(users)]
            np.savez(path, X=np.array([t.X for t in tables]), y=np.array([t.y for t in tables]))
        return path

    def pfl(self, users: int, way: str, rounds: int) -> dict[str, Any]:
        """Return what pfl-research measures; its model must be ours."""
        step = _SETTINGS["server-graph"]["step"]
        task = {"data": str(self.data(users)), "way": way, "step": step, "rounds": rounds}
        return peers.ask("pfl", task)

    def without_messages(self, users: int, rounds: int) -> dict[str, Any]:
        """Return the seconds of a round of ours without messages, and its model."""
        from trellis.apps.common.threads import one_blas_thread
        from trellis.apps.server_graph.config import ServerGraphConfig
        from trellis.apps.server_graph.simulate import simulate

        config = ServerGraphConfig.from_settings(_settings("server-graph", users, rounds))
        with one_blas_thread():
            simulate(config, 1, 2)  # makes the data, which is kept
            begin = time.process_time()
            found = simulate(config, 1, rounds)
        each = (time.process_time() - begin) / rounds
        return {"seconds": [each] * 3, "model": found.models[0].tolist()}


def _beside_pfl(users: _Users, count: int, runs: int) -> list[dict[str, Any]]:
    """Return users a second beside pfl-research's two ways, with and without our messages."""
    rounds = 20 if count <= FEW else 6
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "messages": lambda: _measure("server-graph", count, rounds),
        "no messages": lambda: users.without_messages(count, rounds),
        "torch": lambda: users.pfl(count, "torch", rounds),
        "numpy": lambda: users.pfl(count, "numpy", rounds),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        found = {way: measure() for way, measure in ways.items()}
        _same_models(found)
        for way, told in found.items():
            rates[way].append(count / _round(told))
    named = {"": ("messages", "torch"), "-numpy": ("messages", "numpy")}
    named |= {"-without-messages": ("no messages", "numpy")}
    size = "" if count == FEW else f"-{count}"
    return [
        entry(
            f"users-pfl{kind}{size}",
            rates[ours],
            rates[peer],
            peer_version=_TORCH if peer == "torch" else _NUMPY,
            unit="users/s",
            setting=f"{count:,} users; {_MODEL}; ours with {ours}",
            ours_cores=1,
            peer_cores=1,
            more_is_better=True,
        )
        for kind, (ours, peer) in named.items()
    ]


def _growth(users: _Users, sizes: Sequence[int], full: bool) -> list[dict[str, Any]]:
    """Return seconds a round and memory by the number of clients."""
    rows = []
    for size in sizes:
        rounds = 5 if size >= FEW else 20
        ours = _measure("server-graph", size, rounds)
        beside = {way: users.pfl(size, way, rounds) for way in ("torch", "numpy")}
        _same_models({"messages": ours, **beside})
        names = {"torch": ("pfl, PyTorch", _TORCH), "numpy": ("pfl, numpy", _NUMPY)}
        for way, (name, version) in names.items():
            times = _point(size, _round(ours), _round(beside[way]), "s a round", version)
            peaks = _point(size, _mb(ours), _mb(beside[way]), "MB", version)
            # Of few clients the memory is lost in what the program itself takes.
            shown = (times, peaks) if size >= FEW else (times,)
            rows += [{**row, "line": _LINEAR, "peer_name": name} for row in shown]
        for study in ("cluster-admm", "consensus-graph") if full else ():
            if size <= 1500 or study == "cluster-admm":
                found = _measure(study, size, rounds)
                nobody = "none: no peer has this study's rounds"
                time_row = _point(size, _round(found), float("nan"), "s a round", nobody)
                peak_row = _point(size, _mb(found), float("nan"), "MB", nobody)
                shown = (time_row, peak_row) if size >= FEW else (time_row,)
                rows += [{**row, "line": study} for row in shown]
    return rows


def _beside_flower(users: _Users) -> list[dict[str, Any]]:
    """Return users a second beside Flower's simulation, and how it grows; minutes."""
    from trellis.apps import run as run_study

    rows = []
    version = peers_of_flower()
    for size in FLOWER_SIZES:
        theirs = run_study("server-graph", _settings("server-graph", size, 4), engine="flower")
        peer = {"seconds": _seconds(theirs), "model": theirs.arrays["models"][0].tolist()}
        found = _measure("server-graph", size, 4)
        ours = {**found, "seconds": found["clock"]}
        if ours["model"] != peer["model"]:
            raise RuntimeError(f"{size} users: Flower's simulation ends with another model")
        point = _point(size, _round(ours), _round(peer), "s a round", version)
        rows.append({**point, "line": _LINEAR, "peer_name": "Flower's simulation"})
        if size == FEW:
            rows.append(
                entry(
                    "users-flower",
                    [size / _round(ours)],
                    [size / _round(peer)],
                    peer_version=version,
                    unit="users/s",
                    setting=f"{size} users; {_MODEL}; by the clock; equal bits",
                    ours_cores=1,
                    peer_cores=os.cpu_count() or 1,
                    more_is_better=True,
                )
            )
    return rows


def peers_of_flower() -> str:
    """Return the versions of Flower's simulation."""
    from importlib.metadata import version

    return f"flwr {version('flwr')}, ray {version('ray')}"


def _point(size: int, ours: float, peer: float, unit: str, version: str) -> dict[str, Any]:
    """Return one point of the chart of how cost grows."""
    row = entry(
        "many-clients-growth",
        [ours],
        [peer],
        peer_version=version,
        unit=unit,
        setting=f"{size:,} clients",
        ours_cores=1,
        peer_cores=1,
    )
    return {**row, "series": "clients", "x": size}


def _same_models(found: dict[str, dict[str, Any]]) -> None:
    """Refuse a comparison of different models; PyTorch's is of single precision."""
    expected = np.array(found["messages"]["model"])
    for way, told in found.items():
        if not np.allclose(told["model"], expected, rtol=1e-4, atol=1e-5):
            raise RuntimeError(f"{way} ends with another model")


def _round(found: dict[str, Any]) -> float:
    """Return the seconds of a typical round after the first."""
    return statistics.median(found["seconds"][1:])


def _mb(found: dict[str, Any]) -> float:
    """Return the peak of memory above the start; at least a page, so that it has a ratio."""
    return float(max(found["peak"], 4)) / 1e3


def _seconds(result: Any) -> list[float]:
    return [float(row["seconds"]) for row in result.metrics]


def _settings(study: str, clients: int, rounds: int) -> dict[str, Any]:
    return {**_SETTINGS[study], "clients": clients, "rounds": rounds}


def _measure(study: str, clients: int, rounds: int) -> dict[str, Any]:
    """Run a study in a process of its own: seconds a round, peak memory above the start, model."""
    command = [sys.executable, "-m", "benchmarks.many_clients", study, str(clients), str(rounds)]
    root = Path(__file__).parents[1]
    # A second thread of BLAS that has been asked once spins for a tenth of a second, and would be
    # counted with the messages of that time.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, cwd=root, stdout=subprocess.PIPE, text=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run_here(study: str, clients: int, rounds: int) -> None:
    from trellis.apps import run as run_study
    from trellis.apps.common.progress import listening

    # What is loaded, and what one small run leaves, is no client's.
    run_study(study, _settings(study, 10, 2))
    before = peak_memory(begin=True)
    ends = [time.process_time()]
    with listening(lambda *_: ends.append(time.process_time())):
        result = run_study(study, _settings(study, clients, rounds))
    peak = peak_memory() - before
    found = {
        "seconds": np.diff(ends).tolist(),
        "clock": _seconds(result),
        "peak": peak,
        "model": result.arrays["models"][0].tolist() if study == "server-graph" else [],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    _run_here(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
