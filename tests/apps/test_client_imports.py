"""What a device's process loads for one message: of every study, for every kind of message.

Flower starts a new process for each message, so what is loaded is paid for each time. Every message
here is one that a real run has sent, answered in a process of its own by a device with files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.devices import CASES, record_messages

ROOT = Path(__file__).parents[2]
NEVER = {
    *("matplotlib", "networkx", "sklearn", "pandas", "joblib", "ray", "ot", "cvxpy", "jinja2"),
    *("dp_accounting", "numba", "scipy.stats", "scipy.spatial", "scipy.ndimage", "sim"),
    *("strategies.core.base", "strategies.core.secure", "privacy.secagg.server"),
}
TORCH = {"torch", "torch_geometric"}
# Whole packages of scipy; single files of it are loaded by `privacy.numerics`, under no name.
SCIPY = {"scipy.linalg", "scipy.special", "scipy.optimize", "scipy.sparse"}
SECURE = {"privacy.secagg.protocol"}
PERSONAL = "query.personal"


def may_load(study: str, kind: str) -> set[str]:
    """Return what a message of this kind may load of all that."""
    allowed = SECURE if "secagg" in kind else set()
    if study == "gromov-wasserstein" and kind in ("train.secagg_masked", "query.embed", PERSONAL):
        # torch brings what it likes.
        return allowed | TORCH | SCIPY | {name for name in NEVER if "." not in name or "sc" in name}
    if kind == PERSONAL:
        # The last message of a run; local fits take longer than this does.
        return allowed | SCIPY | {"scipy.spatial"}
    return allowed


@pytest.mark.parametrize("name", list(CASES))
def test_a_message_loads_what_it_needs_and_no_more(name, tmp_path):
    case = CASES[name]
    messages = record_messages(case, tmp_path)
    assert "query.enrol" in messages
    if "sound" in name:
        assert "train.secagg_masked" in messages
    watched = NEVER | TORCH | SCIPY | SECURE
    for kind, file in messages.items():
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.devices", str(file)],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert done.returncode == 0, f"{kind}: {done.stderr[-2000:]}"
        loaded = set(done.stdout.splitlines()[-1].split())
        assert loaded & watched <= may_load(case.study, kind), f"{name}, {kind}"
        assert f"apps.{case.study.replace('-', '_')}.client_app" in loaded
