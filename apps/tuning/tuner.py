"""The loop: settings are proposed, run on every split, judged and kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from trellis.apps.common.results import metrics_csv, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.jobs import how_many_at_once, side_by_side

from .outcome import Tuning
from .plan import Plan, make_plan
from .record import TABLE, Record
from .runs import Found, Run, evaluate
from .search import make_search
from .trials import Trial, Values

Evaluate = Callable[[Run], Found]
_EVERY = 5.0  # seconds between two lines of the log


class Watcher(Protocol):
    """Whoever shows how far a tuning is."""

    def __call__(self, done: int, total: int, best: float | None) -> None:
        """Take how many runs of how many are done, and the best mean so far."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a tuning; ``tuning`` has what was done until then."""

    def __init__(self, tuning: Tuning) -> None:
        super().__init__("tuning was interrupted")
        self.tuning = tuning


def tune(
    study: str,
    over: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | Path | None = None,
    splits: int = 3,
    seed: int = 1,
    by: str = "",
    better: str = "",
    search: str = "grid",
    trials: int = 0,
    spend: float | None = None,
    public: bool = False,
    out: str | Path | None = None,
    force: bool = False,
    workers: int | None = None,
    watch: Watcher | None = None,
    evaluate: Evaluate = evaluate,
) -> Tuning:
    """Choose settings of a study by records that no run has learned from.

    Parameters
    ----------
    study : a key of `apps.STUDIES`
    over : the settings to tune: a text as on the command line, ``{"rho": "0.1:10:log"}``, or
        values, ``{"rho": [0.1, 1.0, 10.0]}``
    settings : settings that stay as they are, kebab-case; of a tuned one where it was before
    data : a folder with one file per client; None tunes on the study's synthetic data
    splits : how many times each setting is run, every time with other records held out
    seed : of the first split; the others follow
    by : the number to judge by, a measure of the scores or a headline number; empty is the study's
        own measure on held-out records
    better : ``lower`` or ``higher``, where that is not known of the number
    search : ``grid`` tries all, ``optuna`` proposes ``trials`` settings
    spend : with ``privacy = "dp"`` on data of clients, the epsilon that all runs together may
        spend
    public : whether the data have nobody to protect
    out : a folder; the runs are kept there as they are made, and a second call goes on with them
    force : whether a tuning with other arguments in that folder may be thrown away
    workers : runs side by side; by default as many as there are cores, or as
        ``joblib.parallel_config`` says
    watch : called after every run
    evaluate : what makes one run

    Returns
    -------
    Tuning
        ``best`` has the settings, ``value`` and ``default_value`` what they and those before are
        worth, ``table()`` all that was tried.

    Raises
    ------
    ConfigError
        Names the setting or option that is wrong, before anything runs.
    Interrupted
        At Ctrl-C, with what is done.
    """
    if better not in ("", "lower", "higher"):
        raise ConfigError(f"--better {better}: use lower or higher")
    plan = make_plan(
        study,
        {key.rstrip("_").replace("_", "-"): values for key, values in over.items()},
        settings,
        data=data,
        splits=splits,
        seed=seed,
        by=by,
        lower={"": None, "lower": True, "higher": False}[better],
        search=search,
        trials=trials,
        spend=spend,
        public=public,
    )
    return carry_out(plan, out=out, force=force, workers=workers, watch=watch, evaluate=evaluate)


def carry_out(
    plan: Plan,
    *,
    out: str | Path | None = None,
    force: bool = False,
    workers: int | None = None,
    watch: Watcher | None = None,
    evaluate: Evaluate = evaluate,
) -> Tuning:
    """Do what a plan says; see `tune`."""
    folder = None if out is None else Path(out).resolve()
    began = time.perf_counter()
    with Record(folder, plan.arguments(), force=force) as record:
        if not plan.private:
            # Under privacy a run that failed may have released something: once is enough.
            record.forget_failures()
        work = _Work(plan, record, evaluate, workers, watch or _Log())
        try:
            work.do()
        except KeyboardInterrupt:
            tuning = work.outcome(began, complete=False)
            _keep_table(tuning)
            raise Interrupted(tuning) from None
        tuning = work.outcome(began, complete=True)
        _keep_table(tuning)
        _keep_best(tuning)
        return tuning


class _Work:
    """A tuning on its way."""

    def __init__(
        self,
        plan: Plan,
        record: Record,
        evaluate: Evaluate,
        workers: int | None,
        watch: Watcher,
    ) -> None:
        self._plan = plan
        self._record = record
        self._evaluate = evaluate
        self._workers = workers
        self._watch = watch
        self._trials: dict[Values, Trial] = {}
        self._refusals = {trial.values: trial.refused for trial in plan.candidates}

    def do(self) -> None:
        """Try what the search proposes until it proposes nothing."""
        search = make_search(self._plan)
        while asked := search.ask():
            trials = [self._trial(values) for values in dict.fromkeys(asked)]
            self._make([trial for trial in trials if not trial.refused])
            for trial in trials:
                complete = not trial.refused and trial.complete(self._plan.seeds)
                search.tell(trial, trial.mean if complete else None)

    def outcome(self, began: float, complete: bool) -> Tuning:
        """Return what there is."""
        if self._plan.default not in self._trials:  # interrupted before it began
            self._trial(self._plan.default)
        return Tuning(
            self._plan,
            list(self._trials.values()),
            complete,
            time.perf_counter() - began,
            self._record.folder,
        )

    def _trial(self, values: Values) -> Trial:
        if values not in self._trials:
            refused = self._refusals.get(values)
            refused = self._plan.refused(values) if refused is None else refused
            self._trials[values] = Trial(values, refused=refused)
        return self._trials[values]

    def _make(self, trials: list[Trial]) -> None:
        """Make the runs of some trials that are not there yet, side by side."""
        missing: list[tuple[Trial, Run]] = []
        for trial in trials:
            for seed in self._plan.seeds:
                run = self._plan.run(trial.values, seed)
                known = self._record.get(run.values, seed)
                if known is None:
                    missing.append((trial, run))
                else:
                    trial.found[seed] = known
        self._tell()
        at_once = how_many_at_once(len(missing), self._workers)
        runs = [run for _, run in missing]
        with closing(side_by_side(self._evaluate, runs, at_once, batch=1)) as values:
            for place, found in values:
                trial, run = missing[place]
                self._record.add(run, found)
                trial.found[run.seed] = found
                if found.hopeless:
                    raise ConfigError(found.error)
                if self._plan.share is not None:
                    self._plan.share.check(found)
                self._tell()

    def _tell(self) -> None:
        done = sum(len(trial.found) for trial in self._trials.values())
        now = Tuning(self._plan, list(self._trials.values()))
        try:
            best: float | None = now.value
        except ConfigError:
            best = None
        self._watch(done, self._plan.runs, best)


def _keep_table(tuning: Tuning) -> None:
    if tuning.folder is not None:
        write_atomically(tuning.folder / TABLE, metrics_csv(tuning.rows()).encode())


def _keep_best(tuning: Tuning) -> None:
    """Write the best settings, the picture and the page."""
    if tuning.folder is not None:
        from . import best, page, picture

        best.write(tuning, tuning.folder / "best.toml")
        picture.write(tuning, tuning.folder)
        page.write(tuning, tuning.folder / "tuning.html")


class _Log:
    """A line in the log every few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, best: float | None) -> None:
        if time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            so_far = "" if best is None else f", best so far {best:.4g}"
            logging.getLogger("trellis").info("tuning: %d of %d runs%s", done, total, so_far)
