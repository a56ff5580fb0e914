"""The server of joint-precision [TMS]: screening, the splitting's rounds, and the path.

Round by round it asks every client for its Omega_i, (12)-(14), and makes Psi, (15)-(18), from them;
see `precision_splitting` for the algorithm and its certificate. Clients are stateless: the server
holds Z, sends what a step needs, and a device may crash and come back.

    round 1           screening: clients send the entries of S_i large enough to matter; the
                      variables fall into blocks by the exact joint rule, see `connected`
    then              rounds of the splitting at every point of the path, each until its certified
                      gap is below the tolerance or its rounds are used up
    with subsamples   the path again for every subsample, for the stability of the edges

With a `Rehearsal` the server takes the steps between by itself, once it knows every S_i: a point of
the path is then one round, in which clients certify where the server's own steps ended. With
``one_exchange`` they tell all of S_i with the screening, and the server certifies too.

The certificate of a round's Psi comes with the replies of the next. Where clients are sampled,
every tenth round asks all of them, because a gap needs every client's word. A client that misses
three rounds in a row is left out of the problem, with a warning, and taken back when it answers;
one that misses the screening three times is left out for good, as is one whose step is beyond
``norm-bound``, |Omega_i - Psi_i| as packed, three times running. There is no mean over clients.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core.base import Client, Row, StudyError, StudyStrategy
from trellis.strategies.core.exchange import Answers

from .blocks import Blocks
from .messages import Screened, Stepped, read_screening, read_step, screening_order, step_order
from .path import PathProgress, PathSolution, path_points, refuse_unbounded
from .prox import PENALTIES
from .rehearsal import Rehearsal
from .screening import cut_of, joint_blocks
from .splitting import Splitting

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

log = logging.getLogger("trellis.strategy")

_SCREENING_TRIES = 3
_PATIENCE = 3
_ROUNDS_BETWEEN_CERTIFICATES = 10
_HEAVIEST = 2.0  # the largest w_i for which the opening's screening is enough


@dataclass(frozen=True)
class PrecisionTask:
    """What to solve.

    Attributes
    ----------
    penalty : ``group`` or ``fused``
    lambda1, lambda2 : the penalties, or the end of the path
    rho : of the augmented Lagrangian
    rounds : most rounds at every point
    path : number of points; 0 is none
    subsamples : how often the path is run again on a part of the data
    screening : find blocks first
    dtype : of the numbers on the wire
    one_exchange : ask for all of every S_i once, and for nothing more
    chosen_later : whether lambda1 and lambda2 are set when clients have enrolled
    stream_from : of more variables clients tell large entries only, also for ``fused``; 0 is never
    """

    penalty: str
    lambda1: float
    lambda2: float
    rho: float
    rounds: int
    path: int = 0
    subsamples: int = 0
    screening: bool = True
    dtype: str = "float64"
    one_exchange: bool = False
    chosen_later: bool = False
    stream_from: int = 0

    def most_rounds(self) -> int:
        """Return how many rounds a run may take in all."""
        return _SCREENING_TRIES + max(self.path, 1) * (1 + self.subsamples) * self.rounds


Reply = Screened | Stepped
Kind = TypeVar("Kind", Screened, Stepped)


class JointPrecision(StudyStrategy[Reply]):
    """The Flower strategy of the methods ``group`` and ``fused``.

    Parameters
    ----------
    task : what to solve
    rehearsal : takes steps at the server; None asks clients for every one
    """

    def __init__(
        self, *args: Any, task: PrecisionTask, rehearsal: Rehearsal | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.task = task
        self.rehearsal = rehearsal
        self.penalty = PENALTIES[task.penalty]
        self.streams = False

    # --- setting up --------------------------------------------------------------------------

    def begin(self, clients: Sequence[Client]) -> None:
        """Set the weights n_i / mean(n); without screening, the whole problem."""
        count, self.variables = len(clients), len(clients[0].variables)
        if self.variables < 2:
            raise StudyError("one variable has no graph: at least two are needed")
        counts = np.array([client.counted for client in clients], dtype=np.float64)
        self.weights = counts / np.mean(counts)
        refuse_unbounded(clients, self.task.penalty, self.task.lambda1, self.task.lambda2)
        self.screening = self._screens()
        self.streams = 0 < self.task.stream_from < self.variables
        # To whom more matters than the opening asked for, the screening comes by itself.
        self._opened = {
            client: content
            for client, content in self._opened.items()
            if self.weights[client] <= _HEAVIEST
        }
        self.screened = not self.screening
        self.misses = np.zeros(count, dtype=np.int64)
        self.answered = np.zeros(count, dtype=np.int64)
        self.smallest = np.full(count, np.nan)
        self.losses = np.full(count, np.nan)
        self.gap = np.nan
        self.ended = False
        # Until blocks are known everyone is alone: one block of all may not fit into memory.
        alone = np.arange(self.variables, dtype=np.int32)
        first = Blocks(alone) if self.screening else Blocks.whole(self.variables)
        self._set_up(first, float(np.max(self.weights)))

    def _screens(self) -> bool:
        return (self.task.screening or self.task.one_exchange) and self.task.subsamples == 0

    def opening(self) -> RecordDict | None:
        """Return the screening question, for weights w_i as far from 1 as they often are."""
        if self.rehearsal is None or not self._screens():
            return None
        if self.task.chosen_later and self._is_cut:
            return None
        return screening_order(1, self._cut(_HEAVIEST))

    def _cut(self, weight: float) -> float:
        """Return the size below which entries of S_i do not matter."""
        if not self._is_cut:
            return 0.0
        return cut_of(self.task.penalty, self.task.lambda1) / weight

    @property
    def _is_cut(self) -> bool:
        # A fused pair needs all clients' entries once one of them is large.
        told_in_part = self.task.penalty == "group" or self.streams
        return told_in_part and not self.task.one_exchange

    def _set_up(self, blocks: Blocks, largest: float) -> None:
        """Lay out the problem on these blocks, its path starting at ``largest``."""
        task, count = self.task, len(self.clients)
        points = path_points(task.lambda1, task.lambda2, largest, task.path)
        self.path = PathProgress(points, count, blocks, task.subsamples)
        self.split = Splitting(blocks, self.weights, self.penalty, task.rho)
        self.split.penalise(*self.path.lambdas)
        self.omega = self.split.z.copy()

    # --- a round -----------------------------------------------------------------------------

    def participants(self, server_round: int) -> list[int]:
        """Ask everyone where the reply of one is no use without the others'."""
        last = self.split.steps + 1 >= self.task.rounds
        everyone = list(range(len(self.clients)))
        if not self.screened:
            return everyone
        if self.screening:
            # The blocks hold for those who were screened; another's edges may lie across them.
            everyone = np.flatnonzero(self.answered).tolist()
        if last or server_round % _ROUNDS_BETWEEN_CERTIFICATES == 0:
            return everyone
        chosen = super().participants(server_round)
        return [client for client in chosen if client in everyone] or everyone

    def payload(self, server_round: int, client: int) -> RecordDict:
        """Return Psi_i and Psi_i - U_i, or the threshold below which entries do not matter."""
        if not self.screened:
            return screening_order(server_round, self._cut(float(self.weights[client])))
        split = self.split
        return step_order(
            server_round,
            split.psi[client],
            split.point(client),
            split.ratio(client),
            self.path.replicate,
            split.steps + 1 >= self.task.rounds or split.worth_certifying(self.plan.tolerance),
            split.blocks.labels if self.screening else None,
            self.task.dtype,
        )

    def read_reply(self, client: int, content: RecordDict) -> Reply:
        """Check a reply: entries of S where it was screened, else a client's step."""
        if not self.screened:
            return read_screening(content, self.variables, self.task.dtype)
        return read_step(content, self.split.blocks, self.task.dtype)

    def bounded_part(
        self, server_round: int, client: int, reply: Reply
    ) -> tuple[Vector, Vector] | None:
        """Return Omega_i and the Psi_i that the client was sent; correlations have their bound."""
        return (reply.omega, self.split.psi[client]) if isinstance(reply, Stepped) else None

    def with_part(self, client: int, reply: Reply, part: Vector) -> Reply:
        """Return another Omega_i; its terms of the certificate, of Psi_i, stay."""
        return replace(reply, omega=part) if isinstance(reply, Stepped) else reply

    def forget(self, client: int) -> None:
        """Solve without a client from the next round on."""
        self.misses[client] = max(int(self.misses[client]), _PATIENCE - 1)

    def gather(self, grid: Grid, server_round: int) -> Row:
        """Ask the clients; where they have told everything, answer for them."""
        active = np.flatnonzero(self.split.active)
        rehearsal = self.rehearsal
        if not self.task.one_exchange or rehearsal is None or not self.screened:
            return super().gather(grid, server_round)
        self._asked = []
        found = rehearsal.steps(self.split, certify=True)
        replies = {
            client: Stepped(step.omega, step.loss, step.log_det, self.smallest[client], 0.0)
            for client, step in found.items()
        }
        return self._row(Answers(), active.tolist(), self.update(server_round, replies))

    # --- the update rule ---------------------------------------------------------------------

    def update(self, server_round: int, replies: Mapping[int, Reply]) -> Row:
        """Find the blocks, or take a step of the splitting; move along the path."""
        for client, reply in replies.items():
            self.answered[client] = server_round
            self.smallest[client] = reply.smallest
        if not self.screened:
            return self._screen(server_round, _all(replies, Screened))
        return self._step(_all(replies, Stepped))

    def _step(self, replies: Mapping[int, Stepped]) -> Row:
        began = time.perf_counter()
        moved = self._changes_of_presence(replies)
        omegas = {client: reply.omega for client, reply in replies.items()}
        for client, reply in replies.items():
            self.omega[client], self.losses[client] = reply.omega, reply.loss
            if self.rehearsal is not None and not self.task.one_exchange:
                self.rehearsal.hear_step(client, reply.omega, self.split)
        # Psi was made without those who came back, or with those who are left out.
        self.gap = np.nan if moved else self._certificate(replies)
        row = {
            "gap": self.gap,
            "rho": self.split.rho,
            "lambda1": self.split.lambda1,
            "edges": self.mean_edges(),
            "slowest-client-seconds": max(reply.seconds for reply in replies.values()),
        }
        if np.isfinite(self.gap):
            row["objective"] = self.split.objective(self.losses)
        row["change"] = np.nan
        finished = self._point_done()
        if finished:
            self._keep_point()
        # The very last Psi stays what its certificate speaks of.
        self.ended = finished and self.path.last_stage
        if not self.ended:
            row["change"] = self.split.advance(omegas)
            if finished:
                self._next_point()
        for client in moved:
            self._change_presence(client)
        if not self.ended:
            self._rehearse()
        row["server-seconds"] = time.perf_counter() - began
        return row

    def _rehearse(self) -> None:
        """Take the steps that clients need not be asked for."""
        if self.rehearsal is not None:
            self.rehearsal.run(self.split, self.plan.tolerance, self.task.rounds)

    def _screen(self, server_round: int, replies: Mapping[int, Screened]) -> Row:
        everyone = len(replies) == len(self.clients)
        if everyone or server_round >= _SCREENING_TRIES:
            blocks, largest = self._blocks(replies)
            self._set_up(blocks, largest)
            self.screened = True
            sizes = np.array([group.size for group in blocks.members] or [1])
            log.info(
                "screening: %d blocks of more than one variable, the largest of %d; %d alone",
                *(len(blocks.members), sizes.max(), blocks.alone.size),
            )
            for client in set(range(len(self.clients))) - set(replies):
                self.misses[client] = _PATIENCE
                self._leave_out(client)
            if self.rehearsal is not None and self._cut(1.0) == 0.0:
                self.rehearsal.hear_screening(replies, blocks)
                self._rehearse()
        return {"gap": np.nan, "change": np.nan}

    def _blocks(self, replies: Mapping[int, Screened]) -> tuple[Blocks, float]:
        """Return the blocks at the smallest penalties, and the largest entry of all w_i S_i."""
        present = sorted(replies)
        told = [(replies[client].pairs, replies[client].correlations) for client in present]
        task = self.task
        blocks, largest = joint_blocks(
            self.variables,
            told,
            self.weights[present],
            self.penalty,
            task.lambda1,
            task.lambda2,
            self._cut(1.0) if task.penalty == "fused" else 0.0,
        )
        return (blocks if task.screening else Blocks.whole(self.variables)), largest

    def _changes_of_presence(self, replies: Mapping[int, Stepped]) -> list[int]:
        """Count the misses; return who has missed too many rounds, and who is back."""
        moved = []
        for client in self._asked:
            self.misses[client] = 0 if client in replies else self.misses[client] + 1
            lost, back = self.misses[client] >= _PATIENCE, self.misses[client] == 0
            if lost if self.split.active[client] else back:
                moved.append(client)
        return moved

    def _change_presence(self, client: int) -> None:
        if self.split.active[client]:
            self._leave_out(client)
        else:
            log.warning("client %s is back", self.clients[client].name)
            self.split.take_back(client)

    def _leave_out(self, client: int) -> None:
        if np.count_nonzero(self.split.active) > 1:
            log.warning(
                "client %s missed %d rounds in a row: the others go on without it, its matrix "
                "stays what it was",
                *(self.clients[client].name, self.misses[client]),
            )
            self.split.leave_out(client)

    def _certificate(self, replies: Mapping[int, Stepped]) -> float:
        """Return the gap of the Psi that was sent, or nan where a client's word is missing."""
        if not all(client in replies for client in np.flatnonzero(self.split.active)):
            return np.nan
        log_dets = np.full(len(self.clients), np.nan)
        for client, reply in replies.items():
            log_dets[client] = reply.log_det
        return self.split.gap(self.losses, log_dets)

    def _certified(self) -> bool:
        return self.plan.tolerance > 0.0 and self.gap <= self.plan.tolerance

    def _point_done(self) -> bool:
        return self._certified() or self.split.steps + 1 >= self.task.rounds

    def _keep_point(self) -> None:
        self.path.keep(self.split.psi, self.omega, self.losses, self.gap)
        if not self._certified() and self.plan.tolerance > 0.0:
            log.warning(
                "lambda1 = %.3g: a duality gap of %.2g after %d rounds, above the tolerance %.2g",
                *(self.split.lambda1, self.gap, self.task.rounds, self.plan.tolerance),
            )

    def _next_point(self) -> None:
        self.path.next()
        self.gap = np.nan
        if self.rehearsal is not None:
            self.rehearsal.next_point()
        if self.path.point == 0:  # another subsample starts from nothing
            if self.rehearsal is not None:
                self.rehearsal.forget()
            active = self.split.active
            self.split = Splitting(self.split.blocks, self.weights, self.penalty, self.task.rho)
            self.split.active[:] = active
        self.split.penalise(*self.path.lambdas)

    # --- the end of the run ------------------------------------------------------------------

    def settled(self, row: Row) -> bool:
        """Return whether the last point is solved to the tolerance, which the gap certifies."""
        return self.path.done and self._certified()

    def _has_converged(self, row: Row) -> bool:
        return self.settled(row)

    def exhausted(self) -> bool:
        """Return whether the last point is solved, or its rounds are used up."""
        return self.ended

    def shortfall(self) -> str:
        """Return the gap that is left."""
        return f"a duality gap of {self.gap:.2g}"

    def mean_edges(self) -> float:
        """Return the mean number of edges of a client's graph."""
        psi = self.split.psi[:, self.split.blocks.off_diagonal]
        return float(np.count_nonzero(psi)) / len(self.clients)

    def solution(self) -> PathSolution:
        """Return what was learned at the points of the path that were reached."""
        return self.path.solution(self.smallest)

    # --- checkpoints -------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the next round."""
        split = self.split
        return {
            "labels": split.blocks.labels,
            "screened": np.array(self.screened),
            "z": split.z,
            "psi": split.psi,
            "active": split.active,
            "scalars": np.array([split.rho, split.steps, split.residual, self.gap]),
            "omega": self.omega,
            "losses": self.losses,
            "misses": self.misses,
            "answered": self.answered,
            "smallest": self.smallest,
            **_prefixed("path", self.path.state()),
            **_prefixed("anderson", split.anderson.state()),
            **self._rehearsed(),
        }

    def _rehearsed(self) -> dict[str, NDArray[Any]]:
        known = self.rehearsal
        return {} if known is None else _prefixed("rehearsal", known.state(self.split.blocks.size))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back `state`."""
        self.screened = bool(state["screened"])
        self._set_up(Blocks(state["labels"]), float(state["path_points"][0, 0]))
        if self.rehearsal is not None:
            self.rehearsal.restore(_unprefixed("rehearsal", state))
        for name, now in self.state().items():
            if state[name].shape != now.shape:
                raise ValueError(f"{name} in the checkpoint has shape {state[name].shape}")
        self.path.restore(_unprefixed("path", state))
        self.split.anderson.restore(_unprefixed("anderson", state))
        self.split.lambda1, self.split.lambda2 = self.path.lambdas
        rho, steps, self.split.residual, self.gap = state["scalars"].tolist()
        self.split.rho, self.split.steps = rho, int(steps)
        # With more rounds or a smaller tolerance than before, what has ended goes on.
        self.ended = self.path.done and self._point_done()
        for name in ("z", "psi", "active"):
            setattr(self.split, name, state[name].copy())
        for name in ("omega", "losses", "misses", "answered", "smallest"):
            setattr(self, name, state[name].copy())


def _all(replies: Mapping[int, Reply], kind: type[Kind]) -> dict[int, Kind]:
    """Return the replies that are of one kind, which all of a round are."""
    return {client: reply for client, reply in replies.items() if isinstance(reply, kind)}


def _prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}_{name}": array for name, array in arrays.items()}


def _unprefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{prefix}_"
    return {n.removeprefix(start): array for n, array in arrays.items() if n.startswith(start)}
