"""Settings of the consensus-graph study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from apps.common.settings import ConfigError, StudyConfig

# Squares of clipped signals, and their sums, are ordinary floats in between.
_CLIPS = (1e-100, 1e100)


@dataclass(frozen=True, kw_only=True)
class ConsensusGraphConfig(StudyConfig):
    """Settings, under the names of the paper where it has one.

    Attributes
    ----------
    alpha : weight of the log barrier that keeps every node connected
    beta : ridge; larger gives more and smaller weights
    rho : how hard clients are pulled to the consensus
    lambda_ : sparsity of the consensus
    local_steps : K, accelerated gradient steps a round; 0 solves the local problem exactly
    step : eta_w, longest gradient step; 0 derives it from the problem
    noise : ``discrete``, on a grid, which floating point cannot undo; ``gaussian``, in simulation
        only; ``auto`` is discrete on devices and gaussian in simulation (sound only)
    secure_aggregation : masks what fedavg's clients send; the server learns the sum only
    clip : C, largest norm of one signal's vector of squared differences, where privacy is on
    nodes, signals, overlap : of the synthetic data: d, N_i (one number or ``20,40,60``) and q
    """

    study: ClassVar[str] = "consensus-graph"
    methods: ClassVar[tuple[str, ...]] = ("fedgl", "igl", "fedavg")

    method: str = "fedgl"
    alpha: float = 2.0
    beta: float = 0.05
    rho: float = 1.0
    lambda_: float = 0.3
    local_steps: int = 0
    step: float = 0.0
    clip: float = 25.0
    noise: str = "auto"
    secure_aggregation: bool = False
    nodes: int = 20
    signals: str = "50"
    overlap: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("alpha", "beta", "rho"):
            self.positive(name)
        self.at_least("lambda_", 0.0)
        self.at_least("local_steps", 0)
        self.at_least("step", 0.0)
        self.positive("clip")
        if not _CLIPS[0] <= self.clip <= _CLIPS[1]:
            raise ConfigError(f"clip={self.clip}: must be between {_CLIPS[0]:g} and {_CLIPS[1]:g}")
        self.one_of("noise", ("auto", "gaussian", "discrete"))
        if self.secure_aggregation and self.method != "fedavg":
            raise ConfigError(
                f"secure-aggregation=True: method={self.method!r} needs every client's graph by "
                "itself; only the rule of method='fedavg' is a sum"
            )
        self.at_least("nodes", 3)
        if not 0.0 <= self.overlap <= 1.0:
            raise ConfigError(f"overlap={self.overlap}: must be between 0 and 1")
        self.signal_counts()
        if self.secure_aggregation and min(self.clients, self.sample or self.clients) < 3:
            raise ConfigError(
                "secure-aggregation=True: needs at least three clients a round; of two the sum "
                "tells each what the other sent"
            )
        alone = "method='igl' has clients learn alone" if self.method == "igl" else ""
        self.refuse_robust(masked=self.secure_aggregation, alone=alone)
        if self.privacy == "paper" and (self.method != "fedgl" or self.local_steps < 1):
            raise ConfigError(
                f"privacy='paper' noises the last of K gradient steps of fedgl; it needs "
                f"method='fedgl' and local-steps >= 1, not method={self.method!r} and "
                f"local-steps={self.local_steps}"
            )

    def signal_counts(self) -> list[int]:
        """Return the number of synthetic signals of every client."""
        return self.by_client("signals", 2)
