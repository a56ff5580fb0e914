"""What server-graph releases, and what that costs in privacy.

**Noise in sums** (``privacy = "sound"`` with ``release = "sum"``, its default). Clients add shares
of noise to what their server learns as a secure sum; sensitivity, noise and releases are proven in
`private`, shares in `privacy.mechanisms.shares`, the account of many rounds with batches drawn in
secret in `privacy.accounting.sampled`. ``epsilon`` is what the whole run spends at most on one
client's record, and grows as the root of the rounds.

    Neighbouring: one record of one client replaced; numbers of records are public.
    Adversary: everyone together but the client and those whose noise it counts on: its own server,
        all other servers, whoever reads messages, models or the kept result. All of that is
        computed from the noisy sums. The servers may choose models and settings as they like: what
        a record moves is bounded whatever they are, and rounds that were chosen knowing the ones
        before compose.
    Why all rounds compose: given all sums so far, the next is a Gaussian release of ratio r with a
        batch drawn anew, for the clients of one server; the sums of other servers do not depend on
        the record. A record is in one client's data, and that client in one sum a round, also
        where it is re-homed.
    Trusted: that as many other clients of the same sum as the device counts on add their share
        and keep it to themselves (`apps.common.private.noisy_sum`); that batches stay secret.
    Not credited: which clients a server asks (``sample``). The server draws them.
    Not covered: numbers of samples and what else enrolment tells; who takes part when; how long a
        device takes.

**Noise between servers** (``release = "each"``, and ``paper``). Server m's messages to the others
are y_{m,i} = psi_{m,i} + g_{m,i}, Laplace noise of scale b = sigma_g / sqrt(2) on every coordinate
(``hybrid``: one draw for all; ``iid``: one an edge).

The paper's Theorem 2 has epsilon(i) = sqrt(2) mu B (1 + i) i / sigma_g, from the sensitivity
|psi_j - psi'_j| <= 2 mu B j (26) and the sum over rounds. Laplace noise answers to the **l1** norm,
where (26) is an l2 bound: in M dimensions the same argument gives sqrt(M) times that. B bounds a
gradient only if it is enforced: ``clip`` does, sample by sample.

``each``   Neighbouring: all data of one client of m replaced. With ``hybrid`` the others' states
    depend on m's data through y_m alone. For a fixed transcript y_{m,1..i} two data sets give
    noises with g_j - g'_j = psi'_j - psi_j, and models with w_j - w'_j = psi_j - psi'_j, because
    the own combination takes the noise back: w_m = psi_m - (1 - a_mm) y_m + what others sent. E
    clipped steps move two models apart by at most 2 mu B E, and the ridge brings them together
    (mu rho <= 2, which the settings ask for), so
    |psi_j - psi'_j| <= 2 mu B E j: round j is a release of epsilon_j = sqrt(M) 2 mu B E j / b. They
    compose: the sum, or zero-concentrated, whichever is less at ``delta``. With ``iid`` every edge
    is a release of its own, so the total counts as many as m has neighbours. sigma_g is such that
    all rounds spend ``epsilon`` at most, or is refused (`spending`).

    Adversary: all servers but m, together. Not covered: m itself (secure aggregation keeps single
    updates from it); **m's clients**, to whom w_m is sent, and **whoever reads the kept result**,
    which has w_m: with y_m and what the others sent it gives psi_m exactly; the gaps of
    floating-point noise.

So epsilon is a number about servers that are apart. Where each has a SuperLink of its own
(`strategies.network`) it is told as it is: letters hold y_m and nothing else of psi_m, a round is
told once also where a server was down in between, and the noise comes from a secret of its own.
Where one process plays them all it is another matter. In a simulation, where the noise comes from
the seed and protects nobody, epsilon is told as what it would be, marked as simulated. Where a
client is a device **none is told**: the process that its updates go to sees every psi, and nothing
about it would be true. A device is protected by secure aggregation alone, which `client_app`
insists on where its owner requires privacy.

What enrolment tells the server, whatever ``privacy`` is: the client's name, its place in the order,
whether it is simulated, the number of its samples, the names of its features, and its server. None
of these is noised; the number of samples is public. With ``standardise`` and neither noise nor
masks it tells the count, means and squared deviations of the client's columns as well.

``masked`` claims no epsilon: see `trellis.privacy.servers.masks` for who learns what.
"""

from __future__ import annotations

from trellis.apps.common.own_data.scaling import told_at_enrolment

from .config import ServerGraphConfig
from .spending import paper_epsilon, settled, sound_epsilon

WORRYING = 10.0

NEIGHBOUR_LEARNS = {
    "none": "psi_m itself, every round",
    "iid": "psi_m + noise of its own; neighbours that compare average the noise away",
    "hybrid": "psi_m + noise, the same for all; with w_m (any client of m has it) psi_m exactly",
    "masked": "the weighted sum of its neighbours' psi; psi_m + noise where m is its only "
    "neighbour; psi_m exactly if it colludes with all its other neighbours",
    "fedavg": "there are no neighbours: one server sees every model",
}

_CLAIMS = {
    "none": "None is made by privacy = none. A neighbour of server m learns: ",
    "paper": "Theorem 2 as printed, an l2 sensitivity under Laplace noise: understates epsilon by "
    "sqrt(M). For comparison with the article only. A neighbour of server m learns: ",
    "sound": "epsilon for everything server m tells the other servers in all rounds. A neighbour "
    "of server m learns: ",
}
_SIMULATED = (
    "Simulated: epsilon is what servers on machines of their own would spend. Here the noise comes "
    "from the seed, one process plays all servers, and nobody is protected. "
)
_ON_DEVICES = (
    "None, and no epsilon is told: one process plays all servers, sees what each of them has "
    "before noise is added, and has the noise. Of servers on machines of their own a neighbour of "
    "server m would learn: "
)
_KEPT = {
    "hybrid": "whoever reads the kept result: the model of server m in result.npz, with what the "
    "other servers sent, gives psi_m without noise; ",
}
ENROLMENT = (
    "The server is told every client's name, place in the order, whether it is simulated, number "
    "of samples, names of features and server; none of it is noised."
)


def statement(
    config: ServerGraphConfig, simulated: bool = True, apart: bool = False
) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report.

    ``simulated`` says that no client is a device, ``apart`` that this server lives by itself.
    """
    masked = (
        "Clients' updates were masked: their server learned the sum over the clients that stayed."
        if config.masks_clients
        else "Every server saw the single updates of its clients."
    )
    claims = config.privacy != "none"
    claim = _CLAIMS[config.privacy]
    if claims and simulated:
        claim = _SIMULATED + claim
    elif claims and not apart:
        claim = _ON_DEVICES
    told = claims and (simulated or apart)
    return {
        "claim": claim + NEIGHBOUR_LEARNS[config.method] + ".",
        "adversary": "All other servers together." if told else "-",
        "neighbouring": "All data of one client of the server replaced." if told else "-",
        "not_covered": "The server itself; its clients, who get its model and with the messages of "
        f"others find what it sent; {_KEPT.get(config.method, '')}a client that is re-homed, who "
        "is a client of two servers then; the gaps of floating-point noise.",
        "secure_aggregation": masked,
        "enrolment": ENROLMENT + told_at_enrolment(config, apart),
    }


def sum_statement(config: ServerGraphConfig, simulated: bool = True) -> dict[str, str]:
    """Return what a run with noise in sums claims, for the ledger and the report."""
    claim = (
        f"epsilon at delta = {config.delta:g} for all that servers ever learn from a client, its "
        "own server included, and so for all models, for what servers tell each other and for the "
        "kept result, which are computed from it."
    )
    if simulated:
        claim = (
            "Simulated: noise comes from the seed and protects nobody; this is what devices would "
            f"spend. {claim}"
        )
    batch = (
        "Batches are drawn in secret on the device, each sample by itself, and count as such. "
        if config.batch
        else ""
    )
    return {
        "claim": f"{claim} {batch}".strip(),
        "adversary": "Everybody but the client and the other clients of its sum whose noise it "
        "counts on; servers may choose models and settings.",
        "neighbouring": "One record of one client replaced; numbers of records are public.",
        "not_covered": "Clients that were counted on and did not add their noise, or told it; when "
        "a client takes part, and how long it takes; the number of its records.",
        "secure_aggregation": "Clients added their share of the noise and masked: their server "
        "learned one noisy sum a round. A sum opens only where all but "
        f"{config.dropout:.0%} of its clients are in it, and {config.colluding:.0%} of them may "
        "work with the server.",
        "enrolment": ENROLMENT,
        **({"personal": _GATHERED if simulated else _KEPT_AT_HOME} if config.at_home else {}),
    }


_GATHERED = (
    "Clients made models of their own from their raw samples and the private model. In this "
    "simulation they were gathered for evaluation (personal in result.npz); on devices they stay "
    "there, and nothing of them is sent."
)
_KEPT_AT_HOME = (
    "Every device was sent the private model and may have made one of its own from it, which is in "
    "its state folder; nothing of it was sent."
)


def chosen(config: ServerGraphConfig, size: int, releases: int) -> list[str]:
    """Return what was chosen for ``sigma = auto`` by epsilon, in words; see `warnings`."""
    if config.privacy == "none" or config.sums or not config.is_auto("sigma"):
        return []
    return [
        f"sigma=auto is {settled(config, size, releases).sigma:.4g}: {config.rounds} rounds of "
        f"{size} parameters spend epsilon {config.epsilon:g} at delta {config.delta:g}, "
        + ("by the paper's formula." if config.privacy == "paper" else "between servers.")
    ]


def warnings(
    config: ServerGraphConfig,
    size: int,
    releases: int,
    simulated: bool = True,
    apart: bool = False,
) -> list[str]:
    """Return what a reader of the result must know about its privacy; see `statement`."""
    if config.method not in ("hybrid", "iid"):
        return []
    if not simulated and not apart:
        return [
            "No epsilon is told: one process plays all servers, so their noise hides nothing from "
            f"it. {_protection(config)}"
        ]
    if config.clip == 0.0:
        return [
            "clip=0: gradients are not bounded, so the noise between servers has no epsilon at "
            "all; set clip to B."
        ]
    config = settled(config, size, releases)
    printed = paper_epsilon(config, config.rounds)
    real = sound_epsilon(config, config.rounds, size, releases)
    kept = []
    if config.privacy != "none" and config.method == "hybrid":
        kept = [
            f"epsilon {real:.3g} is of servers on machines of their own"
            f"{', simulated here' if simulated else ''}; it is not of who reads result.npz: a "
            "server's model in it, with what the others sent, gives back what the noise hides."
        ]
    if real <= WORRYING:
        return kept
    return [
        *kept,
        f"epsilon grows as the square of the rounds: after {config.rounds} it is {printed:.3g} by "
        f"the paper's formula and {real:.3g} by the corrected one. Above {WORRYING:g} it protects "
        "nobody in practice; use fewer rounds, more noise, or method=masked, which claims none.",
    ]


def _protection(config: ServerGraphConfig) -> str:
    if config.masks_clients:
        return "What protects a client is secure aggregation: its server learns sums only."
    return "Nothing protects a client: its updates are sent as they are."
