"""Settings of the gromov-wasserstein study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from apps.common.settings import ConfigError, StudyConfig

MODELS = ("gcn", "gin")
TASKS = ("node", "graph")
ESTIMATORS = ("raw", "rectified", "double", "simplex")
METRICS = ("gw", "fgw", "wasserstein")
DOWNSTREAM = ("svm", "knn", "spectral", "kmeans", "anomaly")


@dataclass(frozen=True, kw_only=True)
class GromovWassersteinConfig(StudyConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : R, of federated training
    epsilon, budget_per : what the released embedding may cost, a graph or a node of it
    method : ``fedavg``, or ``fedprox`` with ``proximal``
    model : ``gcn`` (2 layers of 16), ``gin`` (5 of 64), or ``package.module.Class``
    task : what the model learns to tell, labels of nodes or of graphs
    width : h, length of an embedding's rows with ``task = "graph"``; with ``node`` it is the number
        of classes
    local_epochs, batch : E, and graphs a step (0 = all)
    learning_rate, weight_decay : of Adam; 0 takes the rate that suits the model, see `rate`
    proximal : mu of ``fedprox``
    secure_aggregation : let the server learn the sum of the updates only
    release_every : s, rounds between two releases of embeddings; 0 releases once, after the last
    bits : m, coordinates sent of each row; 0 takes the m with the least variance
    estimator : of distances between encoded rows: ``raw`` (the paper's), ``rectified``, ``double``
        (two encodings at half the budget), ``simplex``
    metric, alpha : ``gw``, ``fgw`` (``alpha`` is the weight of structure), or ``wasserstein`` in
        the common space
    distance : between rows, ``euclidean`` or ``cosine``
    restarts : more starts of every pair's problem
    downstream : ``svm``, ``knn``, ``spectral``, ``kmeans``, ``anomaly``, with commas between; or
        ``all``, or ``none``
    draws : how often the encoder is drawn for the controls
    share_labels : whether clients tell their graphs' labels, in the clear, for what is learned from
        distances
    dirichlet : concentration with which graphs are dealt to clients; small is uneven
    hops, centres : of the subgraphs of one big graph
    classes : number of classes; 0 takes the largest label that a client has
    graphs : of the synthetic data, over all clients
    """

    study: ClassVar[str] = "gromov-wasserstein"
    methods: ClassVar[tuple[str, ...]] = ("fedavg", "fedprox")
    class_settings: ClassVar[tuple[str, ...]] = ("model",)

    rounds: int = 20
    tolerance: float = 0.0
    clients: int = 10
    method: str = "fedavg"
    model: str = "gcn"
    task: str = "node"
    width: int = 16
    local_epochs: int = 3
    batch: int = 0
    learning_rate: float = 0.0
    weight_decay: float = 0.0005
    proximal: float = 0.1
    secure_aggregation: bool = False
    release_every: int = 0
    budget_per: str = "graph"
    bits: int = 0
    estimator: str = "raw"
    metric: str = "gw"
    alpha: float = 0.5
    distance: str = "euclidean"
    restarts: int = 0
    downstream: str = "svm,knn,spectral,anomaly"
    draws: int = 5
    share_labels: bool = True
    dirichlet: float = 1.0
    hops: int = 1
    centres: int = 100
    classes: int = 0
    graphs: int = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("task", TASKS)
        if "." not in self.model:
            self.one_of("model", MODELS)
        self.one_of("budget_per", ("node", "graph"))
        self.one_of("estimator", ESTIMATORS)
        self.one_of("metric", METRICS)
        self.one_of("distance", ("euclidean", "cosine"))
        self.positive("dirichlet")
        for name in ("learning_rate", "weight_decay", "proximal"):
            self.at_least(name, 0.0)
        for name in ("batch", "release_every", "bits", "restarts", "classes", "graphs"):
            self.at_least(name, 0)
        for name in ("local_epochs", "hops", "centres", "draws"):
            self.at_least(name, 1)
        self.at_least("width", 2)
        if not 0.0 <= self.alpha <= 1.0:
            raise ConfigError(f"alpha={self.alpha}: 0 (features only) to 1 (structure only)")
        if self.task == "graph" and self.bits > self.width:
            raise ConfigError(f"bits={self.bits}: a row has width={self.width} coordinates")
        if self.privacy == "none" and self.estimator != "raw":
            raise ConfigError(
                f"estimator={self.estimator!r} with privacy='none': rows are not encoded, so there "
                "is nothing to estimate; set privacy='sound' or estimator='raw'"
            )
        if self.privacy == "paper" and self.estimator in ("double", "simplex"):
            raise ConfigError(
                f"estimator={self.estimator!r} with privacy='paper': the paper's encoder sends too "
                "few entries for it; set privacy='sound', or estimator='raw'"
            )
        if self.estimator == "simplex" and self.bits == 1:
            raise ConfigError("bits=1: estimator='simplex' needs two coordinates of a row or more")
        if self.estimator in ("double", "simplex") and self.distance == "cosine":
            raise ConfigError(
                f"distance='cosine' with estimator={self.estimator!r}: it estimates squared "
                "Euclidean distances; set distance='euclidean'"
            )
        self.downstream_names()
        self.refuse_robust(masked=self.secure_aggregation)

    @property
    def clear_updates(self) -> bool:
        """Whether the server sees clients' weights, or embeddings without noise."""
        return self.privacy != "sound" or not self.secure_aggregation

    @property
    def tells_labels(self) -> bool:
        """Whether clients tell their graphs' labels; with ``sound`` a device asks its owner."""
        return self.share_labels and self.privacy != "sound"

    @property
    def rate(self) -> float:
        """Return the learning rate: 0.01, and 0.001 for the five layers of ``gin``.

        Adam begins anew every round with steps as long as the rate in every weight; at 0.01 GIN
        stays at the majority's label.
        """
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
