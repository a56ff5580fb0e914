"""What a user is told of a run in Flower's simulation: as in process, in one line."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.common.progress import listening
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import app_folder, make_run_config
from trellis.apps.common.settings import ConfigError
from trellis.sim.flower import simulate
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"
pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("one_superlink"),
]


def test_bad_files_are_told_once_by_their_clients_names(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("east", "north", "west"):
        rows = "\n".join(",".join(map(str, row)) for row in rng.normal(size=(12, 3)))
        rows = rows if name == "east" else "1,two,3"
        (tmp_path / f"{name}.csv").write_text(f"x,y,z\n{rows}\n")
    with pytest.raises(StudyError) as error:
        run(STUDY, data=tmp_path, out=tmp_path / "out", engine="flower")
    told = str(error.value)
    for name in ("north", "west"):
        assert told.count(f"{name}: {tmp_path / name}.csv: row 1, column 'y' is 'two', not a") == 1
    assert "1 of 3 clients could be enrolled. north: " in told
    assert "node " not in told
    assert "Traceback" not in told


def test_a_run_is_followed_and_not_written_over(tmp_path):
    settings = {"nodes": 6, "clients": 3, "signals": "20", "rounds": 3, "tolerance": 0.0}
    heard = []
    with listening(lambda study, rounds, row: heard.append((study, rounds, row["round"]))):
        run(STUDY, settings, out=tmp_path, engine="flower")
    assert heard == [(STUDY, 3, float(number)) for number in (1, 2, 3)]
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(ConfigError, match="holds a run of consensus-graph"):
        run(STUDY, settings, out=tmp_path, engine="flower")
    # The ServerApp refuses it by itself, where nobody has looked before.
    config = make_run_config(STUDY, settings) | {"out": str(tmp_path)}
    ended = simulate(app_folder(STUDY), config, nodes=3)
    assert not ended.ok
    assert "holds a run of consensus-graph" in ended.log
    assert (tmp_path / "run.json").read_bytes() == before
    again = run(STUDY, {**settings, "rounds": 2}, out=tmp_path, engine="flower", force=True)
    assert again.status == RunResult.load(tmp_path).status == "completed"
    assert len(again.metrics) == 2
