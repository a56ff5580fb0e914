"""One setting on one split: run, judged, and what it would have cost devices."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trellis.apps.common.settings import Scalar
from trellis.apps.common.threads import one_blas_thread
from trellis.privacy.accounting.series import releases

from .judging import NoMeasure, judge

# What a client released in a run: how often each release with the same numbers.
Releases = list[tuple[dict[str, Any], int]]
# Tell releases of one run apart, not what they cost.
_NO_COST = ("name", "what", "round", "times", "steps")


@dataclass(frozen=True)
class Run:
    """One run to make.

    Attributes
    ----------
    values : the settings that are tuned, and nothing else
    settings : all settings that the run is given
    seed : which records are held out; of synthetic data also the data, and all that is drawn
    """

    study: str
    values: Mapping[str, Scalar]
    settings: Mapping[str, Scalar]
    seed: int
    data: str | None = None
    by: str = ""
    lower: bool | None = None


@dataclass(frozen=True)
class Found:
    """What came of a run.

    Attributes
    ----------
    value, measure, lower, alone, scored : see `trellis.apps.tuning.judging.Verdict`
    seconds : how long it took
    spent : clients' names and what each of them released, where noise protects them
    told : the epsilon that a ledger tells which names no releases: that of noise between servers
    error : why it failed; empty where it did not
    hopeless : whether all other runs would fail of the same
    """

    value: float = math.nan
    measure: str = ""
    lower: bool = False
    alone: float | None = None
    scored: bool = False
    seconds: float = 0.0
    spent: list[tuple[list[str], Releases]] = field(default_factory=list)
    told: float = 0.0
    error: str = ""
    hopeless: bool = False

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of what it released: it failed on the way."""
        return bool(self.error) and not self.spent and not self.told


def evaluate(run: Run) -> Found:
    """Make one run in this process, with one BLAS thread, and judge it; errors are its result."""
    from trellis.apps.common.runner import run as run_study

    log = logging.getLogger("trellis")
    level = log.level
    log.setLevel(logging.ERROR)
    began = time.perf_counter()
    try:
        with one_blas_thread():
            result = run_study(run.study, run.settings, data=run.data, seed=run.seed)
        spent: dict[str, Any] = {"spent": _spent(result.ledger), "told": _told(result.ledger)}
        try:
            verdict = judge(result, run.by, run.lower)
        except NoMeasure as error:
            return Found(error=str(error), hopeless=True, **spent)
        if not math.isfinite(verdict.value):
            return Found(error=f"{verdict.measure} is {verdict.value}", **spent)
        return Found(
            value=verdict.value,
            measure=verdict.measure,
            lower=verdict.lower,
            alone=verdict.alone,
            scored=verdict.scored,
            seconds=time.perf_counter() - began,
            **spent,
        )
    except Exception as error:  # of whatever kind: the others go on
        return Found(error=f"{type(error).__name__}: {error}")
    finally:
        log.setLevel(level)  # of this process, where runs are made in it


def _spent(ledger: Mapping[str, Any]) -> list[tuple[list[str], Releases]]:
    """Return who released what; clients with the same releases together."""
    if ledger.get("mode") != "dp":
        return []
    groups: dict[tuple[Any, ...], list[str]] = {}
    for client in ledger.get("clients", ()):
        kinds: Counter[tuple[tuple[str, Any], ...]] = Counter()
        for event in client["events"]:
            kind = tuple((k, v) for k, v in sorted(event.items()) if k not in _NO_COST)
            kinds[kind] += releases([event])
        if kinds:
            groups.setdefault(tuple(sorted(kinds.items())), []).append(client["name"])
    return [(names, [(dict(kind), n) for kind, n in kinds]) for kinds, names in groups.items()]


def _told(ledger: Mapping[str, Any]) -> float:
    """Return the largest epsilon of those that a ledger tells without naming releases."""
    if ledger.get("mode") != "dp":
        return 0.0
    unnamed = [entry for entry in ledger.get("clients", ()) if not entry["events"]]
    return max((float(entry.get("epsilon", 0.0)) for entry in unnamed), default=0.0)
