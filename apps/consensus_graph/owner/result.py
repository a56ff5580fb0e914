"""What a device of consensus-graph is left with, and how it scores on its own held-out signals.

Made on the device (fedgl and igl with ``privacy = "dp"``): its own graph, from its raw signals
and the consensus. Made by the server: its own graph and the consensus, as they ended. A device
learns nothing of another client's graph beyond what the consensus tells.

The score is the mean Gaussian log-likelihood of a signal with precision c L(w), with the one c that
is best for the signals that were learned from (`personal.log_likelihood`), so that c owes nothing
to the held-out ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.apps.common.evaluation.measures import ALONE, THIS, Scores
from trellis.apps.common.metrics import LOOSE_EDGE_THRESHOLD
from trellis.apps.common.private.personal import Personal
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.private.personal import (
    best_scale,
    log_likelihood,
    personal_graph,
    with_faint,
)
from trellis.apps.consensus_graph.problem import Matrix, Vector

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

LIKELIHOOD = "mean log likelihood of a signal"
NO_GRAPH = "no graph: all variables alike"
MODEL = {"kind": "graph", "array": "weights", "scale": "scale"}


def run_model(result: RunResult) -> dict[str, Any]:
    """Return what a run has learned: every client's graph, and the consensus."""
    own = {"array": "weights", "per": "client"} if "weights" in result.arrays else {}
    shared = {} if result.config["method"] == "igl" else {"shared": "consensus"}
    known = {"kind": "graph", "array": "consensus", "per": "all", **own, **(shared if own else {})}
    config = ConsensusGraphConfig.from_settings(result.config)
    units = {"units": config.units, "scales": config.scales} if config.units != "none" else {}
    return {**known, **units}


def scale_of(w: Vector, learning: Matrix) -> float:
    """Return c of a graph, from the signals that were learned from."""
    return best_scale(with_faint(w), learning)


def mean_likelihood(w: Vector, learning: Matrix, signals: Matrix) -> float:
    """Return the mean log-likelihood of ``signals`` under a graph; nan where there are none."""
    if not len(signals):
        return float("nan")
    found = log_likelihood(with_faint(w), signals, scale_of(w, learning))
    return float(np.mean(found))


def held_out_scores(graphs: Mapping[str, Vector], learning: Matrix, held: Matrix) -> Scores:
    """Return how likely graphs make the held-out signals, beside a graph that knows nothing."""
    some = next(iter(graphs.values()))
    rows = {
        name: (mean_likelihood(w, learning, held),)
        for name, w in {**graphs, NO_GRAPH: np.ones_like(some)}.items()
    }
    return Scores(len(held), (LIKELIHOOD,), rows)


def in_words(weights: Vector, variables: Sequence[str], whose: str) -> list[str]:
    """Return what the graph is, in sentences."""
    edges = int(np.count_nonzero(weights > LOOSE_EDGE_THRESHOLD * np.max(weights, initial=0.0)))
    return [
        f"A graph of your {len(variables)} variables with {edges} edges: {whose}. Two variables "
        "that an edge joins have values that are close to each other in most of your records."
    ]


def from_server(
    weights: Vector,
    consensus: Vector | None,
    variables: Sequence[str],
    learning: Matrix,
    held: Matrix,
    alpha: float,
) -> Personal:
    """Return what the device stores of graphs that the server has made."""
    arrays = {"weights": weights, "scale": np.array(scale_of(weights, learning))}
    if consensus is not None:
        arrays["consensus"] = consensus

    def scores() -> Scores:
        graphs = {THIS: weights}
        if consensus is not None and np.any(consensus > 0.0):
            graphs["the graph that all share"] = consensus
        graphs[ALONE] = personal_graph(learning, None, 0.0, alpha).alone
        return held_out_scores(graphs, learning, held)

    return Personal(
        arrays,
        weights,
        variables,
        {"signals learned from": float(len(learning))},
        words=in_words(weights, variables, "your own, as the server has it"),
        model=MODEL,
        scores=scores if len(held) else None,
        made_here=False,
    )
