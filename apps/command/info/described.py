"""What every setting of a study means, in which unit, what it may be, and what it is by default.

All of it comes from the study's config class and from nowhere else: meanings and units from the
section *Attributes* of its docstring, ``name : meaning [unit]``, and of those of the classes it
stands on; ranges from the checks that the class makes; defaults from an object of it. The unit of a
text is its form.
"""

from __future__ import annotations

import difflib
import inspect
import re
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path

from trellis.apps import study_module
from trellis.apps.common.checks.checking import kebab
from trellis.apps.common.checks.limits import Limit
from trellis.apps.common.settings import ConfigError, Scalar, StudyConfig, config_class

_ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<text>.*)", re.DOTALL)
_UNIT = re.compile(r"\s*\[(?P<unit>[^\]]+)\]$")
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


@dataclass(frozen=True)
class Setting:
    """One setting of a study, as it is told to people.

    Attributes
    ----------
    name : kebab-case
    kind : ``int``, ``float``, ``bool`` or ``str``
    meaning : a sentence or two; code stands between double backquotes
    unit : of a number; empty for words and switches
    range : what it may be, in words
    default : as it is typed
    own_data : what it is on a person's own data where it is left open; empty where that is no other
    common : whether every study has it
    """

    name: str
    kind: str
    meaning: str
    unit: str
    range: str
    default: str
    own_data: str
    common: bool


def settings(study: str) -> list[Setting]:
    """Return all settings of a study: its own first, then those that every study has."""
    cls = config_class(study)
    texts, limits, kinds = meanings(cls), cls.limits(), cls.kinds()
    # The methods are a study's own, though every study has the setting.
    common = {kebab(field.name) for field in fields(StudyConfig)} - {"method"}
    on_own_data = cls.for_own_data({})
    found = []
    for name, default in cls().settings().items():
        text, unit = texts.get(name, ("", ""))
        range_ = _range(kinds[name], limits.get(name), unit)
        if name in limits and name in cls.plugin_settings:
            range_ += ", or package.module.Class"
        other = on_own_data.get(name, default)
        found.append(
            Setting(
                name,
                kinds[name],
                text,
                unit if kinds[name] in ("int", "float") else "",
                range_,
                typed(default),
                "" if other == default else typed(other),
                name in common,
            )
        )
    return sorted(found, key=lambda one: (one.common, one.name != "method"))


def setting(study: str, name: str) -> Setting:
    """Return one setting of a study.

    Raises
    ------
    ConfigError
        For a setting that the study does not have; names the nearest.
    """
    known = {one.name: one for one in settings(study)}
    if name not in known:
        close = difflib.get_close_matches(kebab(name), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"trellis info {study} shows all"
        raise ConfigError(f"{name}: unknown setting of {study}; {hint}")
    return known[name]


def meanings(cls: type) -> dict[str, tuple[str, str]]:
    """Return meaning and unit of every setting that the docstrings of a config class explain.

    What a class says stands before what the classes below it say; a unit that it leaves out is
    theirs.
    """
    found: dict[str, tuple[str, str]] = {}
    for part in reversed(cls.__mro__):
        for name, (text, unit) in _attributes(part.__dict__.get("__doc__") or "").items():
            found[name] = text, unit or found.get(name, ("", ""))[1]
    return found


def _attributes(docstring: str) -> dict[str, tuple[str, str]]:
    _, heading, rest = inspect.cleandoc(docstring).partition("Attributes\n----------\n")
    found: dict[str, tuple[str, str]] = {}
    if not heading:
        return found
    section = re.split(r"\n\n\S[^\n]*\n-{3,}\n", rest)[0]
    for entry in re.split(r"\n(?=\S)", section.strip()):
        match = _ENTRY.fullmatch(" ".join(entry.split()))
        if match is None:
            continue
        unit = _UNIT.search(match["text"])
        text = _UNIT.sub("", match["text"])
        for name in match["names"].split(", "):
            found[kebab(name)] = _as_users_write(text), unit["unit"] if unit else ""
    return found


def _as_users_write(text: str) -> str:
    """Return a meaning with settings as they are typed: kebab-case, ``name=value``."""

    def typed_(match: re.Match[str]) -> str:
        inside = re.sub(r' = "?([\w.-]+)"?', r"=\1", match[1])
        plain_name = re.fullmatch(r"[a-z]\w*?_?", inside.partition("=")[0])
        return f"``{kebab(inside) if plain_name and '.' not in inside else inside}``"

    return re.sub(r"``([^`]+)``", typed_, text)


def _range(kind: str, limit: Limit | None, form: str) -> str:
    if limit is None or not limit.told():
        return (form if kind == "str" else "") or _KINDS[kind]
    told = limit.told()
    return f"whole number {told}" if kind == "int" and limit.bounded else told


def typed(value: Scalar) -> str:
    """Return a value as a person types it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value) if value != "" else '""'


def folder(study: str) -> Path:
    """Return the folder of a study's package, wherever that is installed."""
    return Path(str(study_module(study, "config").__file__)).resolve().parent


def about(study: str) -> str:
    """Return what a study learns, in one line."""
    package = import_module(str(study_module(study, "config").__package__))
    first = (package.__doc__ or "").strip().partition("\n")[0]
    return first.removeprefix(f"{study}: ").rstrip(".")
