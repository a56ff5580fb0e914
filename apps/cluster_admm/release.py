"""What leaves a client of cluster-admm in a round, and what that costs in privacy [GG].

With ``release = "sum"``, the default of ``sound`` where it can be, no model leaves a client at all:
`private` has what is summed, its sensitivity and how epsilon is divided, and `SUMMED` here what is
claimed. The rest is of ``release = "each"``.

A scheduled client sends w_k + N(0, sigma_n^2 I) (12), its solution of (4), in every round n it
takes part in (``sound``: on a grid, with the discrete Gaussian), with

    sigma_n^2 = zeta^n Delta^2 / (2 phi_0):   round n is phi_0 / zeta^n - zCDP  (47),

and rounds add up (`privacy.accounting.zcdp`; the paper's total (48) has the growth the wrong way
round). Only rounds that a client took part in count. phi_0 is such that all rounds of the run spend
``epsilon`` at most (`spending`), or is refused; a device lets no run spend more. Neighbouring: one
of its D samples replaced; D is public.

``none``   w_k as it is.
``paper``  Delta = 2 C / (D rho) (43), with C = ``bound`` taken as given. **Not a bound**: the
    gradient of (y - x'w)^2 grows with x, y and w, and nothing limits them.
``sound``  Rows are clipped to |x| <= B, targets to |y| <= Y, and w_k is projected on |w| <= W
    before noise is added. Then Delta is min(2 C / (D mu), 2 W), with mu = rho + 2 share ridge and

        C = 2 B (B W + Y)  ``ridge``,      C = B  ``logistic``.

    Proof. v_k = phi_k + rho w_s is a function of what was released before, so the same for both
    data sets. F and F', the objectives of (4), are mu-strongly convex and differ in one sample z,
    z'; let w and w' minimise them. From grad F(w) = 0 = grad F'(w'),

        mu |w - w'|^2 <= <grad F(w) - grad F(w'), w - w'> = <grad F'(w') - grad F(w'), w - w'>,
        mu |w - w'| <= |grad l(w'; z') - grad l(w'; z)| / D,                                   (*)

    and so with w in place of w' on the right, by exchanging F and F'. (The paper's (45) says the
    same with "=", as if the gradients of the other samples were equal at w and w'.) For ``ridge``
    |grad l(u; z)| = 2 |x| |y - x'u| <= 2 B (B |u| + Y), where u is not projected and may be long:
    that the projection P_W does not expand is not enough. But let u be the shorter of w, w' and
    m = |u|. If m <= W, (*) at u gives 2 C / (D mu), and P_W does not expand. If m > W, then
    P_W = P_W P_m for both; P_m does not expand and makes both m long, which P_W scales by W / m:

        |P_W w - P_W w'| <= (W / m) 4 B (B m + Y) / (D mu) <= 4 B (B W + Y) / (D mu) = 2 C / (D mu).

    For ``logistic`` |grad l| <= |x| <= B for every u; Newton's method leaves a gradient of 1e-10
    (or, for large v, its rounding), which adds 2e-10 / mu. Two points of the ball are never more
    than 2 W apart.

    All this is about real numbers, and the server chooses the scales. So the projected model is
    rounded to a grid, the power of two for which rounding adds at most a thousandth to Delta, and
    the noise is a whole number of grid steps (`privacy.mechanisms.discrete`): what is sent can take
    the same values for all data. Floats before the rounding are off by what `exactness` bounds,
    which is counted (a 512th of Delta) or refused, by the settings and the message alone. With
    Delta + Delta / 512 + grid sqrt(d) for Delta the discrete Gaussian of sigma_n is phi_n-zCDP.

    No sample makes a client refuse or fail: labels go by their sign, what is no number counts as 0
    (`apps.server_graph.data`), and the step ends for all data (`steps.SureStep`). So an answer, and
    that there is one, depends on the data through the release alone.

    Adversary: whoever sees every message, the servers included, and knows all but one sample.
    Features that are standardised (``standardise = "public"``) are mapped record by record before
    they are clipped, so Delta stays what it is (`trellis.apps.common.own_data.scaling`).
    Not covered: what enrolment tells, which is D, the client's name, place, server and cluster, the
    features' names and whether it is simulated; when it took part; how long a step took. Losses for
    finding clusters have no noise, so they are refused.

On a device noise comes from the operating system, and every release is entered in the device's
ledger before it is made. In a simulation it comes from the seed and protects nobody.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.own_data.scaling import told_at_enrolment
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError
from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.zcdp import (
    decaying_rho,
    decaying_sigma,
    decaying_total_of,
    zcdp_epsilon,
)
from trellis.privacy.mechanisms.clipping import clip_rows
from trellis.privacy.mechanisms.digits import quick_discrete_gaussian
from trellis.privacy.mechanisms.discrete import GridPlan, plan_for_rho
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon
from trellis.privacy.mechanisms.noise import NoiseSource, fresh_noise

from .config import ClusterAdmmConfig
from .exactness import SLACK
from .problem import signed_labels
from .spending import LEAST_EPSILON, spent_by_rounds
from .steps import GRADIENT_TOLERANCE

Array = NDArray[np.float64]

WORRYING = 10.0
_zcdp_epsilon = lru_cache(maxsize=4096)(zcdp_epsilon)  # one a round, the same for all clients

STATEMENTS = {
    "none": {
        "claim": "None. Models are computed from the raw data and sent as they are.",
        "adversary": "-",
        "neighbouring": "-",
        "not_covered": "Everything: from a few rounds a server can solve for a client's data.",
    },
    "paper": {
        "claim": "NOT PRIVATE. The noise of the paper's (12) with C = bound taken as given, which "
        "is not a bound: nothing limits a sample's gradient. For comparison with the article only.",
        "adversary": "-",
        "neighbouring": "The paper's: one sample of a client replaced.",
        "not_covered": "Samples whose gradient is longer than C.",
    },
    "sound": {
        "claim": "Every model a client sends is noised for the sensitivity that clipping and "
        "projection enforce; the total is of the rounds the client took part in.",
        "adversary": "Whoever sees every message, the servers included, and knows all but one "
        "sample of the client.",
        "neighbouring": "One sample of one client replaced by another; the number of samples is "
        "public.",
        "not_covered": "What enrolment tells, which rounds the client took part in, and how long "
        "it took to answer. In a simulation noise comes from the seed and protects nobody.",
    },
}
SUMMED = {
    "claim": "What the server sees of clients' data are noisy sums over all clients: of counts of "
    "how long samples are and how large their features, of moments of clipped samples, and of "
    "scores where samples are held out. All together spend at most epsilon, and everything else is "
    "computed from them. Clients' own models are made on their devices from raw samples and stay "
    "there.",
    "adversary": "Whoever sees every message and chooses them, the servers included, together with "
    "up to a share `colluding` of the clients, and knows all but one sample of a client. A device "
    "counts on the noise of others whose signed keys its owner has listed; without such keys it "
    "adds all the noise itself.",
    "neighbouring": "One sample of one client replaced by another; the number of samples is "
    "public.",
    "not_covered": "What enrolment tells, a client's cluster among it: clusters are given by "
    "owners, not found from data. Which exchanges the client took part in, and how long it took "
    "to answer. Clients that only pretend to add noise, beyond the share that may collude. In a "
    "simulation noise comes from the seed, own models are gathered for evaluation, and nobody is "
    "protected.",
}
ENROLMENT = (
    "The server is told every client's name, place in the order, whether it is simulated, number "
    "of samples, names of features, server and cluster; none of it is noised."
)


def statement(config: ClusterAdmmConfig, apart: bool = False) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report.

    ``apart`` says that this server has a SuperLink of its own.
    """
    found = SUMMED if config.sums else STATEMENTS[config.privacy]
    return {**found, "enrolment": ENROLMENT + told_at_enrolment(config, apart)}


def bounded(config: ClusterAdmmConfig, X: Array, y: Array) -> tuple[Array, Array]:
    """Return the samples as they may be used; with ``sound``, |x| <= B and (ridge) |y| <= Y."""
    if config.privacy != "sound":
        return X, y
    if config.loss == "ridge":
        y = np.clip(y, -config.clip_target, config.clip_target)
    else:
        y = signed_labels(y)  # whatever they are
    return clip_rows(X, config.clip_features), y


def projected(w: Array, radius: float) -> Array:
    """Return the point of |w| <= radius nearest to w."""
    length = float(np.linalg.norm(w))
    return w if length <= radius else w * (radius / length)


def gradient_bound(config: ClusterAdmmConfig) -> float:
    """Return C: enforced with ``sound``, taken as given with ``paper``."""
    if config.privacy == "paper":
        return config.bound
    B = config.clip_features
    return (
        B if config.loss == "logistic" else 2.0 * B * (B * config.clip_model + config.clip_target)
    )


def sensitivity(config: ClusterAdmmConfig, count: int, rho: float, share: float) -> float:
    """Return Delta, how far replacing one of ``count`` samples moves what is sent.

    ``paper``: (43), which holds only where C does. ``sound``: as the module proves.
    """
    C = gradient_bound(config)
    if config.privacy == "paper":
        return 2.0 * C / (count * rho)
    mu = rho + 2.0 * share * config.ridge
    inexact = 2.0 * GRADIENT_TOLERANCE / mu if config.loss == "logistic" else 0.0
    return min(2.0 * C / (count * mu) + inexact, 2.0 * config.clip_model)


def grid_plan(
    config: ClusterAdmmConfig, server_round: int, count: int, size: int, rho: float, share: float
) -> GridPlan:
    """Return how ``sound`` rounds and noises a model of ``size`` in one round."""
    distance = sensitivity(config, count, rho, share)
    # Rounding adds grid sqrt(d) at most: a thousandth.
    grid = 2.0 ** math.floor(math.log2(1e-3 * distance / math.sqrt(size)))
    allowed = decaying_rho(config.phi_start, config.zeta, server_round)
    return plan_for_rho(grid, allowed, distance * (1.0 + SLACK), size)


def round_event(
    config: ClusterAdmmConfig,
    server_round: int,
    count: int,
    size: int,
    rho: float,
    share: float,
) -> PrivacyEvent:
    """Return the release of one round (from 1) by a client of ``count`` samples of ``size``."""
    # A later round has less noise: a server must not get it by a number that is not in the run.
    if not 1 <= server_round <= config.releases:
        raise ValueError(f"round {server_round}: the run's rounds are 1 to {config.releases}")
    what = "model of one primal step"
    if config.privacy == "sound":
        plan = grid_plan(config, server_round, count, size, rho, share)
        allowed = decaying_rho(config.phi_start, config.zeta, server_round)
        return PrivacyEvent(
            name=f"round-{server_round}",
            what=what,
            round=server_round,
            epsilon=max(_zcdp_epsilon(allowed, config.delta), LEAST_EPSILON),
            delta=config.delta,
            sigma=plan.sigma,
            sensitivity=plan.sensitivity,
            mechanism="discrete-gaussian",
        )
    sigma, distance = round_sigma(config, server_round, count, rho, share)
    return PrivacyEvent(
        name=f"round-{server_round}",
        what=f"{what} (not a valid guarantee)",
        round=server_round,
        epsilon=max(gaussian_epsilon(sigma, config.delta, distance), LEAST_EPSILON),
        delta=config.delta,
        sigma=sigma,
        sensitivity=distance,
    )


def simulated_release(
    config: ClusterAdmmConfig,
    seed: int,
    partition: int,
    w: Array,
    server_round: int,
    count: int,
    rho: float,
    share: float,
) -> Array:
    """Return what a simulated client sends in place of its solution ``w`` (12)."""
    source = generator(seed, "noise", partition, server_round)
    return _noised(config, w, server_round, count, rho, share, source)


def _noised(
    config: ClusterAdmmConfig,
    w: Array,
    server_round: int,
    count: int,
    rho: float,
    share: float,
    source: NoiseSource,
) -> Array:
    """Return w with the noise of a round; with ``sound`` projected and on a grid."""
    if config.privacy == "sound":
        plan = grid_plan(config, server_round, count, w.size, rho, share)
        return plan.apply(projected(w, config.clip_model), source, quick_discrete_gaussian)
    sigma, _ = round_sigma(config, server_round, count, rho, share)
    return w + sigma * source.standard_normal(w.size)


def round_sigma(
    config: ClusterAdmmConfig, server_round: int, count: int, rho: float, share: float
) -> tuple[float, float]:
    """Return sigma_n of (12) for ``count`` samples, and Delta; for ``sound``, before the grid."""
    distance = sensitivity(config, count, rho, share)
    return decaying_sigma(config.phi_start, config.zeta, distance, server_round), distance


def release_model(
    config: ClusterAdmmConfig,
    seed: int,
    node: Node,
    w: Array,
    server_round: int,
    count: int,
    rho: float,
    share: float,
    policy: Policy | None = None,
) -> tuple[Array, tuple[PrivacyEvent, ...]]:
    """Return what a client sends in place of its solution ``w`` of (4), and the event it is.

    Parameters
    ----------
    count, rho, share : of the step that gave ``w``, of `bounded` samples
    policy : what the device's owner allows

    Raises
    ------
    PrivacyRefused
        Where the device's ``policy`` does not allow it; nothing is released then.
    """
    policy = policy or Policy()
    policy.permit(config.privacy)
    if config.privacy == "none":
        return w, ()
    event = round_event(config, server_round, count, w.size, rho, share)
    step = server_round, count, rho, share
    if node.simulated:
        return simulated_release(config, seed, node.partition, w, *step), (event,)
    # Fresh noise makes every answer a release of its own, also where a round is asked for twice.
    name = f"{event.name}-{secrets.token_hex(8)}"
    event = PrivacyEvent(**{**event.as_record(), "name": name})
    if config.privacy == "paper":  # what bounds nothing is no entry in a device's account
        return _noised(config, w, *step, fresh_noise()), (event,)
    if node.state_path is None:
        raise DataError(f"{node.name}: no folder for its ledger; set state-path in --node-config")
    ledger = DeviceLedger(node.state_path, policy)
    # A server may ask for a round again, under fresh noise, until the run's epsilon is spent.
    ledger.reserve(event, (config.epsilon, config.delta))
    noisy = _noised(config, w, *step, fresh_noise())
    ledger.commit(event.name)
    return noisy, (event,)


def permit_losses(config: ClusterAdmmConfig) -> None:
    """Refuse to tell losses, which have no noise, where the run claims privacy."""
    if config.privacy == "sound":
        raise PrivacyRefused(
            f"privacy='sound' with clusters={config.clusters!r}: finding clusters takes clients' "
            "losses, which have no noise. Give the clusters (cluster in the node config, or in "
            "assignment.csv) and set clusters to their number, or set privacy='none'"
        )


def total_rho(config: ClusterAdmmConfig, took_part: Iterable[int]) -> float:
    """Return the zCDP of the rounds (from 1) that a client took part in; the same for every D."""
    return decaying_total_of(config.phi_start, config.zeta, took_part)


def chosen(config: ClusterAdmmConfig) -> list[str]:
    """Return what was chosen for ``phi0 = auto``, in words; nothing where it was given."""
    if not (config.noises_models and config.is_auto("phi0")):
        return []
    terms = config.zeta, config.releases, config.delta
    spent = spent_by_rounds(config.privacy, config.phi_start, *terms)
    return [
        f"phi0=auto is {config.phi_start:.4g}: a client in all {config.releases} rounds spends "
        f"epsilon {spent:.4g} at delta {config.delta:g}."
    ]


def warnings(config: ClusterAdmmConfig, took_part: Iterable[int]) -> list[str]:
    """Return what a reader must know about the privacy of a client with these rounds."""
    if config.privacy == "none":
        return []
    found = []
    if config.privacy == "paper":
        found.append(
            f"privacy=paper takes bound={config.bound:g} for the gradients' bound C; no data gives "
            "it, so the totals bound nothing. Use privacy=sound for a claim."
        )
    rho = total_rho(config, took_part)
    epsilon = zcdp_epsilon(rho, config.delta)
    if epsilon > WORRYING:
        found.append(
            f"the rounds add up to {rho:.4g}-zCDP, epsilon {epsilon:.3g} at delta "
            f"{config.delta:g}. Above {WORRYING:g} it protects nobody in practice; use a smaller "
            "epsilon with phi0=auto, or a smaller phi0."
        )
    return found
