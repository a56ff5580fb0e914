"""What server-graph releases, and what that costs in privacy.

**Noise in sums** (``privacy = "dp"``). Clients add shares of noise to what their server
learns as a secure sum; sensitivity, noise and releases are proven in `private`, shares in
`privacy.mechanisms.shares`, the account of many rounds with batches drawn in secret in
`privacy.accounting.sampled`. ``epsilon`` is what the whole run spends at most on one client's
record, and grows as the root of the rounds.

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

**Noise between servers** (``privacy = "paper"``, and reported without privacy). Server m's messages
to the others are y_{m,i} = psi_{m,i} + g_{m,i}, Laplace noise of scale b = sigma_g / sqrt(2) on
every coordinate (``hybrid``: one draw for all; ``iid``: one per edge).

The paper's Theorem 2 has epsilon(i) = sqrt(2) mu B (1 + i) i / sigma_g, from the sensitivity
|psi_j - psi'_j| <= 2 mu B j (26) and the sum over rounds. Laplace noise answers to the **l1** norm,
where (26) is an l2 bound: in M dimensions the same argument gives sqrt(M) times that. B bounds a
gradient only if it is enforced: ``clip`` does, sample by sample. The *corrected* epsilon, reported
with it (``epsilon-corrected`` in the rounds), is

    Neighbouring: all data of one client of m replaced. With ``hybrid`` the others' states depend on
    m's data through y_m alone. For a fixed transcript y_{m,1..i} two data sets give noises with
    g_j - g'_j = psi'_j - psi_j, and models with w_j - w'_j = psi_j - psi'_j, because the own
    combination takes the noise back: w_m = psi_m - (1 - a_mm) y_m + what others sent. E clipped
    steps move two models apart by at most 2 mu B E, and the ridge brings them together
    (mu rho <= 2, which the settings ask for), so |psi_j - psi'_j| <= 2 mu B E j: round j is a
    release of epsilon_j = sqrt(M) 2 mu B E j / b. They compose: the sum, or zero-concentrated,
    whichever is less at ``delta``. With ``iid`` every edge is a release of its own, so the total
    counts as many as m has neighbours.

    Adversary: all servers but m, together. Not covered: m itself (secure aggregation keeps single
    updates from it); **m's clients**, to whom w_m is sent, and **whoever reads the kept result**,
    which has w_m: with y_m and what the others sent it gives psi_m exactly; the gaps of
    floating-point noise.

So epsilon is a number about servers that are apart, each with a SuperLink of its own
(`strategies.network`): messages hold y_m and nothing else of psi_m, a round is sent once even if a
server was down in between, and the noise comes from a secret of its own. In a simulation, in which
the noise comes from the seed and protects nobody, epsilon is reported as what it would be, marked
as simulated. If one process plays all servers of clients that are devices, **none is reported**:
that process sees every psi, and nothing about it would be true.

What enrolment tells the server, whatever ``privacy`` is: the client's name, its place in the order,
whether it is simulated, the number of its samples, the names of its features, and its server. None
of these is noised; the number of samples is public. With ``standardise`` and neither noise nor
masks it tells the count, means and squared deviations of the client's columns as well.

``masked`` claims no epsilon: see `trellis.privacy.servers.masks` for who learns what.
"""

from __future__ import annotations

from trellis.apps.common.own_data.scaling import told_at_enrolment
from trellis.strategies.topology.graph import Topology

from .config import ServerGraphConfig
from .methods import ENROLMENT, NEIGHBOUR_LEARNS
from .spending import epsilons, releases_in, settled

WORRYING = 10.0

_SIMULATED = (
    "Simulated: epsilon is what servers on machines of their own would spend. Here the noise comes "
    "from the seed, one process plays all servers, and nobody is protected. "
)
_ON_DEVICES = (
    "None, and no epsilon is told: one process plays all servers, sees what each of them has "
    "before noise is added, and has the noise. Of servers on machines of their own a neighbour of "
    "server m would learn: "
)


def statement(
    config: ServerGraphConfig, simulated: bool = True, apart: bool = False
) -> dict[str, str]:
    """Return what a run with noise or masks between servers claims, for ledger and report.

    ``simulated`` says that no client is a device, ``apart`` that this server lives by itself.
    """
    masked = (
        "Clients' updates were masked: their server learned the sum over the clients that stayed."
        if config.masked
        else "Every server saw the single updates of its clients."
    )
    found = dict(config.row.claim)
    if config.row.has("epsilon"):
        if simulated:
            found["claim"] = _SIMULATED + found["claim"]
        elif not apart:
            learns = f"{NEIGHBOUR_LEARNS[config.method]}."
            found |= {"claim": _ON_DEVICES + learns, "adversary": "-", "neighbouring": "-"}
    return {
        **found,
        "secure_aggregation": masked,
        "enrolment": ENROLMENT + told_at_enrolment(config, apart),
    }


def sum_statement(config: ServerGraphConfig, simulated: bool = True) -> dict[str, str]:
    """Return what a run with noise in sums claims, for the ledger and the report."""
    found = dict(config.row.claim)
    if simulated:
        found["claim"] = (
            "Simulated: noise comes from the seed and protects nobody; this is what devices would "
            f"spend. {found['claim']}"
        )
    if config.batch:
        found["claim"] += (
            " Batches are drawn in secret on the device, each sample by itself, and count as such."
        )
    return {
        **found,
        "secure_aggregation": "Clients added their share of the noise and masked: their server "
        "learned one noisy sum a round. A sum opens only where all but "
        f"{config.dropout:.0%} of its clients are in it, and {config.colluding:.0%} of them may "
        "work with the server.",
        "enrolment": ENROLMENT,
        "personal": _GATHERED if simulated else _KEPT_AT_HOME,
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


def chosen(config: ServerGraphConfig, size: int) -> list[str]:
    """Return what was chosen for ``sigma = auto`` by epsilon, in words; see `warnings`."""
    if not (config.row.has("epsilon") and config.is_auto("sigma")):
        return []
    return [
        f"sigma=auto is {settled(config, size).sigma:.4g}: {config.rounds} rounds of {size} "
        f"parameters spend epsilon {config.epsilon:g} at delta {config.delta:g}, by the paper's "
        "formula."
    ]


def warnings(
    config: ServerGraphConfig,
    graph: Topology,
    size: int,
    simulated: bool = True,
    apart: bool = False,
) -> list[str]:
    """Return what a reader of the result must know about its privacy; see `statement`."""
    if not releases_in(config, graph):
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
    found = epsilons(config, graph, config.rounds, size)
    if not found:
        return []
    printed, real = found["epsilon-paper"], found["epsilon-corrected"]
    notes = []
    if config.row.has("epsilon") and config.method == "hybrid":
        notes.append(
            f"epsilon {real:.3g} is of servers on machines of their own"
            f"{', simulated here' if simulated else ''}; it is not of who reads result.npz: a "
            "server's model in it, with what the others sent, gives back what the noise hides."
        )
    if real > WORRYING:
        notes.append(
            f"epsilon grows as the square of the rounds: after {config.rounds} it is {printed:.3g} "
            f"by the paper's formula and {real:.3g} by the corrected one. Above {WORRYING:g} it "
            "protects nobody in practice; use fewer rounds, more noise, privacy=dp, or "
            "method=masked, which claims none."
        )
    return notes


def _protection(config: ServerGraphConfig) -> str:
    if config.masked:
        return "What protects a client is secure aggregation: its server learns sums only."
    return "Nothing protects a client: its updates are sent as they are."
