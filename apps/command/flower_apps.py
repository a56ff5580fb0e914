"""The Flower apps' files: ``make apps`` writes all of them, from the config classes.

The ``pyproject.toml`` of the top level has the settings of all studies, each under its study; the
one in ``apps/<study>`` has those of its study by themselves. Neither bundle has any code in it: the
components are those that are installed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trellis import apps
from trellis.apps.common.run_config import COMMON, app_settings, common_settings
from trellis.apps.common.settings import ConfigError, Scalar, config_class
from trellis.sim.run_config import toml

FILE = "pyproject.toml"
_TABLES = re.compile(
    r"^\[tool\.flwr\.app\.config.*?(?=^\[(?!tool\.flwr\.app\.config)|\Z)", re.M | re.S
)
_APP = """\
# Made by make apps from config.py: settings and the names of installed components, no code.
[project]
name = "{study}"
version = "{version}"
description = "{study}, a study of Trellis"
license = "{licence}"
requires-python = "{python}"
# Trellis is installed by whoever runs this: nothing is installed while a run goes on.
dependencies = []

[tool.flwr.app]
publisher = "trellis"
fab-include = ["/{file}"]

[tool.flwr.app.components]
serverapp = "trellis.apps.dispatch:server_app"
clientapp = "trellis.apps.dispatch:client_app"

"""


def study_app(study: str, settings: Mapping[str, Scalar], project: Mapping[str, Any]) -> str:
    """Return the file of a study's own app; ``project`` is the top level's ``[project]``."""
    head = _APP.format(
        study=study,
        version=project["version"],
        licence=project["license"],
        python=project["requires-python"],
        file=FILE,
    )
    return head + table("", {**common_settings(study), **settings})


def with_studies(text: str, studies: Mapping[str, Mapping[str, Scalar]]) -> str:
    """Return the top level's file with the settings of these studies in the place of its own."""
    found = _TABLES.search(text)
    if found is None:
        raise ConfigError(f"{FILE}: no [tool.flwr.app.config] to enter the settings in")
    tables = [table("", COMMON), *(table(name, studies[name]) for name in sorted(studies))]
    return text[: found.start()] + "\n".join(tables) + "\n" + text[found.end() :]


def studies_of(text: str) -> dict[str, dict[str, Scalar]]:
    """Return the settings of all studies in the top level's file."""
    config = tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    return {name: value for name, value in config.items() if isinstance(value, dict)}


def table(name: str, settings: Mapping[str, Scalar]) -> str:
    """Return a table of a Flower app's settings; without a name the one that stands alone."""
    rows = re.sub(r'^"([\w-]+)" =', r"\1 =", toml(settings), flags=re.MULTILINE)
    return f"[tool.flwr.app.config{'.' if name else ''}{name}]\n{rows}"


def texts(root: Path) -> dict[Path, str]:
    """Return what must stand in every app's file of a checkout."""
    top = root / FILE
    before = top.read_text(encoding="utf-8")
    project = tomllib.loads(before)["project"]
    studies = {study: app_settings(config_class(study)) for study in apps.STUDIES}
    found = {top: with_studies(before, studies)}
    for study, settings in studies.items():
        folder = apps.STUDIES[study].rpartition(".")[2]
        found[root / "apps" / folder / FILE] = study_app(study, settings, project)
    return found


def main() -> None:
    """Write the files of this checkout."""
    for path, text in texts(Path(apps.__file__).resolve().parents[1]).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
