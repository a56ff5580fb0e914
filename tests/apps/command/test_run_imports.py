"""What `trellis run` loads for a small study beyond Flower: what it uses, and no more.

A run of a few clients takes less time than most packages take to import.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.command_start import SMALL, SMALL_DP

ROOT = Path(__file__).parents[3]
STATEMENT = """
import json, sys
from trellis.apps.command import main
assert main(json.loads(sys.argv[1])) == 0
print("loaded", *sorted(sys.modules))
"""

NEVER = {
    *("ray", "cvxpy", "numba", "sympy", "torch_geometric", "torch._dynamo", "optuna"),
    *(
        "trellis.strategies.network.bridges",
        "trellis.strategies.network.member",
        "trellis.sim.flower",
        "trellis.sim.deployment",
    ),
}
REPORT = {
    "matplotlib",
    "networkx",
    "jinja2",
    "trellis.apps.pages.report",
    "trellis.apps.pages.plots",
}
LEARNING = {"torch", "sklearn", "pandas", "joblib", "ot"}
SCIPY = {
    f"scipy.{part}" for part in ("linalg", "special", "optimize", "sparse", "spatial", "stats")
}
SECURE = {
    "trellis.strategies.core.secure",
    "trellis.privacy.secagg.server",
    "trellis.privacy.secagg.protocol",
}
OPINION = {"dp_accounting"}  # a second opinion on a ledger, which brings scipy
WATCHED = NEVER | REPORT | LEARNING | SCIPY | SECURE | OPINION
NUMPY = sorted(set(SMALL) - {"gromov-wasserstein"})


def loaded(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", STATEMENT, json.dumps(["run", *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("loaded "))
    return set(line.split()[1:])


@pytest.mark.parametrize("study", NUMPY)
def test_a_run_loads_flower_numpy_and_its_study(study):
    found = loaded(study, *SMALL[study])
    # Servers of a graph add up what clients have masked unless they are told otherwise.
    allowed = SECURE if study == "server-graph" else set()
    assert found & WATCHED <= allowed
    others = {
        f"trellis.apps.{name.replace('-', '_')}.server_app" for name in SMALL if name != study
    }
    assert not found & others


@pytest.mark.parametrize("study", NUMPY)
def test_a_sound_run_loads_masks_and_a_second_opinion_too(study):
    found = loaded(study, *SMALL_DP[study])
    assert found & WATCHED <= SECURE | OPINION | SCIPY | {"networkx"}
    assert {"dp_accounting", "trellis.strategies.core.secure"} <= found
    assert not any(name.startswith("matplotlib") for name in found)


def test_graph_neural_networks_bring_torch_and_what_judges_distances():
    found = loaded("gromov-wasserstein", *SMALL["gromov-wasserstein"])
    assert not found & NEVER
    assert not found & {"matplotlib", "jinja2", "trellis.apps.pages.report", *SECURE, *OPINION}


@pytest.mark.parametrize("study", NUMPY)
def test_a_report_brings_what_draws_it(study, tmp_path):
    found = loaded(study, *SMALL[study], "--out", str(tmp_path / "run"))
    assert {"matplotlib", "jinja2"} <= found
    assert not found & (NEVER | LEARNING | OPINION)
    assert (tmp_path / "run" / "report.html").is_file()
