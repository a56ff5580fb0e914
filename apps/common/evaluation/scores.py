"""How good a run's result is on held-out records: by client, in the mean, beside learning alone.

Clients score the result on records that were kept out of learning (`measures`)
and tell it where they may (`apps.common.private.personal`). `gather` makes one table of that, which
a run keeps (``scores`` in ``run.json``, ``scores.csv``), `numbers` the few of it that stand in the
headline, `judged` the one by which settings are chosen.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.strategies.core.closing.scores import ScoreTable, mean_rows

from .measures import (
    ACCURACY,
    ALONE,
    AUC,
    LOSS,
    MEAN,
    MOST_FREQUENT,
    R2,
    THIS,
)

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

# What measures are called in the headline; a log likelihood is one in whatever words.
KEYS = {LOSS: "loss", ACCURACY: "accuracy", AUC: "auc", R2: "r2"}
TRIVIAL = (MOST_FREQUENT, MEAN, "no graph: all variables alike", "no edges: all variables apart")
# What stands before a measure's name in the headline.
OURS, BY_ITSELF, KNOWING_NOTHING = "held-out-", "alone-held-out-", "trivial-held-out-"

Scores = dict[str, Any]


def gather(tables: Mapping[str, ScoreTable]) -> Scores:
    """Return clients' tables, by name, as one; nothing where there are none.

    Clients that measured something else than most did are left out.
    """
    if not tables:
        return {}
    kinds = Counter((t.measures, t.lower, t.main, t.judge) for t in tables.values())
    kind = kinds.most_common(1)[0][0]
    alike = {
        name: table
        for name, table in tables.items()
        if (table.measures, table.lower, table.main, table.judge) == kind
    }
    measures, lower, main, judge = kind
    return {
        "measures": list(measures),
        "lower": list(lower),
        "main": main,
        "judge": judge,
        "clients": [
            {
                "name": name,
                "count": table.count,
                "rows": {row: [_plain(v) for v in values] for row, values in table.rows.items()},
            }
            for name, table in alike.items()
        ],
        "mean": mean_rows(list(alike.values())),
    }


def tables_of(scores: Scores) -> dict[str, ScoreTable]:
    """Return what `gather` was given."""
    if not scores:
        return {}
    head = tuple(scores["measures"]), tuple(scores["lower"]), scores["main"], scores["judge"]
    return {
        client["name"]: ScoreTable(
            client["count"],
            *head,
            {
                row: tuple(math.nan if v is None else float(v) for v in values)
                for row, values in client["rows"].items()
            },
        )
        for client in scores["clients"]
    }


def numbers(scores: Scores) -> dict[str, float]:
    """Return the headline numbers: the mean of this result, of learning alone, of knowing nothing.

    Each client counts by how many of its records were held out.
    """
    found: dict[str, float] = {}
    for prefix, rows in ((OURS, (THIS,)), (BY_ITSELF, (ALONE,)), (KNOWING_NOTHING, TRIVIAL)):
        for row in rows:
            values = scores.get("mean", {}).get(row, ())
            for measure, value in zip(scores.get("measures", ()), values, strict=False):
                if value is not None:
                    found[prefix + key_of(measure)] = float(value)
    return found


def key_of(measure: str) -> str:
    """Return what a measure is called in the headline."""
    if measure in KEYS:
        return KEYS[measure]
    if "likelihood" in measure:
        return "likelihood"
    return re.sub(r"[^a-z0-9]+", "-", measure.lower()).strip("-")


def is_lower(scores: Scores, measure: str) -> bool:
    """Return whether less of a measure is better."""
    return measure in scores.get("lower", ())


def better_than_alone(scores: Scores) -> tuple[int, int, int]:
    """Return for how many clients the result is better than learning alone, equal, and worse."""
    place = scores["measures"].index(scores["main"])
    counts = [0, 0, 0]
    for client in scores["clients"]:
        values = [client["rows"].get(row, [None] * (place + 1))[place] for row in (THIS, ALONE)]
        if None in values:
            continue
        gain = values[1] - values[0] if is_lower(scores, scores["main"]) else values[0] - values[1]
        counts[0 if gain > 0 else 1 if gain == 0 else 2] += 1
    return counts[0], counts[1], counts[2]


def scores_csv(scores: Scores) -> str:
    """Return the table as text: a row per client and model, and the means at the end."""
    rows = [["client", "held-out records", "of", *scores["measures"]]]
    whole = 0
    for client in scores["clients"]:
        whole += client["count"]
        for row, values in client["rows"].items():
            rows.append([client["name"], client["count"], row, *map(_cell, values)])
    for row, values in scores["mean"].items():
        rows.append(["mean over all clients", whole, row, *map(_cell, values)])
    return csv_text(rows)


@dataclass(frozen=True)
class Judged:
    """A run as settings are chosen by.

    Attributes
    ----------
    measure : what is measured
    value : the mean over clients, of this result
    alone : the same of learning alone; None where it is not known
    lower : whether less is better
    of_clients : this result's value, by client
    """

    measure: str
    value: float
    alone: float | None
    lower: bool
    of_clients: dict[str, float] = field(default_factory=dict)


def judged(result: RunResult, by: str | None = None) -> Judged | None:
    """Return how a run is judged by its held-out records; None where it has no scores.

    Parameters
    ----------
    result : a run
    by : a measure of its scores, in its own words or as in the headline; the study's own otherwise

    Raises
    ------
    ValueError
        For a measure that the scores do not have; names those that they have.
    """
    scores = result.scores
    if not scores:
        return None
    measure = _measure(scores["measures"], by or scores["judge"])
    place = scores["measures"].index(measure)
    mean = scores["mean"].get(THIS, [None] * (place + 1))[place]
    if mean is None:
        return None
    alone = scores["mean"].get(ALONE)
    each = {c["name"]: c["rows"].get(THIS, [None] * (place + 1))[place] for c in scores["clients"]}
    return Judged(
        measure,
        float(mean),
        None if alone is None else alone[place],
        is_lower(scores, measure),
        {name: float(value) for name, value in each.items() if value is not None},
    )


def _measure(measures: Sequence[str], wanted: str) -> str:
    for measure in measures:
        if wanted in (measure, key_of(measure), OURS + key_of(measure)):
            return measure
    known = ", ".join(key_of(measure) for measure in measures)
    raise ValueError(f"{wanted!r}: the held-out scores of this study have {known}")


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)
