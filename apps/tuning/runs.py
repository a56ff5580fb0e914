"""One setting on one split: run, judged, and what it would have cost devices."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.common.settings import Scalar
from apps.common.threads import one_blas_thread

from .judging import NoMeasure, judge

# What a client released in a run: how often each release with the same numbers.
Releases = list[tuple[dict[str, Any], int]]


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
    value, measure, lower, alone, scored : see `apps.tuning.judging.Verdict`
    seconds : how long it took
    spent : clients' names and what each of them released, where noise protects them
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
    error: str = ""
    hopeless: bool = False


def evaluate(run: Run) -> Found:
    """Make one run in this process, with one BLAS thread, and judge it; errors are its result."""
    from apps.common.runner import run as run_study

    log = logging.getLogger("trellis")
    level = log.level
    log.setLevel(logging.ERROR)
    began = time.perf_counter()
    try:
        with one_blas_thread():
            result = run_study(run.study, run.settings, data=run.data, seed=run.seed)
        spent = _spent(result.ledger)
        try:
            verdict = judge(result, run.by, run.lower)
        except NoMeasure as error:
            return Found(error=str(error), hopeless=True, spent=spent)
        if not math.isfinite(verdict.value):
            return Found(error=f"{verdict.measure} is {verdict.value}", spent=spent)
        return Found(
            value=verdict.value,
            measure=verdict.measure,
            lower=verdict.lower,
            alone=verdict.alone,
            scored=verdict.scored,
            seconds=time.perf_counter() - began,
            spent=spent,
        )
    except Exception as error:  # of whatever kind: the others go on
        return Found(error=f"{type(error).__name__}: {error}")
    finally:
        log.setLevel(level)  # of this process, where runs are made in it


def _spent(ledger: Mapping[str, Any]) -> list[tuple[list[str], Releases]]:
    """Return who released what; clients with the same releases together."""
    if ledger.get("mode") != "sound":
        return []
    groups: dict[tuple[Any, ...], list[str]] = {}
    for client in ledger.get("clients", ()):
        # Names and rounds tell releases of one run apart, not what they cost.
        kinds = Counter(
            tuple((k, v) for k, v in sorted(event.items()) if k not in ("name", "what", "round"))
            for event in client["events"]
        )
        groups.setdefault(tuple(sorted(kinds.items())), []).append(client["name"])
    return [(names, [(dict(kind), n) for kind, n in kinds]) for kinds, names in groups.items()]
