"""A device's part of the private consensus: its summands, and its own graph, kept at home."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict

from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.personal import Personal
from trellis.apps.common.tables import Table
from trellis.apps.consensus_graph.config import SCORE_SHARE, ConsensusGraphConfig
from trellis.apps.consensus_graph.data import client_table, in_units
from trellis.apps.consensus_graph.problem import Matrix, Vector, edge_count
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.accounting.sampled import ratio_for
from trellis.privacy.secagg.client import Summands
from trellis.strategies.core import wire

from . import pooled, score
from .personal import personal_graph


def release_ratio(config: ConsensusGraphConfig, share: float) -> float:
    """Return sensitivity over noise of the release that takes a ``share`` of the zCDP budget."""
    return float(ratio_for(config.epsilon, config.delta) * np.sqrt(share))


def statistic_terms(message: Message, context: Context) -> Summands:
    """Return this client's terms of the noisy sum that the consensus is made of."""
    config, _, learned, _, _ = _read(context)
    what = "clipped products of the signals" if config.clip else "directions and sizes of signals"
    found = noisy(
        *(context, config, pooled.summands(learned.values, config.clip)),
        what=f"{what}, summed over all clients",
        sensitivity=pooled.sensitivity(config.clip),
        ratio=release_ratio(config, config.statistic_share),
        server_round=_round(message),
    )
    return _counted(found, len(learned.values))


def score_terms(message: Message, context: Context) -> Summands:
    """Return this client's terms of the noisy sum of held-out scores."""
    config, table, learned, held, _ = _read(context)
    if not config.sums or not config.held_out:
        raise ValueError("the run declares no held-out score")
    consensus, noise = _public(message, table)
    counts = score.scores(learned.values, held, consensus, noise, config.alpha)
    found = noisy(
        *(context, config, {"scores": counts}),
        what="held-out signals that the consensus explains, and whether it helped",
        sensitivity=score.SENSITIVITY,
        ratio=release_ratio(config, SCORE_SHARE),
        server_round=_round(message),
    )
    return _counted(found, len(held))


def _round(message: Message) -> int:
    return int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]


def _counted(found: Summands, count: int) -> Summands:
    """Return the summands with their number of signals, which is public, in the clear."""
    clear = RecordDict({"metrics": MetricRecord({"num-examples": count})})
    return replace(found, clear=clear)


def own_graph(message: Message, context: Context) -> Personal:
    """Return what this client is left with: a graph of its own, or those that the server made."""
    # Late: no other message needs these.
    from trellis.apps.common.evaluation.measures import ALONE, THIS, Scores
    from trellis.apps.consensus_graph.owner.result import (
        MODEL,
        from_server,
        held_out_scores,
        scale_of,
    )
    from trellis.apps.consensus_graph.owner.result import in_words as of_a_graph

    config, table, learned, held, units = _read(context)
    learning = learned.values
    if not config.at_home:
        weights, shared = _sent(message, table, config.method != "igl")
        found = from_server(weights, shared, table.columns, learning, held, config.alpha)
        return replace(found, arrays={**found.arrays, **kept_units(units)})
    consensus, noise = (None, 0.0) if config.method == "igl" else _public(message, table)
    made = personal_graph(learning, consensus, noise, config.alpha)
    arrays: dict[str, Vector] = {"weights": made.weights, "alone": made.alone}
    summary: dict[str, float | str] = {"signals": float(len(learning)), "beta": made.beta}
    if consensus is not None:
        arrays["consensus"] = consensus
        summary |= {"pull": made.pull, "gain": made.gain, "gamma": made.gamma}
        summary["in words"] = in_words(made.pull, made.gain)

    def scores() -> Scores:
        graphs = {THIS: made.weights, ALONE: made.alone}
        return held_out_scores(graphs, learning, held)

    if not Node.of(context).simulated:  # what a simulated client sends stays as it is
        arrays["scale"] = np.array(scale_of(made.weights, learning))
        arrays |= kept_units(units)
    return Personal(
        arrays,
        made.weights,
        table.columns,
        summary,
        words=of_a_graph(made.weights, table.columns, "your own"),
        model=MODEL,
        scores=scores if len(held) else None,
    )


def in_words(pull: float, gain: float) -> str:
    """Return what the client's held-out signals say of the consensus."""
    if pull == 0.0:
        return "your own held-out signals speak for learning alone; the consensus was not used"
    return (
        f"the consensus pulls {pull:g} times as hard as the ridge; it makes your held-out signals "
        f"{gain:+.2f} more likely each, in natural logarithms"
    )


def _sent(message: Message, table: Table, shared: bool) -> tuple[Vector, Vector | None]:
    """Return the graph and the consensus (p,) that the server made, checked."""
    weights = _graph(message, "weights", table)
    return np.array(weights), np.array(_graph(message, "consensus", table)) if shared else None


def _graph(message: Message, name: str, table: Table) -> Vector:
    """Return edge weights (p,) that came in a message."""
    shape = (edge_count(len(table.columns)),)
    weights: Vector = wire.received(message.content.get("arrays"), name, shape)
    if np.min(weights, initial=0.0) < 0.0:
        raise wire.BadReply(f"the server's {name} have a negative entry")
    return weights


def kept_units(units: tuple[Vector, Vector] | None) -> dict[str, Vector]:
    """Return by what signals were mapped, for whoever uses a kept graph on new ones."""
    return {} if units is None else {"column-offset": units[0], "column-scale": units[1]}


def _read(
    context: Context,
) -> tuple[ConsensusGraphConfig, Table, Table, Matrix, tuple[Vector, Vector] | None]:
    """Return settings, data, the part to learn from and the rest, if the owner allows the run.

    The last says how both parts were mapped to other units, where they were.
    """
    config = ConsensusGraphConfig.from_run_config(context.run_config).resolved()
    Policy.from_node_config(context.node_config).permit(config.privacy)
    node, seed = Node.of(context), seed_of(context)
    table = client_table(config, seed, node)
    parts = score.split(table, config.held_out, node, seed, config.privacy)
    return config, table, *in_units(config, *parts)


def _public(message: Message, table: Table) -> tuple[Vector, float]:
    """Return the consensus and its noise as the server says; refuse what is none."""
    consensus = _graph(message, "consensus", table)
    noise = wire.received(message.content.get("arrays"), "noise", (1,))
    if noise[0] < 0.0:
        raise wire.BadReply(f"the consensus has a noise of {noise[0]:g}")
    # A server may send weights of any size: only their proportions are used.
    largest = float(np.max(consensus))
    return consensus / largest if largest > 0.0 else consensus, float(noise[0])
