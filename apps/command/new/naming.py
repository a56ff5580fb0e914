"""Which names a new study can have, and what it is called in code."""

from __future__ import annotations

import keyword
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

from trellis import apps
from trellis.apps.common.settings import ConfigError
from trellis.apps.outside import NAME, outside_studies

LONGEST = 32  # of a Flower app's name
# Words of the command, and folders of a checkout.
_TAKEN = ("all", "apps", "benchmarks", "docs", "privacy", "sim", "strategies", "tests", "trellis")


def folder_of(name: str) -> str:
    """Return what a study's folder is called, ``my_study``."""
    return name.replace("-", "_")


def title_of(name: str) -> str:
    """Return what a study's classes begin with, ``MyStudy``."""
    return "".join(part.capitalize() for part in name.split("-"))


def check_name(name: str) -> None:
    """Refuse what no study can be called, wherever it lives.

    Raises
    ------
    ConfigError
        Names the reason.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r}: a study's name is of small letters and digits, with hyphens between, as in "
            "my-study; it begins with a letter"
        )
    if len(name) > LONGEST:
        raise ConfigError(f"{name!r}: has {len(name)} letters; {LONGEST} at most")
    if keyword.iskeyword(folder_of(name)):
        raise ConfigError(f"{name!r}: is a word of Python's own; choose another name")
    if name in _TAKEN:
        raise ConfigError(f"{name!r}: has another meaning here; choose another name")
    if name in apps.STUDIES:
        raise ConfigError(f"{name!r}: there is such a study, {apps.STUDIES[name]}")
    for study in outside_studies():
        if study.name == name:
            raise ConfigError(f"{name!r}: there is such a study, {study.package} ({study.source})")


def check_in_checkout(name: str, root: Path) -> None:
    """Refuse what is called so already in a checkout.

    Raises
    ------
    ConfigError
        Names what is.
    """
    folder = folder_of(name)
    for package in ("apps", "strategies"):
        for path in (root / package / folder, root / package / f"{folder}.py"):
            if path.exists():
                raise ConfigError(f"{name!r}: {path.relative_to(root)} is there; choose another")
    if folder in _ignored(root):
        raise ConfigError(f"{name!r}: .gitignore leaves out what is called so; choose another")
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    if name in settings:
        raise ConfigError(f"{name!r}: is a key of [tool.flwr.app.config]; choose another")


def check_importable(name: str) -> None:
    """Refuse the name of a package that Python has already.

    Raises
    ------
    ConfigError
        Names it.
    """
    folder = folder_of(name)
    if folder in sys.stdlib_module_names or find_spec(folder) is not None:
        raise ConfigError(f"{name!r}: Python finds another package {folder!r}; choose another name")


def _ignored(root: Path) -> set[str]:
    path = root / ".gitignore"
    lines = path.read_text().splitlines() if path.is_file() else []
    return {line.strip().strip("/") for line in lines if line.strip()}
