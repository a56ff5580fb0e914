"""A device's summands of the private consensus, and its own graph, which stays on it."""

from __future__ import annotations

from collections.abc import Sequence
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

# Settings, data, the part to learn from, the rest, and how both were mapped to other units.
_Data = tuple[ConsensusGraphConfig, Table, Table, Matrix, tuple[Vector, Vector] | None]


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
    if not config.held_out:
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


def received_graphs(message: Message, context: Context) -> Personal:
    """Return the graph that the server made for this client, and the consensus."""
    return _received(message, context, ("weights", "consensus"))


def received_graph(message: Message, context: Context) -> Personal:
    """Return the graph that the server made for this client, of a method without a consensus."""
    return _received(message, context, ("weights",))


def _received(message: Message, context: Context, names: Sequence[str]) -> Personal:
    # Late: no other message needs these.
    from trellis.apps.consensus_graph.owner.result import from_server

    config, table, learned, held, units = _read(context)
    graphs = {name: np.array(_graph(message, name, table)) for name in names}
    weights, consensus = graphs["weights"], graphs.get("consensus")
    found = from_server(weights, consensus, table.columns, learned.values, held, config.alpha)
    return replace(found, arrays={**found.arrays, **kept_units(units)})


def own_graph(message: Message, context: Context) -> Personal:
    """Return a graph of this client's own, from its raw signals and the private consensus."""
    data = _read(context)
    consensus, noise = _public(message, data[1])
    return _own(context, data, consensus, noise)


def own_graph_alone(message: Message, context: Context) -> Personal:
    """Return a graph of this client's own, from its raw signals only."""
    return _own(context, _read(context), None, 0.0)


def _own(context: Context, data: _Data, consensus: Vector | None, noise: float) -> Personal:
    # Late: no other message needs these.
    from trellis.apps.common.evaluation.measures import ALONE, THIS, Scores
    from trellis.apps.consensus_graph.owner.result import MODEL, held_out_scores, scale_of
    from trellis.apps.consensus_graph.owner.result import in_words as of_a_graph

    config, table, learned, held, units = data
    learning = learned.values
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


def _read(context: Context) -> _Data:
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
