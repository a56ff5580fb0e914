"""The server: the same array to every node each round, and a clock."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from trellis.strategies.core import wire
from trellis.strategies.core.exchange import exchange

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Time the rounds and write their seconds, and a checksum, to the file ``out``."""
    config = context.run_config
    nodes, size, rounds = int(config["nodes"]), int(config["size"]), int(config["rounds"])
    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.05)
    node_ids = sorted(grid.get_node_ids())
    mean = np.arange(size, dtype=np.float64)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        content = RecordDict({"arrays": wire.record({"x": mean})})
        messages = [Message(content, node_id, "train") for node_id in node_ids]
        # As the studies do: Grid.send_and_receive looks every three seconds on a real SuperLink.
        replies = exchange(grid, dict(enumerate(messages)), timeout=600.0).content
        received = [wire.unpack(_arrays(replies[i])["x"]) for i in sorted(replies)]
        seconds.append(time.perf_counter() - start)
        if len(received) != nodes:
            raise RuntimeError(f"{len(received)} replies from {nodes} nodes")
        mean = 1.0 + np.mean(received, axis=0)
    result = {"seconds": seconds, "checksum": float(np.sum(mean))}
    Path(str(config["out"])).write_text(json.dumps(result))


def _arrays(content: RecordDict) -> ArrayRecord:
    record = content["arrays"]
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"expected an ArrayRecord, got {type(record).__name__}")
    return record
