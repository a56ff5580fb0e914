"""What a grid says of its nodes, and what to call them.

On a SuperLink with authentication the operator registers every node under a name, which is bound to
its key: a node with such a name is that node, whatever it says of itself. Elsewhere a node has a
number, and the name that its client tells at enrolment. In Flower's simulation that number is drawn
at random; nodes register one after the other there, so the third is the one of client 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.serverapp import Grid


@dataclass(frozen=True)
class OnlineNode:
    """A node, as it was when the grid was asked.

    Attributes
    ----------
    id : its number
    name : the one it is registered under; empty where it is not
    since : when it came online, where the grid tells; another time means that it was restarted
    place : from 1, which client of a simulation it is; 0 elsewhere
    """

    id: int
    name: str = ""
    since: str = ""
    place: int = 0

    def called(self, own: str = "") -> str:
        """Return what to call it; ``own`` is the name that it told, if it did."""
        return self.name or own or (f"client {self.place}" if self.place else f"node {self.id}")


def online(grid: Grid) -> dict[int, OnlineNode]:
    """Return the nodes that are online, by number; one call."""
    infos = sorted(grid.get_nodes(), key=lambda info: info.node_id)
    places: dict[int, int] = {}
    if is_simulation(grid):
        in_order = sorted(infos, key=lambda info: info.registered_at)
        places = {info.node_id: place for place, info in enumerate(in_order, 1)}
    return {
        info.node_id: OnlineNode(
            info.node_id, info.name, info.last_activated_at, places.get(info.node_id, 0)
        )
        for info in infos
    }


def is_simulation(grid: Grid) -> bool:
    """Return whether this is the grid of Flower's simulation runtime."""
    return type(grid).__name__ == "InMemoryGrid"


def may_change(grid: Grid) -> bool:
    """Return whether nodes of this grid come and go; not so in a simulation, unless it says so."""
    if is_simulation(grid):
        return False
    return bool(getattr(grid, "nodes_change", True))
