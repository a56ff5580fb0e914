"""What a method's arithmetic costs on clients and at the centre, in seconds of CPU, one by one.

Only arithmetic is timed, the same for all: correlations, steps, the server's prox. Drawing data,
Flower's messages and files are nobody's. CPU seconds do not change with what else the machine does.

    FEDJEM   clients: Kendall's matrix, then one step a round; centre: the prox of every round
    JGL      centre: Pearson's matrices and all steps
    GLasso   clients, each alone: Pearson's matrix and the steps
    CLIME    clients, each alone: Pearson's matrix and its linear programmes
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.splitting import Splitting

from ..clime import ClimeError, clime
from ..config import JointPrecisionConfig
from ..correlation import correlation, to_positive_semidefinite
from ..data import synthetic_table
from ..problem import LocalProblem

METHODS = ("FEDJEM", "JGL", "GLasso", "CLIME")
CLIENTS = 3
LAMBDA1, LAMBDA2 = 0.1, 0.05
BYTES = 8  # of a number
# Some machines count CPU time in ticks: what ends within one is not free, but below what they tell.
LEAST_SECONDS = 1e-6

Array = NDArray[np.float64]


class TooSlow(BaseException):
    """More seconds of CPU than were allowed; passes whoever catches mere errors."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` after so many seconds of CPU; 0 is for ever."""
    if seconds <= 0.0 or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Clocked:
    """Seconds of CPU and bytes of one method; or, in ``note``, why there are none.

    Attributes
    ----------
    setup, steps : of every client; correlations, and what follows
    centre : of the server
    sent : bytes, both ways
    rounds : that were taken
    """

    setup: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    centre: float = 0.0
    sent: float = 0.0
    rounds: int = 0
    note: str = ""

    @property
    def elapsed(self) -> float:
        """Seconds until it ends, where clients compute side by side."""
        slowest = max((a + b for a, b in zip(self.setup, self.steps, strict=True)), default=0.0)
        return np.nan if self.note else max(self.centre + slowest, LEAST_SECONDS)

    @property
    def in_all(self) -> float:
        """Seconds of all machines together, which is what takes energy."""
        return np.nan if self.note else self.centre + sum(self.setup) + sum(self.steps)


def clocked(
    method: str,
    variables: int,
    samples: int,
    *,
    blocks: int,
    rounds: int,
    tolerance: float = 0.0,
    most: float = 0.0,
    seed: int = 1,
    margins: str = "nonparanormal",
) -> Clocked:
    """Return what a method costs on synthetic data: so many rounds, or fewer to a certified gap."""
    config = JointPrecisionConfig(
        variables=variables, blocks=blocks, samples=str(samples), margins=margins
    )
    tables = [synthetic_table(config, seed, client).values for client in range(CLIENTS)]
    try:
        with at_most(most):
            return _costs(method, tables, rounds, tolerance)
    except TooSlow:
        return Clocked(note=f"more than {most:g} s")
    except ClimeError as error:
        return Clocked(note="infeasible" if "nfeasible" in str(error) else str(error)[:200])


def _costs(method: str, tables: Sequence[Array], rounds: int, tolerance: float) -> Clocked:
    found = Clocked()
    kind = "kendall" if method == "FEDJEM" else "pearson"
    matrices = []
    for table in tables:
        begin = time.process_time()
        matrix = correlation(table, kind)
        # Ranks alone may leave the cone; Pearson's matrix never does.
        matrices.append(to_positive_semidefinite(matrix)[0] if kind == "kendall" else matrix)
        found.setup.append(time.process_time() - begin)
    if method == "CLIME":
        for matrix in matrices:
            begin = time.process_time()
            clime(matrix, LAMBDA1)
            found.steps.append(time.process_time() - begin)
        return found
    if method == "GLasso":
        alone = [_iterated([matrix], rounds, tolerance, lambda2=0.0) for matrix in matrices]
        found.steps = [cost.steps[0] + cost.centre for cost in alone]
        found.rounds = max(cost.rounds for cost in alone)
        return found
    joint = _iterated(matrices, rounds, tolerance, lambda2=LAMBDA2)
    found.rounds = joint.rounds
    if method == "JGL":
        found.centre = joint.centre + sum(joint.steps) + sum(found.setup)
        found.setup, found.steps = [], []
        found.sent = float(BYTES * sum(table.size for table in tables))
        return found
    found.steps, found.centre, found.sent = joint.steps, joint.centre, joint.sent
    return found


def _iterated(matrices: Sequence[Array], rounds: int, tolerance: float, lambda2: float) -> Clocked:
    """Take plain steps, without screening; the clients' cost apart from the server's."""
    whole = Blocks.whole(len(matrices[0]))
    problems = [LocalProblem(matrix, whole) for matrix in matrices]
    split = Splitting(whole, np.ones(len(matrices)), PENALTIES["group"], 1.0)
    found = Clocked(steps=[0.0] * len(matrices))
    begin = time.process_time()
    split.penalise(LAMBDA1, lambda2)
    found.centre += time.process_time() - begin
    for number in range(1, rounds + 1):
        certify = tolerance > 0.0 and split.worth_certifying(tolerance)
        taken = []
        for client, problem in enumerate(problems):
            begin = time.process_time()
            taken.append(
                problem.step(split.psi[client], split.point(client), split.ratio(client), certify)
            )
            found.steps[client] += time.process_time() - begin
        # Down: Psi - U whole, Psi as bits and its nonzero values; up: Omega.
        found.sent += split.psi.size * (2 * BYTES + 1 / 8) + BYTES * np.count_nonzero(split.psi)
        found.rounds = number
        begin = time.process_time()
        if certify:
            losses, log_dets = (
                np.array([getattr(s, n) for s in taken]) for n in ("loss", "log_det")
            )
            if split.gap(losses, log_dets) <= tolerance:
                found.centre += time.process_time() - begin
                break
        split.advance({client: step.omega for client, step in enumerate(taken)})
        found.centre += time.process_time() - begin
    return found
