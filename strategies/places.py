"""Where a node belongs: its server and its cluster, for strategies over a graph of servers.

A run of ours knows both from enrolment. Under Flower's own ``Strategy.start`` nodes are asked:

Sent with ``query.place``:
    nothing
Expected back:
    config   ``server`` and ``cluster``, int from 0

A node that does not answer, because its ClientApp has no such handler, gets a place: servers in
turn, and cluster 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from .enrolled_grid import EnrolledGrid
from .grid_wrapper import GridWrapper

log = logging.getLogger("trellis.strategy")

ACTION = "query.place"
TIMEOUT = 60.0


def enrolled(grid: Grid) -> EnrolledGrid | None:
    """Return the grid of enrolled clients below all middleware; None if there is none."""
    while not isinstance(grid, EnrolledGrid):
        if not isinstance(grid, GridWrapper):
            return None
        grid = grid.grid
    return grid


def ask_places(
    grid: Grid, nodes: Iterable[int], numbers: Mapping[str, int]
) -> dict[int, dict[str, int]]:
    """Return the place of every node: ``server`` or ``cluster``, or both.

    Parameters
    ----------
    numbers : how many servers and clusters there are, by these names

    Raises
    ------
    ValueError
        Names a node whose place is out of range.
    """
    wanted = sorted(nodes)
    known = enrolled(grid)
    if known is not None:
        found = {node: vars(known.client(node)) for node in wanted}
    else:
        messages = [Message(RecordDict(), node, ACTION) for node in wanted]
        replies = grid.send_and_receive(messages, timeout=TIMEOUT)
        found = {
            reply.metadata.src_node_id: dict(reply.content.get("config") or ConfigRecord())
            for reply in replies
            if not reply.has_error()
        }
    places = {}
    for number, node in enumerate(wanted):
        if node not in found:
            log.warning("node %d does not say where it belongs; it is given a place", node)
        dealt = {"server": number % max(numbers.get("server", 1), 1), "cluster": 0}
        places[node] = {
            name: _whole(found.get(node, dealt), name, node, n) for name, n in numbers.items()
        }
    return places


def _whole(said: Mapping[str, object], name: str, node: int, most: int) -> int:
    value = 0 if most == 1 else said.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise ValueError(f"node {node}: {name}={value!r}; they are numbered 0 to {most - 1}")
    return value
