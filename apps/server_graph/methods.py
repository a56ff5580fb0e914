"""The methods of server-graph.

==========  =======  =============================================================================
method      privacy  what runs
==========  =======  =============================================================================
``hybrid``  none     rounds of (6), (7) and (8) with graph-homomorphic noise (24) between servers;
                     masks between a server and its clients (23)
``iid``     none     the same with independent noise on every edge, which cancels nowhere
``none``    none     the same without noise: servers send their models as they are
``masked``  none     the same with masks between servers, which cancel exactly
``fedavg``  none     baseline: one server for all clients
``hybrid``  paper    noise between servers for Theorem 2's epsilon as printed, **which understates
                     what is spent**
``iid``     paper    the same with independent noise on every edge
``hybrid``  dp    every server's secure sum of clipped gradients has noise in it, so all that
                     servers learn, send each other and keep is private; every client makes a model
                     of its own on its device
``fedavg``  dp    the same with one server for all clients
==========  =======  =============================================================================

With noise in the sums there is nothing left to hide between servers: ``iid``, ``none`` and
``masked`` would be ``hybrid``, and the table refuses them under ``dp``.
"""

from __future__ import annotations

from trellis.apps.common.methods import Method, Methods

ENROLMENT = (
    "The server is told every client's name, place in the order, whether it is simulated, number "
    "of samples, names of features and server; none of it is noised."
)
NEIGHBOUR_LEARNS = {
    "none": "psi_m itself, every round",
    "iid": "psi_m + noise of its own; neighbours that compare average the noise away",
    "hybrid": "psi_m + noise, the same for all; with w_m (any client of m has it) psi_m exactly",
    "masked": "the weighted sum of its neighbours' psi; psi_m + noise where m is its only "
    "neighbour; psi_m exactly if it colludes with all its other neighbours",
    "fedavg": "there are no neighbours: one server sees every model",
}
_KEPT = {
    "hybrid": "whoever reads the kept result: the model of server m in result.npz, with what the "
    "other servers sent, gives psi_m without noise; ",
}


def _claim(method: str, claim: str, adversary: str, neighbouring: str) -> dict[str, str]:
    return {
        "claim": f"{claim} A neighbour of server m learns: {NEIGHBOUR_LEARNS[method]}.",
        "adversary": adversary,
        "neighbouring": neighbouring,
        "not_covered": "The server itself; its clients, who get its model and with the messages of "
        f"others find what it sent; {_KEPT.get(method, '')}a client that is re-homed, who is a "
        "client of two servers then; the gaps of floating-point noise.",
    }


def _nothing(method: str) -> dict[str, str]:
    return _claim(method, "None is made by privacy = none.", "-", "-")


def _paper(method: str) -> dict[str, str]:
    return _claim(
        method,
        "Theorem 2 as printed, an l2 sensitivity under Laplace noise: understates epsilon by "
        "sqrt(M). For comparison with the article only.",
        "All other servers together.",
        "All data of one client of the server replaced.",
    )


_SUMS = {
    "claim": "epsilon for all that servers ever learn from a client, its own server included, and "
    "so for all models, for what servers tell each other and for the kept result, which are "
    "computed from it.",
    "adversary": "Everybody but the client and the other clients of its sum whose noise it counts "
    "on; servers may choose models and settings.",
    "neighbouring": "One record of one client replaced; numbers of records are public.",
    "not_covered": "Clients that were counted on and did not add their noise, or told it; when a "
    "client takes part, and how long it takes; the number of its records.",
}

_DATA = {"features", "samples", "spread", "standardise", "scales"}
_LEARNS = _DATA | {"sample", "step", "batch", "ridge", "loss", "clip"}
_GRAPH = {"servers", "topology", "weights", "failures", "on-server-loss"}
_OPEN = _LEARNS | {"local-steps", "secure-aggregation"}
_ROBUST = {"norm-bound", "robust", "trim"}
# Of the corrected epsilon, which is reported wherever there is noise and a clip.
_NOISE = {"sigma", "delta"}
_DP = _LEARNS | {"average", "epsilon", "delta", "dropout", "colluding"}


def _open(method: str, settings: set[str], *, masks: bool = False) -> Method:
    return Method(
        *(method, "none", frozenset(_OPEN | _ROBUST | settings), _nothing(method)),
        server="server_app:graph_rounds",
        client="client_app:model",
        summands="client_app:masked_model",
        own="client_app:received_model",
        masks=masks,  # for secure-aggregation=auto
    )


def _printed(method: str, *, masks: bool = False) -> Method:
    return Method(
        *(method, "paper", frozenset(_OPEN | _GRAPH | _NOISE | {"epsilon"}), _paper(method)),
        server="server_app:graph_rounds",
        client="client_app:model",
        summands="client_app:masked_model",
        own="client_app:received_model",
        masks=masks,
    )


def _summed(method: str, settings: set[str]) -> Method:
    return Method(
        *(method, "dp", frozenset(_DP | settings), _SUMS),
        server="server_app:gradient_rounds",
        summands="client_app:gradient",
        score="client_app:held_out_terms",
        own="client_app:own_model",
        sums=True,
        masks=True,
        on_device=True,
    )


METHODS = Methods(
    "trellis.apps.server_graph",
    (
        _open("hybrid", _GRAPH | _NOISE, masks=True),
        _open("iid", _GRAPH | _NOISE),
        _open("none", _GRAPH),
        _open("masked", _GRAPH | {"sigma"}, masks=True),
        _open("fedavg", set()),
        _printed("hybrid", masks=True),
        _printed("iid"),
        _summed("hybrid", _GRAPH),
        _summed("fedavg", set()),
    ),
)
