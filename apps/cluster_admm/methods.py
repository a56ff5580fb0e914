"""The methods of cluster-admm.

=============  =======  ==========================================================================
method         privacy  what runs
=============  =======  ==========================================================================
``pgfl``       none     ADMM over a graph of servers, one model per cluster: (4), (5), (8)-(10)
``gfl``        none     baseline: the same with one model for all clients
``clusterfl``  none     baseline: one model per cluster, servers do not talk to each other
``local``      none     baseline: every client learns from its own data only
``fedavg``     none     baseline: one server, one model for all clients
``pgfl``       paper    the four that have (4), with the paper's noise (12) as printed, which is
``gfl``        paper    **not private**
``clusterfl``  paper
``fedavg``     paper
``moments``    dp       private regression per cluster from noisy secure sums of moments; every
                        client makes its own model on its device. No ADMM runs
``local``      dp       every client learns on its device; nothing computed from data is sent
=============  =======  ==========================================================================
"""

from __future__ import annotations

from trellis.apps.common.methods import Method, Methods

ENROLMENT = (
    "The server receives every client's name, place in the order, whether it is simulated, number "
    "of samples, names of features, server and cluster; none of it is noised."
)
_NOTHING = {
    "claim": "None. Models are computed from the raw data and sent as they are.",
    "adversary": "-",
    "neighbouring": "-",
    "not_covered": "Everything: from a few rounds a server can solve for a client's data.",
}
_PAPER = {
    "claim": "NOT PRIVATE. The noise of the paper's (12) with C = bound taken as given, which "
    "is not a bound: nothing limits a sample's gradient. For comparison with the article only.",
    "adversary": "-",
    "neighbouring": "The paper's: one sample of a client replaced.",
    "not_covered": "Samples whose gradient is longer than C.",
}
_MOMENTS = {
    "claim": "What the server sees of clients' data are noisy sums over all clients: of counts of "
    "how long samples are and how large their features, of moments of clipped samples, and of "
    "scores where samples are held out. All together spend at most epsilon, and everything else is "
    "computed from them. Clients' own models are made on their devices from raw samples and stay "
    "there.",
    "adversary": "Whoever sees every message and chooses them, the servers included, together with "
    "up to a share `colluding` of the clients, and knows all but one sample of a client. A device "
    "counts on the noise of others whose signed keys its owner has listed; without such keys it "
    "adds all the noise itself.",
    "neighbouring": "One sample of one client replaced by another; the number of samples is "
    "public.",
    "not_covered": "What enrolment tells, a client's cluster among it: clusters are given by "
    "owners, not found from data. Which exchanges the client took part in, and how long it took "
    "to answer. Clients that only pretend to add noise, beyond the share that may collude. In a "
    "simulation noise comes from the seed, own models are gathered for evaluation, and nobody is "
    "protected.",
}
_ON_DEVICE = {
    "claim": "Nothing computed from the data leaves a device: clients learn alone, on their own.",
    "adversary": "Whoever sees every message, the server included.",
    "neighbouring": "Any change of a client's samples that leaves their number and the features' "
    "names.",
    "not_covered": "The number of samples, the features' names and the fact of taking part; how "
    "long an answer took. In a simulation models are gathered for evaluation.",
}

_DATA = {"features", "samples", "similarity", "noise", "clusters", "loss", "standardise", "scales"}
_LOCAL = _DATA | {"ridge"}
_FEDAVG = _LOCAL | {"rho", "mixing", "sample", "norm-bound", "robust", "trim"}
_GFL = _FEDAVG | {"servers", "topology"}
_PGFL = _GFL | {"tau", "tau-decay", "assign-every"}
_NOISE = {"epsilon", "delta", "phi0", "zeta", "bound"}
_SUMS = _LOCAL | {
    *("epsilon", "delta", "dropout", "colluding"),
    *("exchanges", "find-clips", "clip-features", "clip-target"),
}
_ADMM = {"pgfl": _PGFL, "gfl": _GFL, "clusterfl": _PGFL, "fedavg": _FEDAVG}


def _admm(method: str) -> Method:
    """Return a method without privacy."""
    return Method(
        *(method, "none", frozenset(_ADMM[method]), _NOTHING),
        server=f"server_app:{method}",
        client="local:model",
        own="client_app:received_model",
    )


def _as_printed(method: str) -> Method:
    """Return a method with the paper's noise."""
    return Method(
        *(method, "paper", frozenset(_ADMM[method] | _NOISE), _PAPER),
        server=f"server_app:{method}",
        client="as_printed:model",
        own="client_app:received_model",
    )


METHODS = Methods(
    "trellis.apps.cluster_admm",
    (
        _admm("pgfl"),
        _admm("gfl"),
        _admm("clusterfl"),
        Method(
            *("local", "none", frozenset(_LOCAL), _NOTHING),
            server="server_app:local",
            client="local:model",
            own="client_app:received_model",
        ),
        _admm("fedavg"),
        *(_as_printed(method) for method in _ADMM),
        Method(
            *("moments", "dp", frozenset(_SUMS), _MOMENTS),
            server="server_app:moments",
            summands="private.device:summands",
            own="private.device:own",
            sums=True,
            on_device=True,
        ),
        Method(
            *("local", "dp", frozenset(_LOCAL), _ON_DEVICE),
            server="server_app:on_devices",
            own="client_app:own_alone",
            on_device=True,
        ),
    ),
)
# Methods that learn one model for all, or one per client, and need not know clusters.
ONE_TASK = ("gfl", "local", "fedavg")
