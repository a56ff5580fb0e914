"""Settings of the joint-precision study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from trellis.apps.common.methods import Method, Methods
from trellis.apps.common.settings import ConfigError, Scalar, StudyConfig

from .methods import METHODS

JOINT_METHODS = ("group", "fused")
ALONE_METHODS = ("glasso", "clime")
# Of more variables no client holds a correlation matrix: its entries are streamed, see `large`.
STREAM_FROM = 5000
_STREAMING = ("client_app:step", "client_app:glasso")


@dataclass(frozen=True, kw_only=True)
class JointPrecisionConfig(StudyConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : most rounds to run, for every point of a path
    tolerance : stop at this duality gap (the objective is at most so far from its minimum); 0 runs
        all rounds [the objective's own]
    method : ``group`` (``auto``) or ``fused``, the penalty that joins the clients' matrices;
        baselines ``glasso`` and ``clime`` (every client from its own data only), ``pooled`` (all
        data in one place, or one noisy sum); ``one-shot``, the optimum in one exchange: the server
        is sent every client's correlation matrix
    lambda1 : sparsity of every client's matrix; ``auto`` is 0.8 sqrt(log p / n) for p variables and
        n samples, less where a path is chosen from [correlation]
    lambda2 : how alike the clients' matrices are made; ``auto`` is three quarters of lambda1
        [correlation]
    rho : weight of the augmented Lagrangian at the start; adapted on the way [no unit]
    correlation : ``kendall`` (for data of any margins), ``spearman`` or ``pearson``
    indefinite : what a client does with a correlation matrix that is not positive semidefinite:
        ``project`` it to the nearest by its eigenvalues, or ``refuse``
    screening : split the variables into blocks that cannot be connected, before the first round
    wire : ``float64`` or ``float32``, the numbers between clients and server
    path : how many points from an empty graph down to lambda1 are learned and chosen from, lambda2
        in the same proportion; 0 is none [points]
    choose : the point of a path to keep: by ``ebic`` (the extended Bayesian information criterion)
        or by ``stability`` (over random parts of the data)
    gamma : how much sparser the choice is than by the classic Bayesian information criterion; 0 is
        that one (at n = 150 and p = 54, 0.5 chose an empty graph) [no unit]
    subsamples : how often the path is run again on a random part of the data, for
        ``choose=stability`` [runs]
    penalty : ``group`` or ``fused``, for methods ``pooled`` and ``one-shot``
    variables : p, how many variables the synthetic data has; a multiple of ``blocks`` [variables]
    samples : n, how many samples a client of the synthetic data has, as ``150`` or ``100,200,300``
        [samples]
    blocks : c, the unconnected subnetworks of the synthetic data; the clients share all but two
        [subnetworks]
    generator : which networks the synthetic data has: ``danaher``, ``shrunk`` (weaker) or ``paper``
        (as printed)
    margins : how the variables of the synthetic data are distributed: ``nonparanormal`` or
        ``gaussian``
    """

    study: ClassVar[str] = "joint-precision"
    methods: ClassVar[tuple[str, ...]] = METHODS.names()
    table: ClassVar[Methods] = METHODS
    auto_settings: ClassVar[tuple[str, ...]] = ("lambda1", "lambda2")
    own_data: ClassVar[Mapping[str, Scalar]] = {
        **StudyConfig.own_data,
        "lambda1": "auto",
        "lambda2": "auto",
        "path": 8,
    }

    rounds: int = 200
    tolerance: float = 1e-6
    clients: int = 3
    method: str = "auto"
    lambda1: float = 0.1
    lambda2: float = 0.05
    rho: float = 1.0
    correlation: str = "kendall"
    indefinite: str = "project"
    screening: bool = True
    wire: str = "float64"
    path: int = 0
    choose: str = "ebic"
    gamma: float = 0.0
    subsamples: int = 0
    penalty: str = "group"
    variables: int = 54
    samples: str = "150"
    blocks: int = 6
    generator: str = "danaher"
    margins: str = "nonparanormal"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("lambda1", 0.0)
        self.at_least("lambda2", 0.0)
        self.positive("rho")
        self.one_of("correlation", ("kendall", "spearman", "pearson"))
        self.one_of("indefinite", ("project", "refuse"))
        self.one_of("wire", ("float64", "float32"))
        self.one_of("choose", ("ebic", "stability"))
        self.one_of("penalty", JOINT_METHODS)
        self.one_of("generator", ("danaher", "shrunk", "paper"))
        self.one_of("margins", ("nonparanormal", "gaussian"))
        for name in ("path", "gamma", "subsamples"):
            self.at_least(name, 0)
        self.at_least("variables", 2)
        self.at_least("blocks", 1)
        if self.variables % self.blocks:
            raise ConfigError(
                f"variables={self.variables}: not a multiple of blocks={self.blocks}; every "
                "subnetwork has the same size"
            )
        self.sample_counts()
        self._check_path()
        if self.sums and (few := self.few_for_a_sum()):
            raise ConfigError(f"{few}, or use method='glasso'")
        if self.at_home and self.lambda1 <= 0.0 and not self.is_auto("lambda1"):
            raise ConfigError(f"lambda1={self.lambda1}: devices' own graphs need lambda1 > 0")
        self.refuse_robust(no_mean="the clients' matrices meet in a penalty, not in a mean")
        self.refuse_without_effect()

    @classmethod
    def for_own_data(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for own data: a path to choose from, unless a penalty is given.

        CLIME has none: at small penalties its problem has no solution.
        """
        found = super().for_own_data(given)
        if given.get("method") == "clime" or not {"lambda1", "lambda2", "path"}.isdisjoint(given):
            found |= {"path": 0, **given}
        return found

    def resolved(self, variables: int, counts: Sequence[int]) -> Self:
        """Return the settings with numbers in place of ``auto``, for clients of so many samples.

        Entries of a correlation matrix of n samples are off by about 1 / sqrt(n), and the largest
        of p of them by sqrt(log p / n): lambda1 is 0.8 times that, n the mean over clients, and
        lambda2 three quarters of lambda1; of clients that learn alone, without lambda2, lambda1 is
        1.2 times that. Ranks have no units, so nothing else of the data's scale matters. Measured
        on synthetic networks (54 variables, 3 clients of 150 samples, two seeds), MCC of the edges:
        group .57 beside .38 with 0.1 and 0.05, fused .64 beside .51.

        With a path, lambda1 is its end, a tenth of sqrt(log p / n), and the criterion chooses the
        point: where variables hang together closely, as measurements of one thing do, much less
        sparsity is right than among variables that are mostly apart.
        """
        mean = max(sum(counts) / max(len(counts), 1), 1.0)
        noise = math.sqrt(math.log(max(variables, 2)) / mean)
        alone = self.method in ALONE_METHODS
        share = 0.1 if self.path else 1.2 if alone else 0.8
        first = min(share * noise, 0.95)
        found = self
        if self.is_auto("lambda1"):
            found = replace(found, lambda1=first)
        if self.is_auto("lambda2") and "lambda2" in self.used:
            found = replace(found, lambda2=0.75 * found.lambda1)
        return found

    @property
    def may_stream(self) -> bool:
        """Whether correlations of very many variables need not be held all at once."""
        return self._row.client in _STREAMING and self.screening and not self.subsamples

    def streams(self, variables: int) -> bool:
        """Whether those of so many variables are not."""
        return self.may_stream and variables > STREAM_FROM

    @property
    def used(self) -> frozenset[str]:
        """The settings, kebab-case, that have an effect in the run's method."""
        return self._row.settings

    @property
    def sends_data(self) -> bool:
        """Whether clients send their raw data."""
        return self._row.client == "client_app:data"

    @property
    def _row(self) -> Method:
        return METHODS.row(self.method, self.privacy)

    def _check_path(self) -> None:
        if self.path and self.lambda1 <= 0.0 and not self.is_auto("lambda1"):
            raise ConfigError(f"lambda1={self.lambda1}: the end of a path must be > 0")
        if self.choose == "stability" and not (self.path and self.subsamples):
            raise ConfigError(
                "choose='stability': needs path and subsamples, such as path=20 and subsamples=10"
            )
        if self.subsamples and not self.path:
            raise ConfigError(f"subsamples={self.subsamples}: needs path > 0")

    @property
    def penalised(self) -> bool:
        """Whether the objective has a minimum even where correlation matrices are singular."""
        if self.lambda1 > 0.0 or self.is_auto("lambda1"):
            return True
        return self.joint_penalty == "group" and (self.lambda2 > 0.0 or self.is_auto("lambda2"))

    @property
    def joint_penalty(self) -> str:
        """The penalty that joins the clients' matrices; a method of clients apart has its own."""
        return self.penalty if "penalty" in self.used else self.method

    def sample_counts(self) -> list[int]:
        """Return the number of synthetic samples of every client."""
        return self.by_client("samples", 2)
