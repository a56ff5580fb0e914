"""Held-out scores on the wire: what a client tells of its result in reply to ``evaluate``.

The last message of a run brings every client its result (`deliver`). Where records were held out
and scores may be told, it is Flower's ``evaluate`` message, and the reply has a small table: how
the result does on the client's own held-out records, beside learning alone and beside knowing
nothing. The table is the client's word: what is read here is checked for its form and size, so that
a nonsensical one costs the run that client's score and nothing else.
"""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from .. import wire
from ..wire import BadReply
from .scores import ScoreTable

EVALUATE = "evaluate"

_VALUES, _NAMES = "scores", "score-names"
_MOST_ROWS, _MOST_MEASURES, _LONGEST = 12, 8, 80
_LARGEST = 1e100


def score_records(table: ScoreTable) -> dict[str, ArrayRecord | ConfigRecord]:
    """Return a table as records of a reply."""
    values = np.array(list(table.rows.values()), dtype=np.float64)
    names = ConfigRecord(
        {
            "count": table.count,
            "measures": list(table.measures),
            "lower": list(table.lower),
            "main": table.main,
            "judge": table.judge,
            "rows": list(table.rows),
        }
    )
    shape = (len(table.rows), len(table.measures))
    return {_VALUES: wire.record({"values": values.reshape(shape)}), _NAMES: names}


def read_scores(content: RecordDict) -> ScoreTable | None:
    """Return the table of a reply, checked; None where it has none.

    Raises
    ------
    BadReply
        For a table that is none.
    """
    names, record = content.get(_NAMES), content.get(_VALUES)
    if names is None and record is None:
        return None
    if not isinstance(names, ConfigRecord) or not isinstance(record, ArrayRecord):
        raise BadReply("its scores are no table")
    rows, measures = _texts(names, "rows", _MOST_ROWS), _texts(names, "measures", _MOST_MEASURES)
    lower = _texts(names, "lower", _MOST_MEASURES, least=0)
    count, main, judge = names.get("count"), names.get("main"), names.get("judge")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 2**53:
        raise BadReply(f"its scores are of {count!r} records")
    if main not in measures or judge not in measures or not set(lower) <= set(measures):
        raise BadReply("its scores are judged by a measure that is not among them")
    values = wire.unpack(record["values"])
    if values.shape != (len(rows), len(measures)) or values.dtype != np.float64:
        raise BadReply(f"its scores have shape {values.shape}")
    known = values[~np.isnan(values)]
    if known.size and not np.max(np.abs(known)) <= _LARGEST:
        raise BadReply("its scores are not finite")
    table = {name: tuple(row) for name, row in zip(rows, values.tolist(), strict=True)}
    return ScoreTable(count, measures, lower, str(main), str(judge), table)


def _texts(names: ConfigRecord, key: str, most: int, least: int = 1) -> tuple[str, ...]:
    found = names.get(key)
    if not isinstance(found, list) or not least <= len(found) <= most:
        raise BadReply(f"its scores have no {key}")
    if any(not isinstance(t, str) or not t.isprintable() or len(t) > _LONGEST for t in found):
        raise BadReply(f"its scores have {key} that are no names")
    if len(set(found)) != len(found):
        raise BadReply(f"its scores have {key} that stand twice")
    return tuple(str(text) for text in found)
