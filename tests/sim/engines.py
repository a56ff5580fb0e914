"""Small clients and servers for the in-process engine, and how to ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from trellis.sim.faults import Fault
from trellis.sim.grid import LocalGrid, node_ids

Handler = Callable[[Message, Context], Message]


def client_app(handle: Handler) -> ClientApp:
    app = ClientApp()
    app.train()(handle)
    app.evaluate()(handle)
    app.query()(handle)
    return app


def reply_with(message: Message, **metrics: float) -> Message:
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def echo(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)


def count(message: Message, context: Context) -> Message:
    """Reply with how many messages this node has handled, and its partition."""
    seen = context.state.get("seen", MetricRecord({"n": 0}))
    context.state["seen"] = MetricRecord({"n": seen["n"] + 1})
    return reply_with(message, n=seen["n"] + 1, partition=context.node_config["partition-id"])


def configs(nodes: int) -> list[dict]:
    return [{"partition-id": i, "num-partitions": nodes} for i in range(nodes)]


@contextmanager
def local_grid(
    handle: Handler,
    nodes: int = 3,
    *,
    workers: int = 0,
    faults: dict[int, Fault] | None = None,
    run_config: dict | None = None,
) -> Iterator[LocalGrid]:
    app = client_app(handle)
    grid = LocalGrid(app, configs(nodes), run_config or {}, workers=workers, faults=faults)
    with grid:
        yield grid


def ask(grid: Grid, category: str = "train", nodes: Sequence[int] | None = None) -> list[Message]:
    """Return one message for each node, in partition order."""
    targets = node_ids(len(grid._nodes)) if nodes is None else nodes
    return [Message(RecordDict(), node, category) for node in targets]


def metrics(replies: list[Message], name: str) -> list[float]:
    return sorted(reply.content["metrics"][name] for reply in replies)


def server_app(main: Callable[[Grid, Context], None]) -> ServerApp:
    app = ServerApp()
    app.main()(main)
    return app
