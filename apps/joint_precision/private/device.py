"""A device's part of the private methods: its terms of the sums, and its own matrices.

What the server learns of a client is in two noisy sums at most, each made once in a run: the
concordances of all clients' samples, and, if samples are held out, the score of the consensus on
them. The client's own graph is made from raw samples and stays on the device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from trellis.apps.common.node import Node
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.personal import Personal
from trellis.apps.common.tables import Table
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.client import Summands
from trellis.strategies.core import wire

from ..config import JointPrecisionConfig
from ..local import samples_of, settings_of
from ..problem import partial_correlations
from . import concordance, score
from .own import ALONE, Own, own_precision, trust_in, trusts_of

_TRUST = "trust-in-consensus"


def concordance_terms(message: Message, context: Context) -> Summands:
    """Return this client's terms of the noisy sum that the consensus is made of."""
    config = settings_of(context)
    _, learned, _ = samples_of(config, context)
    found = noisy(
        *(context, config, concordance.summands(learned.values)),
        what="concordances of all pairs of variables",
        sensitivity=concordance.sensitivity(len(learned.columns)),
        ratio=learning_ratio(config),
        server_round=1,
    )
    return _counted(found, len(learned.values))


def learning_ratio(config: JointPrecisionConfig) -> float:
    """Return sensitivity over noise of the concordances; the score has the rest of the budget."""
    part = score.learning_part(config.held_out)
    return ratio_for(config.epsilon, config.delta) * math.sqrt(part)


def score_terms(message: Message, context: Context) -> Summands:
    """Return right predictions of held-out signs, and whether the consensus helps this client."""
    return _scored(message, context, _helps)


def score_terms_alone(message: Message, context: Context) -> Summands:
    """Return right predictions of held-out signs, of a method without graphs of clients' own."""
    return _scored(message, context, lambda config, context, values, consensus: False)


def _scored(
    message: Message,
    context: Context,
    helps: Callable[[JointPrecisionConfig, Context, np.ndarray, np.ndarray], bool],
) -> Summands:
    config = settings_of(context)
    if not config.held_out:
        raise ValueError("the run declares no held-out score")
    _, learned, held = samples_of(config, context)
    consensus = _consensus(message, len(learned.columns))
    helped = helps(config, context, learned.values, consensus)
    arrays = {"scores": np.array([score.right_signs(held, consensus), float(helped)])}
    found = noisy(
        *(context, config, arrays),
        what="held-out score of the consensus",
        sensitivity=score.SENSITIVITY,
        ratio=ratio_for(config.epsilon, config.delta) * math.sqrt(score.PART),
        server_round=2,
    )
    return _counted(found, len(held) // 2)


def _counted(found: Summands, count: int) -> Summands:
    """Return the summands with a number in the clear that follows from public ones."""
    clear = RecordDict({"metrics": MetricRecord({"num-examples": count})})
    return replace(found, clear=clear)


def _helps(
    config: JointPrecisionConfig, context: Context, values: np.ndarray, consensus: np.ndarray
) -> bool:
    """Return whether the client's own samples speak for the consensus; keep how much."""
    try:
        trust = trust_in(values, consensus, trusts_of(config.method))
    except Exception:  # a failure may depend on the data: the reply must not show it
        return False
    known = ConfigRecord({"consensus": _digest(consensus), "trust": list(trust)})
    context.state[_TRUST] = known
    return trust[:2] != ALONE


def _kept_trust(context: Context, consensus: np.ndarray) -> tuple[float, float, float] | None:
    """Return how far this consensus is trusted, if that is known from its score."""
    known = context.state.config_records.get(_TRUST, ConfigRecord())
    if known.get("consensus") != _digest(consensus):
        return None
    trust = known["trust"]
    assert isinstance(trust, list)
    blend, scale, gain = (float(value) for value in trust)
    return blend, scale, gain


def _digest(consensus: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(consensus).tobytes()).hexdigest()


def received_matrices(message: Message, context: Context) -> Personal:
    """Return the matrices that the server made for this client."""
    from ..owner.result import from_server

    config = settings_of(context)
    table, learning, held = samples_of(config, context)
    matrices = _sent(message, len(table.columns))
    return from_server(*matrices, table.columns, learning.values, held, config.gamma)


def own_matrix(message: Message, context: Context) -> Personal:
    """Return a graph of this client's own, from its raw samples and the private consensus."""
    return _own(message, context, shared=True)


def own_matrix_alone(message: Message, context: Context) -> Personal:
    """Return a graph of this client's own, from its raw samples only."""
    return _own(message, context, shared=False)


def _own(message: Message, context: Context, *, shared: bool) -> Personal:
    config = settings_of(context)
    table, learning, held = samples_of(config, context)
    learned, p = learning.values, len(table.columns)
    points = wire.received(message.content.get("arrays"), "points", (None,))
    consensus = _consensus(message, p) if shared else np.eye(p)
    solve = partial(
        own_precision,
        *(learned, consensus, points.tolist()),
        gamma=config.gamma,
        rho=config.rho,
        tolerance=config.tolerance,
        rounds=config.rounds,
    )
    found = solve(trusts=trusts_of(config.method), trust=_kept_trust(context, consensus))
    # To compare with: what the federation was worth to this client.
    alone = found if found.alone else solve(trusts=[ALONE])
    mine = _personal(found, alone, table, shared=shared)
    whole = _for_the_owner(mine, learned, held, config.gamma)
    # What a simulated client sends stays as it is.
    return replace(mine, scores=whole.scores) if Node.of(context).simulated else whole


def _for_the_owner(mine: Personal, learned: np.ndarray, held: np.ndarray, gamma: float) -> Personal:
    """Return a device's result with what its owner needs to judge and to use it."""
    from trellis.apps.common.evaluation.measures import ALONE as BY_ITSELF
    from trellis.apps.common.evaluation.measures import THIS, Scores

    from ..owner.result import (
        FEWEST,
        alone_matrix,
        description,
        held_out_scores,
        in_words,
        kept_arrays,
    )

    arrays = mine.arrays
    more = kept_arrays(arrays["sparse"], arrays["precision"], learned)

    def scores() -> Scores:
        # Beside the best that the client can do by itself, not only at the run's own penalties.
        found = {THIS: more["latent-precision"], BY_ITSELF: alone_matrix(learned, gamma)}
        return held_out_scores(found, held)

    return replace(
        mine,
        arrays={**arrays, **more},
        words=in_words(arrays["sparse"], "your own"),
        model=description(),
        scores=scores if len(held) >= FEWEST else None,
    )


def _sent(message: Message, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the precision matrix, its sparse form and the shared pairs that came, checked."""
    record = message.content.get("arrays")
    precision, sparse = (wire.received(record, name, (p, p)) for name in ("precision", "sparse"))
    for name, matrix in (("precision", precision), ("sparse", sparse)):
        if not np.allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12):
            raise wire.BadReply(f"the server's {name} matrix is not symmetric")
    shared = None
    if record is not None and "shared" in record:
        shared = wire.received(record, "shared", (p * (p - 1) // 2,), "bool")
    return np.array(precision), np.array(sparse), shared


def _personal(found: Own, alone: Own, table: Table, *, shared: bool) -> Personal:
    sparse = found.sparse[found.chosen]
    strengths = partial_correlations(sparse)
    upper = np.triu_indices(len(sparse), 1)
    support = found.sparse[:, upper[0], upper[1]] != 0.0
    arrays = {
        "sparse": sparse,
        "precision": found.precision[found.chosen],
        "partial": strengths,
        "alone": alone.sparse[alone.chosen],
        "trust": np.array([found.blend, found.scale, found.gain]),
        "chosen": np.array(found.chosen),
        "smallest": np.array(found.smallest),
        "path_lambda1": found.lambdas,
        "path_ebic": found.ebic,
        "path_gap": found.gaps,
        "path_support": np.packbits(support, axis=-1),
    }
    used = "not used: this device's own samples predict better without it"
    if not found.alone:
        weights = "" if math.isinf(found.scale) else f", its edges favoured (c = {found.scale:g})"
        used = f"its values count {found.blend:.0%}{weights}"
    summary: dict[str, float | str] = {
        "samples": float(len(table.values)),
        "variables": float(len(sparse)),
        "edges": float(np.count_nonzero(support[found.chosen])),
        "lambda1": float(found.lambdas[found.chosen]),
    }
    if shared:
        without = float(np.count_nonzero(arrays["alone"][upper]))
        summary["edges without the consensus"] = without
        summary["consensus"] = used
        summary["gain in held-out log likelihood per sample"] = found.gain
    return Personal(arrays, strengths[upper], table.columns, summary)


def _consensus(message: Message, p: int) -> np.ndarray:
    """Return the precision matrix (p, p) that was sent, refused by what it is alone."""
    return np.array(wire.received(message.content.get("arrays"), "consensus", (p, p)))
