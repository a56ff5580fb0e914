"""What one client of Algorithm 1 answers: (13) solved exactly or by K steps, and line 5.

`graph`, `averaged_graph` and `statistic_alone` answer ``train`` messages; which of them does is the
method's (`methods`).

The statistic zbar is computed from the data once, at enrolment, and stays in ``context.state``. So
does, where (13) is solved by gradient steps, the graph before the last one: line 5 of Algorithm 1
begins a round with w^(t,0) = w^(t-1,K) and w^(t,-1) = w^(t-1,K-1), so that momentum carries over
from round to round. The server keeps the first and sends it back; the second never leaves the
client.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.once import tell_once
from trellis.apps.common.results import write_atomically
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.secagg.client import Summands, weighted_summands
from trellis.strategies.consensus_graph.bound import clipped_terms, sent_terms
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ConsensusGraphConfig
from .data import client_table, in_units
from .private.score import split
from .problem import Vector, objective, statistic
from .solver import accelerated_steps, solve


@dataclass(frozen=True)
class Statistic:
    """A client's mean squared differences zbar (p,), and how many signals they are of."""

    values: Vector
    count: int

    def keep(self, state: RecordDict) -> None:
        """Store the statistic in a node's ``context.state``."""
        state["statistic"] = wire.record({"values": self.values})
        state["statistic-count"] = ConfigRecord({"count": self.count})

    @classmethod
    def from_records(cls, state: RecordDict) -> Statistic:
        """Return what `keep` stored."""
        # Not `array_records` and `config_records`, which copy all records.
        values = wire.unpack(state["statistic"]["values"])  # type: ignore[arg-type]
        return cls(values, int(state["statistic-count"]["count"]))  # type: ignore[arg-type]


# --- answers to ``train`` -----------------------------------------------------------------------


def graph(message: Message, context: Context) -> Message:
    """Return this client's graph: (13), from the consensus and the pull the server sent."""
    config = settings_of(context)
    known = statistic_of(config, context)
    sent = sent_graphs(message, known.values.size)
    server_round, pull = sent_numbers(message)
    as_printed = config.step > 0.0  # eta_w is given: (14)-(16), line for line
    w = local_graph(config, context, known.values, sent, pull, server_round, restart=not as_printed)
    w = clipped(w, sent["consensus"], config.norm_bound)
    value = objective(w, known.values, config.alpha, config.beta)
    metrics = MetricRecord({"objective": value, "num-examples": known.count})
    content = RecordDict({"arrays": wire.record({"weights": w}), "metrics": metrics})
    return Message(content, reply_to=message)


def averaged_graph(message: Message, context: Context) -> Message:
    """Return this client's term of one graph for all; until there is a mean slope, its slope too.

    Slope and objective are sent once, in the first exchange; later replies are computed from the
    mean slope that the server sends, and tell nothing of the client's data.
    """
    config = settings_of(context)
    known = statistic_of(config, context)
    sent = sent_graphs(message, known.values.size)
    first = "slope" not in sent
    # FedAvg replaces the slope of this client's data by the mean slope.
    z = known.values if first else 0.5 * sent["slope"]
    server_round, _ = sent_numbers(message)
    w = local_graph(config, context, z, sent, 0.0, server_round)
    slope = 2.0 * known.values if first else None
    terms = sent_terms(sent["consensus"], sent.get("slope"), has_slope=first)
    own = clipped_terms((w, slope), terms, config.beta, config.norm_bound)
    arrays = {"weights": own[0]}
    if own[1] is not None:
        value = objective(w, known.values, config.alpha, config.beta)
        arrays |= {"slope": own[1], "objective": np.array([value])}
    metrics = MetricRecord({"num-examples": known.count})
    content = RecordDict({"arrays": wire.record(arrays), "metrics": metrics})
    return Message(content, reply_to=message)


def averaged_summands(message: Message, context: Context) -> Summands:
    """Return `averaged_graph` weighted by its signals, for a secure mean."""
    if "slope" not in message.content.array_records["arrays"]:
        # Sums of slopes over changing sets of clients would give single ones away.
        tell_once(context, "slope")
    return weighted_summands(averaged_graph(message, context))


def statistic_alone(message: Message, context: Context) -> Message:
    """Return this client's statistic as it is: the method ``one-shot``."""
    known = statistic_of(settings_of(context), context)
    arrays = wire.record({"statistic": known.values})
    metrics = MetricRecord({"num-examples": known.count})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


# --- what they are made of ----------------------------------------------------------------------


def settings_of(context: Context) -> ConsensusGraphConfig:
    """Return the run's settings, with numbers in place of auto; pulls come from the server."""
    return ConsensusGraphConfig.from_run_config(context.run_config).resolved()


def statistic_of(config: ConsensusGraphConfig, context: Context) -> Statistic:
    """Return zbar from ``context.state``; from the data where a restart has emptied that."""
    if "statistic" in context.state:
        return Statistic.from_records(context.state)
    node, seed = Node.of(context), seed_of(context)
    Policy.from_node_config(context.node_config).permit(config.privacy)
    table = client_table(config, seed, node)
    table, _, _ = in_units(config, *split(table, config.held_out, node, seed, config.privacy))
    known = Statistic(statistic(table.values, config.statistic_clip), len(table.values))
    known.keep(context.state)
    return known


def sent_graphs(message: Message, size: int) -> dict[str, Vector]:
    """Return the graphs (``size``,) of a message, checked before anything is computed from them.

    Raises
    ------
    BadReply
        For arrays of other shapes, and for numbers that are not finite or too large to use.
    """
    record = message.content.get("arrays")
    more = (name for name in ("own", "slope") if record is not None and name in record)
    return {name: wire.received(record, name, (size,)) for name in ("consensus", *more)}


def sent_numbers(message: Message) -> tuple[int, float]:
    """Return the number of the round and the pull that a message names, checked."""
    record = message.content.get("config")
    return int(wire.number(record, "server-round", 0.0)), wire.number(record, "pull", 0.0)


def local_graph(
    config: ConsensusGraphConfig,
    context: Context,
    z: Vector,
    sent: dict[str, Vector],
    pull: float,
    server_round: int,
    noise: Vector | None = None,
    restart: bool = True,
) -> Vector:
    """Return this client's graph: (13) with the pull to the consensus that was sent.

    Parameters
    ----------
    z : (p,) mean squared differences, or FedAvg's stand-in
    sent : ``consensus`` (p,), and ``own`` (p,) to begin gradient steps from
    pull : rho gamma_i
    noise : (p,) added to the last gradient, (26)
    restart : whether gradient steps forget a momentum that overshoots
    """
    if config.local_steps == 0:
        return solve(z, config.alpha, config.beta, pull, sent["consensus"]).w
    node = Node.of(context)
    w, before = accelerated_steps(
        sent["own"],
        z,
        config.alpha,
        config.beta,
        pull,
        sent["consensus"],
        config.local_steps,
        previous=load_momentum(node, context, server_round, z.size),
        last_gradient_noise=noise,
        step=config.step,
        restart=restart,
    )
    save_momentum(node, context, server_round, np.asarray(before))
    return w


def save_momentum(node: Node, context: Context, server_round: int, before: Vector) -> None:
    """Keep w^(t, K-1) for the next round's line 5.

    On disk where the node has a folder, by round, so that a run resumed from any checkpoint finds
    the one it needs; else in ``context.state``.
    """
    if node.state_path is None:
        context.state["momentum"] = wire.record({str(server_round): before})
    else:
        path = node.state_path / f"momentum-{server_round}.f8"
        write_atomically(path, np.ascontiguousarray(before, dtype="<f8").tobytes())
        (node.state_path / f"momentum-{server_round - _KEPT}.f8").unlink(missing_ok=True)


_KEPT = 1000  # rounds whose momentum stays on a device's disk


def load_momentum(node: Node, context: Context, server_round: int, size: int) -> Vector | None:
    """Return what `save_momentum` kept after the round before; None if there is nothing."""
    last = str(server_round - 1)
    if node.state_path is None:
        if "momentum" not in context.state or last not in context.state["momentum"]:
            return None
        return wire.unpack(context.state.array_records["momentum"][last])
    path = node.state_path / f"momentum-{last}.f8"
    found = np.frombuffer(path.read_bytes(), dtype="<f8") if path.is_file() else None
    return found if found is not None and found.size == size else None
