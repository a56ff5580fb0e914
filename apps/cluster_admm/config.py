"""Settings of the cluster-admm study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from trellis.apps.common.methods import Methods
from trellis.apps.common.own_data.scaling import StandardisedConfig
from trellis.apps.common.plugins import find, known
from trellis.apps.common.settings import AUTO, ConfigError, Scalar

from .methods import METHODS, ONE_TASK

LOSSES = ("ridge", "logistic")
PAPER_CLUSTERS = 3
MOST_EXCHANGES = 64
_CLUSTERS = re.compile(r"([0-9]+)|auto(?::([0-9]+))?")
# Bounds at which floats are not what the proof of a sensitivity is about are refused.
_CLIPS, _MOST_RIDGE = (1e-6, 1e6), 1e9


@dataclass(frozen=True, kw_only=True)
class ClusterAdmmConfig(StandardisedConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : how many iterations n; all are run (``tolerance = 0``) unless a tolerance is set
    clients : how many clients take part, over all servers, spread over them evenly
    sample : how many clients a server asks in a round, drawn at random; 0 is all
    method : ``auto`` is ``pgfl`` (the paper's), with ``privacy = "dp"`` ``moments``: regression
        per cluster from noisy sums; baselines ``gfl`` (one task for all), ``clusterfl`` (servers do
        not talk), ``local`` (clients do not), ``fedavg`` (one server, one task)
    servers : S, how many servers there are [servers]
    topology : the graph of servers: ``ring``, ``path``, ``star``, ``complete``, ``grid``,
        ``erdos-renyi:0.3`` (the probability of an edge), ``random:3`` (neighbours in the mean),
        ``small-world:4,0.1`` or a file [a name, name:numbers, or a csv, txt, graphml or npz file]
    clusters : Q, how many clusters there are, or ``auto:Q`` (``auto`` is ``auto:3``): clients are
        assigned to the cluster that fits them best. Synthetic data has Q clusters
        [a whole number >= 1, auto or auto:Q]
    assign_every : how long it is from one assignment to the next, where clusters are found; the
        first comes after twice as many [rounds]
    find_clips : find B and Y from a noisy sum of their own, with a tenth of the budget; else, and
        where noise hides them, ``clip_features`` and ``clip_target`` are used
    exchanges : how many noisy sums teach the models; 0 is 4 for ``ridge``, 1 for ``logistic``
        [sums]
    rho : weight of the augmented Lagrangian; ``auto`` is 3/2 of the curvature of standardised
        features: 3 for ``ridge``, 0.375 for ``logistic`` [curvature]
    tau : how much clusters learn from each other: tau times ``tau_decay`` to the power n
        in round n [share]
    tau_decay : what tau is multiplied by from round to round [factor a round]
    mixing : how servers combine their models: ``paper`` as in (8)-(10), or ``exact``, which reaches
        the optimum of (1) on every graph
    ridge : weight of |w|^2 in the loss [curvature]
    loss : what a client minimises: ``ridge``, ``logistic``, or the name of one of your own (see
        `losses`)
    phi0 : phi_0, about the zCDP of the first round of the paper's noise. ``auto`` is the largest
        with which a client that takes part in all ``rounds`` spends ``epsilon``; a larger one is
        refused [zCDP]
    zeta : what the paper's noise's variance is multiplied by from round to round [factor a round]
    bound : C of the paper's noise, taken as given [length of a gradient]
    clip_features : B, the largest length of one sample's features in a noisy sum [length of a
        sample]
    clip_target : Y, the largest target in a noisy sum, of which the sums make less as residuals get
        smaller [units of y]
    features : d, how many features the synthetic data has [features]
    samples : D_k, how many samples clients of the synthetic data have, as ``5`` or ``2-9`` [a whole
        number >= 1, or a range]
    similarity : gamma, how far the clusters' models of the synthetic data lie apart [no unit]
    noise : of the synthetic data, the deviation of the targets from the model [units of y]
    """

    study: ClassVar[str] = "cluster-admm"
    methods: ClassVar[tuple[str, ...]] = METHODS.names()
    plugin_settings: ClassVar[Mapping[str, str]] = {"loss": "losses"}
    table: ClassVar[Methods] = METHODS
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
    method: str = "auto"
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
    ridge: float = 0.1
    loss: str = "ridge"
    phi0: float = AUTO
    zeta: float = 0.99
    bound: float = 0.1
    clip_features: float = 10.0
    clip_target: float = 10.0
    features: int = 60
    samples: str = "2-9"
    similarity: float = 0.15
    noise: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("servers", 1)
        self.at_least("assign_every", 1)
        for name in ("rho", "phi0", "bound", "clip_features", "clip_target"):
            self.positive(name)
        for name in ("ridge", "similarity", "noise"):
            self.at_least(name, 0.0)
        for name in ("tau", "tau_decay"):
            self.between(name, 0.0, 1.0)
        self.between("zeta", 0.0, 1.0, least_out=True)
        self.one_of("mixing", ("paper", "exact"))
        if self.loss not in LOSSES and not known("losses", self.loss):
            find("losses", "loss", self.loss, LOSSES)  # which says how to provide it
        self.at_least("features", 1)
        self.sample_range()
        self.between("exchanges", 0, MOST_EXCHANGES)
        if not self.one_task and self.cluster_count > self.clients:
            raise ConfigError(f"clusters={self.clusters!r}: more than clients={self.clients}")
        exact = "mixing='exact' solves for a sum over clients" if self.mixing == "exact" else ""
        self.refuse_robust(no_mean=exact)
        if self.sums:
            self._check_sums()
        self.refuse_without_effect()
        if self.has_noise:
            self._check_epsilon()

    def _check_sums(self) -> None:
        """Refuse what noisy sums cannot be made of."""
        for name in ("clip_features", "clip_target"):
            self.between(name, *_CLIPS)
        self.between("ridge", 0.0, _MOST_RIDGE)
        if few := self.few_for_a_sum():
            raise ConfigError(f"{few}, or use method='local'")
        if self.finds_clusters:
            raise ConfigError(
                f"clusters={self.clusters!r} with privacy={self.privacy!r}: finding clusters takes "
                "clients' losses, which have no noise; set clusters to a number and give every "
                "client its cluster, or set clusters=1, one model for all, from which every device "
                "makes its own"
            )
        if self.loss not in LOSSES:
            raise ConfigError(
                f"loss={self.loss!r} with privacy={self.privacy!r}: sums are of the moments of "
                "ridge and logistic regression, whose sensitivity is proved; a loss of one's own "
                "states no bound. Set loss=ridge or logistic, or privacy='none'"
            )

    def _check_epsilon(self) -> None:
        """Refuse a phi0 with which all rounds of the paper's noise spend more than epsilon."""
        from .as_printed import phi_for, spent_by_rounds  # scipy: not for lists of settings

        told = f"epsilon={self.epsilon:g} at delta={self.delta:g}"
        chosen = phi_for(self.epsilon, self.zeta, self.rounds, self.delta)
        if not self.phi_start > 0.0:
            raise ConfigError(
                f"zeta={self.zeta:g}, rounds={self.rounds}: the noise falls so far that no phi0 "
                f"keeps {told}; raise zeta or lower rounds"
            )
        spent = spent_by_rounds(self.phi_start, self.zeta, self.rounds, self.delta)
        if not self.is_auto("phi0") and spent > self.epsilon * (1.0 + 1e-9):
            raise ConfigError(
                f"phi0={self.phi0:g} with zeta={self.zeta:g}: {self.rounds} rounds would spend "
                f"epsilon {spent:.4g}, more than {told}; set phi0=auto (here {chosen:.3g}), lower "
                f"rounds, or set epsilon to {spent:.4g} if that is meant"
            )

    @classmethod
    def having_effect(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of ``settings`` that have an effect in their method, to compare methods."""
        privacy = str(settings.get("privacy", "none"))
        row = METHODS.row(str(settings.get("method") or METHODS.default(privacy)), privacy)
        return {key: value for key, value in settings.items() if row.has(key)}

    def as_method(self, method: str, privacy: str = "none", **changes: Scalar) -> Self:
        """Return the same run by another method: the settings that have an effect there."""
        asked = {**self.settings(), **changes, "method": method, "privacy": privacy}
        return self.from_settings(self.having_effect(asked))

    @property
    def has_noise(self) -> bool:
        """Whether every model that a client sends has the paper's noise."""
        return METHODS.row(self.method, self.privacy).has("phi0")

    @property
    def phi_start(self) -> float:
        """Return phi_0: as it is given, or what epsilon allows over all rounds."""
        if not self.is_auto("phi0"):
            return self.phi0
        from .as_printed import phi_for  # scipy: not for lists of settings

        return phi_for(self.epsilon, self.zeta, self.rounds, self.delta)

    @property
    def penalty(self) -> float:
        """Return rho: what is set, or with ``auto`` 3/2 of the curvature of standardised features.

        The mean of a standardised feature's square is 1, so the Hessian of a mean loss has a
        diagonal of 2 (``ridge``) or, at w = 0, 1/4 (``logistic``): rho = 3, as in the paper, or
        0.375, whatever the number of parameters. Less is quicker where all servers are
        neighbours, and diverges on sparser graphs; more is slower. Of a loss of one's own the
        curvature is not known: it is taken for that of ``ridge``.
        """
        if not self.is_auto("rho"):
            return self.rho
        return 1.5 * (0.25 if self.loss == "logistic" else 2.0)

    @property
    def exchange_count(self) -> int:
        """Return how many noisy sums teach the models."""
        return self.exchanges or (4 if self.loss == "ridge" else 1)

    @property
    def one_task(self) -> bool:
        """Whether the method needs no clusters: it learns one model for all, or one per client."""
        return self.method in ONE_TASK

    @property
    def searches(self) -> bool:
        """Whether clients are assigned to clusters by their losses."""
        return self.finds_clusters and not self.one_task

    @property
    def task_count(self) -> int:
        """Return how many models the method learns: Q, or one for all."""
        return 1 if self.one_task else self.cluster_count

    @property
    def finds_clusters(self) -> bool:
        """Whether nobody says which cluster a client is in."""
        return self.clusters.startswith("auto")

    @property
    def cluster_count(self) -> int:
        """Return Q."""
        found = _CLUSTERS.fullmatch(self.clusters)
        number = int(found[1] or found[2] or PAPER_CLUSTERS) if found else 0
        if number < 1:
            raise ConfigError(
                f"clusters={self.clusters!r}: a whole number >= 1, or auto:Q to have Q clusters "
                "found; trellis tune chooses Q by held-out scores"
            )
        return number

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
        if self.cluster_count > 1 and self.rounds < first_assignment:
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
