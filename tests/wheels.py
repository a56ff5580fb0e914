"""A wheel of this tree, and environments that have it and nothing else of this tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PARTS = ("apps", "privacy", "sim", "strategies")
# What would lead back to this tree, or change what is printed.
_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "FLWR_HOME", "OMP_NUM_THREADS")


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of what it is made of; without a network."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("trellis", *PARTS):
        made = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=made)
    _pip("wheel", source, "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Trellis from a wheel.

    Packages that Trellis depends on are links to those of this Python: nothing is downloaded, and
    nothing is there that the wheel and the extras do not ask for.
    """

    folder: Path

    @classmethod
    def create(cls, folder: Path, wheel: Path, *extras: str) -> Environment:
        """Make an environment with a wheel and what the wheel and its extras need."""
        venv.create(folder, symlinks=True)
        made = cls(folder)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = list(project["dependencies"])
        for extra in extras:
            needed += project["optional-dependencies"][extra]
        seen: set[tuple[str, str]] = set()
        for text in needed:
            made._link(Requirement(text), seen)
        to = ("--python", made.program("python"))
        _pip(*to, "install", "--no-deps", "--no-index", "--no-compile", wheel)
        return made

    @property
    def site(self) -> Path:
        """Its site-packages."""
        major, minor = sys.version_info[:2]
        return self.folder / "lib" / f"python{major}.{minor}" / "site-packages"

    def program(self, name: str) -> str:
        """Return the path of one of its programs."""
        return str(self.folder / "bin" / name)

    def run(
        self, program: str, *arguments: object, cwd: Path, code: int = 0, timeout: float = 250.0
    ) -> str:
        """Run one of its programs; return what it printed."""
        kept = {key: value for key, value in os.environ.items() if key not in _LEFT_OUT}
        paths = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            [self.program(program), *map(str, arguments)],
            cwd=cwd,
            env={**kept, "PATH": paths, "COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _link(self, wanted: Requirement, seen: set[tuple[str, str]]) -> None:
        """Link a package and all that it needs; what is seen is not looked at again."""
        found = distribution(wanted.name)
        for extra in ("", *sorted(wanted.extras)):
            if (found.name, extra) in seen:
                continue
            seen.add((found.name, extra))
            if not extra:
                self._link_files(found)
            for text in found.requires or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    self._link(needed, seen)

    def _link_files(self, found: Distribution) -> None:
        for path in found.files or []:
            first, here = path.parts[0], Path(str(found.locate_file(path)))
            if path.parts[-2:-1] == ("bin",) and first == "..":
                _, _, rest = here.read_bytes().partition(b"\n")
                script = Path(self.program(here.name))
                script.write_bytes(f"#!{self.program('python')}\n".encode() + rest)
                script.chmod(0o755)
            elif first not in ("..", "__pycache__") and not (self.site / first).exists():
                (self.site / first).symlink_to(str(found.locate_file(first)))


def _pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
