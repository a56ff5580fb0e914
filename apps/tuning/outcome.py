"""What a tuning found: the best settings, the table of all that were tried, what it would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.apps.common.settings import ConfigError

from . import privacy
from .plan import Plan
from .trials import Gain, Trial, as_good, best_of, gain

BEST, DEFAULT = "best", "the settings before"
AS_GOOD = "within one standard error of the best"


@dataclass(frozen=True)
class Tuning:
    """What a tuning found.

    Attributes
    ----------
    plan : what was asked
    trials : what was tried, the default first; skipped and failed ones among them
    complete : whether all of it was done
    seconds : how long it took, this time
    folder : where it is kept; None where it is not
    """

    plan: Plan
    trials: list[Trial]
    complete: bool = True
    seconds: float = 0.0
    folder: Path | None = None

    @property
    def measure(self) -> str:
        """The name of the number that settings were judged by."""
        return next((found.measure for found in self._found() if found.measure), self.plan.by)

    @property
    def lower(self) -> bool:
        """Whether less of it is better."""
        return next((found.lower for found in self._found() if not found.error), False)

    @property
    def scored(self) -> bool:
        """Whether it is a score on held-out records, and not a headline number."""
        return any(found.scored for found in self._found())

    @property
    def best_trial(self) -> Trial:
        """The trial with the best mean over the splits.

        Raises
        ------
        ConfigError
            Where no trial ended well on all splits; says why the first did not.
        """
        best = best_of(self.trials, self.plan.seeds, self.lower)
        if best is None:
            reasons = [
                text for t in self.trials for text in ([t.refused] * bool(t.refused) + t.failures())
            ]
            why = f": {reasons[0]}" if reasons else ""
            raise ConfigError(f"no setting was run to its end on all splits{why}")
        return best

    @property
    def default_trial(self) -> Trial:
        """The trial of the settings as they were before."""
        return next(trial for trial in self.trials if trial.values == self.plan.default)

    @property
    def best(self) -> dict[str, Any]:
        """The settings to take: those that were given, and the best of those that were tuned."""
        return self.plan.chosen(self.best_trial.values)

    @property
    def value(self) -> float:
        """What the best settings are worth, in the mean over the splits."""
        return self.best_trial.mean

    @property
    def default_value(self) -> float:
        """What the settings before are worth; nan where they could not be run."""
        return self.default_trial.mean

    @property
    def gain(self) -> Gain | None:
        """By how much the best is better than the settings before, split by split."""
        return gain(self.best_trial, self.default_trial, self.lower)

    @property
    def spent(self) -> float | None:
        """What all runs together would cost a device, by their ledgers; None without privacy."""
        if not self.plan.private:
            return None
        return privacy.spent_by_all(self._found(), self.plan.delta, self.plan.share)

    @property
    def unknown(self) -> int:
        """How many runs failed so that nothing is known of what they released."""
        return sum(found.unknown for found in self._found())

    def ranked(self) -> list[Trial]:
        """Return the trials, the best first, then what failed or was refused."""
        sign = 1.0 if self.lower else -1.0
        best = best_of(self.trials, self.plan.seeds, self.lower)
        done = [trial for trial in self.trials if trial.complete(self.plan.seeds) and trial.found]
        rest = [trial for trial in self.trials if trial not in done]
        return sorted(done, key=lambda trial: (trial is not best, sign * trial.mean)) + rest

    def rows(self) -> list[dict[str, Any]]:
        """Return the table, a row a setting, the best first; None where there is no number."""
        default = self.default_trial
        rows = []
        for trial in self.ranked():
            over = gain(trial, default, self.lower)
            row: dict[str, Any] = dict(zip(self.plan.keys, trial.values, strict=True))
            row |= {
                "mean": _known(trial.mean),
                "standard error": _known(trial.error),
                "gain": None if over is None else over.mean,
                "standard error of the gain": None if over is None else _known(over.error),
                "learning alone": trial.alone,
                "splits": len(trial.worth),
                "remark": self.remark(trial),
            }
            rows.append(row)
        return rows

    def table(self) -> Any:
        """Return the table as a pandas DataFrame, or as rows where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            return self.rows()
        return pandas.DataFrame(self.rows())

    def remark(self, trial: Trial) -> str:
        """Return what is to be said of a trial."""
        if trial.refused:
            return f"skipped: {trial.refused}"
        if failures := trial.failures():
            of = len(self.plan.seeds)
            return f"failed on {len(failures)} of {of} splits: {failures[0]}"
        if not trial.complete(self.plan.seeds):
            return "not done"
        best = best_of(self.trials, self.plan.seeds, self.lower)
        words = []
        if trial is best:
            words.append(BEST)
        elif best is not None and as_good(trial, best):
            words.append(AS_GOOD)
        if trial.values == self.plan.default:
            words.append(DEFAULT)
        return ", ".join(words)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        from .page import notebook

        return notebook(self)

    def _found(self) -> list[Any]:
        return [found for trial in self.trials for found in trial.found.values()]


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None


def in_words(tuning: Tuning) -> list[str]:
    """Return what was found, a sentence a line, for the terminal, the page and ``best.toml``."""
    from trellis.apps.pages.wording import counted, number

    plan, best = tuning.plan, tuning.best_trial
    better = "less is better" if tuning.lower else "more is better"
    where = "synthetic data" if plan.data is None else f"the data in {plan.data}"
    judged = (
        f"{tuning.measure} on the {plan.held_out:.0%} of every client's records that were held out"
        if tuning.scored
        else tuning.measure
    )
    lines = [
        f"Judged by {judged} ({better}), the mean over {counted(len(plan.seeds), 'split')} of "
        f"{where}."
    ]
    found = ", ".join(f"{k} = {v}" for k, v in zip(plan.keys, best.values, strict=True))
    lines.append(f"Best: {found}, with {_with_error(best.mean, best.error)}.")
    if edges := [
        space.key
        for space, value in zip(plan.spaces, best.values, strict=True)
        if space.is_range and value in (space.low, space.high)
    ]:
        lines.append(
            f"The best {' and '.join(edges)} stands at an end of what was tried: a wider range may "
            "hold a better one."
        )
    over = tuning.gain
    if best is tuning.default_trial:
        lines.append("These are the settings as they were: tuning found nothing better.")
    elif over is not None:
        sure = math.isfinite(over.error) and over.mean > 2.0 * over.error
        doubt = "" if sure else "; that is not clear of chance on so few splits"
        before = tuning.default_trial
        lines.append(
            f"The settings before have {_with_error(before.mean, before.error)}: better by "
            f"{_with_error(over.mean, over.error)}, split by split{doubt}."
        )
    if best.alone is not None:
        lines.append(f"Learning alone, on the same records, has {number(best.alone)}.")
    if len(tuning.trials) > 2:
        lines.append(
            "The best of many looks a little better than it is, because it was chosen by this "
            "number: run it on fresh data, or with another seed, before you report it."
        )
    return lines


def cost_in_words(tuning: Tuning) -> list[str]:
    """Return what tuning costs devices, a sentence a line; nothing without privacy."""
    plan, spent = tuning.plan, tuning.spent
    if spent is None:
        return []
    choice = privacy.EXACT_SCORES if tuning.scored else privacy.BY_HEADLINE
    if plan.data is None:
        return [
            "The data are synthetic: tuning on them costs no client anything.",
            choice,
        ]
    if plan.share is None:
        return [
            "You said that the data are public: nothing is counted.",
            choice,
        ]
    part = plan.share
    failed = ", those that failed counted with all they had" if tuning.unknown else ""
    how = "their zCDP adds up" if part.rho is not None else "plain composition"
    return [
        f"Every run is one more look at the data. {part.runs} runs with epsilon "
        f"{part.epsilon:.3g} each spend at most {part.total:g} together, at delta = "
        f"{part.delta:g} ({how}); by the ledgers of the runs made it was {spent:.4g}{failed}.",
        f"A run with the chosen settings spends its own epsilon besides. Settings that are best "
        f"with epsilon {part.epsilon:.3g} need not be best with more.",
        privacy.SIMULATED,
        choice,
    ]


def _with_error(mean: float, error: float) -> str:
    from trellis.apps.pages.wording import number

    known = f" (standard error {number(error)})" if math.isfinite(error) else ""
    return f"{number(mean)}{known}"


def unique(values: Sequence[Any]) -> list[Any]:
    """Return values once each: numbers in order, then the others as they come."""
    once = list(dict.fromkeys(values))
    numbers = sorted(v for v in once if isinstance(v, int | float) and not isinstance(v, bool))
    return numbers + [v for v in once if v not in numbers]
