"""Settings of the gromov-wasserstein study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from trellis.apps.common import plugins
from trellis.apps.common.methods import Methods
from trellis.apps.common.settings import (
    AUTO_WORD,
    PRIVACY_MODES,
    ConfigError,
    Scalar,
    StudyConfig,
)

from .methods import METHODS, GnnMethod

MODELS = ("gcn", "gin")
TASKS = ("node", "graph")
ESTIMATORS = ("raw", "rectified", "double", "simplex")
METRICS = ("gw", "fgw", "wasserstein")
DISTANCES = ("euclidean", "cosine", "correlation")
LOSSES = ("square", "kl")
SCORE_SHARE = 0.1  # of epsilon, where the model is scored on graphs that were held out
DOWNSTREAM = ("svm", "knn", "spectral", "kmeans", "anomaly", "outliers", "medoids")
PAIRS = ("all", "needed")
NEED_ALL_PAIRS = ("svm", "spectral", "anomaly")  # a kernel's matrix, a mean over all others


@dataclass(frozen=True, kw_only=True)
class GromovWassersteinConfig(StudyConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : R, how many rounds of federated training
    epsilon : the budget of differential privacy: what a run may cost, see ``budget_per``
    budget_per : what epsilon is for: a ``graph``; or, of the released embedding, a ``node`` of it
        seen by itself, so that a graph of n nodes costs n times that. The ledger tells both
    method : ``fedavg``, or ``fedprox`` with ``proximal``; ``untrained`` keeps the weights that the
        seed draws; ``auto`` is untrained with ``dp`` and fedavg otherwise
    training_share : with noisy training: what the noisy sums of all rounds have; the bits have the
        rest, less a tenth if ``held_out`` asks for a score [share of epsilon]
    gradient_bound : C, to which every graph's gradient is clipped there [length of a gradient]
    model : ``gcn`` (2 layers of 16), ``gin`` (5 of 64), or the registered name of a model of yours
    task : what the model learns to tell, labels of nodes or of graphs
    width : h, length of an embedding's rows with ``task = "graph"``; with ``node`` it is the number
        of classes [numbers a row]
    local_epochs : E, how often a client goes through its graphs in a round [epochs]
    batch : how many graphs a step of training takes; 0 is all [graphs]
    learning_rate : length of Adam's steps; 0 takes what suits the model: 0.01, and 0.001 for
        ``gin``. With noise in the sums it is the server's (0 is 0.3), and a round is one step over
        all graphs [no unit]
    weight_decay : how strongly Adam pulls weights to 0 [no unit]
    proximal : mu, how strongly ``fedprox`` pulls clients to the server's model [no unit]
    secure_aggregation : let the server learn the mean of the updates only
    release_every : s, rounds between two releases of embeddings, among which epsilon is divided; 0
        releases once, after the last [rounds]
    bits : m, coordinates sent of each row; 0 takes the m with the least variance [coordinates]
    estimator : how distances between encoded rows are estimated: ``raw`` (the paper's),
        ``rectified``, ``double`` (two encodings at half the budget), ``simplex``
    metric : between graphs: ``gw`` (Gromov-Wasserstein), ``fgw`` (with features, see ``alpha``), or
        ``wasserstein`` in the common space
    alpha : of ``fgw``, the weight of structure: 0 is features only, 1 structure only [share]
    distance : between rows, ``euclidean``, or one minus their ``cosine`` or ``correlation``
    gw_loss : of ``gw`` and ``fgw`` between two distances: ``square``, or ``kl``, which is not
        symmetric (both ways are solved, the mean is told) and has neither the compiled solver nor
        ``pairs = "needed"`` nor ``kmeans``
    restarts : how many more starts every pair's problem has [starts]
    pairs : ``all`` solves every pair of graphs; ``needed`` only those whose distances what is done
        with them, and every device's neighbours, depend on: the answers are the same
    downstream : what is done with the distances: ``svm``, ``knn``, ``spectral``, ``kmeans``,
        ``anomaly``, ``outliers``, ``medoids``, with commas between; or ``all``, or ``none`` [names
        with commas between, all, or none]
    draws : how often the encoder is drawn for the controls [draws]
    standardise : ``none`` takes nodes' features as they are, ``graph`` scales every graph's to a
        length of 1 a node (in the mean of squares), each by itself; ``auto`` is graph
    share_labels : whether clients tell their graphs' labels, in the clear, for what is learned from
        distances
    dirichlet : concentration with which graphs are dealt to clients; small is uneven [no unit]
    hops : of the subgraphs of one big graph: how far a subgraph reaches from its centre [edges]
    centres : of the subgraphs of one big graph: how many nodes get one [subgraphs]
    classes : number of classes; 0 takes the largest label that a client has [classes]
    graphs : how many graphs the synthetic data has, over all clients [graphs]
    """

    study: ClassVar[str] = "gromov-wasserstein"
    methods: ClassVar[tuple[str, ...]] = METHODS.names()
    plugin_settings: ClassVar[Mapping[str, str]] = {"model": "models"}
    table: ClassVar[Methods] = METHODS
    own_data: ClassVar[Mapping[str, Scalar]] = {**StudyConfig.own_data, "standardise": "auto"}

    rounds: int = 20
    tolerance: float = 0.0
    clients: int = 10
    method: str = "auto"
    model: str = "gcn"
    task: str = "node"
    width: int = 16
    local_epochs: int = 3
    batch: int = 0
    learning_rate: float = 0.0
    weight_decay: float = 0.0005
    proximal: float = 0.1
    training_share: float = 0.5
    gradient_bound: float = 1.0
    secure_aggregation: bool = False
    release_every: int = 0
    budget_per: str = "graph"
    bits: int = 0
    estimator: str = "raw"
    metric: str = "gw"
    alpha: float = 0.5
    distance: str = "euclidean"
    gw_loss: str = "square"
    restarts: int = 0
    pairs: str = "all"
    downstream: str = "svm,knn,spectral,anomaly"
    draws: int = 5
    standardise: str = "none"
    share_labels: bool = True
    dirichlet: float = 1.0
    hops: int = 1
    centres: int = 100
    classes: int = 0
    graphs: int = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("task", TASKS)
        self.one_of("standardise", ("none", "graph", "auto"))
        if plugins.known("models", self.model):
            pass  # a registered model
        elif self.model in MODELS:
            self.one_of("model", MODELS)
        else:
            plugins.find("models", "model", self.model, MODELS)  # raises, with the remedy
        self.one_of("budget_per", ("node", "graph"))
        self.one_of("estimator", ESTIMATORS)
        self.one_of("metric", METRICS)
        self.one_of("distance", DISTANCES)
        self.positive("dirichlet")
        for name in ("learning_rate", "weight_decay", "proximal"):
            self.at_least(name, 0.0)
        for name in ("batch", "release_every", "bits", "restarts", "classes", "graphs"):
            self.at_least(name, 0)
        for name in ("local_epochs", "hops", "centres", "draws"):
            self.at_least(name, 1)
        self.at_least("width", 2)
        self.between("alpha", 0.0, 1.0)
        if self.task == "graph" and self.bits > self.width:
            raise ConfigError(f"bits={self.bits}: a row has width={self.width} coordinates")
        if self.encoder == "printed" and self.estimator in ("double", "simplex"):
            raise ConfigError(
                f"estimator={self.estimator!r} with privacy='paper': the paper's encoder sends too "
                "few entries for it; set privacy='dp', or estimator='raw'"
            )
        if self.estimator == "simplex" and self.bits == 1:
            raise ConfigError("bits=1: estimator='simplex' needs two coordinates of a row or more")
        if self.estimator in ("double", "simplex") and self.distance != "euclidean":
            raise ConfigError(
                f"distance={self.distance!r} with estimator={self.estimator!r}: it estimates "
                "squared Euclidean distances; set distance='euclidean'"
            )
        self._check_pairs()
        self._check_loss()
        self.positive("gradient_bound")
        self.between(
            *("training_share", 0.0, 0.8),
            least_out=True,
            why="the bits of the embedding and a score need the rest of epsilon",
        )
        self._check_training()
        self.refuse_robust(masked=self.secure_aggregation)
        self.refuse_without_effect()

    def _check_pairs(self) -> None:
        """Refuse what has no answer without all pairs."""
        self.one_of("pairs", PAIRS)
        wanting = [name for name in self.downstream_names() if name in NEED_ALL_PAIRS]
        if self.pairs == "needed" and wanting:
            rest = [name for name in DOWNSTREAM if name not in NEED_ALL_PAIRS]
            raise ConfigError(
                f"pairs='needed' with downstream={self.downstream!r}: {', '.join(wanting)} cannot "
                f"do without any pair; set pairs='all', or choose from {', '.join(rest)}, none"
            )

    def _check_loss(self) -> None:
        """Refuse what holds for the square loss alone."""
        self.one_of("gw_loss", LOSSES)
        if self.gw_loss == "square":
            return
        if self.metric == "wasserstein":
            raise ConfigError(
                f"gw-loss={self.gw_loss!r} with metric='wasserstein': it compares rows, not "
                "distances, and has no such loss; set gw-loss='square', or metric='gw'"
            )
        if self.pairs == "needed":
            raise ConfigError(
                f"gw-loss={self.gw_loss!r} with pairs='needed': the lower bounds that leave pairs "
                "out are of the square loss; set pairs='all'"
            )
        if "kmeans" in self.downstream_names():
            raise ConfigError(
                f"gw-loss={self.gw_loss!r} with downstream={self.downstream!r}: barycentres of "
                "kmeans are of the square loss; leave kmeans out, or set gw-loss='square'"
            )

    def _check_training(self) -> None:
        """Refuse sums over too few clients, and scores of a model that is not trained."""
        if self.secure_aggregation and min(self.clients, self.sample or self.clients) < 3:
            raise ConfigError(
                "secure-aggregation=True: needs at least three clients a round; of two the sum "
                "tells each what the other sent"
            )
        if self.sums and (few := self.few_for_a_sum()):
            raise ConfigError(f"{few}, or use method='untrained', which makes no sums")
        if self.at_home and self.held_out and not self.trains:
            raise ConfigError(
                f"held-out={self.held_out:g}: with method='untrained' there is no model to score; "
                "set held-out=0, or method='fedavg'"
            )

    @classmethod
    def for_own_data(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for own graphs; none are held out where there is no model to score."""
        found = super().for_own_data(given)
        privacy, method = str(given.get("privacy", "none")), str(given.get("method", AUTO_WORD))
        if method == AUTO_WORD and privacy in PRIVACY_MODES:
            method = METHODS.default(privacy)
        if method == "untrained" and "held-out" not in given:
            found["held-out"] = 0.0
        return found

    @property
    def _row(self) -> GnnMethod:
        found = METHODS.row(self.method, self.privacy)
        assert isinstance(found, GnnMethod)
        return found

    @property
    def trains(self) -> bool:
        """Whether weights are trained."""
        return self._row.trains

    @property
    def encoder(self) -> str:
        """How embeddings are encoded: ``none``, ``printed`` or ``multi-bit``."""
        return self._row.encoder

    @property
    def pull(self) -> float:
        """The mu of FedProx; 0 if the method has none."""
        return self.proximal if self._row.has("proximal") else 0.0

    @property
    def must_release(self) -> bool:
        """Whether a run must have entered releases in its ledger: encoded bits always are."""
        return self.encoder == "multi-bit"

    @property
    def score_epsilon(self) -> float:
        """What the score on graphs that were held out may cost; 0 where none is made."""
        return SCORE_SHARE * self.epsilon if self.sums and self.held_out else 0.0

    @property
    def training_epsilon(self) -> float:
        """What the noisy sums of all rounds may cost together; 0 where there are none."""
        return self.training_share * self.epsilon if self.sums else 0.0

    @property
    def releases(self) -> int:
        """How often embeddings are released."""
        return -(-self.rounds // self.release_every) if self.release_every else 1

    @property
    def bits_epsilon(self) -> float:
        """What is left for one release of the encoded embedding, of a graph or of a node."""
        return (self.epsilon - self.training_epsilon - self.score_epsilon) / self.releases

    @property
    def divides_by_rounds(self) -> bool:
        """Whether noise or bits are made for this number of rounds."""
        return self.sums or self.encoder == "printed"

    @property
    def training_ratio(self) -> float:
        """Sensitivity over noise of the sum of one round."""
        from trellis.privacy.accounting.sampled import (
            ratio_for,  # scipy: not for who lists settings
        )

        return ratio_for(self.training_epsilon, self.delta, self.rounds)

    @property
    def score_ratio(self) -> float:
        """Sensitivity over noise of the sum of hits."""
        from trellis.privacy.accounting.sampled import ratio_for

        return ratio_for(self.score_epsilon, self.delta)

    @property
    def tells_labels(self) -> bool:
        """Whether clients tell their graphs' labels; with ``dp`` a device asks its owner."""
        return self.share_labels and not self.at_home

    @property
    def unit_features(self) -> bool:
        """Whether nodes' features are scaled, graph by graph."""
        return self.standardise != "none"

    @property
    def rate(self) -> float:
        """Return the learning rate: 0.01, and 0.001 for the five layers of ``gin``.

        Adam begins anew every round with steps as long as the rate in every weight; at 0.01 GIN
        stays at the majority's label. The server's step on noisy sums is `descent`'s: 0.3.
        """
        if self.sums:
            return self.learning_rate or 0.3
        return self.learning_rate or (0.001 if self.model == "gin" else 0.01)

    def downstream_names(self) -> tuple[str, ...]:
        """Return what is done with the distances."""
        if self.downstream in ("", "none"):
            return ()
        names = DOWNSTREAM if self.downstream == "all" else tuple(self.downstream.split(","))
        for name in names:
            if name not in DOWNSTREAM:
                raise ConfigError(
                    f"downstream={self.downstream!r}: {name!r} is not one of "
                    f"{', '.join(DOWNSTREAM)}"
                )
        return names
