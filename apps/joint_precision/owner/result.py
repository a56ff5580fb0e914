"""What a device of joint-precision is left with, and how it scores on its own held-out samples.

Made on the device: its own graph, from its raw samples and, if there is one, the consensus. Made
by the server: its own precision matrix and its sparse form as they ended, and with methods that
learn jointly the pairs that are edges for every client. Of another client's matrix a device learns
no more than these pairs.

The score is the mean nonparanormal log-likelihood of a held-out sample, but for a constant that all
matrices have in common: -(<Omega, S> - log det Omega) / 2 with S the rank correlations of the
held-out samples, as in `private.own`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.measures import ALONE, THIS, Scores
from trellis.apps.common.private.personal import Personal
from trellis.apps.joint_precision.owner.margins import margins
from trellis.apps.joint_precision.private.own import ALONE as BY_ITSELF
from trellis.apps.joint_precision.private.own import TRIED, own_precision, raw_correlation
from trellis.apps.joint_precision.problem import log_determinant, partial_correlations, smooth_loss

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

Matrix = NDArray[np.float64]

LIKELIHOOD = "mean log likelihood of a sample"
NO_EDGES = "no edges: all variables apart"
FEWEST = 3  # held-out samples; of fewer there are no rank correlations to speak of


def kept_arrays(sparse: Matrix, precision: Matrix, learned: Matrix) -> dict[str, Matrix]:
    """Return what `predict` needs: the matrix to judge by, and the variables' margins."""
    usable = sparse if np.isfinite(log_determinant(sparse)) else precision
    return {"latent-precision": usable, "margins": margins(learned)}


def description() -> dict[str, Any]:
    """Return what ``trellis device predict`` needs to know of the result."""
    return {"kind": "nonparanormal", "array": "latent-precision", "margins": "margins"}


def run_model(result: RunResult) -> dict[str, Any]:
    """Return what a run has learned: every client's precision matrix, and with sums the shared."""
    shared = {"shared": "consensus_precision"} if "consensus_precision" in result.arrays else {}
    return {"kind": "precision", "array": "precision", "per": "client", **shared}


def mean_likelihood(matrix: Matrix, held: Matrix) -> float:
    """Return the mean log-likelihood of samples (m, p) under a precision matrix."""
    return -smooth_loss(matrix, raw_correlation(held)) / 2.0


def alone_matrix(learned: Matrix, gamma: float) -> Matrix:
    """Return what the device would have learned by itself, its lambda by the extended BIC."""
    nothing = np.eye(learned.shape[1])
    found = own_precision(
        learned, nothing, TRIED.tolist(), trusts=[BY_ITSELF], gamma=gamma, tolerance=1e-4
    )
    return np.asarray(found.sparse[found.chosen], dtype=np.float64)


def held_out_scores(matrices: Mapping[str, Matrix], held: Matrix) -> Scores:
    """Return how likely matrices make the held-out samples, beside one without edges."""
    some = next(iter(matrices.values()))
    rows = {
        name: (mean_likelihood(matrix, held),)
        for name, matrix in {**matrices, NO_EDGES: np.eye(len(some))}.items()
    }
    return Scores(len(held), (LIKELIHOOD,), rows)


def in_words(sparse: Matrix, whose: str) -> list[str]:
    """Return what the graph is, in sentences."""
    edges = int(np.count_nonzero(np.triu(sparse, 1)))
    return [
        f"A graph of your {len(sparse)} variables with {edges} edges: {whose}. Two variables that "
        "no edge joins tell nothing of each other once all others are known; weights are partial "
        "correlations."
    ]


def from_server(
    precision: Matrix,
    sparse: Matrix,
    shared: NDArray[np.bool_] | None,
    variables: Sequence[str],
    learned: Matrix,
    held: Matrix,
    gamma: float,
) -> Personal:
    """Return what the device stores of matrices that the server has made."""
    upper = np.triu_indices(len(sparse), 1)
    strengths = partial_correlations(sparse)
    arrays: dict[str, NDArray[Any]] = {
        "precision": precision,
        "sparse": sparse,
        "partial": strengths,
        **kept_arrays(sparse, precision, learned),
    }
    summary: dict[str, float | str] = {
        "samples learned from": float(len(learned)),
        "edges": float(np.count_nonzero(sparse[upper])),
    }
    if shared is not None:
        arrays["shared"] = shared
        summary["edges that all clients have"] = float(np.count_nonzero(shared))

    def scores() -> Scores:
        found = {THIS: arrays["latent-precision"], ALONE: alone_matrix(learned, gamma)}
        return held_out_scores(found, held)

    return Personal(
        arrays,
        strengths[upper],
        variables,
        summary,
        words=in_words(sparse, "your own, as the server has it"),
        model=description(),
        scores=scores if len(held) >= FEWEST else None,
        made_here=False,
    )
