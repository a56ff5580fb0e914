"""Settings of the cluster-admm study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trellis.apps.common.own_data.scaling import StandardisedConfig
from trellis.apps.common.settings import AUTO, ConfigError, ReleaseConfig, Scalar

LOSSES = ("ridge", "logistic")
PAPER_CLUSTERS = 3
ONE_TASK = ("gfl", "local", "fedavg")  # methods that learn without knowing clusters
TIMES_ASKED_ALONE = 3  # a client that learns alone, until its one answer has come
MOST_EXCHANGES = 64
_CLUSTERS = re.compile(r"([0-9]+)|auto(?::([0-9]+)(?:-([0-9]+))?)?")


@dataclass(frozen=True, kw_only=True)
class ClusterAdmmConfig(StandardisedConfig, ReleaseConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : how many iterations n; all are run (``tolerance = 0``) unless a tolerance is set
    clients : how many clients take part, over all servers, spread over them evenly
    sample : how many clients a server asks in a round, drawn at random; 0 is all
    method : ``pgfl`` (the paper's); baselines ``gfl`` (one task for all), ``clusterfl`` (servers do
        not talk), ``local`` (clients do not), ``fedavg`` (one server, one task)
    servers : S, how many servers there are [servers]
    topology : the graph of servers: ``ring``, ``path``, ``star``, ``complete``, ``grid``,
        ``erdos-renyi:0.3`` (the probability of an edge), ``random:3`` (neighbours in the mean),
        ``small-world:4,0.1`` or a file [a name, name:numbers, or a csv, txt, graphml or npz file]
    clusters : Q, how many clusters there are, or ``auto:Q`` (``auto`` is ``auto:3``): clients are
        assigned to the cluster that fits them best; or ``auto:2-5``: every Q of the range is tried,
        ``rounds`` each, and the one with the least held-out loss is trained for as many rounds
        more. Synthetic data has Q clusters; of a range 3, or the number in it that is nearest to 3
        [a whole number >= 1, auto, auto:Q or auto:FIRST-LAST]
    assign_every : how long it is from one assignment to the next, where clusters are found; the
        first comes after twice as many [rounds]
    held_out : what a client leaves out: to score the result with ``release = "sum"``, and where Q
        is chosen (there 0 is a quarter)
    find_clips : with ``release = "sum"``, find B and Y from a noisy sum of their own, with a tenth
        of the budget; else, and where noise hides them, ``clip_features`` and ``clip_target`` are
        used
    exchanges : with ``release = "sum"``, how many noisy sums are made; 1 is the one-exchange way,
        all else is computed from that; 0 is 4 for ``ridge``, 1 for ``logistic`` [sums]
    rho : weight of the augmented Lagrangian; ``auto`` is 3/2 of the curvature of standardised
        features: 3 for ``ridge``, 0.375 for ``logistic`` [curvature]
    tau : how much clusters learn from each other: tau times ``tau_decay`` to the power n
        in round n [share]
    tau_decay : what tau is multiplied by from round to round [factor a round]
    mixing : how servers combine their models: ``paper`` as in (8)-(10), or ``exact``, which reaches
        the optimum of (1) on every graph
    acceleration : ``auto``, with ``mixing = "exact"``, all clients and a tolerance, goes on from a
        combination of the last rounds: the same optimum in fewer of them; ``off`` from the last
    ridge : weight of |w|^2 in the loss [curvature]
    loss : what a client minimises: ``ridge``, ``logistic``, or a class of your own as
        ``package.module.Class`` (see `losses`)
    phi0 : with noise in every model: phi_0, about the zCDP of the first round. ``auto`` is the
        largest with which a client that takes part in all ``rounds`` spends ``epsilon``; a larger
        one is refused [zCDP]
    zeta : with noise in every model: what the noise's variance is multiplied by from round to round
        [factor a round]
    bound : C, with ``privacy = "paper"``, which takes it as given [length of a gradient]
    clip_features : B of ``privacy = "sound"``, the largest length of one sample's features [length
        of a sample]
    clip_target : Y of ``privacy = "sound"``, the largest target; sums make it smaller as residuals
        get smaller [units of y]
    clip_model : W of ``privacy = "sound"``, the largest length of a model; sums have none [length
        of a model]
    features : d, how many features the synthetic data has [features]
    samples : D_k, how many samples clients of the synthetic data have, as ``5`` or ``2-9`` [a whole
        number >= 1, or a range]
    similarity : gamma, how far the clusters' models of the synthetic data lie apart [no unit]
    noise : of the synthetic data, the deviation of the targets from the model [units of y]
    """

    study: ClassVar[str] = "cluster-admm"
    methods: ClassVar[tuple[str, ...]] = ("pgfl", "gfl", "clusterfl", "local", "fedavg")
    class_settings: ClassVar[tuple[str, ...]] = ("loss",)
    auto_settings: ClassVar[tuple[str, ...]] = ("phi0", "rho")
    own_data: ClassVar[Mapping[str, Scalar]] = {
        **StandardisedConfig.own_data,
        "standardise": "auto",
        "rho": "auto",
    }

    rounds: int = 200
    tolerance: float = 0.0
    clients: int = 150
    sample: int = 0
    method: str = "pgfl"
    servers: int = 10
    topology: str = "random:3"
    clusters: str = "3"
    assign_every: int = 10
    exchanges: int = 0
    find_clips: bool = True
    rho: float = 3.0
    tau: float = 0.4
    tau_decay: float = 1.0
    mixing: str = "paper"
    acceleration: str = "auto"
    ridge: float = 0.1
    loss: str = "ridge"
    phi0: float = AUTO
    zeta: float = 0.99
    bound: float = 0.1
    clip_features: float = 10.0
    clip_target: float = 10.0
    clip_model: float = 10.0
    features: int = 60
    samples: str = "2-9"
    similarity: float = 0.15
    noise: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("servers", 1)
        self.at_least("assign_every", 1)
        for name in ("rho", "phi0", "bound", "clip_features", "clip_target", "clip_model"):
            self.positive(name)
        for name in ("ridge", "similarity", "noise"):
            self.at_least(name, 0.0)
        for name in ("tau", "tau_decay"):
            self.between(name, 0.0, 1.0)
        self.between("zeta", 0.0, 1.0, least_out=True)
        self.one_of("mixing", ("paper", "exact"))
        self.one_of("acceleration", ("auto", "off"))
        self._check_loss()
        self.at_least("features", 1)
        self.sample_range()
        self.between("exchanges", 0, MOST_EXCHANGES)
        # The other methods know no clusters; they must not need fewer of them for few clients.
        if self.method in ("pgfl", "clusterfl") and self.candidates[-1] > self.clients:
            raise ConfigError(f"clusters={self.clusters!r}: more than clients={self.clients}")
        exact = "mixing='exact' solves for a sum over clients" if self.mixing == "exact" else ""
        alone = "method='local' has clients learn alone" if self.method == "local" else ""
        self.refuse_robust(alone=alone, no_mean=exact)
        self._check_epsilon()

    def _check_loss(self) -> None:
        """Refuse what is no loss, and a class of one's own where its gradients must be bounded."""
        if self.loss in LOSSES:
            return
        if "." not in self.loss:
            raise ConfigError(
                f"loss={self.loss!r}: use one of {', '.join(LOSSES)}, or package.module.Class"
            )
        if self.privacy == "sound":
            raise ConfigError(
                f"loss={self.loss!r} with privacy='sound': noise is sized by how far one sample "
                "can move what is sent, which is proved for ridge and logistic; a class of one's "
                "own states no bound on its gradients. Set loss=ridge or logistic, or "
                "privacy='none'"
            )

    def _check_epsilon(self) -> None:
        """Refuse a phi0 with which all rounds spend more than epsilon."""
        if not self.noises_models:
            return
        rounds, told = self.releases, f"epsilon={self.epsilon:g} at delta={self.delta:g}"
        if not self.phi_start > 0.0:
            raise ConfigError(
                f"zeta={self.zeta:g}, rounds={rounds}: the noise falls so far that no phi0 keeps "
                f"{told}; raise zeta or lower rounds"
            )
        if self.is_auto("phi0"):
            return
        from .spending import phi_for, spent_by_rounds

        terms = self.zeta, rounds, self.delta
        spent = spent_by_rounds(self.privacy, self.phi0, *terms)
        if spent > self.epsilon * (1.0 + 1e-9):
            chosen = phi_for(self.privacy, self.epsilon, *terms)
            raise ConfigError(
                f"phi0={self.phi0:g} with zeta={self.zeta:g}: {rounds} rounds would spend epsilon "
                f"{spent:.4g}, more than {told}; set phi0=auto (here {chosen:.3g}), lower rounds, "
                f"or set epsilon to {spent:.4g} if that is meant"
            )

    @property
    def noises_models(self) -> bool:
        """Whether every model that a client sends has noise of its own."""
        return self.privacy != "none" and not self.sums

    @property
    def releases(self) -> int:
        """Return how many models a client sends at most."""
        return min(self.rounds, TIMES_ASKED_ALONE) if self.method == "local" else self.rounds

    @property
    def phi_start(self) -> float:
        """Return phi_0: as it is given, or what epsilon allows over all rounds."""
        if not self.is_auto("phi0"):
            return self.phi0
        from .spending import phi_for  # scipy: not for who lists settings

        return phi_for(self.privacy, self.epsilon, self.zeta, self.releases, self.delta)

    @property
    def divides_by_rounds(self) -> bool:
        """Whether the noise is made for this number of rounds."""
        return self.noises_models

    def penalty(self, parameters: int) -> float:
        """Return rho: what is set, or with ``auto`` 3/2 of the curvature of standardised features.

        The mean of a standardised feature's square is 1, so the Hessian of a mean loss has a
        diagonal of 2 (``ridge``) or, at w = 0, 1/4 (``logistic``): rho = 3, as in the paper, or
        0.375, whatever the number of ``parameters``. Less is quicker where all servers are
        neighbours, and diverges on sparser graphs; more is slower. Of a class of one's own the
        curvature is not known: it is taken for that of ``ridge``.
        """
        if not self.is_auto("rho"):
            return self.rho
        return 1.5 * (0.25 if self.loss == "logistic" else 2.0)

    @property
    def accelerated(self) -> bool:
        """Whether rounds are combined; the paper's mixing stays as it is printed."""
        asked = self.acceleration == "auto" and self.tolerance > 0.0 and self.mixing == "exact"
        plain = self.privacy == "none" and not (self.sample or self.norm_bound)
        return asked and plain and self.robust == "none"

    def sum_obstacle(self) -> str:
        """Return why noise cannot go into secure sums with these settings; nothing if it can."""
        if self.method == "local":
            return "method='local' has clients learn alone; there is nothing to add up"
        if self.finds_clusters and self.method not in ONE_TASK:
            return (
                f"clusters={self.clusters!r} has clusters found from single clients' losses; give "
                "every client its cluster, or learn one model for all (method='gfl'), from which "
                "every device makes its own"
            )
        if self.loss not in LOSSES:
            return f"loss={self.loss!r}: sums are of the moments of ridge and logistic regression"
        if self.sample:
            return f"sample={self.sample}: all clients are in every sum; set sample=0"
        if self.norm_bound or self.robust != "none":
            return "norm-bound and robust are about single clients' models, which a sum hides"
        return self.few_for_a_sum()

    @property
    def can_keep(self) -> bool:
        """Whether devices make their own models: where clusters' models are private sums."""
        return self.sums

    @property
    def scored_share(self) -> float:
        """The share of its samples that a client keeps to score the result.

        Where Q is chosen, ``held-out`` is for that, and the result is learned from all.
        """
        return 0.0 if len(self.candidates) > 1 and not self.sums else self.held_out

    @property
    def exchange_count(self) -> int:
        """Return how many noisy sums teach the models."""
        return self.exchanges or (4 if self.loss == "ridge" else 1)

    @property
    def task_count(self) -> int:
        """Return how many models the method learns: Q, or one for all."""
        return 1 if self.method in ONE_TASK else self.cluster_count

    @property
    def finds_clusters(self) -> bool:
        """Whether clients are assigned to clusters on the way."""
        return self.clusters.startswith("auto")

    @property
    def candidates(self) -> range:
        """Return the numbers of clusters to choose from; one, Q, where it is given."""
        found = _CLUSTERS.fullmatch(self.clusters)
        number, low, high = found.groups() if found else (None, "0", None)
        first = int(number or low or PAPER_CLUSTERS)
        last = int(high or first)
        if not 1 <= first <= last:
            raise ConfigError(
                f"clusters={self.clusters!r}: a whole number >= 1, or auto:Q to have Q clusters "
                "found, or a range such as auto:2-5 to choose Q as well"
            )
        return range(first, last + 1)

    @property
    def cluster_count(self) -> int:
        """Return Q; of a range, how many clusters synthetic data has."""
        return min(max(PAPER_CLUSTERS, self.candidates[0]), self.candidates[-1])

    def permit_search(self, first_assignment: int) -> None:
        """Refuse settings with which clusters cannot be found, before a client is asked.

        Parameters
        ----------
        first_assignment : the round before which clients are assigned for the first time

        Raises
        ------
        ConfigError
            Names the settings that do not go together.
        """
        if self.privacy == "sound":
            raise ConfigError(
                f"privacy='sound' with clusters={self.clusters!r}: finding clusters takes clients' "
                "losses, which have no noise; set clusters to a number and give every client its "
                "cluster, or set privacy='none'"
            )
        if len(self.candidates) > 1 and self.privacy != "none":
            raise ConfigError(
                f"privacy={self.privacy!r} with clusters={self.clusters!r}: the choice of Q trains "
                "on the same data several times, which the budget does not count; set "
                "privacy='none', or one Q"
            )
        if self.candidates[-1] > 1 and self.rounds < first_assignment:
            raise ConfigError(
                f"rounds={self.rounds}: clusters={self.clusters!r} with assign-every="
                f"{self.assign_every} assigns clients before round {first_assignment} for the "
                "first time; raise rounds or lower assign-every"
            )

    def sample_range(self) -> tuple[int, int]:
        """Return the smallest and largest D_k of the synthetic data."""
        try:
            low, _, high = self.samples.partition("-")
            found = int(low), int(high or low)
        except ValueError:
            found = (0, 0)
        if not 1 <= found[0] <= found[1]:
            raise ConfigError(f"samples={self.samples!r}: a whole number, or a range such as 2-9")
        return found
