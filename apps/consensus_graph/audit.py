"""Attacks on what consensus-graph releases, to see whether each privacy mode keeps its claim.

The neighbours: N signals, all but one alike and faint; the last is a spike at one node in the one
data set and at another node in the other, both beyond the clip. Their vectors of squared
differences meet in a single edge, so they are as far apart as two clipped signals get but for a
factor sqrt(1 - 1 / (d - 1)). The observer watches the 2 (d - 2) edges that touch exactly one of the
two nodes; leaving out the others is post-processing, so the bound holds for the whole release.

``dp``  the noisy sum, which is all that is ever released.
``paper``  the graph a client sends after round 1 of Theorem 3, from the start of the protocol
           (own = consensus = 1 / (d - 1), gamma_i = 1 / I), against the claim for that one round,
           epsilon / T. The noise enters the last of K steps only; what the other K - 1 steps add
           up to is bounded by nothing the theorem looks at. (A factor of sqrt(2) at most comes
           from elsewhere: the theorem takes two clipped signals to be C apart.)

Adversary: reads one release, knows all signals but one. Neighbouring: one signal replaced. Not
covered: what several rounds tell together, other pairs of data sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trellis.apps.common.node import Node
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.audit import Finding, audit
from trellis.privacy.audit_sums import audit_sum
from trellis.privacy.mechanisms.shares import plan_share
from trellis.privacy.secagg.graph import expected_noisers

from .as_printed import paper_noise
from .config import ConsensusGraphConfig
from .local import Statistic
from .private import pooled
from .private.device import release_ratio
from .problem import Matrix, Vector, edge_ends, node_count, statistic
from .solver import accelerated_steps

# Theorem 3 needs gradient steps. Its claim depends on neither beta nor rho; where they are small
# little curvature damps the un-noised steps, and what they carry is plain to see.
PAPER_SETTINGS = {"local-steps": 25, "rounds": 8, "step": 0.01, "beta": 0.01, "rho": 0.1}
TRIALS = 1_000_000
SUM_TRIALS = 100_000  # every draw of a sum is as many draws as clients are counted on

_NODE = Node("audit", 0, None, None, True)
_FAINT = 0.02  # the common signals' deviation, in units of sqrt(clip)
_SPIKE = 10.0  # the same of the spike; its vector is far beyond the clip
_UNCUT = 1e6  # gradient noise so far downhill that the projection cuts nothing


def audits(settings: Mapping[str, Any], *, trials: int = TRIALS, seed: int = 1) -> list[Finding]:
    """Return what attacks on ``dp`` and ``paper`` found.

    Parameters
    ----------
    settings : kebab-case settings; ``privacy`` picks one of the two modes, both by default.
        Those of `PAPER_SETTINGS` hold for ``paper`` unless given here
    trials : runs on each of two neighbouring data sets
    """
    chosen = str(settings.get("privacy", "dp,paper"))
    if chosen == "none":
        raise ConfigError("privacy='none' claims nothing to audit; use dp or paper")
    findings = []
    if "dp" in chosen:
        config = ConsensusGraphConfig.from_settings({**settings, "privacy": "dp"})
        findings.append(audit_summed(config, min(trials, SUM_TRIALS), seed))
    if "paper" in chosen:
        given = {**PAPER_SETTINGS, **settings, "privacy": "paper"}
        findings.append(audit_paper(ConsensusGraphConfig.from_settings(given), trials, seed))
    return findings


def audit_summed(config: ConsensusGraphConfig, trials: int, seed: int) -> Finding:
    """Attack the one noisy sum: all other inputs known, and the noise of all who may collude."""
    counted = expected_noisers(config.clients, config.dropout, config.colluding)
    data, neighbour = neighbours(config, seed)
    one, other = (_flat(pooled.summands(signals, config.clip)) for signals in (data, neighbour))
    share = plan_share(
        pooled.FRACTION_BITS,
        release_ratio(config, config.statistic_share),
        pooled.sensitivity(config.clip),
        one.size,
        counted,
    )
    rng = generator(seed, "audit of the sum")
    return audit_sum(
        f"dp, one noisy sum of {config.clients} clients",
        one,
        other,
        share,
        delta=config.delta,
        trials=trials,
        rng=rng,
    )


def _flat(arrays: Mapping[str, Vector]) -> Vector:
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def audit_paper(config: ConsensusGraphConfig, trials: int, seed: int) -> Finding:
    """Attack the graph sent after round 1 of Theorem 3, noised as `paper_noise` says."""
    pair = neighbours(config, seed)
    known = [Statistic(statistic(x, config.bound), len(x)) for x in pair]
    _, event = paper_noise(config, seed, _NODE, known[0], 1)
    steps = [last_step(config, one.values) for one in known]
    releases = [Noisy(point, length * event.sigma, True) for point, length in steps]
    return _finding("paper, one round", config, event, releases, trials, seed)


class Noisy(NamedTuple):
    """One data set's release: N(centre, deviation^2 I), cut off at 0 where ``projected``."""

    centre: Vector
    deviation: float
    projected: bool

    def watched(self) -> Noisy:
        """Return what of it the observer looks at: the edges that touch one of the two nodes."""
        a, b = edge_ends(node_count(self.centre.size))
        return self._replace(centre=self.centre[(a <= 1) & (b > 1)])

    def draw(self, count: int, rng: np.random.Generator) -> Matrix:
        """Return ``count`` independent releases, a row each."""
        output = rng.standard_normal((count, self.centre.size))
        output *= self.deviation
        output += self.centre
        return np.maximum(output, 0.0, out=output) if self.projected else output


def _finding(
    mechanism: str,
    config: ConsensusGraphConfig,
    event: PrivacyEvent,
    releases: Sequence[Noisy],
    trials: int,
    seed: int,
) -> Finding:
    data, neighbour = (release.watched() for release in releases)
    rng = generator(seed, f"audit {config.privacy}")
    result = audit(Noisy.draw, data, neighbour, trials=trials, delta=event.delta, rng=rng)
    setting = f"N = {config.signal_counts()[0]}, d = {config.nodes}, C = {config.bound:g}"
    if config.privacy == "paper":
        setting += f", T = {config.rounds}, K = {config.local_steps}, step {config.step:g}"
        setting += f", beta {config.beta:g}, rho {config.rho:g}"
    return Finding(mechanism, event.epsilon, setting, result)


def neighbours(config: ConsensusGraphConfig, seed: int) -> tuple[Matrix, Matrix]:
    """Return two data sets (N, d) that differ in the last signal: a spike at node 0, or at 1."""
    count, d = config.signal_counts()[0], config.nodes
    unit = float(np.sqrt(config.bound))
    data = _FAINT * unit * generator(seed, "audit data").standard_normal((count, d))
    neighbour = data.copy()
    for node, signals in enumerate((data, neighbour)):
        signals[-1] = np.where(np.arange(d) == node, _SPIKE * unit, 0.0)
    return data, neighbour


def last_step(config: ConsensusGraphConfig, z: Vector) -> tuple[Vector, float]:
    """Return where round 1 ends (p,) before noise and projection, and its last step's length.

    The solver shows only max(0, point - length * noise). Two noise vectors far downhill leave
    nothing to cut off, and tell both.
    """
    start = np.full(z.size, 1.0 / (config.nodes - 1))

    def end(noise: float) -> Vector:
        w, _ = accelerated_steps(
            start,
            z,
            config.alpha,
            config.beta,
            config.rho / config.clients,
            start,
            config.local_steps,
            last_gradient_noise=np.full(z.size, noise),
            step=config.step,
        )
        return w

    near, far = end(-_UNCUT), end(-2.0 * _UNCUT)
    return near - (far - near), float(np.mean(far - near)) / _UNCUT
