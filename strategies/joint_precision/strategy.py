"""Jointly sparse precision matrices: the server of FEDJEM [TMS].

    min over Omega_1..Omega_K of
        sum_i w_i [ -log det Omega_i + <Omega_i, S_i> ] + P(Omega_1..Omega_K)         (9)

is solved in rounds. Every client solves (12) in closed form, (14); the server makes the sparse
Psi_i by the penalty's prox, (15)-(18), and updates U_i; see `splitting` for the iteration and its
certificate. Clients are stateless: the server holds Z = Omega + U and sends what a step needs.

    first             screening: clients send the entries of S_i large enough to matter, and the
                      variables fall into blocks by the exact joint rule, see `prox.connected`
    then              steps at every point of the path of penalties, each point until its certified
                      gap is below the tolerance or its rounds are used up
    with subsamples   the path again for every subsample, for the stability of the edges

The certificate of a round's Psi comes with the replies of the next. If nodes are sampled, every
tenth round asks all of them, because a gap needs the terms of every node. A node that misses three
rounds in a row is left out of the problem, with a warning, and taken back when it answers; one that
misses the screening three times has no part in it.

.. [TMS] Tan et al., FEDJEM: federated joint estimation of precision matrices.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.bounded_grid import Bounded
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.node_strategy import NodeStrategy

from .blocks import Blocks
from .messages import Screened, Stepped, read_screening, read_step, sent_psi, step_arrays
from .path import PathProgress, PathSolution, path_points
from .prox import PENALTIES
from .screening import cut_of, joint_blocks
from .splitting import Splitting

Vector = NDArray[np.float64]

log = logging.getLogger("trellis.strategy")

_SCREENING_TRIES = 3
_PATIENCE = 3
_ROUNDS_BETWEEN_CERTIFICATES = 10
_NO_ENTRY = 2.0  # no correlation is larger


class JointPrecision(NodeStrategy):
    """The methods ``group`` and ``fused`` of [TMS] as a Flower strategy.

    ``initial_arrays`` may be empty. ``Result.arrays`` has ``sparse`` (K, m), the Psi_i of the nodes
    in ``nodes`` (K,) as `Blocks` packs them, and ``labels`` (p,), the blocks of the variables.

    Sent with ``train.screen``:
        config   ``cut``, float: entries of |S_i| up to it do not matter; ``server-round``; and
                 ``train_config``
    Expected back:
        arrays   ``pairs`` (q,), places in ``numpy.triu_indices(p, 1)``, rising, of the entries of
                 S_i above the cut; ``correlations`` (q,), these entries
        metrics  ``num-examples`` n_i, ``variables`` p, ``smallest-eigenvalue`` of S_i
    Sent with ``train`` (see `messages.read_step_order`, which reads it):
        arrays   ``point`` (m,), Psi_i - U_i; Psi_i as ``support``, its non-zero places as packed
                 bits, and ``nonzero``, its entries there; ``labels`` (p,) if there are blocks
        config   ``ratio`` = rho / w_i; ``replicate``, 0 for all data or the number of a subsample;
                 ``certify``, whether the terms of the certificate are needed; ``server-round``
    Expected back:
        arrays   ``omega`` (m,), positive definite: (14)
        metrics  ``loss`` = -log det Psi_i + <Psi_i, S_i> and ``log-det`` of S_i + ratio U_i, or inf
                 and -inf; ``smallest-eigenvalue``; ``num-examples``; optional ``seconds``

    It needs every single Omega_i, so neither a `SecureGrid` nor a wrapper that adds noise to a mean
    can carry it.

    Parameters
    ----------
    penalty : ``group`` or ``fused``
    lambda1, lambda2 : the penalties, or the end of the path
    rho : of the augmented Lagrangian, to start with
    rounds : most rounds at every point of the path
    tolerance : of the duality gap; 0 takes all rounds
    path : number of points; 0 is none
    subsamples : how often the path is run again on a part of the data
    screening : find blocks first
    dtype : of the numbers on the wire
    stream_from : of more variables clients send large entries only, also for ``fused``; 0 is never
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        penalty: str,
        lambda1: float,
        lambda2: float,
        *,
        rho: float = 1.0,
        rounds: int = 200,
        tolerance: float = 1e-6,
        path: int = 0,
        subsamples: int = 0,
        screening: bool = True,
        dtype: str = "float64",
        stream_from: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.penalty, self.lambda1, self.lambda2 = penalty, lambda1, lambda2
        self.rho, self.rounds, self.tolerance = rho, rounds, tolerance
        self.points, self.subsamples = path, subsamples
        # Blocks of the whole data need not be those of a part of it.
        self.screening = screening and subsamples == 0
        self.dtype, self.stream_from = dtype, stream_from
        # A row of every array below is one of these nodes; known from the first replies at latest.
        self.members: list[int] = []
        self.dropped: set[int] = set()
        self.screened = self.ended = False
        self.gap = np.nan
        self.variables = 0

    def describe(self, examples: Mapping[int, int], variables: int) -> None:
        """Set up the problem for these nodes with n_i ``examples`` of p ``variables`` each.

        Whoever knows both before the first round calls it; else the first replies say it.
        """
        if variables < 2:
            raise StudyError("one variable has no graph: at least two are needed")
        self.members, self.variables = sorted(examples), variables
        counts = np.array([examples[node] for node in self.members], dtype=np.float64)
        self.weights = counts / np.mean(counts)  # w_i
        size = len(self.members)
        self.screened = not self.screening
        self.misses = np.zeros(size, dtype=np.int64)
        self.answered = np.zeros(size, dtype=np.int64)  # the last round each answered in
        self.smallest, self.losses = np.full(size, np.nan), np.full(size, np.nan)
        # Until blocks are known every variable is alone: one block of all may not fit in memory.
        alone = np.arange(variables, dtype=np.int32)
        first = Blocks(alone) if self.screening else Blocks.whole(variables)
        self._set_up(first, float(np.max(self.weights)))

    def _set_up(self, blocks: Blocks, largest: float) -> None:
        """Lay out the problem on these blocks, its path starting at ``largest``."""
        points = path_points(self.lambda1, self.lambda2, largest, self.points)
        self.path = PathProgress(points, len(self.members), blocks, self.subsamples)
        self._start(blocks)
        self.omega = self.split.z.copy()

    def _start(self, blocks: Blocks, active: NDArray[np.bool_] | None = None) -> None:
        """Start from the identity at the path's present point."""
        self.split = Splitting(blocks, self.weights, PENALTIES[self.penalty], self.rho)
        if active is not None:
            self.split.active[:] = active
        self.split.penalise(*self.path.lambdas)

    # --- a round ------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether the last point is solved, or its rounds are used up."""
        return self.ended

    @property
    def converged(self) -> bool:
        """Whether the last point is solved to the tolerance, which the gap certifies."""
        return self.ended and self.path.done and self._certified()

    def most_rounds(self) -> int:
        """Return how many rounds a run may take in all."""
        return _SCREENING_TRIES + max(self.points, 1) * (1 + self.subsamples) * self.rounds

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for large entries of S_i; then send each node what its step (14) needs."""
        if self.done:
            return
        self.asked = self._chosen(grid, server_round)
        there = set(grid.get_node_ids())
        for node in self.asked:
            if node not in there:
                continue  # which it missed
            told: dict[str, Any] = {**config, "server-round": server_round}
            content = RecordDict()
            if self.screened:
                content["arrays"], more = self._step_of(self.members.index(node))
            else:
                more = {"cut": self._cut(node)}
            content["config"] = ConfigRecord({**told, **more})
            action = "train" if self.screened else "train.screen"
            yield Message(content, node, action, group_id=str(server_round))

    def _chosen(self, grid: Grid, server_round: int) -> list[int]:
        """Return who is asked: everyone if the reply of one is no use without the others'."""
        if not self.members:
            self.nodes(grid, server_round)  # waits for them
            return self.all_nodes(grid)
        everyone = [node for node in self.members if node not in self.dropped]
        if not self.screened:
            return everyone
        if self.screening:
            # The blocks hold for those that were screened; another's edges may lie across them.
            known = dict(zip(self.members, self.answered.tolist(), strict=True))
            everyone = [node for node in everyone if known[node]]
        last = self.split.steps + 1 >= self.rounds
        if last or server_round % _ROUNDS_BETWEEN_CERTIFICATES == 0:
            return everyone
        if self.sampler is not None:
            chosen = set(self.sampler(server_round, self.members))
        elif self.fraction_train < 1.0:
            chosen = set(self.nodes(grid, server_round))
        else:
            return everyone
        return [node for node in everyone if node in chosen] or everyone

    @property
    def _streams(self) -> bool:
        return 0 < self.stream_from < self.variables

    def _cut(self, node: int) -> float:
        """Return the size up to which entries of S_i do not matter."""
        if not self.screening:
            return _NO_ENTRY  # only the number of examples is asked for
        # A fused pair needs all nodes' entries once one of them is large.
        if not self.members or not (self.penalty == "group" or self._streams):
            return 0.0
        weight = float(self.weights[self.members.index(node)])
        return cut_of(self.penalty, self.lambda1) / weight

    def _step_of(self, row: int) -> tuple[ArrayRecord, dict[str, Any]]:
        """Return Psi_i and Psi_i - U_i, and the numbers of a step."""
        split = self.split
        labels = split.blocks.labels if self.screening else None
        arrays = step_arrays(split.psi[row], split.point(row), labels, self.dtype)
        return arrays, {
            "ratio": split.ratio(row),
            "replicate": self.path.replicate,
            "certify": split.steps + 1 >= self.rounds or split.worth_certifying(self.tolerance),
        }

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Find the blocks; then make Psi (15)-(18) and U, and move along the path."""
        if self.screened:
            blocks = self.split.blocks
            steps = self.usable(replies, lambda found: read_step(found, blocks, self.dtype))
            row = self._step(server_round, steps) if steps else None
        else:
            entries = self.usable(
                replies, lambda found: read_screening(found, self.variables, self.dtype)
            )
            row = self._screen(server_round, entries) if entries else None
        if row is None:
            return None, None
        return self._model(), MetricRecord(dict(row))

    def _model(self) -> ArrayRecord:
        if not self.members:
            return ArrayRecord()
        return wire.record(
            {
                "sparse": self.split.psi,
                "labels": self.split.blocks.labels,
                "nodes": np.array(self.members, dtype=np.uint64),
            }
        )

    # --- screening ----------------------------------------------------------------------------

    def _screen(self, server_round: int, replies: Mapping[int, Screened]) -> dict[str, float]:
        nothing = {"gap": np.nan, "change": np.nan}
        if len(replies) < len(self.members or self.asked) and server_round < _SCREENING_TRIES:
            return nothing  # ask everyone again
        if not self.members:
            self._describe_by(replies)
        for node, reply in replies.items():
            row = self.members.index(node)
            self.answered[row], self.smallest[row] = server_round, reply.smallest
        if self.screening:
            blocks, largest = self._blocks(replies)
            self._set_up(blocks, largest)
            sizes = np.array([group.size for group in blocks.members] or [1])
            log.info(
                "screening: %d blocks of more than one variable, the largest of %d; %d alone",
                *(len(blocks.members), sizes.max(), blocks.alone.size),
            )
        self.screened = True
        for row in np.flatnonzero(self.answered == 0).tolist():
            self.misses[row] = _PATIENCE
            self._leave_out(row)
        return nothing

    def _describe_by(self, replies: Mapping[int, Screened]) -> None:
        """Set up the problem by what the nodes' first replies say."""
        sizes = {reply.variables for reply in replies.values()}
        if len(sizes) > 1:
            raise StudyError(f"nodes have different numbers of variables: {sorted(sizes)}")
        counts = {node: int(reply.examples) for node, reply in replies.items()}
        self.describe(counts, sizes.pop())

    def _blocks(self, replies: Mapping[int, Screened]) -> tuple[Blocks, float]:
        """Return the blocks at the smallest penalties, and the largest entry of all w_i S_i."""
        present = [self.members.index(node) for node in sorted(replies)]
        entries = [(replies[n].pairs, replies[n].correlations) for n in sorted(replies)]
        cut = cut_of("fused", self.lambda1) if self.penalty == "fused" and self._streams else 0.0
        return joint_blocks(
            *(self.variables, entries, self.weights[present], PENALTIES[self.penalty]),
            *(self.lambda1, self.lambda2, cut),
        )

    # --- a step -------------------------------------------------------------------------------

    def _step(self, server_round: int, replies: Mapping[int, Stepped]) -> dict[str, float]:
        began = time.perf_counter()
        rows = {self.members.index(node): reply for node, reply in replies.items()}
        for row, reply in rows.items():
            self.answered[row], self.smallest[row] = server_round, reply.smallest
            self.omega[row], self.losses[row] = reply.omega, reply.loss
        moved = self._changes_of_presence(rows)
        # Psi was made without those that came back, or with those that are left out.
        self.gap = np.nan if moved else self._certificate(rows)
        metrics = {
            "gap": self.gap,
            "rho": self.split.rho,
            "lambda1": self.split.lambda1,
            "edges": self.mean_edges(),
            "slowest-client-seconds": max(reply.seconds for reply in rows.values()),
        }
        if np.isfinite(self.gap):
            metrics["objective"] = self.split.objective(self.losses)
        metrics["change"] = np.nan
        finished = self._point_done()
        if finished:
            self._keep_point()
        # The very last Psi stays what its certificate speaks of.
        self.ended = finished and self.path.last_stage
        if not self.ended:
            omegas = {row: reply.omega for row, reply in rows.items()}
            metrics["change"] = self.split.advance(omegas)  # (15)-(18)
            if finished:
                self._next_point()
        for row in moved:
            self._change_presence(row)
        metrics["server-seconds"] = time.perf_counter() - began
        return metrics

    def _changes_of_presence(self, replies: Mapping[int, Stepped]) -> list[int]:
        """Count the misses; return who has missed too many rounds, and who is back."""
        moved = []
        for node in self.asked:
            row = self.members.index(node)
            self.misses[row] = 0 if row in replies else self.misses[row] + 1
            lost, back = self.misses[row] >= _PATIENCE, self.misses[row] == 0
            if lost if self.split.active[row] else back:
                moved.append(row)
        return moved

    def _change_presence(self, row: int) -> None:
        if self.split.active[row]:
            self._leave_out(row)
        else:
            log.warning("client %d is back", self.members[row])
            self.split.take_back(row)

    def _leave_out(self, row: int) -> None:
        if np.count_nonzero(self.split.active) > 1:
            log.warning(
                "client %d missed %d rounds in a row: the others go on without it, its matrix "
                "stays what it was",
                *(self.members[row], self.misses[row]),
            )
            self.split.leave_out(row)

    def _certificate(self, replies: Mapping[int, Stepped]) -> float:
        """Return the gap of the Psi that was sent, or nan if a node's terms are missing."""
        if not all(row in replies for row in np.flatnonzero(self.split.active)):
            return np.nan
        log_dets = np.full(len(self.members), np.nan)
        for row, reply in replies.items():
            log_dets[row] = reply.log_det
        return self.split.gap(self.losses, log_dets)

    def _certified(self) -> bool:
        return self.tolerance > 0.0 and self.gap <= self.tolerance

    def _point_done(self) -> bool:
        return self._certified() or self.split.steps + 1 >= self.rounds

    def _keep_point(self) -> None:
        self.path.keep(self.split.psi, self.omega, self.losses, self.gap)
        if not self._certified() and self.tolerance > 0.0:
            log.warning(
                "lambda1 = %.3g: a duality gap of %.2g after %d rounds, above the tolerance %.2g",
                *(self.split.lambda1, self.gap, self.rounds, self.tolerance),
            )

    def _next_point(self) -> None:
        self.path.next()
        self.gap = np.nan
        if self.path.point == 0:  # another subsample starts from nothing
            self._start(self.split.blocks, self.split.active)
        else:
            self.split.penalise(*self.path.lambdas)

    # --- what was learned ---------------------------------------------------------------------

    def shortfall(self) -> str:
        """Return the gap that is left."""
        return f"a duality gap of {self.gap:.2g}"

    def mean_edges(self) -> float:
        """Return the mean number of edges of a node's graph."""
        psi = self.split.psi[:, self.split.blocks.off_diagonal]
        return float(np.count_nonzero(psi)) / len(self.members)

    def solution(self) -> PathSolution:
        """Return what was learned at the points of the path that were reached."""
        return self.path.solution(self.smallest)

    def model_of(self, node: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the node's own Psi (m,) and the blocks."""
        if node not in self.members:
            return arrays
        row = wire.pack(self.split.psi[self.members.index(node)])
        return ArrayRecord({"sparse": row, "labels": arrays["labels"]})

    def drop(self, node: int) -> None:
        """Solve without a node from the next round on."""
        self.dropped.add(node)
        row = self.members.index(node)
        self.misses[row] = max(int(self.misses[row]), _PATIENCE - 1)

    # --- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the next round."""
        if not self.members:
            return {}
        split = self.split
        return {
            "nodes": np.array(self.members, dtype=np.uint64),
            "dropped": np.array(sorted(self.dropped), dtype=np.uint64),
            "weights": self.weights,
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
            **{f"path_{name}": array for name, array in self.path.state().items()},
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        if not state:
            return
        self.members = [int(node) for node in state["nodes"]]
        self.dropped = {int(node) for node in state["dropped"]}
        self.weights, self.variables = state["weights"].copy(), state["labels"].size
        for name in ("losses", "misses", "answered", "smallest"):
            setattr(self, name, state[name].copy())
        self.screened = bool(state["screened"])
        self._set_up(Blocks(state["labels"]), float(state["path_points"][0, 0]))
        self.omega = state["omega"].copy()
        path = {n.removeprefix("path_"): a for n, a in state.items() if n.startswith("path_")}
        self.path.restore(path)
        self.split.lambda1, self.split.lambda2 = self.path.lambdas
        rho, steps, self.split.residual, self.gap = state["scalars"].tolist()
        self.split.rho, self.split.steps = rho, int(steps)
        for name in ("z", "psi", "active"):
            setattr(self.split, name, state[name].copy())
        for name, now in self.state_dict().items():
            if state[name].shape != now.shape:
                raise ValueError(f"{name} in the checkpoint has shape {state[name].shape}")
        # With more rounds or a smaller tolerance than before, what has ended goes on.
        self.ended = self.path.done and self._point_done()


def _replace(content: RecordDict, omega: Vector) -> None:
    content["arrays"] = wire.record({"omega": omega})


# Omega_i, measured from the Psi_i that the node was sent. Correlations have their own bound.
BOUND = Bounded(
    reference=sent_psi,
    vector=lambda reply, psi: (
        wire.unpack(reply.array_records["arrays"]["omega"]).astype(np.float64) if psi.size else psi
    ),
    origin=lambda _, psi: psi,
    replace=_replace,
)
