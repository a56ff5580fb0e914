"""Studies that live in packages of their own, found by name when no study here has it.

A package says so by an entry point of the group ``trellis.studies``, in its ``pyproject.toml``:

    [project.entry-points."trellis.studies"]
    my-study = "my_package.my_study"

Where it is installed, Python's records have that. Where Flower has sent it as a bundle nothing is
installed: the bundle's own ``pyproject.toml``, beside which its modules are on the path, is read.
Nothing is looked up for a study of this project: `importlib.metadata` is slow to import, and on a
device every message is a process of its own.
"""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from trellis.apps.common.settings import ConfigError

GROUP = "trellis.studies"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class StudyNotLoaded(ImportError):
    """A study of another package that cannot be imported; names both."""


@dataclass(frozen=True)
class Outside:
    """One study of another package.

    Attributes
    ----------
    name : as users call it
    package : where its modules are, ``my_package.my_study``
    source : who says so: an installed package, or a folder
    """

    name: str
    package: str
    source: str


def outside_studies() -> list[Outside]:
    """Return all studies that other packages declare, in the order of their names."""
    return list(_declared(tuple(sys.path)))


def outside_package(study: str) -> str:
    """Return the package of a study that is none of this project's.

    Raises
    ------
    ConfigError
        Where no package has it, where two do, and where it is not declared as it must be.
    """
    found = [one for one in outside_studies() if one.name == study]
    if not found:
        from trellis import apps

        known = [*apps.STUDIES, *(one.name for one in outside_studies())]
        close = difflib.get_close_matches(study, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(f"study={study!r}: {hint}use one of {', '.join(known)}")
    packages = {one.package: one for one in found}
    if len(packages) > 1:
        said = " and ".join(f"{one.package} ({one.source})" for one in packages.values())
        raise ConfigError(f"study={study!r}: {said} both have it; uninstall one of them")
    if why := fault(found[0]):
        raise ConfigError(why)
    return found[0].package


def fault(study: Outside) -> str:
    """Return why a declared study cannot be used; nothing if it can be tried."""
    from trellis import apps

    whose = f"study {study.name!r} of {study.package} ({study.source})"
    if study.name in apps.STUDIES:
        return f"{whose}: Trellis has a study of that name, and runs its own; choose another name"
    if not NAME.fullmatch(study.name):
        return f"{whose}: a study's name is of small letters and digits, with hyphens between"
    if ":" in study.package:
        return f"{whose}: name the package alone, without what stands after the colon"
    return ""


def load(study: str, package: str, part: str) -> ModuleType:
    """Return a module of an outside study.

    Raises
    ------
    StudyNotLoaded
        Where its import fails, for whatever reason; names the study and the package.
    """
    try:
        return import_module(f"{package}.{part}" if part else package)
    except Exception as error:  # whatever another's code does when it is loaded
        said = f"{type(error).__name__}: {error}"
        raise StudyNotLoaded(
            f"study {study!r}: {package}{'.' if part else ''}{part} cannot be loaded ({said}); "
            "the package must be installed wherever the study runs, or be in the Flower app"
        ) from error


def app_folder_of(package: str) -> Path:
    """Return the folder with the ``pyproject.toml`` of the Flower app that a package is in.

    Raises
    ------
    ConfigError
        Where there is none above it: the package was not installed from its folder.
    """
    spec = find_spec(package.partition(".")[0])
    origin = spec.origin if spec is not None else None
    for folder in Path(origin).resolve().parents if origin else ():
        path = folder / "pyproject.toml"
        if path.is_file() and "app" in _toml(path).get("tool", {}).get("flwr", {}):
            return folder
    raise ConfigError(
        f"{package}: no pyproject.toml with [tool.flwr.app] above it; Flower bundles an app from "
        "its folder: install the package by pip install -e FOLDER"
    )


def folders() -> list[Path]:
    """Return the folders of all packages that have studies, as far as they are there."""
    heads = sorted({study.package.partition(".")[0] for study in outside_studies()})
    specs = (find_spec(head) for head in heads)
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]


@lru_cache(maxsize=8)
def _declared(path: tuple[str, ...]) -> tuple[Outside, ...]:
    """Return what is declared on a path; the same of folder and record counts once."""
    found = {(one.name, one.package): one for one in (*_in_folders(path), *_installed())}
    return tuple(sorted(found.values(), key=lambda one: (one.name, one.package)))


def _installed() -> Iterator[Outside]:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        whose = point.dist.name if point.dist is not None else "an unknown package"
        yield Outside(point.name, point.value, f"package {whose}")


def _in_folders(path: tuple[str, ...]) -> Iterator[Outside]:
    """Yield what Flower apps declare whose folders are on the path, as Flower puts them there."""
    for entry in path:
        file = Path(entry or ".") / "pyproject.toml"
        points = _toml(file).get("project", {}).get("entry-points", {}).get(GROUP, {})
        for name, package in points.items():
            yield Outside(str(name), str(package), f"folder {file.parent}")


def _toml(path: Path) -> dict[str, Any]:
    """Return a file's content; nothing where it is not there or cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
