"""The methods of joint-precision.

============  =======  ===========================================================================
method        privacy  what runs
============  =======  ===========================================================================
``group``     none     FEDJEM with the group penalty: rounds of ADMM, (12)-(17)
``group``     paper    the same messages, which the article calls safe: they are **not private**
``group``     dp    one noisy secure sum of all clients' concordances gives a consensus; every
                       client makes its own graph on its device, from raw samples and the consensus
``fused``     none     FEDJEM with the fused penalty: rounds of ADMM, (12)-(16), (18)
``fused``     paper    the same messages; **not private**
``fused``     dp    as ``group``; a client's own graph is drawn to the values of the consensus
``glasso``    none     baseline: every client learns from its own data only, the graphical lasso
``glasso``    paper    the same messages; **not private**
``glasso``    dp    the same on the devices; nothing computed from data is sent
``clime``     none     baseline: every client learns from its own data only, CLIME
``clime``     paper    the same messages; **not private**
``pooled``    none     baseline: all raw data in one place; in simulations only
``pooled``    paper    the same messages; **not private**
``pooled``    dp    the consensus of the one noisy secure sum is everyone's graph
``one-shot``  none     the optimum of (9) in one exchange: the server is sent every client's
                       correlation matrix
============  =======  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping

from trellis.apps.common.methods import Method, Methods

ENROLMENT = (
    "Enrolment tells the client's name and place in the order, its number of samples, the "
    "variables' names, and whether its data is synthetic; all of it is declared public."
)

_INSTEAD = " Use privacy='dp' if that must not happen."
# What the server learns of a client if nothing is noised.
_RECOVERABLE = (
    "the server can recover every client's correlation matrix S exactly from a single message: it "
    "knows Psi, U and rho, and S = Omega^-1 - (rho/w)(Omega - Psi + U)." + _INSTEAD
)
_SENT = {
    "group": _RECOVERABLE,
    "fused": _RECOVERABLE,
    "glasso": "every client sends its precision matrix as computed from the raw data; its inverse "
    "is that client's correlation matrix S on the edges, but for lambda1, and bounds it elsewhere."
    + _INSTEAD,
    "clime": "every client sends its precision matrix as computed from the raw data, which gives "
    "its correlation matrix S to about lambda1." + _INSTEAD,
    "pooled": "every client's raw data is sent to the server.",
    "one-shot": "every client's correlation matrix S is sent to the server." + _INSTEAD,
}


def _nothing(method: str, claim: str) -> Mapping[str, str]:
    return {
        "claim": claim + _SENT[method],
        "adversary": "-",
        "neighbouring": "-",
        "not_covered": "Everything a correlation matrix tells of the samples it was computed from.",
    }


_NOT_PRIVATE = (
    "NOT PRIVATE. The article counts no data as in danger because only precision matrices travel; "
    "but "
)
_SUM = {
    "claim": "What the server learns of the samples is one noisy sum over all clients "
    "(concordances of pairs of variables) and, if samples are held out, a second one (right "
    "predictions of held-out signs, with one bit per client, which has a tenth of the budget); "
    "devices add shares of discrete Gaussian noise before masking. No single sample decides "
    "whether a device answers. " + ENROLMENT,
    "adversary": "A server that chooses settings and messages, sees every message, knows all "
    "samples but one, and works with up to the declared share of the clients (colluding), whose "
    "noise it knows.",
    "neighbouring": "One sample of one client replaced by another; the numbers of samples are "
    "public.",
    "trusted": "That as many others as a device counts on add their noise and do not tell it to "
    "the server: in a simulation all but the shares dropout and colluding; a device counts on "
    "signed keys that its owner has listed, and without them on itself alone.",
    "not_covered": "The number of samples, the variables' names and the fact of taking part; that "
    "a client's data has changed since a run with the same settings; how long an answer took; who "
    "reads a device's state folder. In a simulation noise comes from the seed and protects nobody.",
}
_SUM_AND_OWN = {
    **_SUM,
    "claim": _SUM["claim"] + " A client's own graph is made on its device from raw samples and is "
    "not sent; in a simulation it is gathered for evaluation.",
}
_ON_DEVICE = {
    "claim": "Nothing computed from the data leaves a device: clients learn on their devices, each "
    "from its own data. " + ENROLMENT,
    "adversary": "Whoever sees every message, the server included.",
    "neighbouring": "Any change of a client's samples that leaves their number and the variables' "
    "names.",
    "not_covered": "The number of samples, the variables' names and the fact of taking part; how "
    "long an answer took. In a simulation graphs are gathered for evaluation.",
}

_SYNTHETIC = {"variables", "samples", "blocks", "generator", "margins"}
_PATH = {"lambda1", "path", "gamma"}
_DATA = _SYNTHETIC | {"correlation", "indefinite"} | _PATH
_ALONE = _DATA | {"rho", "screening"}
_POOLED = _ALONE | {"lambda2", "penalty"}
_ROUNDS = _ALONE | {
    *("lambda2", "wire", "choose", "subsamples", "sample", "norm-bound", "robust"),
}
_DP = _SYNTHETIC | _PATH | {"epsilon", "delta", "dropout", "colluding"}


def _clear(method: str, settings: set[str], server: str, client: str) -> tuple[Method, ...]:
    """Return a method without privacy, and the same messages under the article's claim."""
    claims = {"none": "None: ", "paper": _NOT_PRIVATE}
    return tuple(
        Method(
            *(method, privacy, frozenset(settings), _nothing(method, claim)),
            server=f"server_app:{server}",
            client=f"client_app:{client}",
            own="private.device:received_matrices",
        )
        for privacy, claim in claims.items()
    )


METHODS = Methods(
    "trellis.apps.joint_precision",
    (
        *_clear("group", _ROUNDS, "group", "step"),
        Method(
            *("group", "dp", frozenset(_DP | {"rho"}), _SUM_AND_OWN),
            server="server_app:pooled_consensus",
            summands="private.device:concordance_terms",
            score="private.device:score_terms",
            own="private.device:own_matrix",
            sums=True,
            on_device=True,
        ),
        *_clear("fused", _ROUNDS, "fused", "step"),
        Method(
            *("fused", "dp", frozenset(_DP | {"rho"}), _SUM_AND_OWN),
            server="server_app:pooled_consensus",
            summands="private.device:concordance_terms",
            score="private.device:score_terms",
            own="private.device:own_matrix",
            sums=True,
            on_device=True,
        ),
        *_clear("glasso", _ALONE, "alone", "glasso"),
        Method(
            *("glasso", "dp", frozenset(_SYNTHETIC | _PATH | {"rho"}), _ON_DEVICE),
            server="server_app:on_devices",
            own="private.device:own_matrix_alone",
            on_device=True,
        ),
        *_clear("clime", _DATA, "alone", "clime"),
        *_clear("pooled", _POOLED, "pooled", "data"),
        Method(
            *("pooled", "dp", frozenset(_DP), _SUM),
            server="server_app:pooled_consensus",
            summands="private.device:concordance_terms",
            score="private.device:score_terms_alone",
            own="private.device:received_matrices",
            sums=True,
        ),
        _clear("one-shot", _POOLED | {"wire"}, "one_shot", "correlations")[0],
    ),
)
