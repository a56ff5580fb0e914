"""The baselines of joint-precision that need one round: everyone is asked once, then all is known.

``glasso`` and ``clime``: every client solves its own problem along the whole path and sends its
matrices. ``pooled``: every client sends its raw data, and the server solves the joint problem in
one place; a reference that no real federation may run, which devices refuse.

Clients that did not answer are asked again, twice; then the others go on without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import Client, Row, StudyError, StudyStrategy

from .path import PathSolution, refuse_unbounded

Arrays = dict[str, NDArray[Any]]

_TRIES = 3


class GatheredPrecision(StudyStrategy[Arrays]):
    """Ask every client once and assemble what they sent.

    Parameters
    ----------
    request : what clients are asked: ``task`` and its settings
    points : (L, 2) lambda1 and lambda2 of the path
    penalty : whose minimum must exist: ``group``, ``fused``, or ``alone`` where none is shared
    check : raises `BadReply` for a client's arrays that cannot be used
    assemble : makes the solution from all clients and the arrays of those that answered
    opens : ask with enrolment; there is nothing else to ask
    """

    def __init__(
        self,
        *args: Any,
        request: Mapping[str, str | float | int],
        points: NDArray[np.float64],
        penalty: str,
        check: Callable[[Client, Arrays], None],
        assemble: Callable[[Sequence[Client], Mapping[int, Arrays]], PathSolution],
        opens: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.request = dict(request)
        self.points = points
        self.penalty = penalty
        self.check = check
        self.assemble = assemble
        self.opens = opens

    def opening(self) -> RecordDict | None:
        """Return the request, the same for everyone."""
        return self.payload(1, 0) if self.opens else None

    def begin(self, clients: Sequence[Client]) -> None:
        """Start with nothing."""
        if len(clients[0].variables) < 2:
            raise StudyError("one variable has no graph: at least two are needed")
        lambda1, lambda2 = self.points[-1].tolist()
        refuse_unbounded(clients, self.penalty, lambda1, lambda2)
        self.gathered: dict[int, Arrays] = {}
        self.answered = np.zeros(len(clients), dtype=np.int64)
        self.tries = 0
        self._solution: PathSolution | None = None

    def participants(self, server_round: int) -> list[int]:
        """Ask those who have not answered yet."""
        return [client for client in range(len(self.clients)) if client not in self.gathered]

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return the request."""
        order = ConfigRecord({"round": server_round, **self.request})
        return RecordDict({"arrays": wire.record({"points": self.points}), "order": order})

    def read_reply(self, client: int, content: RecordDict) -> Arrays:
        """Check one client's arrays."""
        arrays = {name: np.array(a) for name, a in wire.arrays(content["arrays"]).items()}
        self.check(self.clients[client], arrays)
        return arrays

    def update(self, server_round: int, replies: Mapping[int, Arrays]) -> Row:
        """Keep what was sent; with the last of it, assemble the solution."""
        self.tries += 1
        for client, arrays in replies.items():
            self.gathered[client] = arrays
            self.answered[client] = server_round
        row = {"change": 0.0 if self._complete() else np.nan}
        if self._complete() or self.exhausted():
            solution = self.solution()
            row["gap"] = float(solution.gaps[-1])
            row["edges"] = float(np.mean(solution.edges()[-1]))
        return row

    def needs_reply(self) -> bool:
        """Return whether nobody has answered yet; those who are asked again may stay silent."""
        return not self.gathered

    def _complete(self) -> bool:
        return len(self.gathered) == len(self.clients)

    def _has_converged(self, row: Row) -> bool:
        return self._complete()

    def settled(self, row: Row) -> bool:
        """Return whether everyone has answered."""
        return self._complete()

    def exhausted(self) -> bool:
        """Return whether everyone was asked often enough."""
        return self.tries >= _TRIES

    def shortfall(self) -> str:
        """Return how many never answered."""
        return f"{len(self.clients) - len(self.gathered)} clients missing"

    def solution(self) -> PathSolution:
        """Return what was learned."""
        if self._solution is None:
            self._solution = self.assemble(self.clients, self.gathered)
        return self._solution

    @property
    def smallest(self) -> NDArray[np.float64]:
        """The smallest eigenvalues (K,) of the clients' correlation matrices."""
        return self.solution().smallest

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was gathered."""
        sent = {
            f"{client}-{name}": array
            for client, arrays in self.gathered.items()
            for name, array in arrays.items()
        }
        return {
            "answered": self.answered,
            "tries": np.array(self.tries),
            **sent,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        self.answered = state["answered"].copy()
        self.tries = int(state["tries"])
        for key, array in state.items():
            client, found, name = key.partition("-")
            if found:
                self.gathered.setdefault(int(client), {})[name] = array.copy()
