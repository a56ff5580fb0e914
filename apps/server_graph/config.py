"""Settings of the server-graph study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from trellis.apps.common import plugins
from trellis.apps.common.methods import Method, Methods
from trellis.apps.common.own_data.scaling import StandardisedConfig
from trellis.apps.common.settings import AUTO, ConfigError, Scalar
from trellis.strategies.core.rules import FEWEST
from trellis.strategies.topology.rules import check_rule

from .methods import METHODS

LOSSES = ("logistic", "least-squares")
# With noise in sums, where clip = 0 is set: about the gradient of a sample with features of unit
# scale near the minimum.
DEFAULT_CLIP = 0.5
EXAMPLES = ("small-mlp",)  # built in as well, to show what a loss of one's own can be
# The paper's, where no epsilon decides.
DEFAULT_SIGMA = 0.2


@dataclass(frozen=True, kw_only=True)
class ServerGraphConfig(StandardisedConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : how many iterations i; all are run (``tolerance = 0``) unless a tolerance is set
    clients : how many clients take part, over all servers, spread over them evenly
    sample : L, how many clients a server asks in a round, drawn at random; 0 is all
    method : ``hybrid`` (``auto``; the paper's), ``iid`` noise, ``none``, ``masked`` (exact between
        servers), ``fedavg`` (one server for all clients)
    servers : P, how many servers there are [servers]
    topology : the graph of servers: ``ring``, ``path``, ``star``, ``complete``, ``grid``,
        ``erdos-renyi:0.3`` (the probability of an edge), ``random:3`` (neighbours in the mean),
        ``small-world:4,0.1`` or a file [a name, name:numbers, or a csv, txt, graphml or npz file]
    weights : how the servers' combination matrix is made from their graph: ``auto`` is ``own`` for
        a matrix in a file and ``metropolis`` for a graph [auto, metropolis, laplacian,
        laplacian:NUMBER, own]
    step : mu, of gradient descent; ``auto`` is 1 / L, L the largest curvature that standardised
        features can have [1 / curvature]
    batch : how many samples a gradient is the mean of; 0 is all of a client's [samples]
    local_steps : gradient steps of a client in a round [steps]
    clip : B, largest norm of one sample's gradient; 0 does not clip, but with
        ``privacy = "dp"``, which needs a bound, is 0.5 [length of a gradient]
    average : with ``privacy = "dp"``, the result is the mean of the models of so many of the
        last rounds; 0 takes the last model [share of the rounds]
    sigma : sigma_g, standard deviation of the servers' Laplace noise; ``auto`` is 0.2 with
        ``privacy = "none"``, and with ``paper`` the least with which all ``rounds`` spend
        ``epsilon``; less than that is refused [as the model's coefficients]
    ridge : rho, weight of (rho / 2) |w|^2 in the loss [curvature]
    loss : what a client minimises: ``logistic``, ``least-squares``, ``small-mlp`` (a small neural
        network), or one of your own by its registered name [logistic, least-squares, small-mlp, or
        a registered name]
    secure_aggregation : whether servers learn only the sum of their clients' updates: ``on``,
        ``off``; ``auto`` is on in ``hybrid`` and ``masked``
    failures : servers that stop: ``3:100`` is server 3 from round 100 on, ``3:100-200`` in these
        rounds; with commas between [server:first or server:first-last, with commas between]
    on_server_loss : when a server stops, ``drop`` its clients with it, or ``rehome`` them to its
        neighbours
    features : M, how many features the synthetic data has [features]
    samples : N, how many samples a client of the synthetic data has: one number, or one a client
        [samples]
    spread : how much clients' noise differs, of the synthetic data [no unit]
    """

    study: ClassVar[str] = "server-graph"
    methods: ClassVar[tuple[str, ...]] = METHODS.names()
    plugin_settings: ClassVar[Mapping[str, str]] = {"loss": "losses"}
    table: ClassVar[Methods] = METHODS
    auto_settings: ClassVar[tuple[str, ...]] = ("sigma", "step")
    own_data: ClassVar[Mapping[str, Scalar]] = {
        **StandardisedConfig.own_data,
        "standardise": "auto",
        "step": "auto",
    }

    rounds: int = 200
    tolerance: float = 0.0
    clients: int = 50
    sample: int = 0
    method: str = "auto"
    servers: int = 10
    topology: str = "erdos-renyi:0.3"
    weights: str = "auto"
    step: float = 0.1
    batch: int = 10
    local_steps: int = 1
    clip: float = 0.0
    average: float = 0.5
    sigma: float = AUTO
    ridge: float = 0.01
    loss: str = "logistic"
    secure_aggregation: str = "auto"
    failures: str = ""
    on_server_loss: str = "drop"
    features: int = 2
    samples: str = "100"
    spread: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("servers", 1)
        if self.clients < self.graph_servers:
            raise ConfigError(
                f"clients={self.clients}: fewer than servers={self.servers}; every server needs "
                "one at least"
            )
        try:
            check_rule(self.weights)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self.positive("step")
        self.at_least("batch", 0)
        self.at_least("local_steps", 1)
        for name in ("clip", "sigma", "ridge", "spread"):
            self.at_least(name, 0.0)
        self.between("average", 0.0, 1.0)
        # Also what the sensitivity in `release` rests on: a step must not drive two models apart.
        if self.step * self.ridge > 2.0:
            raise ConfigError(
                f"step={self.step}: with ridge={self.ridge} the ridge alone diverges; keep "
                "step * ridge <= 2"
            )
        if self.loss not in (*LOSSES, *EXAMPLES) and not plugins.known("losses", self.loss):
            plugins.find("losses", "loss", self.loss, (*LOSSES, *EXAMPLES))  # says what there is
        self.one_of("secure_aggregation", ("auto", "on", "off"))
        self.one_of("on_server_loss", ("drop", "rehome"))
        self.at_least("features", 1)
        self.sample_counts()
        self.refuse_robust(masked=self.masked)
        own = self.asked_by_a_server
        if self.robust in ("median", "trimmed") and own < FEWEST:
            raise ConfigError(
                f"robust={self.robust!r}: a server asks {own} of its clients, and of fewer than "
                f"{FEWEST} nobody can tell the liar; use fewer servers or more clients"
            )
        if self.sums:
            self._check_sums()
        elif self.row.has("epsilon"):
            self._check_printed()
        self.refuse_without_effect()

    def _check_sums(self) -> None:
        if few := self.few_for_a_sum():
            raise ConfigError(few)
        if self.asked_by_a_server < FEWEST:
            raise ConfigError(
                f"servers={self.servers}, sample={self.sample}: a server asks "
                f"{self.asked_by_a_server} of its clients, and a secure sum needs {FEWEST}; use "
                "fewer servers, more clients, or sample=0"
            )

    def _check_printed(self) -> None:
        if self.sigma == 0.0 or self.clip <= 0.0:
            raise ConfigError(
                f"privacy={self.privacy!r}: epsilon is of the noise between servers and needs "
                f"sigma > 0, and clip > 0, which bounds a gradient (B); not sigma={self.sigma:g}, "
                f"clip={self.clip:g}"
            )
        from .spending import settled  # scipy: not for who lists settings

        if not self.is_auto("step"):  # which depends on the model's size: then it is known
            settled(self, 1)

    @classmethod
    def for_own_data(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for own data; noise between servers only if privacy is asked for."""
        found = super().for_own_data(given)
        if str(given.get("privacy", "none")) == "none":
            found.setdefault("method", "none")
        return found

    @classmethod
    def of_method(cls, settings: Mapping[str, Any]) -> Self:
        """Build the config of a method from settings out of which it takes what it needs."""
        given = {"method": "hybrid", "privacy": "none", **settings}
        row = METHODS.row(given["method"], given["privacy"])
        return cls.from_settings({key: value for key, value in given.items() if row.has(key)})

    def pace(self, parameters: int) -> float:
        """Return mu: what is set, or with ``auto`` 1 / L of so many parameters, intercept included.

        The mean of squared standardised features is 1 each, so the Hessian's largest eigenvalue is
        at most their number: L = M / 4 + rho for the logistic loss (also taken for losses of one's
        own), M + rho for least squares. Gradient descent with 1 / L does not diverge.
        """
        if not self.is_auto("step"):
            return self.step
        steepest = 1.0 if self.loss == "least-squares" else 0.25
        return 1.0 / (steepest * parameters + self.ridge)

    @property
    def divides_by_rounds(self) -> bool:
        """Whether the noise is made for this number of rounds."""
        return self.privacy != "none"

    @property
    def row(self) -> Method:
        """The run's row of the table of methods."""
        return METHODS.row(self.method, self.privacy)

    @property
    def graph_servers(self) -> int:
        """The number of servers; one, if the method has no graph of them."""
        return self.servers if self.row.has("servers") else 1

    @property
    def asked_by_a_server(self) -> int:
        """How many of its clients a server asks in a round, if they are spread evenly."""
        own = self.clients // self.graph_servers
        return min(self.sample or own, own)

    @property
    def bound(self) -> float:
        """The largest norm of one sample's gradient; 0 if it is not bounded."""
        return self.clip or (DEFAULT_CLIP if self.sums else 0.0)

    @property
    def masked(self) -> bool:
        """Whether clients' replies reach their server as secure sums only."""
        if self.sums:
            return True
        if self.secure_aggregation == "auto":
            return self.row.masks
        return self.secure_aggregation == "on"

    @property
    def clear_updates(self) -> bool:
        """Whether a server sees its clients' updates one by one."""
        return not self.masked

    def sample_counts(self) -> list[int]:
        """Return the number of synthetic samples of every client."""
        return self.by_client("samples", 1)
