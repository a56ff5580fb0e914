"""By which number of a run its settings are judged.

By default the study's own measure on held-out records (`apps.common.evaluation.scores.judged`), the
mean over all clients. Otherwise what the user names: another measure of those scores, or a headline
number.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.apps.common.evaluation.scores import Judged, judged, key_of
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError

# Which way headline numbers of the studies are better, by their whole name or their last word.
_LOWER = ("objective", "re", "msd", "nmsd", "servers", "loss", "gap", "disagreement", "fpr", "ebic")
_HIGHER = ("mcc", "loose", "tpr", "auc", "aupr", "accuracy", "ari", "purity", "helped")

# Numbers that judge a model by the records it was learned from, with a penalty for its size.
CRITERIA = ("ebic",)


class NoMeasure(ConfigError):
    """The number that is asked for is not there, in this run and so in all of them."""


@dataclass(frozen=True)
class Verdict:
    """What a run is worth.

    Attributes
    ----------
    measure : the name of the number
    value : the number, of this run
    alone : the same number of learning alone, where the run knows it
    lower : whether less is better
    scored : whether it is a score on held-out records, and not a headline number
    """

    measure: str
    value: float
    alone: float | None
    lower: bool
    scored: bool


def judge(result: RunResult, by: str = "", lower: bool | None = None) -> Verdict:
    """Return what a run is worth.

    Parameters
    ----------
    result : a run that has ended
    by : the number to judge by; empty is the study's own measure on held-out records
    lower : whether less is better; None where that is known of the number

    Raises
    ------
    NoMeasure
        Where the run has no such number, or nobody knows which way it is better.
    """
    found = _judged(result, by)
    if found is not None:
        return Verdict(found.measure, found.value, found.alone, _first(lower, found.lower), True)
    if not by:
        raise NoMeasure(
            f"{result.study} with these settings has no scores on held-out records: set held-out "
            f"above 0, or judge --by one of {_names(result)}"
        )
    if by not in result.headline:
        more = ". With privacy='dp' and noise in sums there is none" if by in CRITERIA else ""
        raise NoMeasure(f"--by {by}: no such number; use one of {_names(result)}{more}")
    alone = result.headline.get(f"alone-{by}")
    known = _direction(result.study, by) if lower is None else lower
    return Verdict(by, result.headline[by], alone, known, False)


def _first(lower: bool | None, known: bool) -> bool:
    return known if lower is None else lower


def _direction(study: str, name: str) -> bool:
    from trellis.apps.common.recording import wording

    words = wording(study)
    last = name.rpartition("-")[2]
    if name == words.measure:
        return words.lower_is_better
    if name in _LOWER or last in _LOWER:
        return True
    if name in _HIGHER or last in _HIGHER:
        return False
    raise NoMeasure(f"--by {name}: say which way it is better, --better lower or --better higher")


def _names(result: RunResult) -> str:
    measures = [key_of(measure) for measure in result.scores.get("measures", ())]
    return ", ".join([*measures, *result.headline])


def _judged(result: RunResult, by: str) -> Judged | None:
    """Return a score on held-out records; None where there is none of that name."""
    try:
        return judged(result, by or None)
    except ValueError:
        return None
