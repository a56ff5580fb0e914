"""The joint problem of [TMS] split between clients and server, and its certificate.

    min over Omega_1..Omega_K of
        sum_i w_i [ -log det Omega_i + <Omega_i, S_i> ] + P(Omega_1..Omega_K)         (9)
    P = lambda1 sum_i |off-diagonal of Omega_i|_1 + lambda2 R(off-diagonals),   w_i = n_i / mean(n)

With the literal weights n_i of the paper lambda would have to grow with the samples; with n_i over
their mean it stays on the scale of correlations.

The algorithm is ADMM (12)-(19) with over-relaxation, written as what it is, Douglas-Rachford
splitting. The whole state is one matrix a client, Z_i = Omega_i + U_i:

    Psi = prox of P / rho at Z                  the server, (15)-(18); U = Z - Psi
    Omega_i = argmin w_i [...] + rho/2 |Omega_i - (Psi_i - U_i)|^2      client i, (12)-(14)
    Z_i += relaxation (Omega_i - Psi_i)

A round in which only some clients answer moves only their Z_i, which converges all the same
(Combettes and Pesquet 2015). rho U lies in the subdifferential of P at Psi in every round,
hence is dual feasible, and

    gap = P(Psi) + sum_i w_i [ -log det Psi_i + <Psi_i, S_i> - log det(S_i + rho/w_i U_i) - p ]

bounds the distance of Psi's objective from the minimum, with no assumption. Clients return the
terms with their S_i.

Arrays: ``z``, ``psi`` (K, m), packed by `Blocks`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .blocks import Blocks
from .prox import Penalty

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

RELAXATION = 1.8
# Residual balancing: rho moves when one residual is so many times the other, and not far.
_IMBALANCE = 5.0
_LARGEST_STEP = 4.0
_ROUNDS_BETWEEN = 5
_FARTHEST = 1e4


class Splitting:
    """The server's side of the joint problem, for one lambda1 and lambda2 at a time.

    Parameters
    ----------
    blocks : of the variables, from screening
    weights : (K,) w_i
    penalty : R and its prox; `penalise` sets lambda1 and lambda2
    rho : of the augmented Lagrangian, to start with
    """

    def __init__(self, blocks: Blocks, weights: Vector, penalty: Penalty, rho: float) -> None:
        self.blocks = blocks
        self.weights = weights
        self.penalty = penalty
        self.lambda1 = self.lambda2 = 0.0
        self.rho = self.first_rho = rho
        self.steps = 0
        self.residual = np.inf
        self.active = np.ones(len(weights), dtype=bool)
        self.z = np.zeros((len(weights), blocks.size))
        self.z[:, blocks.diagonal] = 1.0  # starts at I
        self.psi = self.z.copy()

    def point(self, client: int) -> Vector:
        """Return Psi_i - U_i, where the client's own step is pulled."""
        return 2.0 * self.psi[client] - self.z[client]

    def ratio(self, client: int) -> float:
        """Return rho / w_i."""
        return float(self.rho / self.weights[client])

    def advance(self, omegas: Mapping[int, Vector]) -> float:
        """Take the Omega_i (m,) of clients that answered; return the largest relative residual."""
        before = self.psi
        answered = sorted(omegas)
        omega = np.array([omegas[client] for client in answered])
        self.z = self.z.copy()
        self.z[answered] += RELAXATION * (omega - before[answered])
        self._prox()
        self.steps += 1
        primal = _norm(omega - self.psi[answered])
        dual = self.rho * _norm(self.psi - before)
        primal /= max(_norm(omega), _norm(self.psi[answered]), 1e-300)
        dual /= max(self.rho * _norm(self.z - self.psi), 1e-300)
        self._balance(primal, dual)
        self.residual = max(primal, dual)
        return self.residual

    def worth_certifying(self, tolerance: float) -> bool:
        """Return whether the gap may be below the tolerance by now.

        Far from the solution it is not, and its two factorisations a client are a tenth of a step.
        The gap falls as the square of the residual.
        """
        return tolerance == 0.0 or self.residual <= max(1e-3, float(np.sqrt(tolerance)))

    def penalise(self, lambda1: float, lambda2: float) -> None:
        """Set lambda1 and lambda2, and go on from here."""
        self.lambda1, self.lambda2 = lambda1, lambda2
        self.steps = 0
        self._prox()

    def gap(self, losses: Vector, log_dets: Vector) -> float:
        """Return the duality gap of the active clients' Psi.

        Parameters
        ----------
        losses : (K,) -log det Psi_i + <Psi_i, S_i>; infinite where Psi_i is not positive definite
        log_dets : (K,) log det(S_i + rho/w_i U_i); -infinite where that is not
        """
        return self.objective(losses) - self.bound(log_dets)

    def objective(self, losses: Vector) -> float:
        """Return (9) at the active clients' Psi."""
        value = float(self.weights[self.active] @ losses[self.active])
        off = self.psi[np.ix_(self.active, self.blocks.off_diagonal)]
        # A packed matrix has every off-diagonal entry once, the penalty counts both.
        return value + 2.0 * self.penalty.value(off, self.lambda1, self.lambda2)

    def bound(self, log_dets: Vector) -> float:
        """Return a lower bound on (9) over all matrices."""
        return float(self.weights[self.active] @ (log_dets[self.active] + self.blocks.variables))

    def leave_out(self, client: int) -> None:
        """Solve the problem without this client from now on; its Psi_i stays what it was."""
        self.active[client] = False
        self._prox()

    def take_back(self, client: int) -> None:
        """Make a client part of the problem again."""
        self.active[client] = True
        self._prox()

    def _prox(self) -> None:
        """Make Psi from Z; the penalty leaves the diagonal alone."""
        active, diagonal = self.active, self.blocks.diagonal
        psi = self.psi.copy()
        z = self.z[active]
        psi[active] = self.penalty.prox(z, self.lambda1 / self.rho, self.lambda2 / self.rho)
        psi[np.ix_(active, diagonal)] = z[:, diagonal]
        self.psi = psi

    def _balance(self, primal: float, dual: float) -> None:
        """Move rho where one residual is much larger than the other.

        Rarely, by little at a time and within bounds: where a residual is zero its inverse is no
        measure of anything, and a rho that changes without end need not converge.
        """
        if self.steps % _ROUNDS_BETWEEN or primal <= 0.0 or dual <= 0.0:
            return
        imbalance = primal / dual
        if 1.0 / _IMBALANCE <= imbalance <= _IMBALANCE:
            return
        factor = float(np.clip(np.sqrt(imbalance), 1.0 / _LARGEST_STEP, _LARGEST_STEP))
        rho = float(
            np.clip(self.rho * factor, self.first_rho / _FARTHEST, self.first_rho * _FARTHEST)
        )
        # U is scaled by rho: rho U must stay what it was.
        self.z = self.psi + (self.z - self.psi) * (self.rho / rho)
        self.rho = rho


def _norm(array: Matrix) -> float:
    return float(np.sqrt(np.vdot(array, array)))
