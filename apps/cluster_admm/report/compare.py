"""The study's methods on the same synthetic data, with the same seed, by simulation.

Every method gets the run's settings: data, servers, rounds, rho, tau, noise. As many clients take
part in a round in all of them: ``fedavg`` has one server, which draws as many as the others do
together. Clusters are given, also where the run had to find them. ``local`` sends nothing, so no
client takes part in it and no noise is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.enrolment import StudyError

from ..config import ClusterAdmmConfig
from ..methods import METHODS
from ..simulate import Simulation, simulate

# What all methods together may take, by a count of their operations: a clock would make two reports
# of one run differ.
MOST_SECONDS = 0.6
COMPARED = ("pgfl", "gfl", "clusterfl", "local", "fedavg")
NOISY = {(row.method, row.privacy) for row in METHODS.rows if row.has("phi0")}
MOST_NUMBERS = 10_000_000  # K D d, of the synthetic data
_DATA = 2e-4  # seconds a client, for its data and what all methods begin with
_CLIENT, _NUMBER, _NOISE = 1e-6, 3e-9, 15e-6  # seconds a client and round, a number of X, a draw


@dataclass(frozen=True)
class Comparison:
    """What the methods reached.

    Attributes
    ----------
    rounds : T, of all methods
    found : method -> its simulation, in the order of `COMPARED`
    missing : method -> why there is none, such as divergence
    """

    rounds: int
    found: dict[str, Simulation]
    missing: dict[str, str]


def compare(config: ClusterAdmmConfig, seed: int) -> Comparison:
    """Run all methods for ``config.rounds``.

    Raises
    ------
    ConfigError
        For another loss than ``ridge``, which alone can be simulated.
    """
    if config.loss != "ridge":
        raise ConfigError(f"loss={config.loss!r}: only ridge can be simulated without messages")
    found: dict[str, Simulation] = {}
    missing: dict[str, str] = {}
    for method in COMPARED:
        try:
            # On its way to infinity a method overflows; that is what it is told by.
            with np.errstate(all="ignore"):
                found[method] = simulate(as_method(config, method), seed)
        except (StudyError, ValueError, OSError) as error:
            missing[method] = str(error)
    return Comparison(config.rounds, found, missing)


def as_method(config: ClusterAdmmConfig, method: str) -> ClusterAdmmConfig:
    """Return the settings for another method, with as many clients a round."""
    homes = np.arange(config.clients) * config.servers // config.clients
    sizes = np.bincount(homes, minlength=config.servers)
    sample = config.sample
    if method == "fedavg" != config.method:
        drawn = int(np.minimum(sample, sizes).sum()) if sample else 0
        sample = 0 if drawn == config.clients else drawn
    elif config.method == "fedavg" != method and sample:
        sample = max(1, round(sample / config.servers))
    privacy = config.privacy if (method, config.privacy) in NOISY else "none"
    return config.as_method(method, privacy, sample=sample, clusters=str(config.cluster_count))


def affordable(config: ClusterAdmmConfig) -> int:
    """Return how many of ``config.rounds`` a comparison may have, to be there at once."""
    most, size, methods = config.sample_range()[1], config.features, len(COMPARED) - 1
    if config.clients * most * size > MOST_NUMBERS:
        return 0
    # Cholesky and triangular solve; the singular values of ``local`` are of the same order.
    begin = config.clients * (_DATA + methods * most**2 * (most + size) * 1e-9)
    each = _CLIENT + _NUMBER * most * size + (_NOISE if config.privacy != "none" else 0.0)
    drawn = as_method(config, "fedavg").sample or config.clients
    mixing = config.servers**2 * config.cluster_count * size * 1e-9
    left = (MOST_SECONDS - begin) / (methods * (drawn * each + mixing))
    return int(min(config.rounds, max(left, 0.0)))
