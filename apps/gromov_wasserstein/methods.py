"""The methods of gromov-wasserstein; the first of a privacy is what ``method = "auto"`` chooses.

=============  =======  ==========================================================================
method         privacy  what runs
=============  =======  ==========================================================================
``fedavg``     none     Algorithms 2 and 3 of the paper: FedAvg, then the embeddings as they are
``fedprox``    none     the same with FedProx: clients are pulled to the server's weights
``untrained``  none     no training: embeddings made with weights drawn from the seed
``fedavg``     paper    FedAvg without noise, then embeddings encoded by Algorithm 1 as printed
``fedprox``    paper    the same with FedProx
``untrained``  paper    no training, embeddings encoded by Algorithm 1 as printed
``untrained``  dp    no training: one release of encoded embeddings is all that is sent
``fedavg``     dp    training by noisy secure sums of clipped gradients, then encoded embeddings
=============  =======  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.apps.common.methods import Method, Methods


@dataclass(frozen=True)
class GnnMethod(Method):
    """A row of the table.

    Attributes
    ----------
    encoder : how embeddings are encoded before they are sent: ``none``, ``printed`` (Algorithm 1
        as the paper has it) or ``multi-bit``
    trains : whether weights are trained
    """

    encoder: str = "none"
    trains: bool = True


_GRAPH = "One graph of a client replaced by any other with as many nodes."
_SAYS = (
    "Devices send neither loss nor hits, and labels of graphs only where their owners say so; no "
    "single graph decides whether a device answers. Enrolment tells its name and place in the "
    "order, its number of graphs, the numbers of features and of classes (the setting), and "
    "whether its data is synthetic. What a device makes of the result for itself stays with it."
)
_OPEN = (
    "Numbers of graphs and nodes, shared labels; a person who is in several graphs. In a "
    "simulation noise and bits come from the seed and protect nobody, and clients' own results "
    "are gathered to be evaluated."
)
_NOTHING = {
    "claim": "None. Embeddings are computed from the raw graphs and sent as they are.",
    "adversary": "-",
    "neighbouring": "-",
    "not_covered": "Everything: embeddings tell labels and structure of single nodes.",
}
_PAPER = {
    "claim": "The encoder of the paper's Algorithm 1 as printed: m entries of a whole graph, "
    "epsilon-LDP a graph (it spends a fraction 1/n of that). For comparison with the article.",
    "adversary": "Whoever sees the encoded embeddings, the server included.",
    "neighbouring": _GRAPH,
    "not_covered": "The updates of training, numbers of graphs and nodes, shared labels.",
}
_BITS = {
    "claim": "The whole run is epsilon-LDP of a graph, no delta: weights come from the seed, "
    "nothing is trained, and encoded embeddings are all that is computed from graphs and sent; "
    "the total is of a client's largest graph. " + _SAYS,
    "adversary": "Whoever sees the encoded embeddings, the server included, also one that "
    "chooses settings and weights.",
    "neighbouring": _GRAPH,
    "not_covered": _OPEN,
}
_SUMS = {
    "claim": "The whole run is (epsilon, delta)-private: the noisy secure sums of clipped "
    "gradients, one a graph, of all rounds together, and the encoded embeddings, which are "
    "epsilon-LDP by themselves; the total is of a client's largest graph. What comes of the "
    "sums, the trained weights among it, costs nothing more. " + _SAYS,
    "adversary": "Whoever sees sums and encoded embeddings, the server included, also one that "
    "chooses settings and weights, and a declared share of the clients with it. A device "
    "trusts that as many others as it counts on add their noise: by signed keys, or its "
    "owner's word; without either it counts on itself alone.",
    "neighbouring": _GRAPH,
    "not_covered": _OPEN,
}

_MODEL = {"model", "task", "width", "classes", "standardise", "share-labels"}
_DATA = {"graphs", "dirichlet", "hops", "centres"}
_DISTANCES = {"metric", "alpha", "distance", "gw-loss", "restarts", "pairs", "downstream"}
_UNTRAINED = _MODEL | _DATA | _DISTANCES
_STEPS = {"learning-rate", "weight-decay"}
_FEDAVG = _UNTRAINED | _STEPS | {"local-epochs", "batch", "sample", "norm-bound", "robust", "trim"}
_FEDAVG |= {"secure-aggregation", "release-every"}
_FEDPROX = _FEDAVG | {"proximal"}
_ENCODED = {"epsilon", "bits", "estimator", "draws"}
_LDP = _ENCODED | {"budget-per"}
_NOISE = {"delta", "dropout", "colluding", "training-share", "gradient-bound"}

METHODS = Methods(
    "trellis.apps.gromov_wasserstein",
    (
        GnnMethod(
            *("fedavg", "none", frozenset(_FEDAVG), _NOTHING),
            server="server_app:averaged",
            client="client_app:update",
            summands="client_app:masked_update",
            own="client_app:received_weights",
        ),
        GnnMethod(
            *("fedprox", "none", frozenset(_FEDPROX), _NOTHING),
            server="server_app:averaged",
            client="client_app:update",
            summands="client_app:masked_update",
            own="client_app:received_weights",
        ),
        GnnMethod(
            *("untrained", "none", frozenset(_UNTRAINED), _NOTHING),
            server="server_app:untrained",
            own="client_app:received_weights",
            trains=False,
        ),
        GnnMethod(
            *("fedavg", "paper", frozenset(_FEDAVG | _ENCODED), _PAPER),
            server="server_app:averaged",
            client="client_app:update",
            summands="client_app:masked_update",
            own="client_app:received_weights",
            encoder="printed",
        ),
        GnnMethod(
            *("fedprox", "paper", frozenset(_FEDPROX | _ENCODED), _PAPER),
            server="server_app:averaged",
            client="client_app:update",
            summands="client_app:masked_update",
            own="client_app:received_weights",
            encoder="printed",
        ),
        GnnMethod(
            *("untrained", "paper", frozenset(_UNTRAINED | _ENCODED), _PAPER),
            server="server_app:untrained",
            own="client_app:received_weights",
            encoder="printed",
            trains=False,
        ),
        GnnMethod(
            *("untrained", "dp", frozenset(_UNTRAINED | _LDP), _BITS),
            server="server_app:untrained",
            own="client_app:own_weights",
            on_device=True,
            encoder="multi-bit",
            trains=False,
        ),
        GnnMethod(
            *("fedavg", "dp", frozenset(_UNTRAINED | _STEPS | _LDP | _NOISE), _SUMS),
            server="server_app:noisy",
            summands="client_app:gradient_terms",
            score="client_app:score_terms",
            own="client_app:own_weights",
            sums=True,
            on_device=True,
            encoder="multi-bit",
        ),
    ),
)
