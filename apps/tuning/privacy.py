"""What tuning would cost devices: every run about the same records is one more release of them.

Two ways of sharing out a budget (E, D) among n runs, both proven and both for runs chosen one after
the other:

- Where a run is noisy sums of all records (consensus-graph, joint-precision, cluster-admm), its
  epsilon comes from zCDP [BS]_, which adds up: each run may have rho(E, D) / n, and gets the
  epsilon that is at D. About E / sqrt(n).
- Anywhere else (batches drawn in secret, pure epsilon) plain composition holds whatever the
  mechanism: n runs that are (E / n, D / n)-private are (E, D)-private together.

What was really released is taken from the runs' ledgers and added up per client by
`privacy.accounting.totals`; a run that released more than its part is an error. A ledger that names
no releases (noise between servers) counts with the epsilon it tells, a run that failed with its
whole part: it is not made again. One that an interruption cut short is, from the same seed: the
same noise, and so the same releases, which count once.

Adversary and neighbours are those of the runs' own claims. **Not covered: the choice.** The scores
by which settings are chosen here are exact; they exist because all clients are simulated on one
machine. Devices tell nobody theirs.

.. [BS] M. Bun, T. Steinke, Concentrated differential privacy, TCC 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trellis.apps.common.settings import ConfigError, Scalar, StudyConfig, config_class

from .runs import Found, Releases

# Whose noisy sums are of all records and take their noise from zCDP.
_ADDING_UP = ("consensus-graph", "joint-precision", "cluster-admm")
_ROUNDING = 1e-9

SIMULATED = (
    "All of this is a simulation on one machine that holds all data: noise comes from the seed, "
    "nothing is really spent, and nobody is protected. It is what the runs would cost devices."
)
EXACT_SCORES = (
    "Settings were chosen by the exact scores of simulated clients. Such scores exist in "
    "simulations only: devices keep theirs, and no epsilon here covers what the choice tells."
)
BY_HEADLINE = (
    "Settings were chosen by a headline number of the runs. Where that number is released with "
    "noise, what the runs spend covers the choice too; where only a simulation knows it, nothing "
    "does."
)
FREE = (
    "What costs nothing: tune without --data, on synthetic data of the same size (--set clients=, "
    "and the study's sizes); tune on data that are public (--public); or leave the choice to the "
    "devices: what is a client's own is chosen at home, from its raw data, and told to nobody."
)


@dataclass(frozen=True)
class Share:
    """What one run gets of the budget for all runs.

    Attributes
    ----------
    total, delta : what all runs together may spend
    runs : how many there are
    epsilon, run_delta : what one run may spend
    rho : the zCDP of one run, where runs add up by it; None where plain composition holds
    """

    total: float
    delta: float
    runs: int
    epsilon: float
    run_delta: float
    rho: float | None

    def settings(self) -> dict[str, Scalar]:
        """Return the settings of a run that spends its part."""
        return {"epsilon": self.epsilon, "delta": self.run_delta}

    def check(self, found: Found) -> None:
        """Refuse a run that released more than its part.

        Raises
        ------
        RuntimeError
            For the first such client.
        """
        from trellis.privacy.accounting.totals import total_epsilon, total_rho

        if found.told > self.epsilon * (1.0 + _ROUNDING):
            raise RuntimeError(
                f"a run spent {found.told:.6g} where {self.epsilon:.6g} was its part of --spend "
                f"{self.total:g}; tuning is stopped"
            )
        for names, releases in found.spent:
            events = _events(releases)
            if self.rho is not None:
                spent, most = total_rho(events), self.rho
            else:
                spent, most = total_epsilon(events, self.run_delta), self.epsilon
            if spent > most * (1.0 + _ROUNDING):
                raise RuntimeError(
                    f"{names[0]}: a run released {spent:.6g} where {most:.6g} was its part of "
                    f"--spend {self.total:g}; tuning is stopped"
                )


def is_private(settings: Mapping[str, Any]) -> bool:
    """Return whether runs with these settings are under ``privacy = "dp"``."""
    return settings.get("privacy", "none") == "dp"


def adds_up(config: StudyConfig) -> bool:
    """Return whether what a run with this config may spend adds up by zCDP."""
    return config.study in _ADDING_UP and config.sums


def share(
    study: str, settings: Sequence[Mapping[str, Any]], total: float, delta: float, runs: int
) -> Share:
    """Return what each of ``runs`` runs may spend, so that all spend ``total`` at most."""
    if not (total > 0.0 and math.isfinite(total)):
        raise ConfigError(f"--spend {total:g}: the budget of all runs must be > 0")
    from trellis.privacy.accounting.zcdp import zcdp_epsilon, zcdp_rho

    config = config_class(study)
    if all(adds_up(config.from_settings(each)) for each in settings):
        rho = zcdp_rho(total, delta) / runs
        # A hair less, so that what a run makes of its epsilon is not above its part by a rounding.
        return Share(total, delta, runs, zcdp_epsilon(rho, delta) * (1.0 - 1e-9), delta, rho)
    return Share(total, delta, runs, total / runs, delta / runs, None)


def refusal(study: str, runs: int, epsilon: float, delta: float, adding: bool) -> str:
    """Return why tuning on private data is refused without a budget, in words."""
    together = composed(runs, epsilon, delta) if adding else runs * epsilon
    return (
        f"privacy='dp': tuning looks at the data once per run, and these are {runs} runs of "
        f"{study}. With epsilon={epsilon:g} each, devices would spend {together:.3g} in all. Say "
        "what tuning may spend in all, --spend EPSILON: every run then gets its part of it. "
        f"{FREE} In a simulation nothing is really spent."
    )


def composed(runs: int, epsilon: float, delta: float) -> float:
    """Return what runs of ``epsilon`` each spend together where they add up by zCDP."""
    from trellis.privacy.accounting.zcdp import zcdp_epsilon, zcdp_rho

    return min(zcdp_epsilon(runs * zcdp_rho(epsilon, delta), delta), runs * epsilon)


def spent_by_all(found: Iterable[Found], delta: float, part: Share | None = None) -> float:
    """Return the most that any client spent in all runs together, at ``delta``, by the ledgers.

    ``part`` is what a run may spend: runs of which it is not known count with all of it. Without
    one, the deltas of ledgers that name no releases add up beside ``delta``.
    """
    from trellis.privacy.accounting.totals import total_epsilon

    found = list(found)
    runs = [one.spent for one in found if one.spent]
    unknown = sum(one.unknown for one in found) if part is not None else 0
    plain = math.fsum(one.told for one in found)
    others: list[Any] = []
    if part is not None and part.rho is not None:
        others = [_of_rho(part.rho, delta)] * unknown
    elif part is not None:
        plain += unknown * part.epsilon
        delta -= part.run_delta * (unknown + sum(one.told > 0.0 for one in found))
    of_client: dict[str, list[int]] = {}
    for number, groups in enumerate(runs):
        for place, (names, _) in enumerate(groups):
            for name in names:
                of_client.setdefault(name, [-1] * len(runs))[number] = place
    worst = total_epsilon(others, delta) if others else 0.0
    # Clients that were in the same group in every run have the same total.
    for places in {tuple(each) for each in of_client.values()}:
        events = [
            event
            for groups, place in zip(runs, places, strict=True)
            if place >= 0
            for event in _events(groups[place][1])
        ]
        worst = max(worst, total_epsilon([*events, *others], delta) if events else 0.0)
    return worst + plain


def _of_rho(rho: float, delta: float) -> Any:
    """Return a release that is ``rho``-zCDP."""
    from trellis.privacy.accounting.events import PrivacyEvent
    from trellis.privacy.accounting.zcdp import zcdp_epsilon

    epsilon, sigma = zcdp_epsilon(rho, delta), 1.0 / math.sqrt(2.0 * rho)
    return PrivacyEvent("run", "", 0, epsilon, delta, sigma, 1.0, "summed-gaussian")


def _events(releases: Releases) -> list[Any]:
    from trellis.privacy.accounting.events import PrivacyEvent

    return [
        PrivacyEvent.from_record({"name": "run", "what": "", "round": 0, **record})
        for record, times in releases
        for _ in range(times)
    ]
