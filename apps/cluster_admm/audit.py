"""Attacks on what cluster-admm releases, to see whether each privacy mode keeps its claim.

``dp``, noisy sums (`private`): one sum of moments, where a client's last sample is (B e, Y) in
    the one data set and (-B e, Y) in the other: its moments are as far apart as two samples' can
    be, sqrt(8). And the sum of counts by which clips are found: two samples whose lengths and
    targets are in different places, 2 apart. The observer knows all else, and the noise of all
    clients that the devices do not count on.
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
from trellis.privacy.mechanisms.shares import plan_share
from trellis.privacy.secagg.graph import expected_noisers

from .as_printed import round_event
from .build import FRACTION_BITS
from .config import ClusterAdmmConfig
from .data import synthetic_table, synthetic_truth
from .private.budget import scales_ratio, teaching_ratio
from .private.moments import SENSITIVITY, Question, moments
from .private.scales import SENSITIVITY as SCALES_SENSITIVITY
from .private.scales import scale_counts
from .steps import primal_step

Array = NDArray[np.float64]

# Of Sec. V-A; the epsilon is what its phi_0 spends, so that the run is not refused.
PAPER_SETTINGS = {"phi0": 0.001, "zeta": 0.99, "rounds": 300, "bound": 0.1, "epsilon": 57.0}
TRIALS = 1_000_000
DISCRETE_TRIALS = 100_000  # integers are drawn slowly


def audits(settings: Mapping[str, Any], *, trials: int = TRIALS, seed: int = 1) -> list[Finding]:
    """Return what attacks on ``dp`` and ``paper`` found.

    Parameters
    ----------
    settings : kebab-case settings; ``privacy`` picks one of the two, both by default: each with
        those that have an effect in it. Those of `PAPER_SETTINGS` hold for ``paper`` unless given
        here
    trials : runs on each of two neighbouring data sets
    """
    chosen = str(settings.get("privacy", "dp,paper"))
    if chosen == "none":
        raise ConfigError("privacy='none' claims nothing to audit; use dp or paper")
    few = min(trials, DISCRETE_TRIALS)
    findings = []
    if "dp" in chosen:
        config = _config({**settings, "privacy": "dp"})
        if config.sums:
            findings += [_moments(config, few, seed), _counts(config, few, seed)]
    if "paper" in chosen:
        given = {**PAPER_SETTINGS, **settings, "privacy": "paper"}
        config = _config(given)
        findings += [_one_round(config, trials, seed), _all_rounds(config, trials, seed)]
    return findings


def _config(settings: Mapping[str, Any]) -> ClusterAdmmConfig:
    return ClusterAdmmConfig.from_settings(ClusterAdmmConfig.having_effect(settings))


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
        f"dp, one noisy sum of {what}, {config.clients} clients",
        one,
        other,
        share,
        delta=config.delta,
        trials=trials,
        rng=generator(seed, f"audit of {what}"),
    )


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
    rho = config.penalty
    event = round_event(config, 1, count, rho)
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
    rho, share = config.penalty, _share(config)
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
