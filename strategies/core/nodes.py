"""What a grid says of its nodes, and what to call them.

On a SuperLink with authentication the operator registers every node under a name, which is bound to
its key: a node with such a name is that node, whatever it says of itself. Elsewhere a node has a
number, and the name that its client tells at enrolment.
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
    """

    id: int
    name: str = ""
    since: str = ""

    def called(self, own: str = "") -> str:
        """Return what to call it; ``own`` is the name that it told, if it did."""
        return self.name or own or f"node {self.id}"


def online(grid: Grid) -> dict[int, OnlineNode]:
    """Return the nodes that are online, by number; one call."""
    found = {
        info.node_id: OnlineNode(info.node_id, info.name, info.last_activated_at)
        for info in grid.get_nodes()
    }
    return {number: found[number] for number in sorted(found)}


def may_change(grid: Grid) -> bool:
    """Return whether nodes of this grid come and go; not so in a simulation, unless it says so."""
    if type(grid).__name__ == "InMemoryGrid":  # Flower's simulation
        return False
    return bool(getattr(grid, "nodes_change", True))
