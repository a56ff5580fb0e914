"""The commands of the pages: run, or checked as far as they can be without running them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from trellis import apps
from trellis.apps.command import command_parser, main
from trellis.apps.command.given import assignments, settings_file
from trellis.apps.common.settings import config_class
from trellis.apps.experiments.figures import figure
from trellis.apps.tuning.space import read_over, read_spaces
from trellis.privacy.device.policy_file import NODE_KEYS

from .blocks import ROOT

# Subcommands that take minutes, processes or data that a test of pages has not: their options are
# checked here, and what they do is tested there.
CHECKED = {
    "paper": "tests/apps/experiments",
    "deploy": "tests/deploy",
    "device": "tests/apps/command",
    "case": "tests/apps/cases",
    "audit": "tests/privacy",
}
# Of these, what a test of pages can do.
QUICK = ("deploy init", "case hospitals --data-only", "device policy --example")
SHELL = frozenset("$<>|*;&")


class Unknown(ValueError):
    """A command that is neither run nor checked."""


def program(command: str) -> str:
    """Return the name of the program that a command starts; "" where it looks like none."""
    first = re.match(r"(?:\w+=\S* )*(\S+)", command)
    name = first.group(1).removeprefix(".venv/bin/") if first else ""
    if name.endswith("/start.sh"):
        return "start.sh"
    return name if name in PROGRAMS else ""


def must_not_run(command: str) -> bool:
    """Return whether a command is checked only, whatever the page says."""
    if program(command) != "trellis":
        return program(command) not in RUN
    words = arguments(command)
    if any(re.fullmatch(r"[A-Z][A-Z-]+", word) for word in words):
        return True  # FOLDER, NAME: the reader's own
    return words[0] in CHECKED and not " ".join(words).startswith(QUICK)


def arguments(command: str) -> list[str]:
    """Return what stands behind the program's name."""
    words = shlex.split(command, comments=True)
    while re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    return words[1:]


def execute(command: str) -> None:
    """Run a command here and now; in this process where no shell is needed."""
    bare = " ".join(shlex.split(command, comments=True)) if "<<" not in command else command
    if program(command) == "trellis" and SHELL.isdisjoint(bare):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = main(arguments(command))
    else:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-ec", command],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
            timeout=120,
        )
        code, shown = done.returncode, io.StringIO(done.stdout + done.stderr)
    if code != 0:
        raise AssertionError(f"{command}\nends with {code}\n{shown.getvalue()[-3000:]}")


def check(command: str) -> None:
    """Check a command without running it: names, options, settings, figures."""
    name = program(command)
    if not name:
        raise Unknown(f"{command!r}: not a program that is known to tests/docs/commands.py")
    PROGRAMS[name](arguments(command))


def _trellis(words: list[str]) -> None:
    options = command_parser().parse_args(words)
    study = getattr(options, "study", None)
    if words[0] == "paper":
        for wanted in options.figures:
            figure(study, wanted)
        return
    if study not in apps.STUDIES:
        return
    given = assignments(options) if hasattr(options, "settings") else {}
    if (file := getattr(options, "config", None)) is not None and (ROOT / file).exists():
        given |= settings_file(ROOT / file, study)
    kind = config_class(study)
    for key, value in given.items():
        kind.typed(key, value)
    if words[0] == "tune":
        read_spaces(study, read_over(options.over, study))


def _make(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        if "=" not in word and word not in targets:
            raise Unknown(f"make {word}: the Makefile has no such target")


def _pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words:
        for extra in re.findall(r"\[(.+)\]", word):
            for part in extra.split(","):
                if part not in extras["optional-dependencies"]:
                    raise Unknown(f"pip install {word}: there is no extra {part}")


def _flwr(words: list[str]) -> None:
    """Look up the keys of a run config in the app that is run."""
    app = ROOT / words[1] if words[0] == "run" else ROOT
    known = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    for key, _ in _pairs(words, "--run-config"):
        table, _, setting = key.rpartition(".")
        if setting not in (known.get(table, ()) if table else known):
            raise Unknown(f"{key}: not a key of the run config")


def _supernode(words: list[str]) -> None:
    """Look up the keys of a node config."""
    for key, value in _pairs(words, "--node-config"):
        if problem := NODE_KEYS[key](value) if key in NODE_KEYS else "no key of the node config":
            raise Unknown(f"{key}: {problem}")


def _pairs(words: list[str], option: str) -> list[tuple[str, object]]:
    if option not in words:
        return []
    pairs = shlex.split(words[words.index(option) + 1], posix=False)
    return [
        (pair.partition("=")[0], tomllib.loads(f"x = {pair.partition('=')[2]}")["x"])
        for pair in pairs
    ]


def _anything(words: list[str]) -> None:
    """Check nothing: what the reader's own machine has."""


RUN = ("python", "ssh-keygen", "echo", "cat", "ls")
PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "trellis": _trellis,
    "make": _make,
    "pip": _pip,
    "flwr": _flwr,
    "flower-supernode": _supernode,
    **dict.fromkeys(RUN, _anything),
    **dict.fromkeys(("git", "cd", "source", "export", "flower-superlink", "start.sh"), _anything),
    **dict.fromkeys(("tail", "pkill"), _anything),
}
