"""Runs that take no time: what a setting is worth is a formula."""

from __future__ import annotations

import math
import time

from trellis.apps.tuning.runs import Found, Run

STUDY = "consensus-graph"
BEST_RHO = 0.3


def hill(run: Run) -> Found:
    """Return a value that is best at rho = 0.3 and lambda = 0.1, a little other on every split."""
    rho, lambda_ = (
        usual if run.values.get(name, "auto") == "auto" else float(run.values[name])
        for name, usual in (("rho", 1.0), ("lambda", 0.1))
    )
    off = math.log10(rho / BEST_RHO) ** 2 + math.log10(lambda_ / 0.1) ** 2
    luck = 0.01 * math.sin(100.0 * run.seed)
    return Found(value=1.0 - off + luck, measure="accuracy", alone=0.5, scored=True)


def valley(run: Run) -> Found:
    """Return the same as `hill`, where less is better."""
    found = hill(run)
    return Found(value=-found.value, measure="loss", lower=True, scored=True)


def failing(run: Run) -> Found:
    """Fail at rho = 10."""
    return Found(error="DataError: no such luck") if run.values["rho"] == 10.0 else hill(run)


def slow_at_first(run: Run) -> Found:
    """Be slow on the first split, so that it is finished last."""
    time.sleep(0.2 if run.seed == 1 else 0.0)
    return hill(run)
