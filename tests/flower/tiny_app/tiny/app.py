"""Each node adds its partition number to the array it is sent; the server sums the replies."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server_app = ServerApp()
client_app = ClientApp()
logger = logging.getLogger("flwr")


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    config = context.run_config
    if config["fail"]:
        raise ValueError("the tiny server was told to fail")
    logger.info("tiny server started")
    time.sleep(float(config["sleep"]))
    while len(node_ids := list(grid.get_node_ids())) < int(config["nodes"]):
        time.sleep(0.05)

    total = np.zeros(2)
    nodes = []
    for round_number in range(int(config["rounds"])):
        logger.info("tiny round %d", round_number)
        content = RecordDict({"arrays": ArrayRecord([total])})
        messages = [Message(content, node_id, "train") for node_id in node_ids]
        pending = set(grid.push_messages(messages))
        replies = []
        while pending:
            pulled = list(grid.pull_messages(pending))
            pending -= {reply.metadata.reply_to_message_id for reply in pulled}
            replies += pulled
            time.sleep(0.05)
        total = sum(reply.content["arrays"].to_numpy_ndarrays()[0] for reply in replies)
        nodes = [dict(reply.content["node"]) for reply in replies]
    written = {
        "total": total.tolist(),
        "nodes": nodes,
        "run_config": dict(config),
        "grid": type(grid).__name__,
        "marker": os.environ.get("TINY_MARKER", ""),
    }
    Path(str(config["out"])).write_text(json.dumps(written))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    ray = sys.modules.get("ray")
    node = {
        "config": json.dumps(context.node_config),
        "simulated": bool(ray is not None and ray.is_initialized()),
        "ray-loaded": ray is not None,
        "marker": os.environ.get("TINY_MARKER", ""),
    }
    array = message.content["arrays"].to_numpy_ndarrays()[0]
    added = ArrayRecord([array + int(context.node_config["partition-id"])])
    content = RecordDict({"arrays": added, "node": ConfigRecord(node)})
    return Message(content, reply_to=message)
