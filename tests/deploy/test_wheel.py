"""Flower's runtimes with Trellis from a wheel: devices on loopback, the simulation, a thin app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.wheels import Environment, build_wheel
from trellis.sim.processes import free_port

from .site import processes_of

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]
STUDY = "consensus-graph"
ROUNDS = ("--set", "rounds=2")
LONG = 600.0  # seconds for one command, on a busy machine
# All that an app of one's own needs, where Trellis is installed.
THIN_APP = """\
[project]
name = "thin"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "somebody"

[tool.flwr.app.components]
serverapp = "trellis.apps.dispatch:server_app"
clientapp = "trellis.apps.dispatch:client_app"

[tool.flwr.app.config]
study = "consensus-graph"
out = ""
consensus-graph.clients = 3
consensus-graph.rounds = 2
"""
RUN_THIN_APP = """\
import sys
from pathlib import Path
from trellis.sim.flower import simulate
simulate(Path("thin"), {"out": sys.argv[1]}, nodes=3).check()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def status(folder: Path) -> tuple[str, str]:
    result = json.loads((folder / "run.json").read_text())
    return result["status"], result["engine"]


def test_devices_need_the_core_dependencies_only(wheel, tmp_path):
    core = Environment.create(tmp_path / "venv", wheel)

    def trellis(*arguments: object) -> str:
        return core.run("trellis", *arguments, cwd=tmp_path, timeout=LONG)

    trellis("sample", STUDY, "data", "--clients", 3)
    trellis("deploy", "init", "site", "--open", "--data", "data", "--port", free_port())
    try:
        trellis("deploy", "up", "site")
        trellis("deploy", "run", "site", STUDY, *ROUNDS, "--out", "out")
    finally:
        trellis("deploy", "down", "site")
    assert processes_of(tmp_path / "site") == []
    assert status(tmp_path / "out") == ("completed", "deployment")


def test_the_simulation_needs_the_laptop_extra(wheel, tmp_path):
    laptop = Environment.create(tmp_path / "venv", wheel, "laptop")
    arguments = ("run", STUDY, "--engine", "flower", *ROUNDS, "--set", "clients=3", "--out", "out")
    laptop.run("trellis", *arguments, cwd=tmp_path, timeout=LONG)
    assert status(tmp_path / "out") == ("completed", "flower")
    assert (tmp_path / "out" / "report.html").is_file()
    (tmp_path / "thin").mkdir()
    (tmp_path / "thin" / "pyproject.toml").write_text(THIN_APP)
    out = tmp_path / "thin-out"
    laptop.run("python", "-c", RUN_THIN_APP, out, cwd=tmp_path, timeout=LONG)
    assert status(out) == ("completed", "flower")
