"""The methods of consensus-graph.

============  =======  ===========================================================================
method        privacy  what runs
============  =======  ===========================================================================
``fedgl``     none     Algorithm 1 of the paper: rounds of (13), (19) and (20)
``fedgl``     paper    Algorithm 1 with the noise of Theorem 3 as printed, which is **not private**
``fedgl``     dp       one noisy secure sum of all clients' statistics gives the consensus; every
                       client makes its own graph on its device, from raw data and the consensus
``igl``       none     baseline: every client learns from its own data only
``igl``       dp       the same on the devices; nothing computed from data is sent
``fedavg``    none     baseline: one graph for all clients, the minimiser of (36)
``fedavg``    dp       one graph for all, from one noisy secure sum
``one-shot``  none     the optimum of (8) in one exchange: the server sees every client's statistic
============  =======  ===========================================================================
"""

from __future__ import annotations

from trellis.apps.common.methods import Method, Methods

ENROLMENT = (
    "Enrolment tells the client's name and place in the order, its number of signals, the "
    "variables' names, and whether its data is synthetic; all of it is declared public."
)
_NOTHING = {
    "claim": "None. Graphs are computed from the raw data and sent as they are.",
    "adversary": "-",
    "neighbouring": "-",
    "not_covered": "Everything: the server can recover most of a client's mean squared "
    "differences from the graphs it receives.",
}
_ONE_SHOT = {
    **_NOTHING,
    "claim": "None. Every client's statistic is sent as it is.",
    "not_covered": "Everything: the server has each client's mean squared differences.",
}
_SUM = {
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
}
_ON_DEVICE = {
    "claim": "Nothing computed from the data leaves a device: clients learn alone, at home. "
    + ENROLMENT,
    "adversary": "Whoever sees every message, the server included.",
    "neighbouring": "Any change of a client's signals that leaves their number and the "
    "variables' names.",
    "not_covered": "The number of signals, the variables' names and the fact of taking part; "
    "how long an answer took. In a simulation graphs are gathered for evaluation.",
}
_PAPER = {
    "claim": "NOT PRIVATE. Theorem 3 of the paper as printed, which does not hold: only the "
    "last gradient step is noised. For comparison with the article only.",
    "adversary": "-",
    "neighbouring": "The paper's: one signal added or removed.",
    "not_covered": "The un-noised steps and the momentum, through which the raw data leaves.",
}

_DATA = {"nodes", "signals", "overlap", "standardise", "scales", "alpha"}
_LOCAL = _DATA | {"beta", "local-steps", "step", "sample"}
_FEDGL = _LOCAL | {"rho", "lambda", "norm-bound", "robust", "trim"}
_FEDAVG = _FEDGL - {"rho", "lambda"} | {"secure-aggregation"}
_DP = _DATA | {"epsilon", "delta", "clip", "dropout", "colluding"}

METHODS = Methods(
    "trellis.apps.consensus_graph",
    (
        Method(
            *("fedgl", "none", frozenset(_FEDGL), _NOTHING),
            server="server_app:fedgl",
            client="local:graph",
            own="private.device:received_graphs",
        ),
        Method(
            *("fedgl", "paper", frozenset(_FEDGL | {"epsilon", "delta", "clip"}), _PAPER),
            server="server_app:fedgl",
            client="as_printed:graph",
            own="private.device:received_graphs",
        ),
        Method(
            *("fedgl", "dp", frozenset(_DP), _SUM),
            server="server_app:pooled_consensus",
            summands="private.device:statistic_terms",
            score="private.device:score_terms",
            own="private.device:own_graph",
            sums=True,
            on_device=True,
        ),
        Method(
            *("igl", "none", frozenset(_LOCAL), _NOTHING),
            server="server_app:independent",
            client="local:graph",
            own="private.device:received_graph",
        ),
        Method(
            *("igl", "dp", frozenset(_DATA), _ON_DEVICE),
            server="server_app:on_devices",
            own="private.device:own_graph_alone",
            on_device=True,
        ),
        Method(
            *("fedavg", "none", frozenset(_FEDAVG), _NOTHING),
            server="server_app:averaged",
            client="local:averaged_graph",
            summands="local:averaged_summands",
            own="private.device:received_graphs",
        ),
        Method(
            *("fedavg", "dp", frozenset(_DP), _SUM),
            server="server_app:pooled_consensus",
            summands="private.device:statistic_terms",
            score="private.device:score_terms",
            own="private.device:received_graphs",
            sums=True,
        ),
        Method(
            *("one-shot", "none", frozenset(_DATA | {"beta", "rho", "lambda"}), _ONE_SHOT),
            server="server_app:one_shot",
            client="local:statistic_alone",
            own="private.device:received_graphs",
        ),
    ),
)

SECURE = (
    "Clients' replies were masked: the server learned their sum over the clients that answered, "
    "and who they were, but no single reply, unless it colludes with more than half of a client's "
    "partners. What the sum itself tells is not covered by that."
)
