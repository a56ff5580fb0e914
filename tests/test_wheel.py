"""Trellis from a wheel, without a clone and with the core dependencies only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.wheels import PARTS, ROOT, Environment, build_wheel

# An app with folders of the names that this repository's top level has.
STRATEGY = """\
from flwr.serverapp.strategy import FedAvg
from trellis.strategies.core.rules import RULES

class Own(FedAvg):
    known = RULES
"""
APP = """\
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from strategies.own import Own

server_app, client_app = ServerApp(), ClientApp()
found = {}

@server_app.main()
def main(grid, context):
    own = Own(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    result = own.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
    found["mean"] = result.arrays.to_numpy_ndarrays()[0].tolist()

@client_app.train()
def train(message, context):
    k = context.node_config["partition-id"]
    content = {"arrays": ArrayRecord([np.full(2, k)]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)
"""
RUN_APP = """\
import json, trellis
from apps.app import client_app, found, server_app
from trellis.sim.grid import run_local
run_local(server_app, client_app, [{"partition-id": k} for k in range(3)], {})
print(json.dumps({**found, "trellis": trellis.__file__, "sum": trellis.secure_sum(
    {"a": [1.0], "b": [2.0], "c": [4.0]}).tolist()}))
"""
# What others write against Trellis, beside the package that trellis new makes.
TYPED = """\
import trellis
from trellis.apps.common.settings import StudyConfig, config_class
from trellis.strategies.node_strategy import NodeStrategy

result: trellis.Result = trellis.run("consensus-graph", data=None, rounds=2)
total: float = float(trellis.secure_sum({"a": [1.0], "b": [2.0]}).sum())
graph: trellis.LearnedGraph = result.graph("consensus")
kind: type[StudyConfig] = config_class("consensus-graph")
name: str = NodeStrategy.__name__
trellis.run(5)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory) -> Environment:
    return Environment.create(tmp_path_factory.mktemp("core") / "venv", wheel)


@pytest.fixture
def elsewhere(tmp_path) -> Path:
    """A folder with folders of our names in it, which nobody may take for ours."""
    for name in PARTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not Trellis')\n")
    return tmp_path


def test_it_holds_every_file_of_the_package_once_and_nothing_else(wheel):
    suffixes = (".md", ".py", ".template", ".toml")
    package = {
        path.relative_to(ROOT).as_posix()
        for name in PARTS
        for path in (ROOT / name).rglob("*")
        if path.suffix in suffixes
    }
    top = {f"trellis/{path.name}" for path in (ROOT / "trellis").glob("*.py")}
    names = zipfile.ZipFile(wheel).namelist()
    assert max(Counter(names).values()) == 1
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == {*top, "trellis/py.typed", *(f"trellis/{name}" for name in package)}
    (listed,) = [name for name in names if name.endswith("top_level.txt")]
    assert zipfile.ZipFile(wheel).read(listed).split() == [b"trellis"]


def test_a_study_runs_where_others_have_folders_of_our_names(core, elsewhere):
    core.run("trellis", "run", "consensus-graph", "--set", "rounds=2", "--out", "a", cwd=elsewhere)
    core.run(
        "python", "-m", "trellis", "run", "consensus-graph", "--set", "rounds=3", "--out", "b",
        cwd=elsewhere,
    )  # fmt: skip
    assert json.loads((elsewhere / "a" / "run.json").read_text())["status"] == "completed"
    core.run("trellis", "compare", "a", "b", cwd=elsewhere)


def test_commands_find_their_pages_and_samples(core, elsewhere):
    assert "joint-precision" in core.run("trellis", "list", cwd=elsewhere)
    about = core.run("trellis", "info", "consensus-graph", cwd=elsewhere)
    page = Path(about.partition("Read on:")[2].strip())
    assert page == core.site / "trellis" / "apps" / "consensus_graph" / "README.md"
    assert page.is_file()
    core.run("trellis", "sample", "consensus-graph", "data", "--clients", 3, cwd=elsewhere)
    assert len(list((elsewhere / "data").glob("*.csv"))) == 3


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("laptop", ("run", "consensus-graph", "--engine", "flower")),
        ("gnn", ("run", "gromov-wasserstein")),
        ("laptop", ("case", "hospitals", "--out", "case")),
    ],
)
def test_what_needs_more_names_the_wheel_that_brings_it(core, wheel, elsewhere, extra, arguments):
    shown = core.run("trellis", *arguments, cwd=elsewhere, code=1)
    assert f"pip install 'trellis[{extra}] @ {wheel.as_uri()}'" in shown


def test_a_study_of_one_s_own_is_a_package(core, elsewhere):
    refused = core.run("trellis", "new", "trial-pool", cwd=elsewhere, code=1)
    assert "trellis new NAME --package DIR" in refused
    made = core.run("trellis", "new", "trial-pool", "--package", "mine", cwd=elsewhere)
    assert "pip install --no-deps -e mine" in made
    # As Flower and an editable install have it: the folder is on the path.
    package = elsewhere / "mine"
    core.run("python", "-m", "trellis", "run", "trial-pool", "--out", "a", cwd=package)
    assert json.loads((package / "a" / "run.json").read_text())["status"] == "completed"


def test_the_flower_app_of_a_study_is_made_of_settings(core, elsewhere):
    code = (
        "import io, zipfile\n"
        "from flwr.cli.build import build_fab_from_disk\n"
        "from trellis.apps import STUDIES\n"
        "from trellis.apps.common.runner import app_folder\n"
        "for study in STUDIES:\n"
        "    fab = io.BytesIO(build_fab_from_disk(app_folder(study)))\n"
        "    print(study, *sorted(zipfile.ZipFile(fab).namelist()))\n"
        "print('folder', app_folder('server-graph'))\n"
    )
    shown = core.run("python", "-P", "-c", code, cwd=elsewhere).splitlines()
    *apps, (_, folder) = [line.split() for line in shown]
    assert len(apps) == 5
    assert all(files == [".info/CONTENT", "pyproject.toml"] for _, *files in apps)
    assert not Path(folder).parent.exists()  # it is gone with the process


def test_an_app_with_strategies_of_its_own(core, tmp_path):
    for name, text in {"strategies/own.py": STRATEGY, "apps/app.py": APP}.items():
        path = tmp_path / name
        path.parent.mkdir()
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    shown = core.run("python", "-c", RUN_APP, cwd=tmp_path).splitlines()
    (found,) = [json.loads(line) for line in shown if line.startswith("{")]  # the rest is a log
    assert found == {
        "mean": [1.0, 1.0],
        "trellis": str(core.site / "trellis" / "__init__.py"),
        "sum": [7.0],
    }


def test_what_others_write_is_checked_against_our_types(core, tmp_path):
    core.run("trellis", "new", "trial-pool", "--package", "mine", cwd=tmp_path)
    (tmp_path / "mine" / "typed.py").write_text(TYPED)
    options = ("--strict", "--no-incremental", "--python-executable", core.program("python"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "-p", "trial_pool", "-m", "typed"],
        cwd=tmp_path / "mine",
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    *errors, _ = done.stdout.splitlines()
    # The last line of what is checked is wrong: the types are read, not taken for Any.
    last = TYPED.count("\n")
    assert [line.split(" error: ")[0] for line in errors] == [f"typed.py:{last}:"], done.stdout
