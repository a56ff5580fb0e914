"""Settings of the joint-precision study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from trellis.apps.common.settings import ConfigError, ReleaseConfig, Scalar

JOINT_METHODS = ("group", "fused")
# Of more variables no client holds a correlation matrix: its entries go by, see `large`.
STREAM_FROM = 5000


@dataclass(frozen=True, kw_only=True)
class JointPrecisionConfig(ReleaseConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    rounds : most rounds to run, for every point of a path
    tolerance : stop at this duality gap (the objective is at most so far from its minimum); 0 runs
        all rounds [the objective's own]
    method : ``group`` or ``fused``, the penalty that joins the clients' matrices; baselines
        ``glasso`` and ``clime`` (every client alone), ``pooled`` (all data in one
        place, or one noisy sum)
    lambda1 : sparsity of every client's matrix; ``auto`` is 0.8 sqrt(log p / n) for p variables and
        n samples, less where a path is chosen from [correlation]
    lambda2 : how alike the clients' matrices are made; ``auto`` is three quarters of lambda1
        [correlation]
    rho : weight of the augmented Lagrangian at the start; adapted on the way [no unit]
    correlation : ``kendall`` (for data of any margins), ``spearman`` or ``pearson``
    indefinite : what a client does with a correlation matrix that is not positive semidefinite:
        ``project`` it to the nearest by its eigenvalues, or ``refuse``
    one_exchange : ``on``, the server is sent every client's correlation matrix once and does the
        rest by itself, the certificate too. ``auto`` is on where that tells nothing new, with
        ``privacy = "sound"`` and ``release = "each"``, whose matrices are released already; with
        ``privacy = "none"`` it also tells the small entries between blocks of variables
    acceleration : ``auto``, the server takes the steps between by itself once clients' replies have
        told it their matrices, and they certify where it ended; ``off`` asks for every step
    screening : split the variables into blocks that cannot be connected, before the first round
    noise : ``discrete``, on a grid, which floating point cannot undo; ``gaussian``, in simulation
        only; ``auto`` is discrete on devices and gaussian in simulation (sound only)
    wire : ``float64`` or ``float32``, the numbers between clients and server
    path : how many points from an empty graph down to lambda1 are learned and chosen from, lambda2
        in the same proportion; 0 is none [points]
    choose : the point of a path to keep: by ``ebic`` (the extended Bayesian information criterion)
        or by ``stability`` (over random parts of the data)
    gamma : how much sparser the choice is than by the classic Bayesian information criterion; 0 is
        that one (at n = 150 and p = 54, 0.5 chose an empty graph) [no unit]
    subsamples : how often the path is run again on a random part of the data, for
        ``choose=stability`` [runs]
    penalty : ``group`` or ``fused``, for method ``pooled``
    release : ``sum`` (the default of ``sound`` where it can be) makes one noisy sum of all clients'
        concordances and a consensus from it; ``each`` noises every client's tau by itself
    personal : with sums, ``device`` makes every client's own graph from its raw samples and the
        consensus, and keeps it there; ``server`` gives everyone the consensus. lambda1 and path are
        then those of the devices' own graphs; the consensus takes its lambda from the noise
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
    methods: ClassVar[tuple[str, ...]] = (*JOINT_METHODS, "glasso", "clime", "pooled")
    auto_settings: ClassVar[tuple[str, ...]] = ("lambda1", "lambda2")
    own_data: ClassVar[Mapping[str, Scalar]] = {
        **ReleaseConfig.own_data,
        "lambda1": "auto",
        "lambda2": "auto",
        "path": 8,
    }

    rounds: int = 200
    tolerance: float = 1e-6
    clients: int = 3
    method: str = "group"
    lambda1: float = 0.1
    lambda2: float = 0.05
    rho: float = 1.0
    correlation: str = "kendall"
    indefinite: str = "project"
    one_exchange: str = "auto"
    acceleration: str = "auto"
    screening: bool = True
    noise: str = "auto"
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
        self.one_of("noise", ("auto", "gaussian", "discrete"))
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
        self.one_of("acceleration", ("auto", "off"))
        self.switch("one_exchange")
        self._check_privacy()
        if self.switch("one_exchange") == "on" and not self._may_exchange_once:
            raise ConfigError(
                "one-exchange='on': for method group or fused with privacy='none', or with "
                "privacy='sound' and release='each', without subsamples, sample and norm-bound, "
                "which are of rounds"
            )
        alone = "" if self.method in JOINT_METHODS else f"method={self.method!r} has no rounds"
        penalty = "the clients' matrices meet in a penalty, not in a mean"
        self.refuse_robust(alone=alone, no_mean=penalty)

    @classmethod
    def for_own_data(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings for own data: a path to choose from, unless a penalty is given.

        CLIME has none: at small penalties its problem has no solution.
        """
        found = super().for_own_data(given)
        if given.get("method") == "clime" or not {"lambda1", "lambda2", "path"}.isdisjoint(given):
            found |= {"path": 0, **given}
        return found

    @property
    def chosen_later(self) -> bool:
        """Whether penalties wait for what enrolment tells."""
        return self.is_auto("lambda1") or self.is_auto("lambda2")

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
        alone = self.method in ("glasso", "clime")
        share = 0.1 if self.path else 1.2 if alone else 0.8
        first = min(share * noise, 0.95)
        first = first if self.is_auto("lambda1") else self.lambda1
        second = 0.75 * first if self.is_auto("lambda2") else self.lambda2
        return replace(self, lambda1=first, lambda2=second)

    @property
    def may_stream(self) -> bool:
        """Whether correlations of very many variables need not be held all at once."""
        if self.privacy == "sound" or not self.screening or self.subsamples:
            return False
        joint = self.method in JOINT_METHODS and not self.exchanges_once
        return joint or self.method == "glasso"

    def streams(self, variables: int) -> bool:
        """Whether those of so many variables are not."""
        return self.may_stream and variables > STREAM_FROM

    @property
    def _may_exchange_once(self) -> bool:
        known = self.privacy == "none" or (self.privacy == "sound" and not self.sums)
        by_rounds = self.sample or self.norm_bound or self.subsamples
        return known and self.method in JOINT_METHODS and not by_rounds

    @property
    def exchanges_once(self) -> bool:
        """Whether the server is sent every client's correlation matrix and does the rest."""
        switch = self.switch("one_exchange")
        if switch == "auto":
            # Rounded matrices are others, and nobody would certify the clients' own.
            told = self.privacy == "sound" and self.wire == "float64" and self.tolerance > 0.0
            return told and self._may_exchange_once
        return switch == "on"

    @property
    def accelerated(self) -> bool:
        """Whether the server takes steps by itself; tolerance 0 is all rounds as they are."""
        asked = self.acceleration == "auto" and self.tolerance > 0.0
        return asked and not self.sample and not self.norm_bound

    def _check_path(self) -> None:
        if self.path and self.lambda1 <= 0.0 and not self.is_auto("lambda1"):
            raise ConfigError(f"lambda1={self.lambda1}: the end of a path must be > 0")
        if self.choose == "stability" and not (self.path and self.subsamples):
            raise ConfigError(
                "choose='stability': needs path and subsamples, such as path=20 and subsamples=10"
            )
        if self.subsamples and (not self.path or self.method not in JOINT_METHODS):
            raise ConfigError(
                f"subsamples={self.subsamples}: needs path > 0 and method group or fused"
            )
        if self.subsamples and self.privacy == "sound":
            raise ConfigError(
                f"subsamples={self.subsamples}: every subsample is one more release of the data, "
                "and privacy='sound' makes one in all; use choose='ebic'"
            )

    def sum_obstacle(self) -> str:
        """Return why there can be no one noisy sum with these settings; nothing if there can."""
        if self.method in ("glasso", "clime"):
            return (
                f"method={self.method!r} lets every client learn alone, there is nothing to sum; "
                "use method group, fused or pooled"
            )
        if self.correlation != "kendall":
            return f"correlation={self.correlation!r}: the sum is of concordances; use kendall"
        if self.lambda1 <= 0.0 and not self.is_auto("lambda1"):
            return f"lambda1={self.lambda1}: devices' own graphs need lambda1 > 0"
        for name, free in (("norm_bound", 0.0), ("sample", 0), ("indefinite", "project")):
            if getattr(self, name) != free:
                return (
                    f"{name.replace('_', '-')}={getattr(self, name)!r} is for replies one by one, "
                    f"and here there is one sum over all clients; use {free!r}"
                )
        return self.few_for_a_sum()

    @property
    def can_keep(self) -> bool:
        """Whether devices can make graphs of their own: from a consensus, with a joint method."""
        return self.sums and self.method in JOINT_METHODS

    def _check_privacy(self) -> None:
        if self.privacy == "sound" and self.correlation != "kendall":
            raise ConfigError(
                f"correlation={self.correlation!r}: one sample moves it by an amount nobody has "
                "bounded; privacy='sound' needs correlation='kendall'"
            )
        if self.privacy == "sound" and self.method == "pooled" and not self.sums:
            raise ConfigError(
                "method='pooled' with release='each' sends the raw data; it cannot be private"
                + (f". release='sum': {self.sum_obstacle()}" if self.sum_obstacle() else "")
            )

    @property
    def penalised(self) -> bool:
        """Whether the objective has a minimum even where correlation matrices are singular."""
        penalty = self.penalty if self.method == "pooled" else self.method
        if self.lambda1 > 0.0 or self.is_auto("lambda1"):
            return True
        return penalty == "group" and (self.lambda2 > 0.0 or self.is_auto("lambda2"))

    def sample_counts(self) -> list[int]:
        """Return the number of synthetic samples of every client."""
        return self.by_client("samples", 2)
