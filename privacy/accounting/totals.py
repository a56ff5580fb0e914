"""What several releases about the same data add up to.

All totals are (epsilon, delta) for the neighbouring relation that the events' sensitivities were
computed for, against an adversary who sees every release and may choose each one knowing the ones
before. Releases of different clients' data do not add up: each client has its own total. Nothing is
claimed about what is not an event.

`total_epsilon` needs no library and is what a device uses. Gaussian releases compose exactly: seen
together they are one Gaussian release with ratio sqrt(sum ratio_t^2), so the exact formula of Balle
& Wang gives their total with nothing lost. (Not so discrete ones, whose delta is larger: they go by
zCDP.) Pure releases add up, and everything is zCDP; batches that were drawn in secret count as
`sampled` says. The smallest valid bound is taken.
`rdp_epsilon` and `pld_epsilon` ask Google's dp-accounting (``flwr[dp]``), as an independent opinion
in the report. Of sampled batches it knows one record put in or taken out, entered with twice the
length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from trellis.install import pip_install
from trellis.privacy.mechanisms.gaussian import gaussian_epsilon

from .events import GAUSSIAN, PURE, PrivacyEvent
from .sampled import spent_by
from .zcdp import zcdp_epsilon

_WHOLE_ORDERS = (*range(2, 65), *range(68, 129, 4), 160, 192, 256, 512)


def total_epsilon(events: Sequence[PrivacyEvent], delta: float) -> float:
    """Return the smallest epsilon we can prove for all ``events`` together, at ``delta``."""
    if not events:
        return 0.0
    pure = math.fsum(e.epsilon for e in events if e.mechanism in PURE)
    normal = [e for e in events if e.mechanism in GAUSSIAN]
    bounds = [total_zcdp_epsilon(events, delta)]
    if sampled := sampled_releases(events):
        rest = math.fsum(e.rho for e in events if e.sampling == 1.0)
        bounds.append(spent_by(sampled, delta, rest))
    if not normal:
        bounds.append(pure)
    elif pure:
        # (epsilon_1, delta) and (epsilon_2, 0) compose to (epsilon_1 + epsilon_2, delta).
        bounds.append(total_epsilon(normal, delta) + pure)
    elif all(e.mechanism == "gaussian" for e in normal):
        bounds.append(gaussian_epsilon(1.0, delta, gaussian_ratio(events)))
    return min(bounds)


def sampled_releases(events: Sequence[PrivacyEvent]) -> Counter[tuple[float, float]]:
    """Return how many releases of secretly drawn batches there are, by ratio and sampling."""
    return Counter((e.noise_ratio, e.sampling) for e in events if e.sampling < 1.0)


def gaussian_ratio(events: Sequence[PrivacyEvent]) -> float:
    """Return the ratio of the one release that all Gaussian ``events`` but sampled ones make."""
    return math.sqrt(
        math.fsum(e.noise_ratio**2 for e in events if e.mechanism in GAUSSIAN and e.sampling == 1.0)
    )


def total_rho(events: Sequence[PrivacyEvent]) -> float:
    """Return the zCDP of all events: rho adds up."""
    return math.fsum(e.rho for e in events)


def total_zcdp_epsilon(events: Sequence[PrivacyEvent], delta: float) -> float:
    """Return epsilon at ``delta`` by way of zCDP."""
    return zcdp_epsilon(total_rho(events), delta) if events else 0.0


def rdp_epsilon(events: Sequence[PrivacyEvent], delta: float) -> float:
    """Return epsilon at ``delta`` by dp-accounting's Renyi accountant."""
    library = dp_accounting("dp_accounting")
    # Orders between whole numbers take long for sampled releases, and do not always converge.
    orders = _WHOLE_ORDERS if sampled_releases(events) else None
    accountant = dp_accounting("dp_accounting.rdp").RdpAccountant(orders)
    if ratio := gaussian_ratio(events):
        accountant.compose(library.GaussianDpEvent(1.0 / ratio))  # Renyi divergences add up
    for (ratio, sampling), times in sampled_releases(events).items():
        one = library.PoissonSampledDpEvent(sampling, library.GaussianDpEvent(1.0 / ratio))
        accountant.compose(library.SelfComposedDpEvent(one, times))
    if rest := math.fsum(e.rho for e in events if e.mechanism not in GAUSSIAN):
        accountant.compose(library.ZCDpEvent(rest))
    return float(accountant.get_epsilon(delta)) if events else 0.0


def pld_epsilon(events: Sequence[PrivacyEvent], delta: float) -> float:
    """Return epsilon at ``delta`` by dp-accounting's privacy loss distributions.

    A pure mechanism other than Laplace's enters as the worst one with its epsilon.
    """
    if not events:
        return 0.0
    distributions = dp_accounting("dp_accounting.pld.privacy_loss_distribution")
    parameters = dp_accounting("dp_accounting.pld.common").DifferentialPrivacyParameters

    parts = []
    if ratio := gaussian_ratio(events):
        parts.append(distributions.from_gaussian_mechanism(1.0 / ratio))
    for (ratio, sampling), times in sampled_releases(events).items():
        one = distributions.from_gaussian_mechanism(1.0 / ratio, sampling_prob=sampling)
        parts.append(one.self_compose(times))
    pure = Counter((e.mechanism == "laplace", e.epsilon) for e in events if e.mechanism in PURE)
    for (is_laplace, epsilon), times in pure.items():
        one = (
            distributions.from_laplace_mechanism(1.0 / epsilon)
            if is_laplace
            else distributions.from_privacy_parameters(parameters(epsilon, 0.0))
        )
        parts.append(one.self_compose(times) if times > 1 else one)
    whole, *others = parts
    for other in others:
        whole = whole.compose(other)
    return float(whole.get_epsilon_for_delta(delta))


def dp_accounting(module: str) -> Any:
    """Return a module of dp-accounting; where it is not installed, say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this total needs dp-accounting: {pip_install('laptop')}") from error
