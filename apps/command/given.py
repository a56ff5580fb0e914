"""Settings as they are given on the command line and in files."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trellis import apps
from trellis.apps.common.settings import ConfigError


class StudyNames:
    """The studies that a command takes, those of other packages and ``more`` words included.

    What other packages have is looked up when a word is none of ours, or when all are to be named.
    """

    def __init__(self, *more: str) -> None:
        self.more = more

    def __contains__(self, word: object) -> bool:
        return word in apps.STUDIES or word in self.more or word in self._outside()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*apps.STUDIES, *self._outside(), *self.more)))

    def _outside(self) -> list[str]:
        from trellis.apps.outside import outside_studies

        return [study.name for study in outside_studies()]


def add_settings(command: argparse.ArgumentParser) -> None:
    """Let a subcommand take ``--set KEY=VALUE``."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="a setting of the study; may be repeated",
    )


def assignments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given as ``--set KEY=VALUE``."""
    settings = {}
    for assignment in options.settings:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise ConfigError(f"--set {assignment}: write KEY=VALUE")
        settings[key.strip().removeprefix(f"{options.study}.")] = _value(text.strip())
    return settings


def settings_file(path: Path, study: str) -> dict[str, Any]:
    """Return the settings of ``study`` in a TOML file, flat or in a table of the study's name."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None
    if content.pop("study", study) != study:
        raise ConfigError(f"{path}: settings of another study")
    if study in content:
        content |= content.pop(study)
    return content


def _value(text: str) -> Any:
    """Return a setting typed as TOML; what is not TOML is text, so quotes are not needed."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text
