"""``kill -9`` anywhere: resumed as often as it takes, a run ends with the same bits."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flower.bits import VOLATILE
from tests.killed_run import PLACES
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import run

ROOT = Path(__file__).parents[2]
_SERVERS = {"servers": 3, "topology": "ring", "clients": 9, "samples": "10", "rounds": 30}
STUDIES = [
    ("server-graph", {**_SERVERS, "method": "none"}),
    ("server-graph", {**_SERVERS, "method": "masked"}),
    ("server-graph", {**_SERVERS, "method": "hybrid", "clip": 1.0}),
    ("server-graph", {**_SERVERS, "privacy": "dp", "epsilon": 5.0, "held-out": 0.3}),
    (
        "cluster-admm",
        {"servers": 3, "topology": "ring", "clients": 9, "features": 5, "clusters": "2"}
        | {"rounds": 30},
    ),
    ("consensus-graph", {"nodes": 6, "clients": 3, "signals": "20", "rounds": 30}),
    (
        "joint-precision",
        {"variables": 6, "blocks": 2, "samples": "40", "clients": 3, "rounds": 30},
    ),
    (
        "gromov-wasserstein",
        {"clients": 3, "graphs": 6, "local-epochs": 1, "downstream": "anomaly", "rounds": 20},
    ),
]
# All places, those within rounds a few of these after the one before.
TIMES = {"round": 3, "result.npz renamed": 1}
KILLS = [f"{place}:{TIMES.get(place, 2)}" for place in PLACES]
# Whatever says when, how long, or where something was.
NOT_THE_SAME = ("started", "seconds", "versions")
# Whoever takes up a run with secure sums agrees on keys with its clients once more.
SENT = ("bytes-up", "bytes-down")


def arguments(study, settings):
    """Return what stands behind ``trellis run``."""
    chosen = {"tolerance": 0.0, **settings}
    return [study, *(part for key, value in chosen.items() for part in ("--set", f"{key}={value}"))]


def whole(study, settings, out):
    """Return the run as it is when nobody kills it."""
    return run(study, {"tolerance": 0.0, **settings}, out=out)


def assert_same_folder(one: Path, other: Path, settings) -> None:
    """Fail where the folders of two runs differ in anything but times, and keys sent again."""
    mine, theirs = RunResult.load(one), RunResult.load(other)
    assert set(mine.arrays) == set(theirs.arrays)
    for name, array in mine.arrays.items():
        assert array.tobytes() == theirs.arrays[name].tobytes(), name
    secure = settings.get("method") in ("masked", "hybrid") or settings.get("privacy") == "dp"
    again = SENT if secure else ()
    tables = [_cells(path / "metrics.csv", (*VOLATILE, *again)) for path in (one, other)]
    assert tables[0] == tables[1]
    headers = [json.loads((path / "run.json").read_text()) for path in (one, other)]
    for name in set(headers[0]) - {*NOT_THE_SAME, *(name.replace("-", "_") for name in again)}:
        assert headers[0][name] == headers[1][name], name
    left = sorted(path.name for path in other.rglob(".*") if path.name not in (".lock", ".written"))
    assert not left  # of what was half done


def _cells(path: Path, without) -> list[list[str]]:
    """Return a table as it is on disk, but for some columns."""
    header, *lines = [line.split(",") for line in path.read_text().split("\n")]
    kept = [i for i, name in enumerate(header) if name not in without]
    return [header, *([line[i] for i in kept if i < len(line)] for line in lines)]


@pytest.mark.parametrize(
    ("study", "settings"), STUDIES, ids=lambda v: v if isinstance(v, str) else str(v)
)
def test_a_run_that_is_killed_wherever_it_writes_ends_with_the_same_bits(study, settings, tmp_path):
    expected = whole(study, settings, tmp_path / "whole")
    assert len(expected.metrics) >= settings["rounds"]
    command = [sys.executable, str(ROOT / "tests" / "killed_run.py"), str(tmp_path / "killed")]
    done = subprocess.run(
        [*command, ",".join(KILLS), *arguments(study, settings)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert_same_folder(tmp_path / "whole", tmp_path / "killed", settings)


# So many rounds that none of the kills comes when all is done.
@pytest.mark.parametrize(("method", "rounds"), [("none", 1500), ("masked", 400)])
def test_a_process_that_is_killed_at_any_moment_ends_with_the_same_bits(method, rounds, tmp_path):
    settings = {**_SERVERS, "rounds": rounds, "method": method}
    whole("server-graph", settings, tmp_path / "whole")
    out, moments = tmp_path / "killed", random.Random(1)
    command = [sys.executable, "-m", "trellis", "run", *arguments("server-graph", settings)]
    for at in (1, 60, 200):
        again = ["--resume", str(out)] if (out / "run.json").is_file() else ["--out", str(out)]
        with subprocess.Popen([*command, *again], cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and _lines(out / "metrics.csv") <= at:
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.05))
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert json.loads((out / "run.json").read_text())["status"] == "running"
    subprocess.run([*command, "--resume", str(out)], cwd=ROOT, check=True, capture_output=True)
    assert_same_folder(tmp_path / "whole", out, settings)


def _lines(path: Path) -> int:
    """Return how many lines another process has written so far."""
    return path.read_bytes().count(b"\n") if path.is_file() else 0
