"""``trellis device``: what an owner reads about their device."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from trellis import apps
from trellis.apps.command import main
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import config_class
from trellis.sim.grid import LocalGrid


@pytest.fixture
def node(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).standard_normal((100, 5)))
    policy = tmp_path / "policy.toml"
    assert main(["device", "policy", "--example", str(policy)]) == 0
    state = str(tmp_path / "state")
    return {"data-path": str(tmp_path / "x.npz"), "state-path": state, "policy": str(policy)}


def enrol(node, **settings):
    config = config_class("joint-precision").from_settings(settings)
    run_config = {"study": "joint-precision", "seed": 1, "out": "", **config.run_config()}
    with LocalGrid(apps.client_app, [node], run_config) as grid:
        messages = [Message(RecordDict(), n, "query.enrol") for n in grid.get_node_ids()]
        list(grid.send_and_receive(messages))
        return str(grid.run.run_id)


def whole_run(node, folder, **settings):
    """Make a run of five devices, of which this is one; return its id."""
    run_config = make_run_config("joint-precision", {"clients": 5, **settings})
    nodes = [node, *({**node, "state-path": str(folder / f"other-{k}")} for k in range(4))]
    nodes = [{**each, "name": f"device-{k}"} for k, each in enumerate(nodes)]
    grid = LocalGrid(apps.client_app, nodes, run_config)
    with grid:
        apps.server_app(grid, Context(grid.run.run_id, 1, {}, RecordDict(), run_config))
        return str(grid.run.run_id)


def says(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main(["device", *map(str, arguments)]) == code
    return " ".join(capsys.readouterr().out.split())


def test_an_owner_reads_the_policy_the_ledger_and_the_log(node, tmp_path, capsys):
    good = whole_run(node, tmp_path, privacy="dp", epsilon=0.5)
    bad = enrol(node, privacy="none")
    state = tmp_path / "state"
    for path in (node["policy"], state):
        words = says(capsys, "policy", path)
        assert "at most epsilon 3 over all runs, at most 1 by one run" in words
        assert "Classes that a run may name: none." in words
        assert "at least 5 clients" in words
    words = says(capsys, "ledger", state)
    assert f"joint-precision, run {good}" in words
    assert "all: 1 releases, epsilon 0.5 at delta 1e-05" in words
    assert "the owner allows epsilon 3" in words
    words = says(capsys, "log", state)
    assert f"enrolled joint-precision run {good} query.enrol" in words
    assert f"refused joint-precision run {bad} query.enrol" in words
    assert "this device requires privacy='dp'" in words
    assert "release" not in says(capsys, "log", state, "--last", 1)


def test_errors_are_shown_with_code_and_trace(node, tmp_path, capsys):
    enrol({**node, "data-path": str(tmp_path / "gone.csv")}, privacy="dp")
    words = says(capsys, "log", tmp_path / "state")
    assert "[E3: the data cannot be used, the computation failed" in words
    assert "gone.csv" in words
    assert "Traceback" not in words
    assert "Traceback" in says(capsys, "log", tmp_path / "state", "--traces")


def test_mistakes_are_told(node, tmp_path, capsys):
    assert "File exists" in says(capsys, "policy", "--example", node["policy"], code=1)
    assert "no such folder" in says(capsys, "ledger", tmp_path / "nowhere", code=1)
    assert "no such folder" in says(capsys, "log", tmp_path / "nowhere", code=1)
    assert "cannot be read" in says(capsys, "policy", tmp_path / "nowhere.toml", code=1)
    (tmp_path / "bad.toml").write_text("max-epsilom = 1")
    assert "did you mean 'max-epsilon'" in says(capsys, "policy", tmp_path / "bad.toml", code=1)
    assert "nothing has happened" in says(capsys, "log", tmp_path)
