"""What leaves a client of joint-precision under each privacy mode.

``none``   Omega as (14) gives it. **The server can recover S**: it knows Psi, U and rho, so
           S = Omega^-1 - (rho/w) (Omega - Psi + U) to rounding, from one message, and every
           concordance count with it (see `recover_correlation`).
``paper``  The same messages. The article claims that no data is in danger because only Omega
           travels; the line above is why that is false.
``sound``  **with release = sum**, the default for three clients or more: nobody sees a client's
           tau. Devices add up concordances in one secure sum, noise shared among them
           (`private.concordance` has the statistic and its sensitivity), the server makes a
           consensus of it, and each device's own graph is made from raw samples and stays there.

           **With release = each**, Kendall's tau is noised **once**, then S = sin(pi/2 tau) and
           everything after it is computed from the noisy tau: any number of rounds, points of a
           path and blocks is post-processing. The rest of this text is about that.

           tau_jk is a mean over the n (n - 1) / 2 pairs of samples of s_j s_k, s the signs of their
           differences. Replacing one sample changes n - 1 pairs, and in one pair the upper
           triangle of s s' moves by at most p: |s s' - t t'|_F^2 <= 2 p^2, both triangles count
           alike, and what the diagonal moves is only less left for them. So tau moves by at most
           (n - 1) p * 2 / (n (n - 1)) = 2 p / n in l2, which is tight for even p. Ties count zero
           (tau-a): tau-b's normaliser depends on the data and has no such bound.

           Adversary: whoever sees every message of the run, the server included, and knows all of
           the client's samples but one. Neighbouring: one sample replaced; n is public. Not
           covered: what enrolment tells (`ENROLMENT`), that the client took part, that its data
           has changed since a run with the same settings, how long it took to answer. Nothing
           else a device sends or refuses depends on a sample: a cell that is no finite number
           counts as 0, a constant column has tau = 0, columns that rank the samples alike have
           tau = 1. What is refused after the release (``indefinite``, a singular matrix) is decided
           by the noised matrix, as is all that certificates and seconds of a step tell. Devices
           draw noise on a grid in integer arithmetic, which has no gaps of floating point to look
           into; with ``noise = "gaussian"``, in a simulation, they are not covered.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np
from flwr.app import MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.release import Release, Statistic, noise_of
from trellis.apps.common.tables import DataError, Table
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.strategies.joint_precision.blocks import above_diagonal, mirror

from .config import JointPrecisionConfig
from .correlation import correlation, correlation_from_tau, to_positive_semidefinite
from .kendall import kendall
from .private.statement import summed_forecast, summed_statement

Matrix = NDArray[np.float64]

log = logging.getLogger("trellis.client")

_SINGULAR = 1e-10

RECOVERABLE = (
    "the server can recover every client's correlation matrix S exactly from a single message: it "
    "knows Psi, U and rho, and S = Omega^-1 - (rho/w)(Omega - Psi + U). Use privacy='sound' where "
    "that must not happen."
)

_INSTEAD = " Use privacy='sound' where that must not happen."
SENT = {
    "glasso": "every client sends its precision matrix as computed from the raw data; its inverse "
    "is that client's correlation matrix S on the edges, but for lambda1, and bounds it elsewhere."
    + _INSTEAD,
    "clime": "every client sends its precision matrix as computed from the raw data, which tells "
    "its correlation matrix S to about lambda1." + _INSTEAD,
    "pooled": "every client's raw data is sent to the server.",
}

ENROLMENT = (
    "Enrolment tells the client's name and place in the order, its number of samples, the "
    "variables' names, and whether its data is synthetic; all of it is declared public."
)

STATEMENTS = {
    "none": {
        "claim": "None: " + RECOVERABLE,
        "adversary": "-",
        "neighbouring": "-",
        "not_covered": "Everything a correlation matrix tells of the samples it was computed from.",
    },
    "paper": {
        "claim": "NOT PRIVATE. The article counts no data as in danger because only precision "
        "matrices travel; but " + RECOVERABLE,
        "adversary": "-",
        "neighbouring": "-",
        "not_covered": "Everything a correlation matrix tells of the samples it was computed from.",
    },
    "sound": {
        "claim": "Each client's Kendall matrix is noised once, on devices with discrete Gaussian "
        "noise; everything sent is computed from it, and no single sample decides whether a "
        "device answers. " + ENROLMENT,
        "adversary": "Whoever sees every message, the server included, and knows all but one "
        "sample of the client.",
        "neighbouring": "One sample of one client replaced by another; the number of samples is "
        "public.",
        "not_covered": "The number of samples, the variables' names and the fact of taking part; "
        "that a client's data has changed since a run with the same settings; how long an answer "
        "took. In a simulation noise comes from the seed and protects nobody.",
    },
}


def statement(config: JointPrecisionConfig) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report."""
    if config.sums:
        return summed_statement(config, ENROLMENT)
    claims = dict(STATEMENTS[config.privacy])
    if config.privacy != "sound":
        claims["claim"] = claims["claim"].replace(RECOVERABLE, exposure(config))
    return claims


def exposure(config: JointPrecisionConfig) -> str:
    """Return what the server learns of a client where nothing is noised."""
    return SENT.get(config.method, RECOVERABLE)


def sensitivity(variables: int, count: int) -> float:
    """Return how far one replaced sample can move the upper triangle of tau-a, in l2."""
    return 2.0 * variables / count


def forecast(config: JointPrecisionConfig, variables: int, counts: list[int]) -> str:
    """Return what sound noise will leave of the graphs, before anything is run.

    With sums see `private.forecast`. With ``release = "each"``, the rule of thumb: graphs are
    useful where n > 50 p sigma, sigma the noise that a sensitivity of one would need, which is a
    noise of 0.04 on every tau.
    """
    if config.sums:
        return summed_forecast(config, variables, counts)
    sigma = gaussian_sigma(config.epsilon, config.delta, 1.0)
    fewest = min(counts)
    noise = sigma * sensitivity(variables, fewest)
    sampling = float(np.sqrt(2.0 * (2.0 * fewest + 5.0) / (9.0 * fewest * (fewest - 1.0))))
    needed = int(np.ceil(50.0 * variables * sigma))
    if noise <= 0.04:
        verdict = "useful graphs can be expected"
    elif noise <= 0.15:
        verdict = "expect the strong edges only"
    else:
        verdict = "the graphs will mostly show noise; with three clients or more use release=sum"
    return (
        f"Forecast for privacy='sound': with n = {fewest} samples of p = {variables} variables at "
        f"epsilon = {config.epsilon:g}, every tau gets noise of standard deviation {noise:.2g} "
        f"(sampling alone has {sampling:.2g}); {verdict}. As a rule of thumb n > 50 p sigma = "
        f"{needed:,} is needed."
    )


@dataclass(frozen=True)
class Correlation:
    """A client's correlation matrix S (p, p), positive semidefinite, and where it comes from.

    Attributes
    ----------
    matrix : S, with unit diagonal
    smallest : the smallest eigenvalue before the projection; negative where it was needed
    statistic : the upper triangle of S, and the release it was computed from
    """

    matrix: Matrix
    smallest: float
    statistic: Statistic

    @classmethod
    def of(cls, matrix: Matrix, smallest: float, count: int) -> Correlation:
        """Return a matrix that was computed from the raw data."""
        return cls(matrix, smallest, Statistic(_triangle(matrix), count))

    def keep(self, state: RecordDict) -> None:
        """Store it in a node's ``context.state``."""
        self.statistic.keep(state)
        state["smallest"] = MetricRecord({"eigenvalue": self.smallest})

    @classmethod
    def from_records(cls, state: RecordDict) -> Correlation:
        """Return what `keep` stored."""
        statistic = Statistic.from_records(state)
        smallest = float(state.metric_records["smallest"]["eigenvalue"])  # type: ignore[arg-type]
        return cls(_symmetric(statistic.values), smallest, statistic)


def release_correlation(
    config: JointPrecisionConfig, seed: int, node: Node, table: Table, policy: Policy
) -> Correlation:
    """Compute a client's S from its data and, with ``sound`` privacy, noise tau once before.

    Raises
    ------
    PrivacyRefused
        Where the device's ``policy`` does not allow it.
    DataError
        Where S is not positive semidefinite and ``indefinite = "refuse"``.
    """
    policy.permit(config.privacy)
    count, p = table.values.shape
    if config.privacy != "sound":
        matrix = correlation(table.values, config.correlation, table.columns)
        return Correlation.of(*_positive(config, matrix, count, table.source), count)
    release = tau_release(config, p, count, noise_of(config.noise, node))
    tau = _triangle(kendall(table.values, variant="a", columns=table.columns))
    noisy = _symmetric(release.of(tau, table, node, seed, policy))
    matrix, smallest = _positive(config, correlation_from_tau(noisy), count, table.source)
    return Correlation(matrix, smallest, Statistic(_triangle(matrix), count, (release.event,)))


def tau_release(
    config: JointPrecisionConfig, variables: int, count: int, noise: str = "gaussian"
) -> Release:
    """Return the one release of a client with ``count`` samples; ``noise`` see `noise_of`."""
    return Release(
        config.study,
        f"Kendall's tau of {variables} variables, {count} samples",
        variables * (variables - 1) // 2,
        sensitivity(variables, count),
        config.epsilon,
        config.delta,
        noise,
    )


def subsample_correlation(
    config: JointPrecisionConfig, table: Table, rng: np.random.Generator
) -> Correlation:
    """Return S of a random part of the samples, 10 sqrt(n) of them as StARS has it."""
    count = table.values.shape[0]
    size = int(10.0 * np.sqrt(count)) if count > 144 else max(2, int(0.8 * count))
    chosen = np.sort(rng.choice(count, size, replace=False))
    part = Table(table.values[chosen], table.columns, f"a subsample of {table.source}")
    matrix = correlation(part.values, config.correlation, part.columns)
    return Correlation.of(*to_positive_semidefinite(matrix), size)


def _positive(
    config: JointPrecisionConfig, matrix: Matrix, count: int, source: str
) -> tuple[Matrix, float]:
    """Return S made positive semidefinite, as the settings say, with its smallest eigenvalue."""
    projected, smallest = to_positive_semidefinite(matrix)
    # With fewer samples than variables the server says so, of all clients at once.
    if count > len(matrix) and smallest <= _SINGULAR and not config.penalised:
        raise DataError(
            f"{source}: the correlation matrix is singular (smallest eigenvalue {smallest:.3g}), "
            "and lambda1=0 leaves the objective without a minimum; set lambda1 > 0"
        )
    if projected is matrix:
        return matrix, smallest
    if config.indefinite == "refuse":
        raise DataError(
            f"{source}: the correlation matrix is not positive semidefinite (smallest eigenvalue "
            f"{smallest:.3g}); use more samples or indefinite='project'"
        )
    log.warning(
        "%s: the correlation matrix is not positive semidefinite (smallest eigenvalue %.3g); it "
        "was projected to the nearest by its eigenvalues",
        *(source, smallest),
    )
    return projected, smallest


def _triangle(matrix: Matrix) -> NDArray[np.float64]:
    return above_diagonal(matrix)


def _symmetric(triangle: NDArray[np.float64]) -> Matrix:
    """Return the matrix with this upper triangle and a unit diagonal."""
    p = (1 + math.isqrt(1 + 8 * triangle.size)) // 2
    matrix = np.eye(p)
    start = 0
    for row in range(p - 1):
        matrix[row, row + 1 :] = triangle[start : start + p - 1 - row]
        start += p - 1 - row
    mirror(matrix)
    return matrix
