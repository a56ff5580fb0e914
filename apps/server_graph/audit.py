"""Attacks on what server-graph releases, to see whether each privacy mode keeps its claim.

**Noise in sums** (``dp``). The neighbours: one client's samples, all alike but one, which pulls
the gradient with the full length C along the first parameter, or against it. The observer chooses
the model (0 in every round), knows everything but the one record, and has the noise of all clients
that a device does not count on. He sees one sum, or all sums of a run, which he adds up; batches
are drawn in secret in these. One coordinate is all that differs.

**Noise between servers** (``paper``). The neighbours: all data of one client of server m replaced,
targets so far away that its clipped gradient has length B along the diagonal in every round,
whatever the model, or against it. The other servers together see y_j = psi_j + g_j of every round
j; since the own combination takes the noise back, psi_j parts by the same for every transcript
(`release`), so what is left after subtracting psi_j is noise, or noise and a shift. They look at
the likelihood ratio. With one client per server, which the theorem allows, the l1 distance is
sqrt(M) times what Theorem 2 counts.

**Its own clients** (``paper``). Server m sends w_m to its clients: with what the servers sent each
other, one of them takes the noise off. The attack plays the servers of a graph for one round.

Adversary: as said, knows all data but what was replaced. Not covered: other pairs of data sets,
what secure aggregation must hold for a sum to be all that is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.common.servers import build_topology
from trellis.apps.common.settings import ConfigError
from trellis.privacy.accounting.sampled import spent
from trellis.privacy.audit import Finding, audit
from trellis.privacy.audit_sums import audit_sum
from trellis.privacy.mechanisms.laplace import laplace_noise
from trellis.privacy.mechanisms.shares import Share, Together, simulated_sum_noise
from trellis.privacy.secagg.graph import expected_noisers
from trellis.strategies.server_graph.exchange import neighbours as near
from trellis.strategies.server_graph.exchange import servers

from .config import ServerGraphConfig
from .losses import loss_by_name
from .private import Terms, clipped_mean
from .problem import local_steps
from .simulate import FRACTION_BITS
from .spending import paper_epsilon, releases_in, settled

Array = NDArray[np.float64]

TRIALS = 1_000_000
SUM_TRIALS = 100_000  # every draw of a sum is as many draws as clients, or rounds, are counted on
CLIENT_TRIALS = 2_000  # a whole round of servers each; what they show has no noise in it
# The worst that Theorem 2 allows: one client a server, nothing that draws models together. In the
# first round the attack needs the fewest runs to show what is true of all.
BETWEEN: dict[str, Any] = {
    "method": "hybrid", "clients": 10, "servers": 10, "loss": "least-squares", "clip": 1.0,
    "ridge": 0.0, "batch": 0, "rounds": 1, "secure-aggregation": "off",
}  # fmt: skip
_FAR = 1e9  # a target, so far that the gradient is clipped wherever the model is


def audits(settings: Mapping[str, Any], *, trials: int = TRIALS, seed: int = 1) -> list[Finding]:
    """Return what attacks on ``dp`` and ``paper`` found.

    Parameters
    ----------
    settings : kebab-case settings; ``privacy`` picks one of the two modes, both by default. Those
        of `BETWEEN` hold for noise between servers unless given here
    trials : runs on each of two neighbouring data sets
    """
    chosen = str(settings.get("privacy", "dp,paper"))
    if chosen not in ("dp,paper", "dp", "paper"):
        raise ConfigError(f"privacy={chosen!r} claims nothing to audit; use dp or paper")
    findings = []
    if "dp" in chosen:
        config = ServerGraphConfig.from_settings({**settings, "privacy": "dp"})
        findings += audit_sums(config, min(trials, SUM_TRIALS), seed)
    if "paper" in chosen:
        config = ServerGraphConfig.from_settings({**BETWEEN, **settings, "privacy": "paper"})
        findings.append(audit_between(config, trials, seed))
        if config.method == "hybrid":
            findings.append(audit_by_a_client(config, min(trials, CLIENT_TRIALS), seed))
    return findings


# --- noise in sums -------------------------------------------------------------------------------


def audit_sums(config: ServerGraphConfig, trials: int, seed: int) -> list[Finding]:
    """Attack one noisy sum, the record in its batch, and all sums of a run."""
    terms, samples = Terms.of(config), config.sample_counts()[0]
    one, other = summands(config)
    counted = expected_noisers(config.asked_by_a_server, config.dropout, config.colluding)
    share = Together(terms.needed_deviation(samples), terms.least_ratio).plan(
        FRACTION_BITS,
        terms.ratio(samples),
        terms.sensitivity(samples),
        one.size,
        counted,
        sampled=terms.rates(samples).sampling < 1.0,
    )
    single = audit_sum(
        "dp, one noisy sum, the record in the batch",
        one,
        other,
        share,
        delta=config.delta,
        trials=trials,
        rng=generator(seed, "audit of a sum"),
    )
    return [single, _all_sums(config, one - other, share, trials, seed)]


def summands(config: ServerGraphConfig) -> tuple[Array, Array]:
    """Return what a client adds to a sum (M,) with either record; all its samples in the batch."""
    terms, samples = Terms.of(config), config.sample_counts()[0]
    loss, found = loss_by_name(config.loss), []
    y = np.ones(samples)
    for sign in (1.0, -1.0):
        X = np.zeros((samples, config.features))
        X[0, 0] = sign * _FAR
        zero, every = np.zeros(loss.size(config.features)), np.ones(samples, dtype=bool)
        expected = terms.rates(samples).expected
        found.append(clipped_mean(loss, zero, X, y, terms.clip, every, expected))
    return found[0], found[1]


def _all_sums(
    config: ServerGraphConfig, change: Array, share: Share, trials: int, seed: int
) -> Finding:
    """Attack the sums of all rounds: the observer adds up their first entries."""
    samples = config.sample_counts()[0]
    rate, rounds = Terms.of(config).rates(samples).sampling, config.rounds
    half = 0.5 * float(np.linalg.norm(change))  # either record is C / b away from none

    def sample(sign: float, count: int, rng: np.random.Generator) -> Array:
        total = np.zeros(count)
        each = replace(share, size=count)
        for _ in range(rounds):
            total += simulated_sum_noise(rng, each, share.noisers)
            total += sign * half * (rng.random(count) < rate)
        return total[:, None]

    rng = generator(seed, "audit of all sums")
    found = audit(
        sample, 1.0, -1.0, trials=trials, delta=config.delta, rng=rng, direction=np.array([-1.0])
    )
    claimed = spent(share.ratio, rounds, config.delta, rate)
    batch = f"secret batches of {rate:.3g} of the samples" if rate < 1.0 else "all samples"
    setting = (
        f"{batch}, clip {config.bound:g}, noise of {share.noisers} clients, model 0 throughout"
    )
    return Finding(f"dp, the noisy sums of {rounds} rounds", claimed, setting, found)


# --- noise between servers -----------------------------------------------------------------------


def audit_between(config: ServerGraphConfig, trials: int, seed: int) -> Finding:
    """Attack everything that one server tells the others in all rounds."""
    shifts = apart(config)
    rounds, size = shifts.shape
    graph = build_topology(config, seed, config.weights)
    messages = releases_in(config, graph)
    config = settled(config, size)
    scale = config.sigma / np.sqrt(2.0)
    # With noise on every edge all neighbours together see as many draws of a round.
    shift = np.repeat(shifts, messages, axis=0).ravel()

    def sample(moved: bool, count: int, rng: np.random.Generator) -> Array:
        noise = laplace_noise(rng, count * shift.size, scale).reshape(count, shift.size)
        return noise + shift if moved else noise

    def ratio(seen: Array) -> Array:
        told: Array = (np.abs(seen) - np.abs(seen - shift)).sum(axis=1) / scale
        # Far out it is the same number for all. Its last bits tell more, by the gaps of noise in
        # floating point, which no claim here covers: they are rounded off.
        return np.round(told, 9)

    claimed = paper_epsilon(config, rounds)
    rng = generator(seed, "audit between servers paper")
    found = audit(sample, False, True, trials=trials, delta=0.0, rng=rng, direction=ratio)
    exact = float(np.abs(shift).sum()) / scale
    setting = (
        f"{_where(config)}, sigma {config.sigma:.3g}; exactly, the likelihoods of a transcript "
        f"differ by a factor of up to e^{exact:.3g}"
    )
    return Finding(f"paper, Theorem 2, {_rounds(rounds)}", claimed, setting, found)


def apart(config: ServerGraphConfig) -> Array:
    """Return how far psi_j parts in every round (T, M), by the clients' own steps.

    Raises
    ------
    ConfigError
        Where it would depend on what the servers send, as gradients of the logistic loss do from
        the second round on.
    """
    if config.loss != "least-squares" and config.rounds > 1:
        raise ConfigError(
            f"loss={config.loss!r} with rounds={config.rounds}: how far models part depends on the "
            "model from the second round on; use loss=least-squares or rounds=1"
        )
    loss = loss_by_name(config.loss)
    size = loss.size(config.features)
    asked = config.asked_by_a_server
    w, found = [np.zeros(size), np.zeros(size)], []
    pace = config.pace(size)
    rows = np.zeros((config.local_steps, 1), dtype=np.int64)
    far = _FAR if config.loss == "least-squares" else 1.0
    X = np.full((1, config.features), 1.0 if config.loss == "least-squares" else _FAR)
    for _ in range(config.rounds):
        steps = [
            local_steps(loss, v, X, np.array([sign * far]), pace, config.ridge, config.clip, rows)
            for v, sign in zip(w, (1.0, -1.0), strict=True)
        ]
        # The other clients of the server begin at w as well; their features are 0.
        others = [(1.0 - pace * config.ridge) ** config.local_steps * v for v in w]
        psi = [(a + (asked - 1) * b) / asked for a, b in zip(steps, others, strict=True)]
        found.append(psi[0] - psi[1])
        w = psi  # the own combination takes the noise back
    return np.array(found)


def audit_by_a_client(config: ServerGraphConfig, trials: int, seed: int) -> Finding:
    """Attack the first round as a client of server m that sees what servers sent each other."""
    shift = apart(replace(config, rounds=1))[0]
    graph = build_topology(config, seed, config.weights)
    settled_config = settled(config, shift.size)
    sigma, rng = settled_config.sigma, generator(seed, "audit by a client")

    def sample(moved: bool, count: int, source: np.random.Generator) -> Array:
        psi = {m: np.zeros(shift.size) for m in range(graph.servers)}
        psi[0] = shift if moved else psi[0]
        parties = servers("hybrid", graph.servers, sigma, lambda *_: source)
        seen = []
        for _ in range(count):
            sent = {m: parties[m].messages(1, psi[m], graph.weights) for m in psi}
            letters = {m: sent[m][0] for m in near(graph.weights, 0)}
            w = parties[0].combine(1, psi[0], letters, graph.weights)
            seen.append(without_noise(w, next(iter(sent[0].values())), letters, graph.weights))
        return np.array(seen)

    found = audit(sample, False, True, trials=trials, delta=0.0, rng=rng)
    claimed = paper_epsilon(settled_config, 1)
    setting = f"{_where(config)}, sigma {sigma:.3g}; the client sees the server's model and letters"
    return Finding("paper, round 1, seen by a client of the server", claimed, setting, found)


def without_noise(w: Array, told: Array, letters: Mapping[int, Array], weights: Array) -> Array:
    """Return psi_m of server 0 from its model, what it told and what it was told.

    w_m = a psi_m - (1 - a) g_m + what others sent, and told = psi_m + g_m, so the noise cancels:
    psi_m = w_m - what others sent + (1 - a) told.
    """
    others = sum((weights[p, 0] * letter for p, letter in letters.items()), np.zeros_like(w))
    return w - others + weights[0, near(weights, 0)].sum() * told


def _where(config: ServerGraphConfig) -> str:
    asked = config.asked_by_a_server
    return (
        f"{config.method}, M = {config.features}, {asked} client{'s' if asked > 1 else ''} asked "
        f"per server, B = {config.clip:g}, step {config.step:g}"
    )


def _rounds(rounds: int) -> str:
    return "round 1" if rounds == 1 else f"{rounds} rounds"
