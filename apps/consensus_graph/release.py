"""What leaves a client of consensus-graph under each privacy mode.

``none``   zbar as it is. The server can recover most of it from the graphs.
``sound``  by default (``release = "sum"``) one number vector for all clients together: the sum of
           their signals' directions and a count of their sizes (`private.pooled`), masked, with
           every client's share of one discrete Gaussian noise in it. One signal replaced moves
           that sum by at most sqrt(2) sqrt(1 + 0.2^2), whoever has it. The consensus is made of
           it; clients' own graphs are made at home, of raw data, and stay there.

           Adversary: the server, which chooses settings and messages and sees every one, and a
           share ``colluding`` of the clients, and whoever knows all signals but one. What a device
           trusts: that as many others as it counts add their noise and keep it to themselves
           (`apps.common.private.noisy_sum`); without signed keys it counts on nobody and adds all
           the noise by itself. Neighbouring: one signal of one client replaced; every client's
           number of signals is public. Not covered: enrolment, that a client took part, how long
           it took, who reads a device's state folder.
``sound``  with ``release = "each"``: zbar + N(0, s^2), once. A signal's vector z_n >= 0 is clipped
           to norm C, so replacing one signal moves zbar by at most D = sqrt(2) C / N, and s is the
           exact Gaussian calibration of D to (epsilon, delta). All that follows, any number of
           rounds and steps, is post-processing of this one release.

           Adversary: whoever sees every message of the run, the server included, and knows all of
           the client's signals but one. Neighbouring: one signal replaced; N is public. Not
           covered: what enrolment tells (`ENROLMENT`), that the client took part, that its data
           has changed since a run with the same settings, how long it took to answer. Nothing
           else a device sends or refuses depends on a signal: one that is no finite number counts
           as 0, constant columns and signals of any size are taken as they are. Devices draw noise
           on a grid in integer arithmetic, which has no gaps of floating point to look into; with
           ``noise = "gaussian"``, in a simulation, they are not covered.
``paper``  Theorem 3 as printed: fresh noise on the last of K gradient steps of every round. **Not
           private**: the other K - 1 steps and the momentum carry the raw data, and the true
           sensitivity was measured at more than a hundred times the claimed one. For comparison
           with the article only.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Context

from trellis.apps.common.node import Node
from trellis.apps.common.release import Release, Statistic, noise_of
from trellis.apps.common.results import write_atomically
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import Table
from trellis.privacy.accounting.budget import Policy
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.mechanisms.gaussian import classic_gaussian_sigma
from trellis.privacy.mechanisms.noise import NoiseSource, fresh_noise
from trellis.strategies.core import wire

from .config import ConsensusGraphConfig
from .problem import Vector, sensitivity, statistic

ENROLMENT = (
    "Enrolment tells the client's name and place in the order, its number of signals, the "
    "variables' names, and whether its data is synthetic; all of it is declared public."
)

STATEMENTS = {
    "none": {
        "claim": "None. Graphs are computed from the raw data and sent as they are.",
        "adversary": "-",
        "neighbouring": "-",
        "not_covered": "Everything: the server can recover most of a client's mean squared "
        "differences from the graphs it receives.",
    },
    "sound": {
        "claim": "Each client's statistic is noised once, on devices with discrete Gaussian noise; "
        "everything sent is computed from it, and no single signal decides whether a device "
        "answers. " + ENROLMENT,
        "adversary": "Whoever sees every message, the server included, and knows all but one "
        "signal of the client.",
        "neighbouring": "One signal of one client replaced by another; the number of signals is "
        "public.",
        "not_covered": "The number of signals, the variables' names and the fact of taking part; "
        "that a client's data has changed since a run with the same settings; how long an answer "
        "took. In a simulation noise comes from the seed and protects nobody.",
    },
    "sum": {
        "claim": "The server sees one sum over all clients, with discrete Gaussian noise in it, "
        "to which every client has added its share before masking; the consensus is made of it. "
        "Clients' own graphs are made on their devices from raw data and stay there. A device "
        "trusts that as many other clients as its ledger counts (noisers) add their noise and do "
        "not tell it to the server; it takes nobody's word for their number: they are clients "
        "whose signed keys its owner has listed, and without signed keys it counts on itself "
        "alone and adds the whole noise. " + ENROLMENT,
        "adversary": "The server, which chooses settings and messages and sees every one, together "
        "with the declared share of colluding clients, and knows all but one signal.",
        "neighbouring": "One signal of one client replaced by another; every client's number of "
        "signals is public.",
        "not_covered": "The number of signals, the variables' names and the fact of taking part; "
        "how long an answer took; who reads a device's state folder. In a simulation noise comes "
        "from the seed and clients' own graphs are gathered for evaluation: that protects nobody.",
    },
    "alone": {
        "claim": "Nothing computed from the data leaves a device: clients learn alone, at home. "
        + ENROLMENT,
        "adversary": "Whoever sees every message, the server included.",
        "neighbouring": "Any change of a client's signals that leaves their number and the "
        "variables' names.",
        "not_covered": "The number of signals, the variables' names and the fact of taking part; "
        "how long an answer took. In a simulation graphs are gathered for evaluation.",
    },
    "paper": {
        "claim": "NOT PRIVATE. Theorem 3 of the paper as printed, which does not hold: only the "
        "last gradient step is noised. For comparison with the article only.",
        "adversary": "-",
        "neighbouring": "The paper's: one signal added or removed.",
        "not_covered": "The un-noised steps and the momentum, through which the raw data leaves.",
    },
}


SECURE = (
    "Clients' replies were masked: the server learned their sum over the clients that answered, "
    "and who they were, but no single reply, unless it colludes with more than half of a client's "
    "partners. What the sum itself tells is not covered by that."
)


def statement(config: ConsensusGraphConfig) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report."""
    if config.sums:
        return dict(STATEMENTS["sum"])
    if config.at_home:
        return dict(STATEMENTS["alone"])
    secure = {"secure_aggregation": SECURE} if config.secure_aggregation else {}
    return {**STATEMENTS[config.privacy], **secure}


def release_statistic(
    config: ConsensusGraphConfig, seed: int, node: Node, table: Table, policy: Policy | None = None
) -> Statistic:
    """Compute zbar from a client's data and, with ``sound`` privacy, noise it once.

    On a device the release is entered in its ledger first.

    Raises
    ------
    PrivacyRefused
        Where the device's ``policy`` does not allow it.
    """
    policy = policy or Policy()
    policy.permit(config.privacy)
    count = int(table.values.shape[0])
    if config.privacy == "none":
        return Statistic(statistic(table.values), count, ())
    z = statistic(table.values, config.bound)
    if config.privacy == "paper":
        return Statistic(z, count, ())
    release = Release(
        config.study,
        f"clipped mean of the squared differences between nodes, {count} signals",
        z.size,
        sensitivity(config.bound, count),
        config.epsilon,
        config.delta,
        noise_of(config.noise, node),
        details=f"clip {config.bound!r}, scales {config.scales!r}",
    )
    return Statistic(release.of(z, table, node, seed, policy), count, (release.event,))


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


def save_momentum(node: Node, context: Context, server_round: int, before: Vector) -> None:
    """Keep the graph before the last one, w^(t, K-1), for the next round's (14).

    It is un-noised, so it must not leave the client. On disk where the node has a folder, by round,
    so that a run resumed from any checkpoint finds the one it needs; else in ``context.state``.
    """
    if node.state_path is None:
        context.state["momentum"] = wire.record({str(server_round): before})
    else:
        path = node.state_path / f"momentum-{server_round}.f8"
        write_atomically(path, np.ascontiguousarray(before, dtype="<f8").tobytes())


def load_momentum(node: Node, context: Context, server_round: int) -> Vector | None:
    """Return what `save_momentum` kept after the round before ``server_round``."""
    last = str(server_round - 1)
    if node.state_path is None:
        if "momentum" not in context.state or last not in context.state["momentum"]:
            return None
        return wire.unpack(context.state.array_records["momentum"][last])
    path = node.state_path / f"momentum-{last}.f8"
    return np.frombuffer(path.read_bytes(), dtype="<f8") if path.is_file() else None
