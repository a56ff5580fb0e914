"""Attacks on what gromov-wasserstein releases, to see whether each privacy mode keeps its claim.

The neighbours: two graphs of n nodes whose rows are as unlike as the encoder takes them, all 0 in
the one and all 1 in the other. Every bit that is sent then tells them apart with its whole budget
b, and the logarithm of the likelihood ratio is b times the sum of all entries of H*: the observer
looks at that sum. (The rows of a softmax sum to one and are less far apart. The claim does not lean
on that, and neither does the attack.)

``dp``  the encoder, of a graph of one node, where a single bit has all of the budget and the
           attack comes up to the claim; and of a graph of `NODES` nodes. There the claim is what
           the rows add up to in the worst case, all bits alike, which is too rare to be counted in
           any number of runs that can be made: the bound is below the claim for that reason.
           With training also one noisy sum of clipped gradients, of which one graph's is C long in
           one direction or the other; all other inputs are known, and the noise of all who may
           collude.
``paper``  Algorithm 1 as printed, of a graph of `NODES` nodes: m entries of a whole graph, each
           with epsilon / (m n). It leaks epsilon / n, so the claim holds, by a factor n.

Adversary: reads one release. Neighbouring: a graph replaced by any other with as many nodes. Not
covered: what several releases tell together, the numbers of nodes; with ``paper`` the updates of
training, which it does not protect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.privacy.audit import Finding, audit
from trellis.privacy.audit_sums import audit_sum
from trellis.privacy.mechanisms.multibit import encode
from trellis.privacy.mechanisms.shares import plan_share
from trellis.privacy.secagg.graph import expected_noisers

from .config import GromovWassersteinConfig
from .methods import METHODS
from .release import code_of, half_of, spent

Matrix = NDArray[np.float64]

TRIALS = 1_000_000
GRAPH_TRIALS = 100_000  # of a whole graph: every run draws thousands of numbers
SUM_TRIALS = 100_000  # every draw of a sum is as many draws as clients are counted on
NODES = 18  # the mean of MUTAG
CLASSES = 7  # length of a row where the settings do not say, again MUTAG's
_WEIGHTS = 64  # entries of a gradient; the noise of each does not depend on how many there are
_FRACTION_BITS = 24


def audits(settings: Mapping[str, Any], *, trials: int = TRIALS, seed: int = 1) -> list[Finding]:
    """Return what attacks on ``dp`` and ``paper`` found.

    Parameters
    ----------
    settings : kebab-case settings; ``privacy`` picks one of the two modes, both by default
    trials : runs on each of two neighbouring graphs
    """
    chosen = str(settings.get("privacy", "dp,paper"))
    if chosen == "none":
        raise ConfigError("privacy='none' claims nothing to audit; use dp or paper")
    findings = []
    try:
        if "dp" in chosen:
            config = GromovWassersteinConfig.from_settings({**settings, "privacy": "dp"})
            findings.append(audit_encoder(config, 1, trials, seed))
            findings.append(audit_encoder(config, NODES, min(trials, GRAPH_TRIALS), seed))
            if config.sums:
                findings.append(audit_gradients(config, min(trials, SUM_TRIALS), seed))
        if "paper" in chosen:
            if "privacy" not in settings:  # of both: what the encoder as printed does not know
                row = METHODS.row(METHODS.default("paper"), "paper")
                settings = {k: v for k, v in settings.items() if row.has(k)}
                settings |= {"method": "auto", "estimator": "raw"}
            config = GromovWassersteinConfig.from_settings({**settings, "privacy": "paper"})
            findings.append(audit_encoder(config, NODES, min(trials, GRAPH_TRIALS), seed))
    except ConfigError:
        raise
    except ValueError as error:  # of a code that these settings cannot have
        raise ConfigError(str(error)) from error
    return findings


def audit_encoder(config: GromovWassersteinConfig, nodes: int, trials: int, seed: int) -> Finding:
    """Attack one release of one graph's encoded embedding."""
    h = max(config.width if config.task == "graph" else config.classes or CLASSES, config.bits)
    low, high = np.zeros((nodes, h)), np.ones((nodes, h))

    def sample(rows: Matrix, count: int, rng: np.random.Generator) -> Matrix:
        sums = releases(config, rows, count, rng).sum(axis=1, keepdims=True)
        # Sums come in steps of two, thresholds are chosen by a normal tail: spread over the step.
        return sums + rng.uniform(-1.0, 1.0, sums.shape)

    rng = generator(seed, f"audit {config.privacy}", nodes)
    found = audit(sample, low, high, trials=trials, delta=0.0, rng=rng, direction=np.ones(1))
    code = code_of(config, h, nodes)
    bits = f"{code.m} bit" + ("s" if code.m > 1 else "")
    each = f"{bits} of all {nodes * h} entries"
    if config.encoder == "multi-bit":
        each = f"{bits} of each row's {h} entries"
    if config.estimator == "double":
        each += ", at half of that budget, twice"
    size = "one node" if nodes == 1 else f"{nodes} nodes"
    what = f"{config.privacy}, encoded graph of {size}"
    setting = f"{each}, {code.bit_budget:.3g} each; rows of zeros against rows of ones"
    return Finding(what, spent(config, [nodes]), setting, found)


def releases(
    config: GromovWassersteinConfig, rows: Matrix, count: int, rng: np.random.Generator
) -> Matrix:
    """Return ``count`` releases of one graph's rows (n, h), flat, as `release.encode_rows` draws.

    With ``double`` both encodings, one behind the other.
    """
    n, h = rows.shape
    code = code_of(config, h, n)
    if config.encoder == "printed":  # a whole graph is one row
        return encode(np.tile(rows.reshape(1, -1), (count, 1)), code, rng).astype(np.float64)
    many = np.tile(rows, (count, 1))
    codes = [half_of(config, code)] * 2 if config.estimator == "double" else [code]
    found = [encode(many, one, rng).reshape(count, n * h) for one in codes]
    return np.concatenate(found, axis=1).astype(np.float64)


def audit_gradients(config: GromovWassersteinConfig, trials: int, seed: int) -> Finding:
    """Attack one noisy sum of gradients: one graph's turns round, as long as it may be."""
    counted = expected_noisers(config.clients, config.dropout, config.colluding)
    gradient = np.zeros(_WEIGHTS)
    gradient[0] = config.gradient_bound
    share = plan_share(
        _FRACTION_BITS, config.training_ratio, 2.0 * config.gradient_bound, _WEIGHTS, counted
    )
    return audit_sum(
        f"dp, one noisy sum of gradients of {config.clients} clients",
        gradient,
        -gradient,
        share,
        delta=config.delta,
        trials=trials,
        rng=generator(seed, "audit of the sum"),
    )
