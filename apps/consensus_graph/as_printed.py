"""Theorem 3 of the paper as printed: noise on the last of K gradient steps of every round.

**Not private.** The other K - 1 steps and the momentum carry the raw data, and the sensitivity of
what is released was measured at more than a hundred times the claimed one. It is here for
comparison with the article, under ``privacy=paper``, and stands nowhere else.
"""

from __future__ import annotations

from flwr.app import ConfigRecord, Context, Message, RecordDict

from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.seeds import generator
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.mechanisms.gaussian import classic_gaussian_sigma
from trellis.privacy.mechanisms.noise import NoiseSource, fresh_noise
from trellis.strategies.core import wire
from trellis.strategies.core.robust import clipped

from .config import ConsensusGraphConfig
from .local import Statistic, local_graph, sent_graphs, sent_numbers, settings_of, statistic_of
from .problem import Vector


def graph(message: Message, context: Context) -> Message:
    """Answer ``train``: K steps of (14)-(16), the last one with noise, (25)-(27)."""
    config = settings_of(context)
    known = statistic_of(config, context)
    sent = sent_graphs(message, known.values.size)
    server_round, pull = sent_numbers(message)
    node, seed = Node.of(context), seed_of(context)
    noise, event = paper_noise(config, seed, node, known, server_round)
    w = local_graph(config, context, known.values, sent, pull, server_round, noise)
    w = clipped(w, sent["consensus"], config.norm_bound)
    # Without the objective, which would tell of the raw data.
    released = ConfigRecord(event.as_record())
    arrays = wire.record({"weights": w})
    content = RecordDict({"arrays": arrays, f"privacy.{event.name}": released})
    return Message(content, reply_to=message)


def paper_noise(
    config: ConsensusGraphConfig, seed: int, node: Node, known: Statistic, server_round: int
) -> tuple[Vector, PrivacyEvent]:
    """Return the gradient noise of one round of Theorem 3, the budget split evenly over rounds."""
    epsilon, delta = config.epsilon / config.rounds, config.delta / config.rounds
    distance = 2.0 * config.bound / known.count  # Theorem 3, B_z replaced by the clip C
    sigma = classic_gaussian_sigma(epsilon, delta, distance)
    source: NoiseSource = (
        generator(seed, "gradient noise", node.partition, server_round)
        if node.simulated
        else fresh_noise()
    )
    event = PrivacyEvent(
        name=f"round-{server_round}",
        what="last of the round's gradient steps (not a valid guarantee)",
        round=server_round,
        sigma=sigma,
        sensitivity=distance,
        epsilon=epsilon,
        delta=delta,
    )
    return sigma * source.standard_normal(known.values.size), event
