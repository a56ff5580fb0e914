"""Attacks on what cluster-admm releases, to see whether each privacy mode keeps its claim.

``sound``, noisy sums (`private`): one sum of moments, where a client's last sample is (B e, Y) in
    the one data set and (-B e, Y) in the other: its moments are as far apart as two samples' can
    be, sqrt(8). And the sum of counts by which clips are found: two samples whose lengths and
    targets are in different places, 2 apart. The observer knows all else, and the noise of all
    clients that the devices do not count on.
``sound``, noise in every model (``release = "each"``): a whole run of T rounds. The observer is the
    server. It sends the same v = c W e in every round; a client whose last sample is zero answers
    with W e, one whose last sample is (b e, -Y) with much less: b is chosen to pull most. All
    answers lie along e, and are added up with the weights of their noise. (A distance of about half
    of what the proof allows for is all that we know how to reach.)
``paper``, one round: an ordinary client of the paper's synthetic data, and one of its samples
    replaced by another ordinary one. Nothing is chosen to be far apart.
``paper``, all rounds: as if every sample's gradient *were* within C, and one moved every answer by
    exactly 2 C / (D rho), (43). Then the noise is what Theorem 3 asks for, and only the paper's
    total is wrong: a client in every round is attacked with all its answers.

Adversary: reads the releases, chooses what the server sends, knows all samples but one.
Neighbouring: one sample of a client replaced. Not covered: other pairs of data sets, and what
several noisy sums tell together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.zcdp import decaying_total, paper_decaying_total, zcdp_epsilon
from trellis.privacy.audit import Finding, audit
from trellis.privacy.audit_sums import audit_sum
from trellis.privacy.mechanisms.digits import quick_discrete_gaussian
from trellis.privacy.mechanisms.discrete import GridPlan
from trellis.privacy.mechanisms.shares import plan_share
from trellis.privacy.secagg.graph import expected_noisers

from .build import FRACTION_BITS
from .config import ClusterAdmmConfig
from .data import synthetic_table, synthetic_truth
from .private.budget import scales_ratio, teaching_ratio
from .private.moments import SENSITIVITY, Question, moments
from .private.scales import SENSITIVITY as SCALES_SENSITIVITY
from .private.scales import scale_counts
from .release import bounded, grid_plan, projected, round_event
from .spending import spent_by_rounds
from .steps import SureStep, primal_step

Array = NDArray[np.float64]

# Of Sec. V-A; the epsilon is what its phi_0 spends, so that the run is not refused.
PAPER_SETTINGS = {"phi0": 0.001, "zeta": 0.99, "rounds": 300, "bound": 0.1, "epsilon": 57.0}
EACH_ROUNDS = 5  # of an attack on all rounds; every one draws noise anew
TRIALS = 1_000_000
DISCRETE_TRIALS = 100_000  # integers are drawn slowly
_PULLS = 200  # lengths b that are tried


def audits(settings: Mapping[str, Any], *, trials: int = TRIALS, seed: int = 1) -> list[Finding]:
    """Return what attacks on ``sound`` and ``paper`` found.

    Parameters
    ----------
    settings : kebab-case settings; ``privacy`` picks one of the two modes, both by default, and
        ``release`` one way of ``sound``. Those of `PAPER_SETTINGS` hold for ``paper`` unless given
        here, and ``release = "each"`` has `EACH_ROUNDS` rounds
    trials : runs on each of two neighbouring data sets
    """
    chosen = str(settings.get("privacy", "sound,paper"))
    if chosen == "none":
        raise ConfigError("privacy='none' claims nothing to audit; use sound or paper")
    few = min(trials, DISCRETE_TRIALS)
    findings = []
    if "sound" in chosen:
        config = ClusterAdmmConfig.from_settings({**settings, "privacy": "sound"})
        if config.sums:
            findings += [_moments(config, few, seed), _counts(config, few, seed)]
        if config.release != "sum":
            given = {"rounds": EACH_ROUNDS, **settings, "privacy": "sound", "release": "each"}
            findings.append(_each(ClusterAdmmConfig.from_settings(given), few, seed))
    if "paper" in chosen:
        given = {**PAPER_SETTINGS, **settings, "privacy": "paper"}
        config = ClusterAdmmConfig.from_settings(given)
        findings += [_one_round(config, trials, seed), _all_rounds(config, trials, seed)]
    return findings


def _moments(config: ClusterAdmmConfig, trials: int, seed: int) -> Finding:
    """Attack one noisy sum that teaches."""
    size, tasks = config.features, config.task_count
    X, y = np.zeros((1, size)), np.array([config.clip_target])
    X[0, 0] = config.clip_features
    if config.loss == "logistic":
        y = np.ones(1)
    question = Question(
        np.zeros((tasks, size)),
        config.clip_features,
        config.clip_target if config.loss == "ridge" else 0.5,
        1.0,
        True,
    )
    one, other = (_flat(moments(config.loss, sign * X, y, 0, question)) for sign in (1.0, -1.0))
    return _summed(config, "moments", one, other, teaching_ratio(config), SENSITIVITY, trials, seed)


def _counts(config: ClusterAdmmConfig, trials: int, seed: int) -> Finding:
    """Attack the noisy sum of counts from which clips are found."""
    X = np.zeros((1, config.features))
    X[0, 0] = 1.0
    y = np.ones(1)
    one, other = (scale_counts(config.loss, f * X, f * y).ravel() for f in (1.0, 32.0))
    sensitivity = SCALES_SENSITIVITY[config.loss]
    return _summed(config, "counts", one, other, scales_ratio(config), sensitivity, trials, seed)


def _summed(
    config: ClusterAdmmConfig,
    what: str,
    one: Array,
    other: Array,
    ratio: float,
    sensitivity: float,
    trials: int,
    seed: int,
) -> Finding:
    counted = expected_noisers(config.clients, config.dropout, config.colluding)
    share = plan_share(FRACTION_BITS, ratio, sensitivity, one.size, counted)
    return audit_sum(
        f"sound, one noisy sum of {what}, {config.clients} clients",
        one,
        other,
        share,
        delta=config.delta,
        trials=trials,
        rng=generator(seed, f"audit of {what}"),
    )


class Answers(NamedTuple):
    """What a client answers in every round, along one line, before noise on a grid."""

    centre: float
    plans: tuple[GridPlan, ...]

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return ``count`` independent runs (count, T)."""
        centres = np.full(count, self.centre)
        answers = [plan.apply(centres, rng, quick_discrete_gaussian) for plan in self.plans]
        return np.column_stack(answers)


def _each(config: ClusterAdmmConfig, trials: int, seed: int) -> Finding:
    """Attack all rounds of noise in every model."""
    count, size = config.sample_range()[0], config.features
    share, rho = _share(config), config.penalty(size)
    centres = [projected(w, config.clip_model)[0] for w in pulled(config, count, rho, share)]
    plans = tuple(
        grid_plan(config, n, count, size, rho, share) for n in range(1, config.rounds + 1)
    )
    data, neighbour = (Answers(float(centre), plans) for centre in centres)
    weights = np.array([1.0 / plan.sigma**2 for plan in plans])
    result = audit(
        Answers.draw,
        data,
        neighbour,
        trials=trials,
        delta=config.delta,
        rng=generator(seed, "audit of every model"),
        direction=weights * np.sign(centres[1] - centres[0]),
    )
    terms = config.zeta, config.rounds, config.delta
    claimed = spent_by_rounds("sound", config.phi_start, *terms)
    moved = abs(centres[1] - centres[0]) / plans[0].sensitivity
    setting = f"D = {count}, d = {size}, rho = {rho:g}; {moved:.0%} of the sensitivity is reached"
    return Finding(f"sound, noise in every model, {config.rounds} rounds", claimed, setting, result)


def pulled(config: ClusterAdmmConfig, count: int, rho: float, share: float) -> tuple[Array, Array]:
    """Return a client's solutions of (4) with its last sample zero, and with one that pulls most.

    The server's v is c W along the first feature; all other samples are zero.
    """
    size = config.features
    c = rho + 2.0 * share * config.ridge
    v = np.zeros(size)
    v[0] = c * config.clip_model

    def solved(length: float) -> Array:
        X, y = np.zeros((count, size)), np.zeros(count)
        X[-1, 0], y[-1] = length, -config.clip_target
        X, y = bounded(config, X, y)
        return SureStep(config.loss, X, y, config.ridge, share, rho).solve(v)

    tried = [solved(length) for length in np.linspace(0.0, config.clip_features, _PULLS)]
    return tried[0], min(tried, key=lambda w: float(projected(w, config.clip_model)[0]))


class Watched(NamedTuple):
    """N(centre, deviation^2): a release as seen along one line."""

    centre: float
    deviation: float

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Return ``count`` independent releases (count, 1)."""
        return self.centre + self.deviation * rng.standard_normal((count, 1))


def _one_round(config: ClusterAdmmConfig, trials: int, seed: int) -> Finding:
    """Attack one answer with the paper's noise, an ordinary sample replaced by another."""
    count, models = ordinary(config, seed)
    rho, share = config.penalty(config.features), _share(config)
    event = round_event(config, 1, count, config.features, rho, share)
    moved = float(np.linalg.norm(models[1] - models[0]))
    data, neighbour = Watched(0.0, event.sigma), Watched(moved, event.sigma)
    rng = generator(seed, "audit of the paper's noise")
    result = audit(
        Watched.draw, data, neighbour, trials=trials, delta=event.delta, rng=rng,
        direction=np.ones(1),
    )  # fmt: skip
    setting = (
        f"D = {count}, d = {config.features}, C = {config.bound:g}; an ordinary sample moves the "
        f"model by {moved:.3g}, (43) has {event.sensitivity:.3g}"
    )
    return Finding("paper, one round, ordinary samples", event.epsilon, setting, result)


def _all_rounds(config: ClusterAdmmConfig, trials: int, seed: int) -> Finding:
    """Attack all answers of a client, were (43) right: the total is not what the paper says."""
    terms = config.phi_start, config.zeta, config.rounds
    total, printed = decaying_total(*terms), paper_decaying_total(*terms)
    # Answers weighed by their noise: one number, which moves by sqrt(2 total) deviations.
    data, neighbour = Watched(0.0, 1.0), Watched(math.sqrt(2.0 * total), 1.0)
    rng = generator(seed, "audit of the paper's total")
    result = audit(
        Watched.draw, data, neighbour, trials=trials, delta=config.delta, rng=rng,
        direction=np.ones(1),
    )  # fmt: skip
    setting = (
        f"phi_0 = {config.phi_start:g}, zeta = {config.zeta:g}: {printed:.3g}-zCDP by the paper, "
        f"{total:.4g} by its own (47) and (48)"
    )
    claimed = zcdp_epsilon(printed, config.delta)
    return Finding(f"paper, {config.rounds} rounds, were C a bound", claimed, setting, result)


def ordinary(config: ClusterAdmmConfig, seed: int) -> tuple[int, tuple[Array, Array]]:
    """Return D of the first synthetic client, and its answers with its last sample or another.

    The other is the last sample of the next client of its cluster.
    """
    truth = synthetic_truth(config, seed)
    mates = np.flatnonzero(truth.clusters == truth.clusters[0])
    if mates.size < 2:
        raise ConfigError("an audit of privacy='paper' needs two clients of a cluster")
    own, others = (synthetic_table(config, seed, int(k)) for k in mates[:2])
    X, y = own.X.copy(), own.y.copy()
    X[-1], y[-1] = others.X[-1], others.y[-1]
    rho, share = config.penalty(config.features), _share(config)
    v = rho * truth.models[truth.clusters[0]]
    first, second = (
        primal_step(config.loss, A, b, config.ridge, share, rho).solve(v)
        for A, b in ((own.X, own.y), (X, y))
    )
    return len(y), (first, second)


def _share(config: ClusterAdmmConfig) -> float:
    """Return a client's part of the regulariser, (4)."""
    return min(config.servers / config.clients, 1.0)


def _flat(arrays: Mapping[str, Array]) -> Array:
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])
