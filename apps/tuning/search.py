"""Which settings to try: all points of a grid, or those that Optuna proposes.

A search is asked for settings until it has no more, and told what came of them. What it proposes
depends on what it was told and on the seed, never on how many runs there are side by side: so a
search that was interrupted and starts anew proposes the same again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from trellis.apps.common.settings import Scalar
from trellis.install import pip_install

from .plan import Plan
from .space import Space
from .trials import Trial, Values

if TYPE_CHECKING:
    import optuna

# Settings that Optuna proposes before it is told what came of them. More keep more cores busy, and
# know less; a fixed number, so that the same seed proposes the same on every machine.
AT_ONCE = 4
_DIGITS = 6  # significant ones of a proposed number


class Search(Protocol):
    """What proposes settings."""

    def ask(self) -> list[Values]:
        """Return the settings to try next; none where the search is over."""

    def tell(self, trial: Trial, value: float | None) -> None:
        """Take what came of a trial: its mean over the splits, None where there is none."""


class Grid:
    """All points at once, the default first."""

    def __init__(self, plan: Plan) -> None:
        self._left = [trial.values for trial in plan.candidates]

    def ask(self) -> list[Values]:
        """Return all settings, once."""
        left, self._left = self._left, []
        return left

    def tell(self, trial: Trial, value: float | None) -> None:
        """Take what came of a trial; a grid does not care."""


class Optuna:
    """A tree-structured Parzen estimator: numbers near good ones are tried more often."""

    def __init__(self, plan: Plan, lower: bool | None) -> None:
        try:
            import optuna
        except ImportError as error:
            raise ImportError(f"--search optuna needs Optuna: {pip_install('tune')}") from error
        self._plan = plan
        self._left = plan.count
        self._lower = lower
        self._open: dict[Values, list[optuna.trial.Trial]] = {}
        self._distributions = {space.key: _distribution(space) for space in plan.spaces}
        with _quiet():
            sampler = optuna.samplers.TPESampler(seed=plan.seeds[0], constant_liar=True)
            self._study = optuna.create_study(sampler=sampler, direction="minimize")

    def ask(self) -> list[Values]:
        """Return the default first, then a few proposals at a time."""
        if self._left == self._plan.count:
            self._left -= 1
            return [self._plan.default]
        asked = []
        with _quiet():
            for _ in range(min(AT_ONCE, self._left)):
                trial = self._study.ask(self._distributions)
                values = tuple(_neat(trial.params[s.key], s) for s in self._plan.spaces)
                self._open.setdefault(values, []).append(trial)
                asked.append(values)
        self._left -= len(asked)
        return asked

    def tell(self, trial: Trial, value: float | None) -> None:
        """Take what came of a trial: a mean, or that there is none."""
        import optuna

        loss = None if value is None else value if self._is_lower(trial) else -value
        with _quiet():
            for asked in self._open.pop(trial.values, []):
                if loss is None:
                    self._study.tell(asked, state=optuna.trial.TrialState.FAIL)
                else:
                    self._study.tell(asked, loss)
            first = trial.values == self._plan.default and not self._study.trials
            spaces = zip(self._plan.spaces, trial.values, strict=True)
            if first and loss is not None and all(space.holds(value) for space, value in spaces):
                self._study.add_trial(self._known(loss))

    def _is_lower(self, trial: Trial) -> bool:
        known = [found.lower for found in trial.found.values() if not found.error]
        return known[0] if known else bool(self._lower)

    def _known(self, loss: float) -> Any:
        from optuna.trial import create_trial

        spaces, default = self._plan.spaces, self._plan.default
        return create_trial(
            params={space.key: value for space, value in zip(spaces, default, strict=True)},
            distributions=self._distributions,
            value=loss,
        )


def make_search(plan: Plan) -> Search:
    """Return the search that a plan asks for."""
    return Grid(plan) if plan.search == "grid" else Optuna(plan, plan.lower)


def _distribution(space: Space) -> Any:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if space.low is None or space.high is None:
        return CategoricalDistribution(space.values)
    if space.whole:
        return IntDistribution(int(space.low), int(space.high), log=space.log)
    return FloatDistribution(space.low, space.high, log=space.log)


def _neat(value: Scalar, space: Space) -> Scalar:
    """Return a proposed number with few digits, as people write and read settings."""
    if space.low is None or space.high is None or not isinstance(value, float):
        return value
    return min(max(float(f"{value:.{_DIGITS}g}"), space.low), space.high)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Optuna say nothing: what it has to say is in the table."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant_liar is called experimental
            yield
    finally:
        optuna.logging.set_verbosity(before)
