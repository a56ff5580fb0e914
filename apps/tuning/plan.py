"""What is asked of a tuning, checked before anything runs."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from trellis.apps.common.settings import (
    AUTO_WORD,
    ConfigError,
    Scalar,
    config_class,
    in_current_words,
)

from . import privacy
from .judging import CRITERIA
from .runs import Run
from .space import Space, count_of, read_spaces
from .trials import Trial, Values, named

SEARCHES = ("grid", "optuna")
_MOST_CHECKED = 20_000  # combinations; a grid of more is hardly meant


@dataclass(frozen=True)
class Plan:
    """A tuning: which settings, judged how.

    Attributes
    ----------
    study : a key of `apps.STUDIES`
    given : the settings that the user fixed, as they go into ``best.toml``
    held_out : share of every client's records by which settings are judged
    spaces : what the tuned settings may be
    data : the folder with the clients' files; None is the study's synthetic data
    seeds : one a split
    by, lower : see `trellis.apps.tuning.judging.judge`
    search, count : ``grid``, or ``optuna`` with so many settings
    default : the tuned settings as they were: given, or the study's own
    candidates : the whole grid and the default, first of all; those that the study refuses with
        the reason
    share : what a run may spend, where all runs have one budget
    public : whether the user says that the data are public
    """

    study: str
    given: Mapping[str, Any]
    held_out: float
    spaces: tuple[Space, ...]
    data: str | None
    seeds: tuple[int, ...]
    by: str
    lower: bool | None
    search: str
    count: int
    default: Values
    candidates: tuple[Trial, ...] = ()
    share: privacy.Share | None = None
    public: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that are tuned."""
        return tuple(space.key for space in self.spaces)

    @property
    def runs(self) -> int:
        """How many runs there are in all."""
        if self.search == "grid":
            return sum(not trial.refused for trial in self.candidates) * len(self.seeds)
        return self.count * len(self.seeds)

    @property
    def private(self) -> bool:
        """Whether the runs are under ``privacy = "dp"``."""
        return privacy.is_private(self.given)

    @property
    def delta(self) -> float:
        """The delta at which what is spent is told."""
        return float(self.given.get("delta", config_class(self.study).delta))

    def settings(self, values: Values) -> dict[str, Any]:
        """Return all settings of a run, but for its part of a budget."""
        return {
            **self.given,
            "held-out": self.held_out,
            **named(self.keys, self.with_effect(values)),
        }

    def chosen(self, values: Values) -> dict[str, Any]:
        """Return the settings that stand in ``best.toml``: what was given, and what was found."""
        return {**self.given, **named(self.keys, self.with_effect(values))}

    def with_effect(self, values: Values) -> Values:
        """Return the values with the study's default for what has no effect beside the others."""
        config, keys = config_class(self.study), self.keys
        settings = {**self.given, **named(keys, values)}
        usual = _default(self.study, self.spaces, {}, own=False)
        return tuple(
            value if config.has_effect(key, settings) else default
            for key, value, default in zip(keys, values, usual, strict=True)
        )

    def run(self, values: Values, seed: int) -> Run:
        """Return one run: these values on the split of a seed."""
        part = {} if self.share is None else self.share.settings()
        settings = {**self.settings(values), **part}
        tuned = named(self.keys, values)
        return Run(self.study, tuned, settings, seed, self.data, self.by, self.lower)

    def refused(self, values: Values) -> str:
        """Return why the study does not take these settings together; nothing where it does."""
        from trellis.apps.common.runner import make_run_config

        try:
            run_config = make_run_config(self.study, self.settings(values), data=self.data)
        except ConfigError as error:
            return str(error)
        if self.share is not None and self.share.rho is not None:
            config = config_class(self.study).from_run_config(run_config)
            if not privacy.adds_up(config):
                return "with these settings what a run spends does not add up by zCDP"
        return ""

    def arguments(self) -> dict[str, Any]:
        """Return what makes this tuning another one than one with other arguments."""
        over = {
            space.key: [space.low, space.high, space.log, *space.values]
            if space.is_range
            else list(space.values)
            for space in self.spaces
        }
        return {
            "study": self.study,
            "settings": dict(self.given),
            "held-out": self.held_out,
            "over": over,
            "data": "" if self.data is None else fingerprint(Path(self.data)),
            "seeds": list(self.seeds),
            "by": self.by,
            "less is better": self.lower,
            "search": self.search,
            "trials": self.count,
            "spend": None if self.share is None else self.share.total,
            "public": self.public,
        }


def make_plan(
    study: str,
    over: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | Path | None = None,
    splits: int = 3,
    seed: int = 1,
    by: str = "",
    lower: bool | None = None,
    search: str = "grid",
    trials: int = 0,
    spend: float | None = None,
    public: bool = False,
) -> Plan:
    """Return the plan of a tuning; see `apps.tuning.tuner.tune` for what the parameters are.

    Raises
    ------
    ConfigError
        Names the setting or option that is wrong, before anything runs.
    """
    given = in_current_words(settings or {})
    usual = 0.0 if by in CRITERIA else config_class(study).own_data["held-out"]
    held_out = float(given.get("held-out", usual))
    if splits < 1:
        raise ConfigError(f"--splits {splits}: judge on one split at least")
    if search not in SEARCHES:
        raise ConfigError(f"--search {search}: use one of {', '.join(SEARCHES)}")
    if search == "optuna" and trials < 2:
        raise ConfigError("--search optuna: say how many settings to try, such as --trials 30")
    if search == "grid" and trials:
        raise ConfigError("--trials: a grid has as many as it has points; use --search optuna")
    if data is not None and held_out == 0.0:
        splits = 1  # nothing is drawn by the seed that the data are not
    spaces = tuple(read_spaces(study, over))
    given = {key: value for key, value in given.items() if key not in over}
    plan = Plan(
        study,
        given,
        held_out,
        spaces,
        None if data is None else str(Path(data).resolve()),
        tuple(range(seed, seed + splits)),
        by,
        lower,
        search,
        trials,
        _default(study, spaces, settings or {}, own=data is not None),
        public=public,
    )
    plan = replace(plan, candidates=_candidates(plan))
    return _with_budget(plan, spend)


def _default(study: str, spaces: Sequence[Space], given: Mapping[str, Any], *, own: bool) -> Values:
    """Return the tuned settings as they were before; on a person's own data, those for that."""
    config = config_class(study)
    given = config.for_own_data(given) if own else given
    defaults = {f.name: f.default for f in fields(config)}
    keys = [space.key for space in spaces]
    values: list[Scalar] = []
    for space in spaces:
        name, _ = config.typed(space.key, space.values[0])
        value: Any = defaults[name]
        if space.key in given:
            _, value = config.typed(space.key, given[space.key])
        if name == "method" and value == AUTO_WORD and "privacy" not in keys and config.table:
            value = config.table.default(str(given.get("privacy", config.privacy)))
        auto = name in config.auto_settings and value == config.typed(space.key, AUTO_WORD)[1]
        values.append(AUTO_WORD if auto else value)
    return tuple(values)


def _candidates(plan: Plan) -> tuple[Trial, ...]:
    """Return the default and the grid, each with why the study refuses it, if it does.

    Raises
    ------
    ConfigError
        Where the study takes a value of a setting with none of the others, or takes nothing at all.
    """
    whole = count_of(plan.spaces) <= _MOST_CHECKED
    if not whole and plan.search == "grid":
        raise ConfigError(
            f"a grid of {count_of(plan.spaces):,} settings: take fewer points a key "
            "(KEY=LOW:HIGH:log:3), or --search optuna"
        )
    grid = itertools.product(*(space.values for space in plan.spaces))
    asked = grid if whole else _one_by_one(plan)
    points = [
        Trial(values, refused=plan.refused(values))
        for values in dict.fromkeys(plan.with_effect(values) for values in asked)
    ]
    if all(trial.refused for trial in points):
        raise ConfigError(f"none of these settings can be run: {points[-1].refused}")
    for place, space in enumerate(plan.spaces):
        for value in space.values if whole else ():
            having = [trial for trial in points if trial.values[place] == value]
            if not having:
                raise ConfigError(
                    f"--over {space.key}: {_without_effect(plan, space.key, points[-1])}"
                )
            if all(trial.refused for trial in having):
                raise ConfigError(f"--over {space.key}: {value} is refused: {having[0].refused}")
    default = Trial(plan.default, refused=plan.refused(plan.default))
    return (default, *(trial for trial in points if trial.values != plan.default))


def _without_effect(plan: Plan, key: str, trial: Trial) -> str:
    """Return that a setting has no effect with the others, and what would give it one."""
    config = config_class(plan.study).from_settings(
        {k: v for k, v in plan.chosen(trial.values).items() if k in ("method", "privacy")}
    )
    assert config.table is not None
    assert config.row is not None
    return config.table.without_effect(key, config.row)


def _one_by_one(plan: Plan) -> Iterator[Values]:
    """Yield the default with every value of every setting in its place, one at a time."""
    for place, space in enumerate(plan.spaces):
        for value in space.values:
            yield (*plan.default[:place], value, *plan.default[place + 1 :])


def _with_budget(plan: Plan, spend: float | None) -> Plan:
    """Return the plan with every run's part of the budget, where there must be one."""
    at_stake = plan.private and plan.data is not None and not plan.public
    if spend is not None and not at_stake:
        why = (
            "only privacy='dp' spends anything"
            if not plan.private
            else "synthetic and public data have nobody to protect"
        )
        raise ConfigError(f"--spend {spend:g}: {why}; leave it out")
    if not at_stake:
        return plan
    from trellis.apps.common.runner import make_run_config

    config = config_class(plan.study)
    tried = [trial.values for trial in plan.candidates if not trial.refused]
    settings = [
        config.from_run_config(
            make_run_config(plan.study, plan.settings(values), data=plan.data)
        ).settings()
        for values in tried
    ]
    if spend is None:
        adding = all(privacy.adds_up(config.from_settings(each)) for each in settings)
        epsilon = float(plan.given.get("epsilon", config.epsilon))
        raise ConfigError(privacy.refusal(plan.study, plan.runs, epsilon, plan.delta, adding))
    part = privacy.share(plan.study, settings, spend, plan.delta, plan.runs)
    return replace(plan, share=part)


def fingerprint(folder: Path) -> str:
    """Return what tells a folder with data from the same folder with other data in it."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(folder)}\n{path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                found.update(part)
    return f"{folder} ({found.hexdigest()[:16]})"
