"""What ten thousand rounds cost beyond ten thousand times one: time, memory, checkpoints.

server-graph with ten clients and three servers, in one process and with a folder: every round a
line of ``metrics.csv``, checkpoints as they are due. Beside it the same run without a folder, which
keeps nothing on disk, and Flower's own FedAvg on the same in-process grid with clients that answer
with what they got, which is a loop over rounds and next to nothing else. Each measurement is a
process of its own; memory is what it holds (``VmRSS``), and its peak (``VmHWM``).
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import logging
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.timing import entry, peak_memory

CLIENTS, SERVERS, SIZE = 10, 3, 2
QUICK, FULL = (100, 300, 1_000), (100, 1_000, 10_000)
RUNS = 3
LIMIT = 5.0  # per cent of the time that may go into checkpoints

Found = dict[str, float]


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return what the longest of the runs costs, and how time and memory grow with rounds."""
    lengths = FULL if full else QUICK
    longest = lengths[-1]
    # In turns, so that what else the machine does meets all alike.
    turns = [{kind: _measured(kind, longest) for kind in KINDS} for _ in range(RUNS)]
    kept, bare, loop = ([turn[kind] for turn in turns] for kind in KINDS)
    flower = f"flwr {importlib.metadata.version('flwr')}, FedAvg on the same grid"
    setting = f"server-graph, {CLIENTS} clients, {SERVERS} servers, {longest:,} rounds, one process"
    whole, loops = f"{setting}; with its folder", f"{longest:,} rounds, {CLIENTS} clients"

    def row(name: str, ours: list[float], peer: list[float], **more: Any) -> dict[str, Any]:
        return entry(f"long-runs-{name}", ours, peer, ours_cores=1, peer_cores=1, **more)

    def of(found: list[Found], name: str) -> list[float]:
        return [one[name] for one in found]

    rows = [
        row(
            *("folder", of(kept, "seconds"), of(bare, "seconds")),
            peer_version="the same run without a folder",
            unit="s",
            setting=whole,
        ),
        row(
            *("last-rounds", of(kept, "last"), of(kept, "first")),
            peer_version="the first tenth of the same run",
            unit="ms a round, the last tenth",
            setting=whole,
        ),
        row(
            *("checkpoint-share", of(kept, "share"), [LIMIT] * RUNS),
            peer_version=f"the limit, {LIMIT:g} %",
            unit="% of the time",
            setting=f"{whole}; {round(kept[-1]['checkpoints'])} checkpoints, fsync included",
        ),
        row(
            *("checkpoint-bytes", of(kept, "bytes"), of(kept, "bytes at first")),
            peer_version="the first checkpoint of the same run",
            unit="bytes of the last checkpoint",
            setting=whole,
        ),
        row(
            *("memory", of(kept, "grown"), of(loop, "grown")),
            peer_version=flower,
            unit="MB more than after a tenth of the rounds",
            setting=f"{whole}, all metrics kept; the peer: {loops}",
        ),
    ]
    for length in lengths:
        pair = [
            turns[0][kind] if length == longest else _measured(kind, length)
            for kind in ("kept", "loop")
        ]
        for name, unit in (("seconds", "s"), ("peak", "MB")):
            ours, peer = ([one[name]] for one in pair)
            what = {"peer_version": flower, "unit": unit, "series": "rounds", "x": length}
            told = f"the whole run: server-graph with its folder, {length:,} rounds"
            rows.append(row(f"rounds-{unit.lower()}", ours, peer, setting=told, **what))
    return rows


KINDS = ("kept", "bare", "loop")


def _measured(kind: str, rounds: int) -> Found:
    """Return what one run measured of itself, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.long_runs", kind, str(rounds)]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


class _Watch:
    """Takes the time of every round, and the memory after a tenth of them and at the end."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.times = array("d", [time.perf_counter()])  # its own room is not what is measured
        self.memory: list[float] = []
        self.checkpoints: list[tuple[float, int]] = []

    def round(self) -> None:
        """Note that a round has ended."""
        self.times.append(time.perf_counter())
        if len(self.times) - 1 in (self.rounds // 10, self.rounds):
            gc.collect()
            self.memory.append(_resident())

    def around(self, save: Callable[..., None]) -> Callable[..., None]:
        """Return a `Checkpoint.save` that is timed."""

        def timed(checkpoint: Any, snapshot: Any) -> None:
            begin = time.perf_counter()
            save(checkpoint, snapshot)
            size = (checkpoint.folder / "state.npz").stat().st_size
            self.checkpoints.append((time.perf_counter() - begin, size))

        return timed

    def found(self, seconds: float) -> Found:
        """Return the numbers of the run, which took so many seconds with all around it."""
        tenth = max(self.rounds // 10, 1)
        first = self.times[tenth] - self.times[1] if tenth > 1 else self.times[1] - self.times[0]
        last = self.times[-1] - self.times[-1 - tenth]
        costs = [cost for cost, _ in self.checkpoints]
        sizes = [size for _, size in self.checkpoints] or [0]
        return {
            "seconds": seconds,
            "first": 1e3 * first / max(tenth - 1, 1),
            "last": 1e3 * last / tenth,
            "grown": self.memory[-1] - self.memory[0],
            "peak": peak_memory() / 1024,
            "share": 100.0 * sum(costs) / seconds,
            "checkpoints": float(len(costs)),
            "bytes at first": float(sizes[0]),
            "bytes": float(sizes[-1]),
        }


def _resident() -> float:
    """Return the memory that this process holds, in MB."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0]) / 1024


def _study(rounds: int, out: str) -> Found:
    from trellis import apps
    from trellis.apps.common.progress import listening
    from trellis.apps.common.runner import make_run_config
    from trellis.sim.grid import run_local
    from trellis.strategies.core.checkpoint import Checkpoint

    settings = {"clients": CLIENTS, "servers": SERVERS, "topology": "ring", "samples": "20"}
    settings |= {"method": "none", "rounds": rounds, "tolerance": 0.0}
    config = make_run_config("server-graph", settings) | {"out": out}
    nodes = [
        {"partition-id": i, "num-partitions": CLIENTS, "simulation": True} for i in range(CLIENTS)
    ]
    begin = time.perf_counter()
    watch = _Watch(rounds)
    Checkpoint.save = watch.around(Checkpoint.save)  # type: ignore[method-assign]
    with listening(lambda study, planned, row: watch.round()):
        run_local(apps.server_app, apps.client_app, nodes, config)
    return watch.found(time.perf_counter() - begin)


def _loop(rounds: int) -> Found:
    import numpy as np
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    from trellis.sim.grid import run_local

    logging.getLogger("flwr").setLevel(logging.ERROR)
    server, client = ServerApp(), ClientApp()
    watch = _Watch(rounds)

    @client.train()
    def train(message: Message, context: Context) -> Message:
        content = {
            "arrays": message.content["arrays"],
            "metrics": MetricRecord({"num-examples": 1, "loss": 0.5}),
        }
        return Message(RecordDict(content), reply_to=message)

    def told(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round:  # once before the first
            watch.round()
        return None

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0)
        start = ArrayRecord([np.zeros(SIZE)])
        strategy.start(grid, start, rounds, train_config=ConfigRecord(), evaluate_fn=told)

    nodes: list[dict[str, Any]] = [{"partition-id": i} for i in range(CLIENTS)]
    begin = time.perf_counter()
    run_local(server, client, nodes, {})
    return watch.found(time.perf_counter() - begin)


if __name__ == "__main__":
    kind, length = sys.argv[1], int(sys.argv[2])
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as place:
        if kind == "loop":
            print(json.dumps(_loop(length)))
        else:
            print(json.dumps(_study(length, place if kind == "kept" else "")))
