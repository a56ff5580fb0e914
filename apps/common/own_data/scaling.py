"""Features and targets of any units, mapped to about mean 0 and deviation 1, with an intercept.

    x -> ((x - offset) / scale, 1),      y -> (y - offset_y) / scale_y  where targets are numbers

The offsets and scales are the same for all clients and come with every message beside the model: a
client keeps nothing. They are applied **record by record**. That is what makes it safe under
``privacy = "dp"`` whatever an active server sends: each record is mapped by itself and bounded
after that, so replacing one moves a sum by no more than it would without. A client's own mean and
deviation must never be used there: one record replaced would move all of them, and the sensitivity
that noise is sized for would be wrong.

A model is then in standardised coordinates, w : (d + 1,), the intercept last. The ridge acts on the
intercept as on the rest. `Scaling.raw_coefficients` has it in the units of the data.

`StandardisedConfig` are the settings of studies that do this, ``scales`` the text for those that
are public: ``name:offset:scale`` with commas between, ``y`` for the targets; a name with a comma
goes in double quotes with its numbers.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.settings import ConfigError, StudyConfig

Array = NDArray[np.float64]

INTERCEPT = "(intercept)"
TARGET = "y"
WAYS = ("none", "shared", "public", "auto")
NAMES = ("offset", "scale", "target")
# Ratios of numbers in this range, and their squares, are ordinary floats.
_SCALES = (1e-75, 1e75)
_LARGEST = 1e75


@dataclass(frozen=True)
class Scaling:
    """Offsets and scales of d features and of the target.

    Attributes
    ----------
    offset, scale : (d,) finite, ``scale`` > 0
    target_offset, target_scale : of y, 0 and 1 where targets are labels
    """

    offset: Array
    scale: Array
    target_offset: float = 0.0
    target_scale: float = 1.0

    def apply(self, X: Array) -> Array:
        """Return records (n, d) as (n, d + 1), each by itself, the last column ones."""
        with np.errstate(over="ignore", invalid="ignore"):
            Z = (X - self.offset) / self.scale
        Z = np.clip(np.nan_to_num(Z, nan=0.0), -_LARGEST, _LARGEST)
        return np.concatenate([Z, np.ones((len(X), 1))], axis=1)

    def apply_target(self, y: Array) -> Array:
        """Return targets (n,) in standardised units."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = (y - self.target_offset) / self.target_scale
        return np.clip(np.nan_to_num(z, nan=0.0), -_LARGEST, _LARGEST)

    def in_units(self, values: Array) -> Array:
        """Return predicted targets in the units of y."""
        return values * self.target_scale + self.target_offset

    def raw_coefficients(self, w: Array) -> tuple[Array, Array]:
        """Return coefficients (..., d) and intercept (...) of models (..., d + 1), of raw data.

        ``X @ coefficients + intercept`` predicts y in its own units; of labels, it is the margin.
        """
        slopes = w[..., :-1] * self.target_scale / self.scale
        intercept = w[..., -1] * self.target_scale + self.target_offset
        return slopes, np.asarray(intercept - slopes @ self.offset)

    def as_arrays(self) -> dict[str, Array]:
        """Return it as arrays ``offset`` (d,), ``scale`` (d,) and ``target`` (2,)."""
        target = np.array([self.target_offset, self.target_scale])
        return dict(zip(NAMES, (self.offset, self.scale, target), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], features: int | None = None) -> Self | None:
        """Return what `as_arrays` gave, checked; None where ``arrays`` holds no scale.

        Raises
        ------
        ValueError
            For numbers that nothing can be standardised by, whoever sent them.
        """
        if "scale" not in arrays:
            return None
        missing = [name for name in NAMES if name not in arrays]
        if missing:
            raise ValueError(f"a scale without {', '.join(missing)}")
        offset, scale, target = (np.asarray(arrays[name]) for name in NAMES)
        shape = (features,) if features is not None else scale.shape
        if offset.shape != shape or scale.shape != shape or scale.ndim != 1:
            raise ValueError(
                f"offset {offset.shape} and scale {scale.shape}: one number a feature is needed"
            )
        if target.shape != (2,):
            raise ValueError(f"target {target.shape}: an offset and a scale are needed")
        if any(array.dtype != np.float64 for array in (offset, scale, target)):
            raise ValueError("offset, scale and target must be float64")
        widths = np.append(scale, target[1])
        if not np.all((widths >= _SCALES[0]) & (widths <= _SCALES[1])):
            raise ValueError(f"a scale is not from {_SCALES[0]:g} to {_SCALES[1]:g}")
        if not np.all(np.abs(np.append(offset, target[0])) <= _LARGEST):
            raise ValueError(f"an offset is not finite, or beyond {_LARGEST:g}")
        return cls(offset, scale, float(target[0]), float(target[1]))


@dataclass(frozen=True, kw_only=True)
class StandardisedConfig(StudyConfig):
    """The settings of studies whose features can be in any units.

    Attributes
    ----------
    standardise : ``none`` takes features as they are, without an intercept. ``shared`` maps them by
        the mean and the deviation over all clients' records and adds an intercept, to which the
        ridge applies as well: clients tell their sums at enrolment; with secure aggregation only
        the sum over all is told; with ``privacy = "dp"`` a noisy sum of counts by octave, with a
        tenth of the budget. ``public`` takes ``scales``, which costs nothing. ``auto`` is public
        where ``scales`` is given, else shared where that can be, else none, and says so
    scales : public offsets and scales, as ``age:50:15,weight:70:12``, or a csv file with columns
        name, offset and scale, which is read where the run is started [name:offset:scale with
        commas between, or a csv file]
    """

    standardise: str = "none"
    scales: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("standardise", WAYS)
        parsed_scales(self.scales)
        if self.standardise == "public" and not self.scales:
            raise ConfigError(
                "standardise='public': needs scales, as in scales='age:50:15,weight:70:12'"
            )
        if self.scales and self.standardise not in ("public", "auto"):
            raise ConfigError(
                f"scales with standardise={self.standardise!r}: they are for public or auto"
            )
        if self.standardise == "shared" and (why := self.shared_obstacle()):
            raise ConfigError(f"standardise='shared': {why}")

    def shared_obstacle(self) -> str:
        """Return why clients cannot find their common scale; nothing if they can."""
        if self.privacy == "paper" or (self.privacy == "dp" and not self.sums):
            return (
                f"privacy={self.privacy!r} with method={self.method!r} has no counted release for "
                "it; use standardise='public' and scales, or none"
            )
        return ""

    def units(self, apart: bool = False) -> str:
        """Return how features are standardised: none, public, told, summed or noisy.

        ``apart`` says that servers have SuperLinks of their own: no sum is over all clients then.
        """
        if self.standardise == "none":
            return "none"
        if self.scales:
            return "public"
        if apart or self.shared_obstacle():
            return "none"
        if self.privacy == "dp":
            return "noisy"
        return "summed" if self.masked else "told"


def told_at_enrolment(config: StandardisedConfig, apart: bool = False) -> str:
    """Return what enrolment tells more because features are standardised, in words."""
    if config.units(apart) != "told":
        return ""
    return (
        " It is also told the count, means and squared deviations of every client's columns, and "
        "whether its labels are 0 and 1."
    )


def parameter_names(variables: Sequence[str], size: int) -> list[str] | None:
    """Return names of a model's parameters: the features and an intercept; None where unknown."""
    named = [str(name) for name in variables]
    named += [INTERCEPT] if size == len(named) + 1 else []
    return named if size == len(named) == len(set(named)) else None


def is_apart(run_config: Mapping[str, Any]) -> bool:
    """Return whether a run is one of a graph of SuperLinks."""
    server = run_config.get("server", -1)
    return isinstance(server, int) and server >= 0


def parsed_scales(text: str) -> dict[str, tuple[float, float]]:
    """Return offset and scale by name from the setting ``scales``.

    Raises
    ------
    ConfigError
        Names what is wrong with it.
    """
    found: dict[str, tuple[float, float]] = {}
    for part in next(csv.reader([text], skipinitialspace=True), []) if text else []:
        try:
            name, *numbers = part.strip().rsplit(":", 2)
            offset, scale = (float(number) for number in numbers)
        except ValueError:
            raise ConfigError(
                f"scales: {part!r} is not name:offset:scale, as in age:50:15"
            ) from None
        if not (math.isfinite(offset) and math.isfinite(scale) and scale > 0.0):
            raise ConfigError(f"scales: {part!r}: offset must be finite, scale finite and > 0")
        if not name or name in found:
            raise ConfigError(f"scales: {part!r}: " + ("named twice" if name else "has no name"))
        found[name] = offset, scale
    return found


def public_scaling(text: str, features: Sequence[str], numbers: bool) -> Scaling:
    """Return the scaling that the setting ``scales`` names for these features.

    Raises
    ------
    ConfigError
        Where a feature, or a target that is a number, is not named, or a name is of no feature.
    """
    known = parsed_scales(text)
    wanted = [*features, *([TARGET] if numbers else [])]
    missing = [name for name in wanted if name not in known]
    strange = [name for name in known if name not in {*features, TARGET}]
    if missing or strange:
        lacks = f"lacks {missing[:5]}" if missing else ""
        adds = f"names {strange[:5]}, which no client has" if strange else ""
        raise ConfigError(f"scales: {' and '.join(filter(None, (lacks, adds)))}")
    offset, scale = np.array([known[name] for name in features], dtype=np.float64).T
    target = known[TARGET] if numbers else (0.0, 1.0)
    return Scaling(offset.copy(), scale.copy(), *target)


def scales_by_value(value: str) -> str:
    """Return the setting ``scales`` as text: of a csv file its rows, else what it is.

    Raises
    ------
    ConfigError
        For a file that cannot be read, or lacks the columns name, offset and scale.
    """
    path = Path(value)
    if path.suffix.lower() != ".csv":
        return value
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"scales={value!r}: cannot be read ({error})") from None
    if not rows or not {"name", "offset", "scale"} <= set(rows[0]):
        raise ConfigError(f"scales={value!r}: needs the columns name, offset and scale, and rows")
    text = io.StringIO()
    parts = [f"{row['name']}:{row['offset']}:{row['scale']}" for row in rows]
    csv.writer(text, lineterminator="").writerow(parts)
    return text.getvalue()
