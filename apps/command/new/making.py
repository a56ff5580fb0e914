"""Writing a new study: the files of the template under its name, and where studies are listed."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path

from trellis import apps
from trellis.apps.command.flower_apps import studies_of, study_app, table, with_studies
from trellis.apps.common.run_config import COMMON, app_settings
from trellis.apps.common.settings import ConfigError, Scalar, StudyConfig

from .naming import check_importable, check_in_checkout, check_name, folder_of, title_of

TEMPLATE = Path(__file__).parent / "template"
SUFFIX = ".template"
# Where files of the template go in a package of its own; what is not named here stays out.
_PLACES = {
    "apps/my_study/": "my_study/",
    "strategies/my_study/strategy.py": "my_study/strategy.py",
    "tests/apps/my_study/": "tests/",
    "tests/strategies/my_study/test_strategy.py": "tests/test_strategy.py",
    "package/gitignore": ".gitignore",  # a wheel leaves out what begins with a dot
    "package/": "",
}
# What its modules are called then.
_MODULES = {
    "trellis.strategies.my_study.strategy": "my_study.strategy",
    "trellis.apps.my_study": "my_study",
    "apps/my_study": "my_study",
}
_ONLY_PACKAGES = "package/"


def make_study(name: str, root: Path | None = None) -> list[Path]:
    """Write a study into a checkout and register it; return the new files.

    Raises
    ------
    ConfigError
        Where the name cannot be had, or a file of it is there. Nothing is written then.
    """
    root = root or Path(apps.__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file() or not (root / "tests").is_dir():
        raise ConfigError(
            "a study is made in a clone of the project (an editable install); elsewhere make a "
            "package of its own: trellis new NAME --package DIR"
        )
    check_name(name)
    check_in_checkout(name, root)
    files = {
        root / _named(place, name): _named(text, name)
        for place, text in _template()
        if not place.startswith(_ONLY_PACKAGES)
    }
    listed, top = root / "apps" / "__init__.py", root / "pyproject.toml"
    before = {path: path.read_text() for path in (listed, top)}
    written: list[Path] = []
    try:
        _write(files, written)
        folder = root / "apps" / folder_of(name)
        settings = _defaults(folder / "config.py")
        project = tomllib.loads(before[top])["project"]
        _write({folder / "pyproject.toml": study_app(name, settings, project)}, written)
        listed.write_text(_with_study(before[listed], name))
        studies = {**studies_of(before[top]), name: settings}
        top.write_text(with_studies(before[top], studies))
    except BaseException:
        for path, text in before.items():
            path.write_text(text)
        _remove(written, root)
        raise
    _tidy(written, root)
    return written


def make_package(name: str, folder: Path) -> list[Path]:
    """Write a study as a package of its own into a new folder; return its files.

    Raises
    ------
    ConfigError
        Where the name cannot be had, or the folder is not empty. Nothing is written then.
    """
    check_name(name)
    check_importable(name)
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: is not an empty folder; name a new one")
    files = {}
    for place, text in _template():
        found = next((start for start in _PLACES if place.startswith(start)), None)
        if found is not None:
            there = _PLACES[found] + place.removeprefix(found)
            files[folder / _named(there, name)] = _named(_outside(text), name)
    written: list[Path] = []
    try:
        _write(files, written)
        settings = _defaults(folder / folder_of(name) / "config.py")
        app = folder / "pyproject.toml"
        tables = table("", {**COMMON, "study": name}) + "\n" + table(name, settings)
        app.write_text(app.read_text() + "\n" + tables)
    except BaseException:
        _remove(written, folder)
        raise
    _tidy(written, folder)
    return written


def _template() -> Iterable[tuple[str, str]]:
    """Yield place and text of every file of the template."""
    for path in sorted(TEMPLATE.rglob(f"*{SUFFIX}")):
        yield path.relative_to(TEMPLATE).as_posix().removesuffix(SUFFIX), path.read_text()


def _named(text: str, name: str) -> str:
    """Return a text with the study's name in the place of the template's."""
    names = {"my-study": name, "my_study": folder_of(name), "MyStudy": title_of(name)}
    return re.sub("|".join(names), lambda found: names[found.group()], text)


def _outside(text: str) -> str:
    """Return a text as it is in a package of its own."""
    for inside, outside in _MODULES.items():
        text = text.replace(inside, outside)
    return text


def _write(files: Mapping[Path, str], written: list[Path]) -> None:
    """Write files that are not there yet; ``written`` gets each that is begun."""
    if there := [path for path in files if path.exists()]:
        raise ConfigError(f"{there[0]}: is there already, and nothing is overwritten")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            written.append(path)
            file.write(text)


def _remove(files: Iterable[Path], root: Path) -> None:
    """Take back what was written of a study that could not be made."""
    for path in files:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == root or not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()


def _defaults(path: Path) -> dict[str, Scalar]:
    """Return all settings of a study as an app has them, from its ``config.py``."""
    package = types.ModuleType("_trellis_new")  # its modules import each other
    package.__path__ = [str(path.parent)]
    sys.modules[package.__name__] = package
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(f"{package.__name__}.{path.stem}")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == package.__name__]:
            del sys.modules[name]
    own = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, StudyConfig) and hasattr(kind, "study")
    ]
    return app_settings(own[0])


def _with_study(text: str, name: str) -> str:
    """Return ``apps/__init__.py`` with one study more."""
    found = re.search(r"^STUDIES = \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ConfigError("apps/__init__.py: no STUDIES to enter the study in")
    lines = [*found.group(1).splitlines(), f'    "{name}": "trellis.apps.{folder_of(name)}",']
    listed = "\n".join(sorted(lines)) + "\n"
    return text[: found.start(1)] + listed + text[found.end(1) :]


def _tidy(files: Iterable[Path], root: Path) -> None:
    """Sort imports and wrap lines anew, as the name's length has it; where ruff is there."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    code = [str(path) for path in files if path.suffix == ".py"]
    if ruff is None:
        return
    for step in (
        ["check", "--quiet", "--no-cache", "--select", "I", "--fix"],
        ["format", "--quiet", "--no-cache"],
    ):
        subprocess.run([ruff, *step, *code], cwd=root, check=False, capture_output=True)
