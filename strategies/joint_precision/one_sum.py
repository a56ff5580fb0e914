"""The server of joint-precision with ``release = sum``: one noisy secure sum, and the consensus.

A device gets seven messages at most: enrolment, two for keys, three for the sum, and the consensus,
from which and from its raw samples it makes a graph of its own (`apps.joint_precision.private`).
Three more where samples are held out: a second sum, of how well the consensus predicts them. The
server's mathematics comes in by ``estimate``; here is what is asked, checked and kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.base import BadReply, Client, Row, StudyError
from trellis.strategies.core.one_sum import OneSum
from trellis.strategies.core.sums import noise_in

Arrays = dict[str, NDArray[Any]]
Vector = NDArray[np.float64]

log = logging.getLogger("trellis.strategy")

SCORE = {"score": (2,)}


@dataclass(frozen=True)
class Scored:
    """What the second sum told: the held-out score of the consensus, and whom it helped.

    Attributes
    ----------
    accuracy : share of held-out signs that the consensus predicts; 0.5 is guessing
    helped : share of the clients that use it for their own graph
    accuracy_noise, helped_noise : standard deviations of the noise in both
    """

    accuracy: float
    helped: float
    accuracy_noise: float
    helped_noise: float


class PooledPrecision(OneSum):
    """The Flower strategy of one private sum of concordances.

    Parameters
    ----------
    estimate : makes the public arrays, ``sparse`` (p, p) among them, and metrics, from the sum, its
        clients and the noise of one of its entries
    points : (L,) penalties of the clients' own paths
    held_out_pairs : how many pairs of held-out samples a client has; None where none are held out
    """

    def __init__(
        self,
        *args: Any,
        estimate: Callable[[Mapping[str, Vector], Sequence[Client], float], tuple[Arrays, Row]],
        points: Vector,
        held_out_pairs: Callable[[Client], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.estimate = estimate
        self.points = points
        self.held_out_pairs = held_out_pairs
        self.scored: Scored | None = None

    def begin(self, clients: Sequence[Client]) -> None:
        """Start with nothing."""
        self.variables = len(clients[0].variables)
        if self.variables < 2:
            raise StudyError("one variable has no graph: at least two are needed")
        self.found: Arrays = {}
        self.personal_results: dict[int, Arrays] = {}
        self.answered = np.zeros(len(clients), dtype=np.int64)

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return the concordances of all pairs, and the sum of the samples' weights."""
        p = self.variables
        return {"concordance": (p * (p - 1) // 2,), "weight": (1,)}

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return what is asked, alike for all."""
        order = ConfigRecord({"round": server_round, "task": "concordance"})
        return RecordDict({"order": order})

    def solve(self, total: Mapping[str, Vector], clients: Sequence[int]) -> Row:
        """Make the consensus from the sum."""
        self.answered[list(clients)] = 1
        self.found, row = self.estimate(total, [self.clients[c] for c in clients], self.noise)
        return row

    def public_record(self) -> RecordDict:
        """Return the consensus, and the penalties of the clients' own paths."""
        arrays = {"consensus": self.found["sparse"], "points": self.points}
        return RecordDict({"arrays": wire.record(arrays)})

    def take_personal(self, client: int, content: RecordDict) -> None:
        """Keep a simulated client's own result."""
        p, length = self.variables, self.points.size
        arrays = {name: np.array(a) for name, a in wire.arrays(content["arrays"]).items()}
        shapes = {
            "sparse": (p, p),
            "precision": (p, p),
            "alone": (p, p),
            "trust": (3,),
            "path_ebic": (length,),
        }
        if missing := sorted({*shapes, "path_support", "chosen"} - set(arrays)):
            raise BadReply(f"{missing[0]} is missing")
        for name, shape in shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype != np.float64:
                raise BadReply(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}")
        packed = (length, -(-p * (p - 1) // 2 // 8))
        if arrays["path_support"].shape != packed or arrays["path_support"].dtype != np.uint8:
            raise BadReply(f"path_support has shape {arrays['path_support'].shape}, not {packed}")
        if arrays["chosen"].shape != () or not 0 <= int(arrays["chosen"]) < length:
            raise BadReply("the chosen point is not on the path")
        self.personal_results[client] = arrays

    def run(self, grid: Grid, *, resume: bool = False) -> None:
        """Enrol, sum, solve, tell everyone; then the held-out score, where there is one."""
        super().run(grid, resume=resume)
        if self.held_out_pairs is not None:
            self._score(grid, self.held_out_pairs)

    def _score(self, grid: Grid, pairs: Callable[[Client], int]) -> None:
        """Make the second sum: held-out signs predicted right, and clients that were helped."""
        number = len(self.progress.rows) + 1
        order = ConfigRecord({"round": number, "task": "score"})
        arrays = wire.record({"consensus": self.found["sparse"]})
        asked = {
            client: RecordDict({"order": order, "arrays": arrays})
            for client in range(len(self.clients))
        }
        try:
            found = self.secure_sum(grid, asked, number, SCORE)
        except StudyError as error:
            # The result stands without its score.
            log.warning("no held-out score: %s", error)
            return
        self.progress.bytes_up += found.bytes_up
        self.progress.bytes_down += found.bytes_down
        whole = sum(pairs(self.clients[client]) for client in found.survivors)
        if whole == 0:
            return
        right, helped = found.total["score"].tolist()
        noise, count = noise_in(found), len(found.survivors)
        self.scored = Scored(right / whole, helped / count, noise / whole, noise / count)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the public result."""
        return {"answered": self.answered, **{f"found-{k}": v for k, v in self.found.items()}}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        self.answered = state["answered"].copy()
        self.found = {
            key.removeprefix("found-"): array.copy()
            for key, array in state.items()
            if key.startswith("found-")
        }
