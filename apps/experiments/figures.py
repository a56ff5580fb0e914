"""The papers' figures and tables by name, each imported when it is made and not before.

A study's ``paper/__init__.py`` has ``FIGURES`` and ``ON_REQUEST``, which name a function as
``module:function``, of the same folder.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from apps import STUDIES, study_module
from apps.common.settings import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    Figure = Callable[[Path, Console], None]


def figure_names(study: str) -> list[str]:
    """Return the figures that are made when none is asked for."""
    return list(study_module(study, "paper").FIGURES)


def figure(study: str, name: str) -> Figure:
    """Return what makes a figure in a folder.

    Raises
    ------
    ConfigError
        For a name that the study does not have.
    """
    paper = study_module(study, "paper")
    known: dict[str, str] = {**paper.FIGURES, **paper.ON_REQUEST}
    if name not in known:
        raise ConfigError(f"{name}: unknown figure; use one of {', '.join(known)}")
    module, _, function = known[name].partition(":")
    found: Figure = getattr(import_module(f"{STUDIES[study]}.paper.{module}"), function)
    return found
