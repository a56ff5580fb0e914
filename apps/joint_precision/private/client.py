"""A client of joint-precision with ``release = "sum"``: what it adds to sums, what it keeps.

What the server learns of a client is in two noisy sums at most, each made once in a run: the
concordances of all clients' samples, and, where samples are held out, the score of the consensus on
them. The client's own graph is made from raw samples and stays on the device.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from trellis.apps.common.evaluation import holding
from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.personal import Personal
from trellis.apps.common.tables import Table
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.client import Summands
from trellis.strategies.core import wire

from ..config import JointPrecisionConfig
from ..data import client_table
from ..problem import partial_correlations
from . import concordance, score
from .own import ALONE, Own, own_precision, trusts_of

_HELPED = "consensus-helps"


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to the sum that is asked for."""
    config = JointPrecisionConfig.from_run_config(context.run_config)
    if not config.sums:
        raise ValueError("the run makes no noisy sums")
    Policy.from_node_config(context.node_config).permit(config.privacy)
    task = str(message.content.config_records["order"]["task"])
    if task == "score":
        return _scored(config, message, context)
    if task != "concordance":
        raise ValueError(f"task {task!r}: sums are of concordance or score")
    learned, _ = _samples(config, context)
    return noisy(
        context,
        config,
        concordance.summands(learned),
        what="concordances of all pairs of variables",
        sensitivity=concordance.sensitivity(learned.shape[1]),
        ratio=learning_ratio(config),
        server_round=1,
    )


def learning_ratio(config: JointPrecisionConfig) -> float:
    """Return sensitivity over noise of the concordances; the score has the rest of the budget."""
    part = score.learning_part(config.held_out)
    return ratio_for(config.epsilon, config.delta) * math.sqrt(part)


def _scored(config: JointPrecisionConfig, message: Message, context: Context) -> Summands:
    """Return right predictions of held-out signs, and whether the consensus helped this client."""
    if not config.held_out:
        raise ValueError("held-out=0: no samples were held out to score with")
    _, held_out = _samples(config, context)
    consensus = _consensus(message, held_out.shape[1])
    helped = context.state.config_records.get(_HELPED, ConfigRecord()).get("helped") is True
    arrays = {"score": np.array([score.right_signs(held_out, consensus), float(helped)])}
    ratio = ratio_for(config.epsilon, config.delta) * math.sqrt(score.PART)
    return noisy(
        context,
        config,
        arrays,
        what="held-out score of the consensus",
        sensitivity=score.SENSITIVITY,
        ratio=ratio,
        server_round=2,
    )


def own_result(message: Message, context: Context) -> Personal:
    """Return what this client is left with: a graph of its own, or that which the server made."""
    config = JointPrecisionConfig.from_run_config(context.run_config)
    Policy.from_node_config(context.node_config).permit(config.privacy)
    table = _table(config, context)
    learned, held = _samples(config, context)
    if not config.at_home:
        from ..owner.result import from_server

        matrices = _sent(message, len(table.columns))
        return from_server(*matrices, table.columns, learned, held, config.gamma)
    points = wire.received(message.content.get("arrays"), "points", (None,))
    consensus = _consensus(message, len(table.columns))
    solve = partial(
        own_precision,
        *(learned, consensus, points.tolist()),
        gamma=config.gamma,
        rho=config.rho,
        tolerance=config.tolerance,
        rounds=config.rounds,
    )
    found = solve(trusts=trusts_of(config.method))
    # To compare with: what the federation was worth to this client.
    alone = found if found.alone else solve(trusts=[ALONE])
    # For the one bit of the score, which is noised with all others.
    context.state[_HELPED] = ConfigRecord({"helped": not found.alone})
    mine = _personal(found, alone, table)
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


def _personal(found: Own, alone: Own, table: Table) -> Personal:
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
        "edges without the consensus": float(np.count_nonzero(arrays["alone"][upper])),
        "lambda1": float(found.lambdas[found.chosen]),
        "consensus": used,
        "gain in held-out log likelihood per sample": found.gain,
    }
    return Personal(arrays, strengths[upper], table.columns, summary)


def _consensus(message: Message, p: int) -> np.ndarray:
    """Return the precision matrix (p, p) that was sent, refused by what it is alone."""
    return np.array(wire.received(message.content.get("arrays"), "consensus", (p, p)))


def _table(config: JointPrecisionConfig, context: Context) -> Table:
    return client_table(config, seed_of(context), Node.of(context))


def _samples(config: JointPrecisionConfig, context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples to learn from, and those held out."""
    node, seed = Node.of(context), seed_of(context)
    learned, held = learning_part(config, seed, node, client_table(config, seed, node))
    return learned.values, held


def learning_part(
    config: JointPrecisionConfig, seed: int, node: Node, table: Table
) -> tuple[Table, np.ndarray]:
    """Return the samples to learn from, as a table, and those held out."""
    count = len(table.values)
    number = count - concordance.learning_count(count, config.held_out)
    return holding.split(table, number, node, seed, config.privacy)
