"""What a setting may be while it is tuned: a range of numbers, or a list of values.

    rho=0.1:10:log        five numbers from 0.1 to 10, the same factor apart
    local-steps=5:50:lin:10   ten numbers from 5 to 50, the same distance apart; whole, as it is
    method=fedgl,igl      these values, typed as ``--set`` types them
    lambda=auto,0.1:1     both together

Text that has a comma or a colon of its own stands in quotes: ``samples='"50,100","80"'``.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.apps.common.settings import (
    AUTO,
    AUTO_WORD,
    ConfigError,
    Scalar,
    StudyConfig,
    config_class,
)

POINTS = 5  # of a range in a grid, where nobody says how many
_DIGITS = 4  # significant ones of a point between the ends
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(?::(log|lin))?(?::(\d+))?")
# A range that is spelt wrong must not pass for text.
_ALMOST = re.compile(rf"{_NUMBER}\s*:.*")

# What a run promises or is measured by: to choose these by the score would be to move the goal.
_FIXED = {
    "privacy": "what is promised to clients is decided, not tuned",
    "epsilon": "more epsilon always scores better; it is decided, not tuned",
    "delta": "it is part of what is promised to clients; it is decided, not tuned",
    "dropout": "it is part of what is promised to clients; it is decided, not tuned",
    "colluding": "it is part of what is promised to clients; it is decided, not tuned",
    "held-out": "it decides by which records settings are judged; use --set held-out=SHARE",
}


@dataclass(frozen=True)
class Space:
    """What one setting may be.

    Attributes
    ----------
    key : the setting, kebab-case
    values : the points of a grid, as the config has them
    low, high : the ends, where it is one range; None where it is a list
    log : whether points of the range are the same factor apart
    whole : whether only whole numbers are meant
    """

    key: str
    values: tuple[Scalar, ...]
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False

    @property
    def is_range(self) -> bool:
        """Whether it is one range, between whose points others may be tried."""
        return self.low is not None

    def holds(self, value: Scalar) -> bool:
        """Return whether a value is one of these, or lies in the range."""
        if self.low is None or self.high is None:
            return value in self.values
        return isinstance(value, int | float) and self.low <= value <= self.high


def read_spaces(study: str, over: Mapping[str, Any]) -> list[Space]:
    """Return the spaces of the settings to tune.

    Parameters
    ----------
    study : a key of `apps.STUDIES`
    over : what each setting may be: a text as on the command line, or values

    Raises
    ------
    ConfigError
        Names the setting, and says what is wrong with it.
    """
    if not over:
        raise ConfigError("nothing to tune: say over which settings, such as --over rho=0.1:10:log")
    config = config_class(study)
    return [_space(config, key, given) for key, given in over.items()]


def read_over(assignments: Iterable[str], study: str) -> dict[str, str]:
    """Return what stands in several ``--over KEY=...``, a text a key."""
    found: dict[str, str] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip().removeprefix(f"{study}.")
        if not separator or not text.strip():
            raise ConfigError(f"--over {assignment}: write KEY=LOW:HIGH:log or KEY=a,b,c")
        if key in found:
            raise ConfigError(f"--over {key}: given twice; put all its values into one")
        found[key] = text.strip()
    return found


def _space(config: type[StudyConfig], key: str, given: Any) -> Space:
    if key not in config.kinds():
        config.typed(key, "")  # says what is close to it
    if key in _FIXED:
        raise ConfigError(f"{key}: {_FIXED[key]}")
    if isinstance(given, str):
        parts = _parts(key, given)
    elif isinstance(given, Iterable):
        parts = [value.item() if isinstance(value, np.generic) else value for value in given]
    else:
        parts = [given]
    ranges = [_range(config, key, part) for part in parts]
    if len(parts) == 1 and ranges[0] is not None:
        return ranges[0]
    values: list[Scalar] = []
    for part, found in zip(parts, ranges, strict=True):
        values += [_typed(config, key, part)] if found is None else found.values
    values = list(dict.fromkeys(values))
    if not values:
        raise ConfigError(f"{key}: no values to try")
    return Space(key, tuple(values))


def _parts(key: str, text: str) -> list[Any]:
    """Return the values and ranges of a text, values typed as TOML where they are TOML."""
    if '"' in text or "'" in text:
        try:
            return list(tomllib.loads(f"x = [{text}]")["x"])
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{key}={text}: not a list of values ({error}); put each text in quotes of its own"
            ) from None
    return [_value(part.strip()) for part in text.split(",") if part.strip()]


def _value(text: str) -> Any:
    if _ALMOST.fullmatch(text):
        return text
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _range(config: type[StudyConfig], key: str, part: Any) -> Space | None:
    """Return a range, where a part of what was given is one."""
    if not isinstance(part, str) or not _ALMOST.fullmatch(part):
        return None
    found = _RANGE.fullmatch(part)
    if found is None:
        raise ConfigError(
            f"{key}={part}: a range is LOW:HIGH, LOW:HIGH:log or LOW:HIGH:lin, and if you like "
            "how many points, LOW:HIGH:log:7; text with a colon stands in quotes"
        )
    kind = config.kinds()[key]
    if kind == "bool":
        raise ConfigError(f"{key}={part}: true or false, not a range")
    low, high, points = float(found[1]), float(found[2]), int(found[4] or POINTS)
    log = found[3] == "log"
    if not low < high or not math.isfinite(high):
        raise ConfigError(f"{key}={part}: the range must go from a lower to a higher number")
    if points < 2:
        raise ConfigError(f"{key}={part}: a range has two points at least")
    if log and low <= 0.0:
        raise ConfigError(f"{key}={part}: a range by factors (log) must begin above 0; use lin")
    ends_whole = low.is_integer() and high.is_integer()
    whole = kind == "int" or (kind == "str" and ends_whole)
    if whole and not ends_whole:
        raise ConfigError(
            f"{key}={part}: {key} is a whole number, and so are the ends of its range"
        )
    numbers = (np.geomspace if log else np.linspace)(low, high, points)
    values = [_typed(config, key, _neat(float(number), whole)) for number in numbers[1:-1]]
    ends = [_typed(config, key, int(end) if whole else end) for end in (low, high)]
    values = list(dict.fromkeys([ends[0], *values, ends[1]]))
    if kind == "str":  # a text with a number in it: tried as a list
        return Space(key, tuple(values))
    return Space(key, tuple(values), low, high, log, whole)


def _neat(number: float, whole: bool) -> float:
    return round(number) if whole else float(f"{number:.{_DIGITS}g}")


def _typed(config: type[StudyConfig], key: str, value: Any) -> Scalar:
    """Return a value as the config's settings show it."""
    name, typed = config.typed(key, value)
    return AUTO_WORD if typed == AUTO and name in config.auto_settings else typed


def count_of(spaces: Sequence[Space]) -> int:
    """Return how many points the whole grid has."""
    return math.prod(len(space.values) for space in spaces)
