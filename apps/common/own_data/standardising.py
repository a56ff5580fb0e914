"""What a server does for the setting ``standardise``: offsets and scales found, told, and sent.

Called when clients have enrolled, before the first round; `scaling` has the mathematics and why it
is safe, `units` how the numbers are found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.apps.common.own_data import units
from trellis.apps.common.own_data.scaling import Scaling, StandardisedConfig, public_scaling
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.declared import Client
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.rounds import Rounds

log = logging.getLogger("trellis.run")

Array = NDArray[np.float64]
Layout = Mapping[str, tuple[int, ...]]
# Asks all clients for one secure sum of these arrays; returns it, and the deviation of its noise.
Ask = Callable[[Grid, Layout], tuple[Mapping[str, Array], float]]


def standardise(
    strategy: Rounds,
    config: StandardisedConfig,
    result: RunResult,
    clients: Sequence[Client],
    *,
    numbers: bool,
    ask: Ask | None = None,
) -> None:
    """Have a strategy's clients standardise their features, where the settings say so.

    Parameters
    ----------
    numbers : whether targets are numbers, which are standardised too
    ask : for a secure sum over all clients; None where it comes another way

    Raises
    ------
    ConfigError, StudyError
        Where it cannot be done as it is asked for.
    """
    apart = hasattr(strategy.network, "mail")
    if apart and config.standardise == "shared":
        raise ConfigError(
            "standardise='shared': servers with SuperLinks of their own have no sum over all "
            "clients; use standardise='public' and scales"
        )
    way, names = config.units(apart), clients[0].variables
    if way == "none":
        if config.standardise == "auto":
            why = "servers are apart" if apart else config.shared_obstacle()
            tell(
                result,
                f"standardise=none (auto: {why}). Features are taken as they are, without an "
                "intercept; name their public offsets and scales by scales to have both.",
            )
        return
    strategy.intercept = True
    if way == "public":
        take(strategy, config, result, public_scaling(config.scales, names, numbers))
    elif way == "told":
        count = len(names) + int(numbers)
        odd = [c.name for c in clients if not c.moments or len(c.moments[1]) != count]
        if odd:
            raise StudyError(f"standardise: {', '.join(odd)} did not tell sums of their features")
        take(strategy, config, result, units.pooled([c.moments for c in clients], numbers))
        if numbers and all(units.looks_like_labels(c.moments) for c in clients):
            tell(
                result,
                "Targets y are labels, 0 and 1 or -1 and 1, as it seems: loss=logistic learns to "
                "tell them apart, and says how many of them are right.",
            )
    elif ask is not None:
        strategy.find_preprocessing = _finder(strategy, config, result, len(names), numbers, ask)


def _finder(
    strategy: Rounds,
    config: StandardisedConfig,
    result: RunResult,
    features: int,
    numbers: bool,
    ask: Ask,
) -> Callable[[Grid], None]:
    columns = features + int(numbers)

    def find(grid: Grid) -> None:
        if config.units() == "summed":
            total, _ = ask(grid, units.summands_layout(columns))
            take(strategy, config, result, units.from_sum(total, numbers))
            return
        total, sigma = ask(grid, counts_layout(columns))
        take_counts(strategy, config, result, total[units.COUNTS], sigma, numbers)

    return find


def counts_layout(columns: int) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of a noisy sum of counts."""
    return {units.COUNTS: (columns, units.SIDES)}


def take_counts(
    strategy: Rounds,
    config: StandardisedConfig,
    result: RunResult,
    total: Array,
    sigma: float,
    numbers: bool,
) -> None:
    """Take the scaling from a noisy sum of counts, and say what noise hides."""
    scaling, hidden = units.from_counts(total, sigma, numbers)
    take(strategy, config, result, scaling)
    if hidden:
        names = [*strategy.clients[0].variables, "y"]
        shown = ", ".join(names[place] for place in hidden[:8])
        more = f" and {len(hidden) - 8} more" if len(hidden) > 8 else ""
        tell(
            result,
            f"Noise hides the scale of {shown}{more}: the largest that was found is taken, 1 where "
            "there is none. More records, a larger epsilon, or public scales help.",
        )


def take(
    strategy: Rounds,
    config: StandardisedConfig,
    result: RunResult,
    scaling: Scaling,
) -> None:
    """Send a scaling with every message from now on, and say how it was found."""
    checked = Scaling.from_arrays(scaling.as_arrays())
    assert checked is not None
    strategy.preprocessing = checked.as_arrays()
    auto = "auto: " if config.standardise == "auto" else ""
    how = _HOW[config.units()]
    tell(
        result,
        f"standardise={'public' if config.scales else 'shared'} ({auto}{how}). Models are in "
        "standardised units, the intercept last; offset and scale are in result.npz.",
    )


def tell(result: RunResult, note: str) -> None:
    """Say what was chosen in the log and among the notes of a run."""
    log.info("%s", note)
    result.notes.append(note)


_HOW = {
    "public": "the offsets and scales that were given",
    "told": "every client told the count, means and deviations of its columns at enrolment",
    "summed": "means and deviations from one secure sum over all clients",
    "noisy": "octaves from one noisy secure sum over all clients, a tenth of the budget",
}
